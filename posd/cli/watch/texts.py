"""What `posd watch` says around its lists: header, notices, titles, rates, what to do, everything about one row."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from urllib.parse import quote

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from posd.base.text import shown
from posd.cli.app import times
from posd.cli.app.advice import attention_advice, next_step, settling
from posd.cli.app.connection import Api
from posd.cli.app.output import Output, Pair, asked, counted, inline
from posd.cli.app.tables import head, wrap
from posd.cli.explain.catalogue import Advice, chosen, say
from posd.cli.payments import words
from posd.cli.payments.show import show_all
from posd.cli.payments.words import words_of
from posd.cli.printing import progress as print_words
from posd.cli.printing.command import show_all as show_print_job
from posd.cli.terminals.command import why
from posd.cli.watch import rows
from posd.cli.watch.state import Document, Kind, ListName, Row, Shop, WatchState, summary

#: health's `status` -> its style.
STYLES: Mapping[str, str] = {"ok": "green", "degraded": "yellow", "failing": "red"}


def nothing(section: ListName) -> Text:
    """Return what stands in a list that is empty."""
    return Text(f"  {say('watch', section.name.lower())}", "dim")


def header(state: WatchState, now: datetime, room: int) -> Text:
    """Return posd's version and health, and the time."""
    health = str(state.shop.health.get("status", ""))
    left = Text.assemble(("posd", "bold"), f" {shown(state.shop.version)}  ", no_wrap=True)
    if state.away:
        left.append("away", "bold red")
    else:
        left.append(shown(health), f"bold {STYLES.get(health, 'red')}")
    right = times.clock(now) if room < 50 else times.moment(now, date=True)
    gap = room - left.cell_len - len(right)
    return left.append(" " * gap + right) if gap > 0 else left


def notice(state: WatchState, now: datetime, room: int, most: int) -> Text:
    """Return what is wrong with posd itself, in `most` lines."""
    if state.away is not None:
        left = max(0, round((state.away.again_at - now).total_seconds()))
        text = (
            f"posd cannot be reached since {times.moment(state.away.since)}; trying again in {left} s. Payments go "
            f"on at the terminals; what is shown below is from then. Why: {state.away.reason}"
        )
        return Text("\n".join(_cut(text, room, most)), "red")
    checks = state.shop.health.get("checks") or {}
    bad = {name: check for name, check in checks.items() if check.get("status") != "ok"}
    style = "red" if any(check.get("status") == "failing" for check in bad.values()) else "yellow"
    each = max(1, max(2, most - 1) // max(1, len(bad)))
    told = {name: _cut(f"{name.replace('_', ' ')} {check_text(check)}", room, each) for name, check in bad.items()}
    return Text("\n".join([line for lines in told.values() for line in lines][:most]), style)


def check_text(check: object) -> str:
    """Write one health check: its status, and what else it says."""
    if not isinstance(check, Mapping):
        return str(check)
    # What is no text is for programs: the texts say it all.
    rest = "; ".join(value for name, value in check.items() if name != "status" and isinstance(value, str) and value)
    return f"{check.get('status', '')}: {rest}" if rest else str(check.get("status", ""))


def _cut(text: str, room: int, most: int) -> list[str]:
    """Break a text into `most` lines. Where there are more, the end of the last one says so."""
    lines = wrap(shown(text), room)
    return lines if len(lines) <= most else [*lines[: most - 1], head(lines[most - 1], room - 2) + " …"]


def title(section: ListName, shown_rows: Sequence[Row], shop: Shop) -> Text:
    """Return the name of a list and how much there is in it."""
    text = Text.assemble((section.value, "bold"))
    match section:
        case ListName.TERMINALS:
            text.append(f" {len(shown_rows)}")
            if silent := sum(row.document["reachable"] is False for row in shown_rows):
                text.append(f", {silent} without answer", "bold red")
        case ListName.OPEN:
            text.append(f" {len(shop.open)}{'+' if 'open' in shop.cut else ''}")
            if shop.open_prints:
                text.append(f", and {counted(len(shop.open_prints), 'print job')}")
        case ListName.ATTENTION:
            more = "+" if shop.cut & {"attention", "print_attention"} else ""
            text.append(f" {len(shown_rows)}{more}", "bold yellow" if shown_rows else "")
    return text


def ruled(text: Text, right: str, room: int) -> Text:
    """Return a text with a line to the right end of the screen, or to `right`."""
    line = max(0, room - text.cell_len - len(right) - 1)
    return Text.assemble(text, (" " + "─" * line, "dim"), (right, "yellow"), no_wrap=True)


def rates(shop: Shop, now: datetime) -> Text:
    """Return how many payments ended in the last hour, how, and how fast."""
    found = summary(shop, now)
    if found is None:
        return Text("last hour no payment ended", "dim")
    return Text.assemble(
        ("last hour ", "dim"),
        f"{found.ended} ended · {100 * found.approved // max(1, found.ended)}% approved · half in "
        f"{_seconds(found.median)}, 95% in {_seconds(found.late)} · {found.last_minute}/min",
    )


def _seconds(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def once(state: WatchState, now: datetime, room: int) -> Iterator[Text]:
    """Yield everything in lines, as many as it takes, without what to do about each row."""
    yield header(state, now, room)
    if wrong := notice(state, now, room, 1000):
        yield wrong
    every = state.shop.rows(now)
    for section in ListName:
        found = [row for row in every if row.section is section]
        yield ruled(title(section, found, state.shop), "", room)
        yield from (Text("  ").append(line) for line in rows.lines(section, found, room - 2, now))
        if not found:
            yield nothing(section)
    yield rates(state.shop, now)


def heading(row: Row) -> str:
    """Return what names a row in one line."""
    if row.kind is Kind.TERMINAL:
        return shown(f"terminal {row.identity}")
    noun = "print job" if row.kind is Kind.PRINT_JOB else words_of(row.document).noun
    return shown(f"{noun} {row.identity}")


def what(row: Row) -> str:
    """Return what a question names: "the payment of 11.20 on SN-0001"."""
    amount = asked(row.document.get("amount"))
    return shown(f"the {words_of(row.document).noun}{f' of {amount}' if amount else ''} on {row.document['terminal']}")


def advice(row: Row) -> tuple[str, Sequence[str]]:
    """Return what is known of a row beyond its line with what to do about it, and the commands."""
    detail, found = _advice(row)
    told = (_sentence(times.in_words(detail)) if detail else "", found.words)
    return shown(" ".join(filter(None, told))), found.commands


def _advice(row: Row) -> tuple[str, Advice]:
    document = row.document
    if row.kind is Kind.TERMINAL:
        return "", Advice("; ".join(why(document)) or str(document["base_url"] or "no address is known"))
    if row.attention is not None:
        detail = str(row.attention.get("detail") or "")
        if row.kind is Kind.PRINT_JOB:
            return detail, print_words.attention_advice(row.attention["code"])
        return detail, attention_advice(row.attention["code"], document)
    if row.kind is Kind.PRINT_JOB:
        return print_words.hint(document), print_words.next_step(document)
    if row.outcome is not None:
        return "", Advice(words.meaning(document)[1], ("posd show {id}",))
    return words.hint(document), settling(document) or next_step(document)


def below(row: Row, room: int, most: int) -> Text:
    """Return what to do about a row, in `most` lines: the commands come last."""
    told, commands = advice(row)
    typed = wrap("   ".join(command.format(id="ID") for command in commands), room)[: bool(commands)]
    text = Text("\n".join(_cut(told, room, most - len(typed))))
    return text.append("\n" + typed[0], "cyan") if typed else text


def became(row: Row, call: str, document: Document) -> tuple[str, str]:
    """Return what became of a payment by `abort` or `reconcile`, and the style of it."""
    if document["outcome"] is not None:
        style, meaning = words.meaning(document)
        return f"{meaning} ({what(row)}: {words.state(document)})", style
    if call == "abort":
        return f"asked to abort {what(row)}. It may still approve: its outcome is awaited", "green"
    search = document["last_search"]
    told = words_of(document).fill(chosen("search")[search["result"]]["means"]) if search else "It was not asked."
    return f"{what(row)} is still open ({words.state(document)}). {told}", "yellow"


def help_page(keys: Iterable[Pair]) -> RenderableType:
    """Return what the help shows."""
    return Group(_grid(keys, "bold"), "", Text(say("watch", "help")))


class _Screen(io.StringIO):
    """A file that passes for a terminal."""

    def isatty(self) -> bool:
        return True


def page(api: Api, row: Row, room: int) -> Text:
    """Ask the daemon for everything about a row, as its own command shows it. Raise Problem or Unreachable."""
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


def _grid(pairs: Iterable[Pair], style: str = "dim") -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style=style)
    grid.add_column(overflow="fold")
    for label, value in pairs:
        grid.add_row(Text(shown(label)), Text(shown(value)))
    return grid


def _value(name: str, value: object) -> str:
    if name in ("last_seen", "checked_at"):
        return times.moment(str(value), date=True) if value else "never"
    return inline(value) or "-"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "?", "!")) else ".")
