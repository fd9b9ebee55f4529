"""The three lists of `posd watch`: what a row shows in each column, and the columns for which there is room."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.text import Text

from posd.base.text import shown
from posd.cli.app.advice import attention_advice
from posd.cli.app.output import WIDE_COLUMNS, asked
from posd.cli.app.tables import shortened
from posd.cli.payments import words
from posd.cli.printing import progress as print_words
from posd.cli.terminals.command import why
from posd.cli.watch.state import Kind, ListName, Row, decided_at

#: The way of a payment through its seven states: the four ends have words beside it.
STEPS: Sequence[tuple[str, str | None]] = (
    ("ack", "TERMINAL_ACKNOWLEDGED"),
    ("card", "CARD_PRESENTED"),
    ("bank", "APPROVAL_REQUESTED"),
    ("end", None),
)
#: That of a print job.
PRINT_STEPS: Sequence[tuple[str, str | None]] = (("wait", "PENDING"), ("print", "IN_PROGRESS"), ("end", None))

#: `reachable` -> its words and their style.
REACHABLE: Mapping[bool | None, tuple[str, str]] = {
    True: ("reachable", "green"),
    False: ("no answer", "bold red"),
    None: ("not looked at", "dim"),
}

ASK_A_PERSON = "ask a person"

#: Cells before a row, for the mark of the selected one.
MARK = 2
#: Cells between two columns, and whether each keeps its least width: the first of these that leaves no column out.
SPACINGS = ((2, True), (1, True), (1, False))
#: The last column needs so many cells, or is left out.
LEAST_REST = 12


def since(at: str | None, now: datetime) -> str:
    """Write how long ago something was, by the second: 0:07, 12:34, 3h05, 2d04h."""
    if not at:
        return "-"
    seconds = max(0, int((now - datetime.fromisoformat(at)).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if hours < 1:
        return f"{minutes}:{seconds % 60:02}"
    return f"{hours}h{minutes % 60:02}" if days < 1 else f"{days}d{hours % 24:02}h"


def ago(at: str | None, now: datetime) -> str:
    """Write roughly how long ago something was, so that it seldom changes: now, 5 min, 3 h, 2 d."""
    if not at:
        return "never"
    minutes = max(0, int((now - datetime.fromisoformat(at)).total_seconds())) // 60
    if minutes < 1:
        return "now"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h" if minutes < 1440 else f"{minutes // 1440} d"


def _text(text: str, style: str = "") -> Text:
    return Text(shown(text), style, no_wrap=True)


def _serial(row: Row, _now: datetime) -> Text:
    return _text(str(row.document.get("serial") or row.document.get("terminal") or "-"))


def _reachable(row: Row, _now: datetime) -> Text:
    return _text(*REACHABLE[row.document["reachable"]])


def _seen(row: Row, now: datetime) -> Text:
    text = ago(row.document["last_seen"], now)
    return _text({"now": "seen now", "never": "not seen"}.get(text, f"{text} ago"), "dim")


def _place(row: Row, _now: datetime) -> Text:
    reasons = why(row.document)
    address = str(row.document["base_url"] or "").partition("://")[2] or "no address"
    return _text("; ".join(reasons), "yellow") if reasons else _text(address, "dim")


def _runs(row: Row, _now: datetime) -> Text:
    """Return what a terminal runs."""
    payment = row.runs
    if payment is None:
        if row.document["transaction"]:
            return _text("busy")
        return _text("free" if row.document["reachable"] else "-", "dim")
    state = words.state(payment)
    return _text(f"{payment['type'] or 'transaction'}: {state}", "bold red" if state == "in doubt" else "")


def _age(row: Row, now: datetime) -> Text:
    if row.outcome is None:
        return _text(since(row.document["created_at"], now))
    return _text(since(row.document["created_at"], decided_at(row.document)), "dim")


def _type(row: Row, _now: datetime) -> Text:
    return _text("print" if row.kind is Kind.PRINT_JOB else str(row.document["type"] or "-"))


def _amount(row: Row, _now: datetime) -> Text:
    return _text(asked(row.document.get("amount")))


def track(row: Row, _now: datetime) -> Text:
    """Return the states that a payment goes through, the present one in brackets."""
    steps = PRINT_STEPS if row.kind is Kind.PRINT_JOB else STEPS
    states, status = [state for _, state in steps], row.document["status"]
    here = len(steps) - 1 if row.outcome else states.index(status) if status and status in states else -1
    parts = []
    for place, (name, _) in enumerate(steps):
        style = "bold cyan" if place == here else "" if place < here else "dim"
        parts += [Text("·", "dim"), Text(f"[{name}]" if place == here else name, style)]
    return Text.assemble(*parts[1:])


def state(row: Row, _now: datetime) -> Text:
    """Return what an open payment waits for, or how it ended."""
    if row.outcome is not None:
        result = row.outcome["result"]
        return _text(result.replace("_", " "), words.STYLES.get(result, "yellow"))
    if row.kind is Kind.PRINT_JOB:
        return _text(print_words.state(row.document), "red" if row.document["phase"] == "in_doubt" else "")
    text = words.state(row.document)
    if row.document["next_step"] == "ask_person":
        return _text(f"{text}: {ASK_A_PERSON}" if text == "in doubt" else ASK_A_PERSON, "bold red")
    return _text(f"{text}, released" if row.document["released"] else text, "yellow" if text == "in doubt" else "")


def _code(row: Row, _now: datetime) -> Text:
    code = "" if row.attention is None else str(row.attention["code"])
    return _text(code, "yellow" if row.document["phase"] == "final" else "bold yellow")


def _attention_age(row: Row, now: datetime) -> Text:
    return _text(ago((row.attention or {}).get("since"), now), "dim")


def _to_do(row: Row, _now: datetime) -> Text:
    code = "" if row.attention is None else row.attention["code"]
    if row.kind is Kind.PRINT_JOB:
        return _text(print_words.attention_advice(code).words)
    return _text(attention_advice(code, row.document).words)


class Column(NamedTuple):
    """A column: its cell of a row, and its rank.

    Where the screen is too narrow, columns of high rank are left out first. The last column takes what is left over.
    `least` keeps the columns to its right in place. `is_serial`: long texts lose their middle.
    """

    cell: Callable[[Row, datetime], Text]
    rank: int
    least: int = 0
    right: bool = False
    is_serial: bool = False


COLUMNS: Mapping[ListName, Sequence[Column]] = {
    ListName.TERMINALS: (
        Column(_serial, 1, is_serial=True),
        Column(_reachable, 2),
        Column(_runs, 3, least=25),
        Column(_seen, 5, least=9),
        Column(_place, 4),
    ),
    ListName.OPEN: (
        Column(_age, 2, right=True),
        Column(_serial, 1, is_serial=True),
        Column(_type, 6),
        Column(_amount, 4, least=7, right=True),
        Column(track, 5),
        Column(state, 3),
    ),
    ListName.ATTENTION: (
        Column(_attention_age, 4, right=True),
        Column(_code, 1),
        Column(_serial, 2, is_serial=True),
        Column(_amount, 5, right=True),
        Column(_to_do, 3),
    ),
}


def lines(section: ListName, rows: Sequence[Row], room: int, now: datetime) -> list[Text]:
    """Return a line of at most `room` cells for each row. The columns of all lines are the same."""
    columns = COLUMNS[section]
    most = 40 if room >= WIDE_COLUMNS - MARK else 16
    table = [[column.cell(row, now) for column in columns] for row in rows]
    longest = [max((cells[place].cell_len for cells in table), default=0) for place in range(len(columns))]
    used = sorted((place for place in range(len(columns)) if longest[place]), key=lambda place: columns[place].rank)
    widths: dict[int, int] = {}
    for gap, is_steady in SPACINGS:
        widths, left = {}, room + gap
        for place in used:
            column = columns[place]
            width = max(min(longest[place], most) if column.is_serial else longest[place], is_steady * column.least)
            if column is columns[-1]:
                width = min(width, LEAST_REST)
            if widths and width + gap > left:
                break
            widths[place] = min(width, room)
            left -= width + gap
        if len(widths) == len(used):
            break
    if len(columns) - 1 in widths:
        widths[len(columns) - 1] += max(0, left)
    return [_line(columns, cells, widths, gap) for cells in table]


def _line(columns: Sequence[Column], cells: Sequence[Text], widths: Mapping[int, int], gap: int) -> Text:
    fitted = []
    for place, width in sorted(widths.items()):
        cell = cells[place]
        if columns[place].is_serial:
            cell.plain = shortened(cell.plain, width)
        cell.truncate(width, overflow="ellipsis")
        cell.align("right" if columns[place].right else "left", width)
        fitted.append(cell)
    line = Text(" " * gap).join(fitted)
    line.no_wrap = True
    return line
