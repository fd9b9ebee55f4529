"""What is shown of one row: its line in a list, a few lines below the lists, and a page that scrolls.

The columns of the three lists are tables: what a row shows in each, and which stay where there is no room.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from posd.cli.app import times
from posd.cli.app.advice import Advice, attention_advice, next_step, settling
from posd.cli.app.cells import shortened, width
from posd.cli.app.output import WIDE_COLUMNS, Pair, asked, inline
from posd.cli.payments import words
from posd.cli.payments.show import Link, event_extra, outcome_pairs, transaction_pairs
from posd.cli.payments.words import words_of
from posd.cli.printing import progress as print_words
from posd.cli.printing.progress import job_pairs
from posd.cli.terminals.command import why
from posd.cli.watch.screen import BINDINGS, Glyphs, Line, Span, at_most, fit, lines_of, text_of, wrap
from posd.cli.watch.state import Document, Kind, Page, Row, Section

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
    keeps what stands to its right from moving whenever a word in it is another one. `wide` is the most on a wide
    screen. `ends`: of what is cut both ends are shown.
    """

    cell: Callable[[Row, datetime], Line]
    most: int
    rank: int
    right: bool = False
    least: int = 0
    wide: int = 0
    ends: bool = False


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
    return ((advice_of(row)[1].words, ""),)


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
        Column(_serial, 16, rank=1, wide=40, ends=True),
        Column(_reachable, 13, rank=2),
        Column(_runs, 26, rank=3, least=25),
        Column(_seen, 10, rank=5, least=9),
        Column(_place, 200, rank=4),
    ),
    Section.OPEN: (
        Column(_age, 6, rank=2, right=True),
        Column(_serial, 16, rank=1, wide=40, ends=True),
        Column(_type, 9, rank=6),
        Column(_amount, 12, rank=4, right=True, least=7),
        Column(track, 19, rank=5),
        Column(state, 200, rank=3),
    ),
    Section.ATTENTION: (
        Column(_attention_age, 6, rank=4, right=True),
        Column(_code, 18, rank=1),
        Column(_serial, 16, rank=2, wide=40, ends=True),
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
        self._now, self._glyphs, self._wide = now, glyphs, room >= WIDE_COLUMNS
        columns = COLUMNS[section]
        wide = {column: max((self._width(column, row) for row in rows), default=0) for column in columns}
        used = [column for column in columns if wide[column]]
        for gap, steady in SPACINGS:
            self._gap = gap
            self._columns = _placed(used, {c: max(wide[c], steady * c.least) for c in used}, gap, room - MARK)
            if len(self._columns) == len(used):
                break

    def _width(self, column: Column, row: Row) -> int:
        most = max(column.most, column.wide * self._wide)
        return min(most, width(self._glyphs.safe(text_of(column.cell(row, self._now)))))

    def line(self, row: Row, *, marked: bool) -> Line:
        """Return a row's line."""
        spans: list[Span] = [("▸ " if marked else "  ", "bold cyan" if marked else "")]
        for place, (column, room) in enumerate(self._columns):
            cell = tuple((self._glyphs.safe(text), style) for text, style in column.cell(row, self._now))
            if place:
                spans.append((" " * self._gap, ""))
            if column.ends:
                cell = tuple((self._glyphs.safe(shortened(text, room)), style) for text, style in cell)
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
    left = room - width(text_of(cell))
    if left < 0:
        return _cut(cell, room)
    if right:
        return [(" " * left, ""), *cell]
    return [*cell, (" " * left, "")] if padded else list(cell)


def _cut(cell: Line, room: int) -> list[Span]:
    spans: list[Span] = []
    for text, style in cell:
        if width(text) >= room:
            return [*spans, (fit(text, room), style)]
        spans.append((text, style))
        room -= width(text)
    return spans


#: Cells of the labels of a page; narrower where the screen is narrow.
LABELS = 22

HELP = """\
TERMINALS  those of the configuration: whether they answer, what they run, when they were last heard of.

OPEN  payments that have not ended, oldest first, and print jobs. A payment goes from ack (the terminal has it) over \
card (card read) and bank (approval asked for) to its end: approved, declined, rejected or canceled. The present state \
stands in brackets. It stays for a few seconds after its end.

ATTENTION  what a person should look at. What to do about the selected row stands below the lists; Enter shows all of \
it, with the commands to type.

The last hour is counted from posd's feed: payments that began and ended in it, how many were approved, within what \
time half of them and 95% of them had an outcome, and how many ended in the last minute.

Nothing is asked of posd while nothing happens, but a look every 10 seconds. An abort is a request: the customer may \
have been faster."""


def heading(row: Row) -> str:
    """Return what names a row in one line."""
    if row.kind is Kind.TERMINAL:
        return f"terminal {row.identity}"
    noun = "print job" if row.kind is Kind.PRINT_JOB else words_of(row.document).noun
    return f"{noun} {row.identity}"


def what(row: Row) -> str:
    """Return what a question names: "the payment of 11.20 on SN-0001"."""
    amount = asked(row.document.get("amount"))
    return f"the {words_of(row.document).noun}{f' of {amount}' if amount else ''} on {row.document['terminal']}"


def advice_of(row: Row) -> tuple[str, Advice]:
    """Return what is known of a row beyond its line, and what to do about it."""
    document = row.document
    if row.kind is Kind.TERMINAL:
        return "", Advice("; ".join(why(document)) or str(document["base_url"] or "no address is known"))
    if row.attention is not None:
        detail = str(row.attention.get("detail") or "")
        if row.kind is Kind.PRINT_JOB:
            return detail, print_words.attention_advice(row.attention["code"])
        return detail, attention_advice(row.attention["code"], document)
    if row.kind is Kind.PRINT_JOB:
        return _sentence(print_words.hint(document)), print_words.next_step(document)
    if row.ended is not None:
        _, template = words.RESULTS.get(row.ended["result"], ("", "It ended: {noun}."))
        return "", Advice(words_of(document).fill(template), ("posd show {id}",))
    return _sentence(words.hint(document)), settling(document) or next_step(document)


def below(row: Row, room: int, most: int) -> list[Line]:
    """Return what stands below the lists of the selected row, in at most `most` lines: the commands come last."""
    advice = advice_of(row)[1]
    commands = "   ".join(command.format(id="ID") for command in advice.commands)
    told = wrap(_told(row), room)
    typed = wrap(commands, room)[:1] if commands else []
    told = at_most(told, most - len(typed), room)
    return [*lines_of(told), *lines_of(typed, "cyan")]


def in_full(row: Row, room: int) -> list[Line]:
    """Return all that is told of a row, and the commands as they are typed, which nothing breaks."""
    commands = [command.format(id=row.identity) for command in advice_of(row)[1].commands]
    return [*lines_of(wrap(_told(row), room)), *lines_of(commands, "cyan")]


def _told(row: Row) -> str:
    detail, advice = advice_of(row)
    return " ".join(filter(None, (_sentence(times.in_words(detail)) if detail else "", advice.words)))


def page_lines(page: Page, room: int) -> list[Line]:
    """Return all lines of a page."""
    if page.of is None:
        return list(_help(room))
    if page.told is None:
        return [(("asking posd …", "dim"),)]
    return list(_all_of(page.of, page.told, room))


def _help(room: int) -> Iterator[Line]:
    for binding in BINDINGS:
        yield from _labelled(binding.keys, binding.words, 8, room, "bold")
    yield ()
    for paragraph in HELP.split("\n"):
        yield from lines_of(wrap(paragraph, room))


def _all_of(row: Row, told: Document, room: int) -> Iterator[Line]:
    if "problem" in told:
        yield from lines_of(wrap(str(told["problem"]), room), "red")
        return
    document = told["document"]
    match row.kind:
        case Kind.TERMINAL:
            yield from _pairs([(name, _value(name, value)) for name, value in document.items() if name != "runs"], room)
            return
        case Kind.PRINT_JOB:
            yield from _pairs(job_pairs(document), room)
            advices = [(item, print_words.attention_advice(item["code"])) for item in document["attention"]]
        case Kind.PAYMENT:
            yield from _pairs(transaction_pairs(document), room)
            yield from _pairs([(link.relation, _link_text(link)) for link in told["chain"]], room)
            if document["outcome"] is not None:
                yield from _head("outcome")
                style, meaning = words.meaning(document)
                yield from lines_of(wrap(meaning, room), style)
                yield from _pairs(outcome_pairs(document), room)
            advices = [(item, attention_advice(item["code"], document)) for item in document["attention"]]
    for attention, advice in advices:
        yield from _head(f"attention {attention['code']}", "bold yellow")
        yield from lines_of(line for line in wrap(str(attention.get("detail") or ""), room) if line)
        yield from lines_of(wrap(advice.words, room))
        for command in advice.commands:
            yield from lines_of(wrap(command.format(id=row.identity), room), "cyan")
    zone = times.zone(times.local(entry["at"]) for entry in told["history"])
    yield from _head(f"what happened ({zone})" if zone else "what happened")
    extras = {item["seq"]: event_extra(item["event"]) for item in told["events"]}
    for when, happened, details in words.rows(told["history"], extras):
        yield from _labelled(times.short(when), ", ".join(filter(None, (happened, details))), 15, room)


def _link_text(link: Link) -> str:
    """Write a transaction beside another: what it is, how it stands, and its id."""
    if link.transaction is None:
        return f"{link.transaction_id} ({link.why})"
    other = link.transaction
    parts = (other["type"], asked(other["amount"]), words.state(other), link.transaction_id)
    return "  ".join(str(part) for part in parts if part)


def _head(text: str, style: str = "bold") -> Iterator[Line]:
    yield ()
    yield ((text, style),)


def _pairs(pairs: Sequence[Pair], room: int) -> Iterator[Line]:
    for label, value in pairs:
        yield from _labelled(label, value, min(LABELS, room // 3), room)


def _labelled(label: str, text: str, labels: int, room: int, style: str = "dim") -> Iterator[Line]:
    """Yield the lines of a text with a label of `labels` cells before the first."""
    for number, line in enumerate(wrap(text, max(1, room - labels - 1))):
        yield ((fit("" if number else label, labels), style), (f" {line}", ""))


def _value(name: str, value: object) -> str:
    if name in ("last_seen", "checked_at"):
        return times.moment(str(value), date=True) if value else "never"
    return inline(value) or "-"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "?", "!")) else ".")
