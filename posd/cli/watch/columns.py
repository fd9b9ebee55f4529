"""The columns of the three lists, as tables: what a row shows in each, and which stay where there is no room."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from posd.cli.app.advice import attention_advice
from posd.cli.app.output import asked
from posd.cli.payments import words
from posd.cli.printing import progress as print_words
from posd.cli.terminals.rows import why
from posd.cli.watch.screen import Glyphs, Line, Span, clip, fit, text_of, width
from posd.cli.watch.state import Document, Kind, Row, Section

#: What stands before a row: the mark of the selected one.
MARK = 2

#: The way of a payment through its seven states: the four ends are told in words beside it.
STEPS: Sequence[tuple[str, str | None]] = (
    ("ack", "TERMINAL_ACKNOWLEDGED"),
    ("card", "CARD_PRESENTED"),
    ("bank", "APPROVAL_REQUESTED"),
    ("end", None),
)
#: That of a print job.
PRINT_STEPS: Sequence[tuple[str, str | None]] = (("wait", "PENDING"), ("print", "IN_PROGRESS"), ("end", None))

#: `reachable` -> how it is told.
REACHABLE: Mapping[bool | None, Span] = {
    True: ("reachable", "green"),
    False: ("no answer", "bold red"),
    None: ("not looked at", "dim"),
}

ASK_A_PERSON = "ask a person"


class Column(NamedTuple):
    """A column: what a row shows in it, the most cells that it takes, and its rank.

    Where there is no room for all, those with the highest ranks go. The last column takes what is left over. `least`
    keeps what stands to its right from moving whenever a word in it is another one.
    """

    cell: Callable[[Row, datetime], Line]
    most: int
    rank: int
    right: bool = False
    least: int = 0


def since(moment: str | None, now: datetime) -> str:
    """Write how long ago something was, by the second: 0:07, 12:34, 3h05, 2d04h."""
    if not moment:
        return "-"
    seconds = max(0, int((now - datetime.fromisoformat(moment)).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if hours < 1:
        return f"{minutes}:{seconds % 60:02}"
    return f"{hours}h{minutes % 60:02}" if days < 1 else f"{days}d{hours % 24:02}h"


def ago(moment: str | None, now: datetime) -> str:
    """Write roughly how long ago something was, so that it seldom changes: now, 5 min, 3 h, 2 d."""
    if not moment:
        return "never"
    minutes = max(0, int((now - datetime.fromisoformat(moment)).total_seconds())) // 60
    if minutes < 1:
        return "now"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h" if minutes < 1440 else f"{minutes // 1440} d"


def _serial(row: Row, _now: datetime) -> Line:
    return ((str(row.document.get("serial") or row.document.get("terminal") or "-"), ""),)


def _reachable(row: Row, _now: datetime) -> Line:
    return (REACHABLE[row.document["reachable"]],)


def _seen(row: Row, now: datetime) -> Line:
    text = ago(row.document["last_seen"], now)
    return (({"now": "seen now", "never": "not seen"}.get(text, f"{text} ago"), "dim"),)


def _place(row: Row, _now: datetime) -> Line:
    reasons = why(row.document)
    return (("; ".join(reasons), "yellow") if reasons else (address(row.document), "dim"),)


def address(terminal: Document) -> str:
    """Return where a terminal is, short: its host and port."""
    return str(terminal["base_url"] or "no address").partition("://")[2] or "no address"


def _age(row: Row, now: datetime) -> Line:
    if row.ended is None:
        return ((since(row.document["created_at"], now), ""),)
    begun = row.document["created_at"]
    return ((since(begun, datetime.fromisoformat(row.ended["at"])) if begun else "-", "dim"),)


def _type(row: Row, _now: datetime) -> Line:
    return (("print" if row.kind is Kind.PRINT_JOB else str(row.document["type"] or "-"), ""),)


def _amount(row: Row, _now: datetime) -> Line:
    return ((asked(row.document.get("amount")), ""),)


def track(row: Row, _now: datetime) -> Line:
    """Return the states that a payment goes through, the present one in brackets."""
    steps = PRINT_STEPS if row.kind is Kind.PRINT_JOB else STEPS
    here = len(steps) - 1 if row.ended is not None else _step(steps, row.document["status"])
    line: list[Span] = []
    for place, (name, _) in enumerate(steps):
        line.append(("·" if place else "", "dim"))
        if place == here:
            line.append((f"[{name}]", "bold cyan"))
        else:
            line.append((name, "" if here is not None and place < here else "dim"))
    return tuple(line)


def _step(steps: Sequence[tuple[str, str | None]], status: str | None) -> int | None:
    states = [state for _, state in steps]
    return states.index(status) if status is not None and status in states else None


def state(row: Row, _now: datetime) -> Line:
    """Return what an open payment waits for, or how it ended."""
    if row.ended is not None:
        result = row.ended["result"]
        return ((result.replace("_", " "), words.RESULTS.get(result, ("yellow", ""))[0]),)
    if row.kind is Kind.PRINT_JOB:
        return ((print_words.state(row.document), "red" if row.document["phase"] == "in_doubt" else ""),)
    text = words.state(row.document)
    if row.document["next_step"] == "ask_person":
        return ((f"{text}: {ASK_A_PERSON}" if text == "in doubt" else ASK_A_PERSON, "bold red"),)
    return ((f"{text}, released" if row.document["released"] else text, "yellow" if text == "in doubt" else ""),)


def _code(row: Row, _now: datetime) -> Line:
    code = "" if row.attention is None else str(row.attention["code"])
    return ((code, "yellow" if row.document["phase"] == "final" else "bold yellow"),)


def _attention_age(row: Row, now: datetime) -> Line:
    return ((ago((row.attention or {}).get("since"), now), "dim"),)


def _to_do(row: Row, _now: datetime) -> Line:
    code = "" if row.attention is None else row.attention["code"]
    if row.kind is Kind.PRINT_JOB:
        return ((print_words.attention_advice(code).words, ""),)
    return ((attention_advice(code, row.document).words, ""),)


def _runs(row: Row, _now: datetime) -> Line:
    """Return what a terminal runs; `runs` of its document is the open payment on it, where that is known."""
    payment = row.document.get("runs")
    if payment is None:
        if row.document["transaction"]:
            return (("busy", ""),)
        return (("free", "dim") if row.document["reachable"] else ("-", "dim"),)
    text = words.state(payment)
    return ((f"{payment['type'] or 'transaction'}: ", ""), (text, "bold red" if text == "in doubt" else ""))


COLUMNS: Mapping[Section, Sequence[Column]] = {
    Section.TERMINALS: (
        Column(_serial, 20, rank=1),
        Column(_reachable, 13, rank=2),
        Column(_runs, 26, rank=3, least=25),
        Column(_seen, 10, rank=5, least=9),
        Column(_place, 200, rank=4),
    ),
    Section.OPEN: (
        Column(_age, 6, rank=2, right=True),
        Column(_serial, 16, rank=1),
        Column(_type, 9, rank=6),
        Column(_amount, 12, rank=4, right=True, least=7),
        Column(track, 19, rank=5),
        Column(state, 200, rank=3),
    ),
    Section.ATTENTION: (
        Column(_attention_age, 6, rank=4, right=True),
        Column(_code, 18, rank=1),
        Column(_serial, 16, rank=2),
        Column(_amount, 12, rank=5, right=True),
        Column(_to_do, 400, rank=3),
    ),
}
#: The last column needs so many cells, or it goes.
LEAST_REST = 12


#: Cells between two columns, and whether each keeps its least width: the first of these that leaves no column out.
SPACINGS = ((2, True), (1, True), (1, False))


class Layout:
    """The columns of one list at a given width: the same for all its rows."""

    def __init__(self, section: Section, rows: Sequence[Row], room: int, now: datetime, glyphs: Glyphs) -> None:
        self._now, self._glyphs = now, glyphs
        columns = COLUMNS[section]
        wide = {column: max((self._width(column, row) for row in rows), default=0) for column in columns}
        used = [column for column in columns if wide[column]]
        for gap, steady in SPACINGS:
            self._gap = gap
            self._columns = _placed(used, {c: max(wide[c], steady * c.least) for c in used}, gap, room - MARK)
            if len(self._columns) == len(used):
                break

    def _width(self, column: Column, row: Row) -> int:
        return min(column.most, width(self._glyphs.safe(text_of(column.cell(row, self._now)))))

    def line(self, row: Row, *, marked: bool) -> Line:
        """Return a row's line."""
        spans: list[Span] = [("▸ " if marked else "  ", "bold cyan" if marked else "")]
        for place, (column, room) in enumerate(self._columns):
            cell = tuple((self._glyphs.safe(text), style) for text, style in column.cell(row, self._now))
            if place:
                spans.append((" " * self._gap, ""))
            spans += _fitted(cell, room, right=column.right, padded=place < len(self._columns) - 1)
        if marked:
            spans = [
                (text, f"{style} bold" if "bold" not in style and style != "dim" else style) for text, style in spans
            ]
        return tuple((text, style.strip()) for text, style in spans)


def _placed(columns: Sequence[Column], wide: Mapping[Column, int], gap: int, room: int) -> list[tuple[Column, int]]:
    """Return those columns that fit in so many cells, and the cells of each."""
    kept: dict[Column, int] = {}
    left = room
    for column in sorted(columns, key=lambda column: column.rank):
        needed = min(wide[column], LEAST_REST) if column is columns[-1] else wide[column]
        if needed + gap * bool(kept) > left and kept:
            break
        kept[column] = min(needed, left)
        left -= needed + gap * (len(kept) > 1)
    if columns and columns[-1] in kept:
        kept[columns[-1]] += max(0, left)
    return [(column, kept[column]) for column in columns if column in kept]


def _fitted(cell: Line, room: int, *, right: bool, padded: bool) -> list[Span]:
    """Return a cell in `room` cells: cut where it is longer, filled up where something follows."""
    text = text_of(cell)
    if width(text) > room:
        if len(cell) > 1:
            cell = _cut(cell, room)
            return list(cell)
        return [(clip(text, room), cell[0][1])]
    pad = (" " * (room - width(text)), "")
    if right:
        return [pad, *cell]
    return [*cell, pad] if padded else list(cell)


def _cut(cell: Line, room: int) -> Line:
    spans: list[Span] = []
    for text, style in cell:
        if width(text) >= room:
            return (*spans, (fit(text, room), style))
        spans.append((text, style))
        room -= width(text)
    return tuple(spans)
