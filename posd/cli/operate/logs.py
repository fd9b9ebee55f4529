"""`posd logs`: the daemon's log in words, from the journal, a file or a pipe."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import click
import msgspec

from posd.cli.app.connection import json_option
from posd.cli.app.errors import Failure
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output, escaped
from posd.cli.operate import log_lines, log_sources
from posd.cli.operate.log_lines import LEVELS, Selection, Words
from posd.logs.events import EVENTS

#: Lines that are shown where nobody says how many; with --follow those before the first new one.
LINES = 200
LINES_BEFORE = 20
#: journalctl's names of our levels (its --priority takes one and all that are more important).
PRIORITIES = {"debug": "debug", "info": "info", "warning": "warning", "error": "err", "critical": "crit"}

#: A line as it is, and what it says; None where it is none of posd's.
Found = tuple[bytes, dict[str, Any] | None]


@click.command()
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="COUNT", help="The newest so many.  [default: 200]")
@click.option("--all", "everything", is_flag=True, help="All lines that there are.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines as they come (Ctrl-C ends it).")
@click.option("--since", metavar="TIME", help='From then on: "10:42", "2026-11-22 10:42", today, -1h.')
@click.option("--until", metavar="TIME", help="Until then.")
@click.option("-p", "--level", type=click.Choice(LEVELS), help="Only this level and what is more important.")
@click.option("--event", metavar="NAME", help="Only this event, or those that begin so: payment, webhook.q")
@click.option("--transaction", metavar="ID", help="Only this payment.")
@click.option("--print-job", metavar="ID", help="Only this print job.")
@click.option("--terminal", metavar="SERIAL", help="Only this terminal.")
@click.option("--utc", is_flag=True, help="Times in UTC, not in local time.")
@click.option("--traceback", "tracebacks", is_flag=True, help="All calls that led to a fault.")
@click.option("--events", "table", is_flag=True, help="Show what posd can log, and what to do about it; read nothing.")
@click.option("--unit", default="posd", show_default=True, metavar="UNIT", help="The service, in the journal.")
@json_option
def logs(
    output: Output,
    file: str | None,
    lines: int | None,
    everything: bool,
    follow: bool,
    since: str | None,
    until: str | None,
    level: str | None,
    event: str | None,
    unit: str,
    utc: bool,
    tracebacks: bool,
    table: bool,
    **about: str | None,
) -> None:
    """Show the daemon's log in words: of the journal, of FILE, or of standard input (-).

    With --json the lines that match, as they are. What is no line of posd's passes where nothing is selected.
    """
    if table:
        _show_table(output, event or "")
        return
    if file is not None and (follow or since or until):
        raise click.UsageError("--follow, --since and --until are of the journal; use: tail -f FILE | posd logs -")
    if everything and lines is not None:
        raise click.UsageError("--all or --lines, not both")
    selection = Selection(level or "", event or "", {name: value for name, value in about.items() if value is not None})
    newest = lines
    if not everything and lines is None and not since and file is None:
        newest = LINES_BEFORE if follow else LINES
    # What only this command can select it has to count as well: the journal counts all lines.
    counted = file is not None or bool(selection.event or selection.fields)
    if file is not None:
        source = log_sources.of_file(file)
    else:
        options = [f"--lines={'all' if newest is None or (counted and not follow) else newest}"]
        options += [f"--since={since}"] if since else []
        options += [f"--until={until}"] if until else []
        options += [f"--priority={PRIORITIES[level]}"] if level else []
        source = log_sources.of_journal(unit, [*options, "--follow"] if follow else options)
    words = Words(utc, output.stdout.width if output.rich else None, tracebacks)
    told = False
    try:
        with suppress(KeyboardInterrupt), source as found:
            selected = _selected(found, selection)
            if newest is not None and counted and not follow:
                selected = iter(deque(selected, newest))
            told = _write(_raw(output, selected) if output.as_json else _worded(words, selected), live=follow)
    except log_sources.NoLog as error:
        raise Failure(str(error), ExitCode.NOT_DONE, output) from error
    if not told and not follow:
        output.note(_nothing(selection, None if file else unit))


def _nothing(selection: Selection, unit: str | None) -> str:
    if not selection.all:
        return "no line of the log matches"
    return "the log is empty" if unit is None else f"the journal has no line of {unit} (systemctl status {unit})"


def _selected(found: Iterable[bytes], selection: Selection) -> Iterator[Found]:
    for each in found:
        raw = log_lines.stripped(each)
        line = log_lines.read(raw)
        if selection.takes(line):
            yield raw, line


def _worded(words: Words, found: Iterable[Found]) -> Iterator[bytes]:
    for raw, line in found:
        yield words.of(raw, line).encode(sys.stdout.encoding, "replace")


def _raw(output: Output, found: Iterable[Found]) -> Iterator[bytes]:
    """Yield lines as they are, where they are JSON; on a screen without what could steer it."""
    for raw, line in found:
        if line is not None:
            yield escaped(raw.decode("utf-8", "replace")).encode() if output.stdout.is_terminal else raw


def _write(texts: Iterable[bytes], *, live: bool) -> bool:
    """Write lines, where somebody watches each at once; tell whether there were any."""
    stream = sys.stdout.buffer
    at_once = live or sys.stdout.isatty()
    told = False
    for text in texts:
        told = True
        stream.write(text + b"\n")
        if at_once:
            stream.flush()
    stream.flush()
    return told


def _show_table(output: Output, prefix: str) -> None:
    rows = {event: row for event, row in EVENTS.items() if event.startswith(prefix)}
    if output.as_json:
        output.json(msgspec.json.encode({event: row._asdict() for event, row in rows.items()}))
        return
    for event, row in rows.items():
        output.line(f"{event}  ({', '.join(row.levels)})", "bold")
        output.line(row.says, indent=4)
        if row.do:
            output.line(f"→ {row.do}", "dim", indent=4)
