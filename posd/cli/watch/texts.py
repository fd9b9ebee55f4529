"""Texts of `posd watch`: the lists with the columns that fit, and the lines around them."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

from rich.text import Text

from posd.base.problems import remedy
from posd.base.text import shown
from posd.cli import printing as print_words
from posd.cli.app import times
from posd.cli.app.connection import Api
from posd.cli.app.context import RESULT_CODES
from posd.cli.app.output import WIDE_COLUMNS, Output, Pair, asked, counted, inline
from posd.cli.app.tables import head, shortened, wrap
from posd.cli.explain.catalogue import Advice, chosen, explained, named, say, translate
from posd.cli.explain.command import sentence
from posd.cli.payments import words
from posd.cli.payments.show import show_all
from posd.cli.payments.words import attention_advice, next_step, settling, words_of
from posd.cli.printing import show_all as show_print_job
from posd.cli.terminals.command import why
from posd.cli.watch.state import Document, Kind, ListName, Row, Shop, WatchState, decided_at

#: Steps of a payment in order: short name, and state of the terminal. The end has several states.
STEPS: Sequence[tuple[str, str | None]] = (
    ("ack", "TERMINAL_ACKNOWLEDGED"),
    ("card", "CARD_PRESENTED"),
    ("bank", "APPROVAL_REQUESTED"),
    ("end", None),
)
#: Steps of a print job in order: short name, and state of the terminal.
PRINT_STEPS: Sequence[tuple[str, str | None]] = (("wait", "PENDING"), ("print", "IN_PROGRESS"), ("end", None))

#: `reachable` of a terminal -> text and style.
REACHABLE: Mapping[bool | None, tuple[str, str]] = {
    True: ("reachable", "green"),
    False: ("no answer", "bold red"),
    None: ("not checked", "dim"),
}

ASK_A_PERSON = "ask a person"

#: Number of cells between two columns.
GAP = 2
#: Minimum number of cells of the last column. With fewer the column is omitted.
LEAST_REST = 12


def since(at: str | None, now: datetime, *, roughly: bool = False) -> str:
    """Return the text of how long ago a time was, or "" without a time.

    `roughly`: "now" for less than a minute, so that the line seldom changes and few bytes are sent.
    """
    seconds = (now - datetime.fromisoformat(at)).total_seconds() if at else 0.0
    return "" if not at else named("now") if roughly and seconds < 60 else times.age(max(0.0, seconds))


def _text(text: str, style: str = "") -> Text:
    return Text(shown(named(text)), style, no_wrap=True)


def _serial(row: Row, _now: datetime) -> Text:
    return _text(str(row.document.get("serial") or row.document.get("terminal") or "-"))


def _place(row: Row, _now: datetime) -> Text:
    reasons = why(row.document)
    address = str(row.document["base_url"] or "").partition("://")[2] or "no address"
    return _text("; ".join(map(translate, reasons)), "yellow") if reasons else _text(address, "dim")


def _runs(row: Row, _now: datetime) -> Text:
    """Return the text about the payment that a terminal runs."""
    payment = row.runs
    if payment is None:
        if row.document["transaction"]:
            return _text("busy")
        return _text("free" if row.document["reachable"] else "-", "dim")
    state = words.state(payment)
    text = f"{named(payment['type'] or 'transaction')}: {named(state)}"
    return _text(text, "bold red" if state == "in doubt" else "")


def _age(row: Row, now: datetime) -> Text:
    if row.outcome is None:
        return _text(since(row.document["created_at"], now))
    return _text(since(row.document["created_at"], decided_at(row.document)), "dim")


def _amount(row: Row, _now: datetime) -> Text:
    return _text(asked(row.document.get("amount")))


def track(row: Row, _now: datetime) -> Text:
    """Return the steps of a payment or print job, with the present one in brackets."""
    steps = PRINT_STEPS if row.kind is Kind.PRINT_JOB else STEPS
    states, status = [state for _, state in steps], row.document["status"]
    here = len(steps) - 1 if row.outcome else states.index(status) if status and status in states else -1
    parts = []
    for place, (name, _) in enumerate(steps):
        style = "bold cyan" if place == here else "" if place < here else "dim"
        parts += [Text("·", "dim"), Text(f"[{name}]" if place == here else name, style)]
    return Text.assemble(*parts[1:])


def state(row: Row, _now: datetime) -> Text:
    """Return the text of a payment's or print job's state: its result, or what it waits for."""
    if row.outcome is not None:
        result = row.outcome["result"]
        return _text(named(result.replace("_", " ")), words.STYLES.get(result, "yellow"))
    if row.kind is Kind.PRINT_JOB:
        return _text(print_words.state(row.document), "red" if row.document["phase"] == "in_doubt" else "")
    text = words.state(row.document)
    if row.document["next_step"] == "ask_person":
        return _text(": ".join(map(named, [text] * (text == "in doubt") + [ASK_A_PERSON])), "bold red")
    marks = [text, "released"] if row.document["released"] else [text]
    return _text(", ".join(map(named, marks)), "yellow" if text == "in doubt" else "")


def _code(row: Row, _now: datetime) -> Text:
    code = "" if row.attention is None else str(row.attention["code"])
    return _text(code, "yellow" if row.document["phase"] == "final" else "bold yellow")


def _attention_advice(row: Row) -> Advice:
    code = "" if row.attention is None else row.attention["code"]
    if row.kind is Kind.PRINT_JOB:
        return print_words.attention_advice(code)
    return attention_advice(code, row.document)


class Column(NamedTuple):
    """Column of a list. `cell`: function that returns the text of a row's cell.

    `rank`: on a narrow screen, columns of the highest rank are omitted first. `right`: right-aligned. `is_serial`: a
    long text loses its middle. The last column gets the remaining width.
    """

    cell: Callable[[Row, datetime], Text]
    rank: int
    right: bool = False
    is_serial: bool = False


COLUMNS: Mapping[ListName, Sequence[Column]] = {
    ListName.TERMINALS: (
        Column(_serial, 1, is_serial=True),
        Column(lambda row, _: _text(*REACHABLE[row.document["reachable"]]), 2),
        Column(_runs, 3),
        Column(lambda row, now: _text(since(row.document["last_seen"], now, roughly=True) or "not seen", "dim"), 5),
        Column(_place, 4),
    ),
    ListName.OPEN: (
        Column(_age, 2, right=True),
        Column(_serial, 1, is_serial=True),
        Column(lambda row, _: _text("print" if row.kind is Kind.PRINT_JOB else str(row.document["type"] or "-")), 6),
        Column(_amount, 4, right=True),
        Column(track, 5),
        Column(state, 3),
    ),
    ListName.ATTENTION: (
        Column(
            lambda row, now: _text(since((row.attention or {}).get("since"), now, roughly=True), "dim"), 4, right=True
        ),
        Column(_code, 1),
        Column(_serial, 2, is_serial=True),
        Column(_amount, 5, right=True),
        Column(lambda row, _: _text(_attention_advice(row).words), 3),
    ),
}


def lines(section: ListName, rows: Sequence[Row], room: int, now: datetime) -> list[Text]:
    """Return a line of at most `room` cells for each row, with aligned columns."""
    columns = COLUMNS[section]
    table = [[column.cell(row, now) for column in columns] for row in rows]
    serial = 40 if room >= WIDE_COLUMNS else 16
    widths: dict[int, int] = {}
    left = room + GAP
    for place, column in sorted(enumerate(columns), key=lambda item: item[1].rank):
        longest = max((cells[place].cell_len for cells in table), default=0)
        most = LEAST_REST if column is columns[-1] else serial if column.is_serial else room
        width = min(longest, most, room)
        if not width or (widths and width + GAP > left):
            continue
        widths[place] = width
        left -= width + GAP
    if len(columns) - 1 in widths:
        widths[len(columns) - 1] += max(0, left)
    return [_line(columns, cells, widths) for cells in table]


def _line(columns: Sequence[Column], cells: Sequence[Text], widths: Mapping[int, int]) -> Text:
    fitted = []
    for place, width in sorted(widths.items()):
        cell = cells[place]
        if columns[place].is_serial:
            cell.plain = shortened(cell.plain, width)
        cell.truncate(width, overflow="ellipsis")
        cell.align("right" if columns[place].right else "left", width)
        fitted.append(cell)
    line = Text(" " * GAP).join(fitted)
    line.no_wrap = True
    return line


# Texts around the lists.

#: `status` of posd's health -> style.
STYLES: Mapping[str, str] = {"ok": "green", "degraded": "yellow", "failing": "red"}


def nothing(section: ListName) -> Text:
    """Return the text of an empty list."""
    return Text(say("watch", section.name.lower()), "dim")


def header(state: WatchState, now: datetime, room: int) -> Text:
    """Return the top line: posd's version and health, and the time."""
    health = "away" if state.away else str(state.shop.health.get("status", ""))
    left = Text.assemble(("posd", "bold"), f" {shown(state.shop.version)}  ", no_wrap=True)
    left.append(shown(named(health)), f"bold {STYLES.get(health, 'red')}")
    right = times.clock(now) if room < 50 else times.moment(now, date=True)
    gap = room - left.cell_len - len(right)
    return left.append(" " * gap + right) if gap > 0 else left


def notice(state: WatchState, now: datetime, room: int, most: int) -> Text:
    """Return the text on what is wrong with posd itself, in at most `most` lines."""
    if state.away is not None:
        left = max(0, round((state.away.again_at - now).total_seconds()))
        text = say("watch", "away", since=times.moment(state.away.since), left=left, reason=state.away.reason)
        return Text("\n".join(_cut(text, room, most)), "red")
    checks = state.shop.health.get("checks") or {}
    bad = {name: check for name, check in checks.items() if check.get("status") != "ok"}
    style = "red" if any(check.get("status") == "failing" for check in bad.values()) else "yellow"
    each = max(1, max(2, most - 1) // max(1, len(bad)))
    told = {name: _cut(_check(name, check), room, each) for name, check in bad.items()}
    return Text("\n".join([line for lines in told.values() for line in lines][:most]), style)


def _check(name: str, check: Document) -> str:
    """Return the text of a health check: its name, its status, its detail and its advice."""
    detail, steps = words.check_words(name, check)
    head = f"{named(name.replace('_', ' '))} {named(check['status'])}"
    return f"{head}: {'; '.join(filter(None, (detail, remedy(steps))))}"


def _cut(text: str, room: int, most: int) -> list[str]:
    """Break a text into at most `most` lines. An ellipsis replaces omitted text."""
    lines = wrap(shown(text), room)
    return lines if len(lines) <= most else [*lines[: most - 1], head(lines[most - 1], room - 2) + " …"]


def title(section: ListName, shown_rows: Sequence[Row], shop: Shop) -> Text:
    """Return the title of a list: its name, and the number of its rows."""
    count = len(shop.open) if section is ListName.OPEN else len(shown_rows)
    style = "bold yellow" if section is ListName.ATTENTION and count else ""
    cut = any(name.removeprefix("print_") == section.name.lower() for name in shop.cut)
    text = Text.assemble((named(section.value), "bold"), (f" {count}{'+' * cut}", style))
    if silent := sum(row.document["reachable"] is False for row in shown_rows if row.kind is Kind.TERMINAL):
        text.append(say("watch", "silent", count=silent), "bold red")
    if section is ListName.OPEN and shop.open_prints:
        text.append(say("watch", "prints", prints=counted(len(shop.open_prints), named("print job"))))
    return text


def rates(shop: Shop, now: datetime) -> Text:
    """Return the line about payments of the last hour: how many ended, how, and how fast."""
    results = shop.figures.get("results", ())
    approved = sum(item["approved"] for item in results)
    ended = sum(item[result] for item in results for result in RESULT_CODES)
    if not ended:
        return Text(say("watch", "none_ended"), "dim")
    took = shop.figures["seconds"]
    fast = say("watch", "fast", half=took["median"], most=took["p95"]) if took["count"] else ""
    recent = sum(decided_at(item) > now - timedelta(minutes=1) for item in shop.recent)
    return Text(say("watch", "ended", ended=ended, percent=100 * approved // ended, fast=fast, recent=recent))


def heading(row: Row) -> str:
    """Return the title of a row: kind and id of its subject."""
    nouns = {Kind.TERMINAL: named("terminal"), Kind.PRINT_JOB: named("print job")}
    return shown(f"{nouns.get(row.kind) or words_of(row.document).noun} {row.identity}")


def what(row: Row) -> str:
    """Return a phrase for a row's subject: "the payment of 11.20 on SN-0001"."""
    amount, noun = asked(row.document.get("amount")), words_of(row.document).noun
    return shown(
        say("watch", "what_of" if amount else "what", noun=noun, amount=amount, terminal=row.document["terminal"])
    )


def advice(row: Row) -> tuple[str, Sequence[str]]:
    """Return the detail of a row with the advice, and the commands."""
    detail, found = _advice(row)
    told = (sentence(times.in_words(detail)) if detail else "", found.words)
    return shown(" ".join(filter(None, told))), found.commands


def _advice(row: Row) -> tuple[str, Advice]:
    document = row.document
    if row.kind is Kind.TERMINAL:
        return "", Advice("; ".join(map(translate, why(document))) or document["base_url"] or named("no address"))
    if row.attention is not None:
        code = row.attention["code"]
        return explained("attention", code, row.attention.get("detail") or ""), _attention_advice(row)
    if row.kind is Kind.PRINT_JOB:
        return print_words.hint(document), print_words.next_step(document)
    if row.outcome is not None:
        return "", Advice(words.meaning(document)[1], ("posd show {id}",))
    return words.hint(document), settling(document) or next_step(document)


def below(row: Row, room: int, most: int) -> Text:
    """Return the advice on a row, in at most `most` lines. The last line has the commands."""
    told, commands = advice(row)
    typed = wrap("   ".join(command.format(id="ID") for command in commands), room)[: bool(commands)]
    text = Text("\n".join(_cut(told, room, most - len(typed))))
    return text.append("\n" + typed[0], "cyan") if typed else text


def became(row: Row, call: str, document: Document) -> tuple[str, str]:
    """Return the text about the result of `abort` or `reconcile` for a payment, and its style."""
    if document["outcome"] is not None:
        style, meaning = words.meaning(document)
        return f"{meaning} ({what(row)}: {named(words.state(document))})", style
    if call == "abort":
        return say("watch", "abort_asked", what=what(row)), "green"
    search = document["last_search"]
    came = chosen("search")[search["result"]]["means"] if search else say("payment", "not_asked")
    told = words_of(document).fill(came)
    return say("watch", "still_open", what=what(row), state=named(words.state(document)), told=told), "yellow"


def help_page(keys: Iterable[Pair]) -> Text:
    """Return the text of the help."""
    return Text("\n".join([*(f"{sign:<7} {words}" for sign, words in keys), "", say("watch", "help").strip()]))


class _Screen(io.StringIO):
    """Text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def page(api: Api, row: Row, room: int) -> Text:
    """Request all details of a row, and return the output of the command that shows them.

    Raise Problem or Unreachable.
    """
    stream = _Screen()
    output = Output(as_json=False, stream=stream)
    output.stdout.width = room
    path = f"/{row.kind.value}/{quote(row.identity, safe='')}"
    match row.kind:
        case Kind.PAYMENT:
            show_all(output, api, path)
        case Kind.PRINT_JOB:
            show_print_job(output, api, path)
        case Kind.TERMINAL:
            document = api.get(path).body
            output.panel(heading(row), [(name, _value(name, value)) for name, value in document.items()], "cyan")
    return Text.from_ansi(stream.getvalue())


def _value(name: str, value: object) -> str:
    if name in ("last_seen", "checked_at"):
        return times.moment(str(value), date=True) if value else "never"
    return inline(value) or "-"
