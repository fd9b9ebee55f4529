"""`posd report`: the payments of a day, or of several, and what they came to."""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from posd.base.times import iso, parse_iso
from posd.cli.app import times
from posd.cli.app.connection import Api, Problem, Unreachable, connect, json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.report import exports, standing, sums, table, words
from posd.cli.report.expect import Comparison, compare
from posd.cli.report.facts import CLOCKS_DIFFER, LONGEST_PAYMENT, Facts, Span, read, read_day
from posd.cli.report.sums import Report
from posd.cli.report.words import number
from posd.config import examine

#: Payments asked for at a time: the most that the API gives.
PAGE = 500

#: Numbers of shifts are below this.
MOST_NUMBER = 10**9
#: A total as a person types it.
_SUM = re.compile(r"-?\d{1,12}(\.\d{1,4})?", re.ASCII)

#: Called with how many payments were read so far.
Progress = Callable[[int], object]


@click.command()
@click.argument("day", required=False)
@click.option("--from", "first", metavar="DAY", help="The first day of several.")
@click.option("--to", "last", metavar="DAY", help="The last day of several; without it, today.")
@click.option("--since", type=click.Choice(["last"]), help="What has come since the last shift was closed.")
@click.option("--shift", "which", metavar="NUMBER", help="A shift that was closed, or last.")
@click.option("--close", "closes", is_flag=True, help="Close the shift: what has come since the last one.")
@click.option("--begin", is_flag=True, help="With --close: let the first shift begin now, without what was before.")
@click.option("--operator", metavar="NAME", help="With --close: who closes it.")
@click.option("--note", metavar="TEXT", help="With --close: what is to be kept with it.")
@click.option("--expect", metavar="SUM", help="Compare with the terminal's own total: exit code 1 where they differ.")
@click.option("--terminal", metavar="SERIAL", help="Only this terminal.")
@click.option("--csv", "as_table", is_flag=True, help="Print CSV: one row a payment.")
@click.option("--html", metavar="FILE", help="Write one page for a browser or a printer; - prints it.")
@click.option("--metadata", metavar="KEY", help="Show this member of the till's metadata (JSON, CSV, HTML too).")
@click.option("--timezone", metavar="NAME", help="Time zone of the days; without it, the merchant's (configuration).")
@json_option
@click.pass_context
def report(
    ctx: click.Context,
    output: Output,
    day: str | None,
    first: str | None,
    last: str | None,
    since: str | None,
    which: str | None,
    closes: bool,
    begin: bool,
    operator: str | None,
    note: str | None,
    expect: str | None,
    terminal: str | None,
    as_table: bool,
    html: str | None,
    metadata: str | None,
    timezone: str | None,
) -> None:
    """Total the payments of a day, of several, or of a shift.

    DAY is today, yesterday, or a date such as 2026-11-20; without it, today. A day is one in the merchant's time zone.
    A payment counts when the terminal says that it ended, with the amount that was authorized. What is open, or not
    known for sure, stands apart and is in no total. A shift is what has come since the last one was closed, whatever
    the clock says. Exit code 0; 1 where the total is not the one that --expect names.
    """
    if sum((output.as_json, as_table, html is not None)) > 1:
        raise click.UsageError("--json, --csv and --html are three ways to write the report: choose one")
    if html == "":
        raise click.UsageError("--html needs the name of a file, or - to print the page")
    if sum((closes, since is not None, which is not None, not day is first is last is None)) > 1:
        raise click.UsageError("--close, --since, --shift and days are four kinds of report: choose one")
    if begin and (output.as_json or as_table or html is not None or expect is not None):
        raise click.UsageError("--begin makes no report: use it without --json, --csv, --html and --expect")
    number = _shift_number(which)
    _check_close(closes, begin, operator, note, terminal)
    expected = None if expect is None else _sum(expect)
    zone = _zone(ctx, timezone)
    now = datetime.now(UTC)
    notes: list[str] = []
    if begin:
        output.line(_begin(ctx, zone, now, str(operator), note or "", output))
        return
    with connect(ctx) as api, _progress(output) as progress:
        if closes or since is not None or which is not None:
            from posd.cli.report import closing

            shifts = closing.Shifts(api, zone, now, terminal=terminal, metadata=metadata, progress=progress)
            if closes:
                made = shifts.close(str(operator).strip(), (note or "").strip(), notes)
            else:
                made = shifts.open() if since else shifts.closed(number)
        else:
            span = _span(day, first, last, now.astimezone(zone).date(), zone)
            made = _read_days(api, span, now, terminal=terminal, metadata=metadata, progress=progress)
        unknown = terminal is not None and not made.payments and not _in_fleet(api, terminal)
        made = replace(made, clock_doubts=_clock_doubts(api, made.span))
    for text in notes:
        output.note(text, "bold yellow")
    if unknown:
        output.note(f"Terminal {terminal} is not in the fleet (posd terminals), and has no payment here.", "yellow")
    compared = None if expected is None else compare(expected, made.total.total, made.payments)
    _write(output, made, compared, as_table=as_table, html=html, metadata=metadata)
    if compared is not None and not compared.equal:
        sys.exit(ExitCode.NOT_DONE)


def _begin(ctx: click.Context, zone: ZoneInfo, now: datetime, operator: str, note: str, output: Output) -> str:
    """Let the first shift begin; return what is said of it. Raise Problem or Unreachable."""
    from posd.cli.report import closing

    with connect(ctx) as api, _progress(output) as progress:
        shifts = closing.Shifts(api, zone, now, terminal=None, metadata=None, progress=progress)
        return shifts.begin(operator, note)


def _write(
    output: Output,
    made: Report,
    compared: Comparison | None,
    *,
    as_table: bool,
    html: str | None,
    metadata: str | None,
) -> None:
    """Write the report as it was asked for; beside a page and CSV the comparison is said on standard error."""
    if output.as_json:
        output.json(exports.write_json(made, compared))
        return
    if not as_table and html is None:
        table.show(output, made, metadata=metadata, comparison=compared)
        return
    if as_table:
        _print(exports.write_csv(made, metadata=metadata))
        for doubt in made.clock_doubts:
            output.note(doubt, "yellow")
    else:
        _write_page(output, made, compared, str(html), metadata)
    if compared is not None:
        for line in words.comparison(compared):
            output.note(line, "" if compared.equal else "yellow")


def _write_page(output: Output, made: Report, compared: Comparison | None, html: str, metadata: str | None) -> None:
    from posd.cli.report import page  # its templates take longer to import than the rest of the command

    text = page.write(made, metadata=metadata, comparison=compared)
    if html == "-":
        _print(text)
        return
    write_file(Path(html), text)
    output.line(f"Written: {html}, {number(len(made.payments), 'payment')}.")
    if made.in_question or made.attention:
        output.line("It begins with what needs attention.", "yellow")


def _check_close(closes: bool, begin: bool, operator: str | None, note: str | None, terminal: str | None) -> None:
    if closes and not (operator or "").strip():
        raise click.UsageError("--close needs --operator NAME: who closes the shift")
    if closes and terminal is not None:
        raise click.UsageError("a shift is of all terminals: close it without --terminal")
    if not closes and (begin or operator is not None or note is not None):
        raise click.UsageError("--begin, --operator and --note belong to --close")


def _shift_number(which: str | None) -> int | None:
    """Return the number of a shift, None for the last one."""
    if which in (None, "last"):
        return None
    if not which.isascii() or not which.isdecimal() or not 0 < int(which) < MOST_NUMBER:
        raise click.BadParameter(f"{which!r} is no shift: write its number, or last", param_hint="--shift")
    return int(which)


def _sum(text: str) -> Decimal:
    if not _SUM.fullmatch(text):
        message = f"{text!r} is no sum: write one as 1234.50, without a sign of thousands"
        raise click.BadParameter(message, param_hint="--expect")
    return Decimal(text)


def window(span: Span) -> tuple[datetime, datetime]:
    """Return when a payment of these days was asked for: from, and before. The list of the API goes by that time."""
    return span.start - LONGEST_PAYMENT, span.end + CLOCKS_DIFFER


def _read_days(
    api: Api, span: Span, now: datetime, *, terminal: str | None, metadata: str | None, progress: Progress
) -> Report:
    """Read all payments that can be of these days, and what is open since before. Raise Problem or Unreachable."""
    since, until = window(span)
    found: dict[str, Facts] = {}
    # What is open comes first: what ends meanwhile is then read again as what it has become.
    for params in ({"open": "true", "until": iso(until)}, {"since": iso(since), "until": iso(until)}):
        for facts in _pages(api, params, metadata):
            found[facts.id] = facts
            progress(len(found))
    others = {}
    for identity in sorted(standing.related(found.values())):
        try:
            others[identity] = read(api.get(f"/transactions/{identity}").body)
        except Problem as problem:
            if problem.code not in ("not_found", "pruned"):  # or of another database: then it is not known
                raise
    inside = {item.id for item in found.values() if sums.belongs(item, span)}
    elsewhere = {facts.id for facts in _pages(api, {"attention": "true"}, None)} - inside
    return sums.make(span, found.values(), others, now, terminal=terminal, elsewhere=len(elsewhere))


def _clock_doubts(api: Api, span: Span) -> list[str]:
    """Say when the clock of posd's machine was not believed within these days, as far as this user is told.

    Nothing where posd cannot say it: it is older, or has just stopped.
    """
    try:
        stretches = api.get("/clock").body["unsure"]
    except (Problem, Unreachable, LookupError) as error:
        if not isinstance(error, Problem) or error.code != "forbidden":
            return []
        check = api.get("/health", also={503}).body["checks"]["clock"]
        return [] if check["status"] == "ok" else [words.clock_doubt(None, None)]
    found = []
    for item in stretches:
        since = parse_iso(item["since"])
        until = None if item["until"] is None else parse_iso(item["until"])
        if since < span.end and (until is None or until >= span.start):
            found.append(words.clock_doubt(span.local(since), None if until is None else span.local(until)))
    return found


def _pages(api: Api, params: Mapping[str, str], metadata: str | None) -> Iterator[Facts]:
    query = {"limit": str(PAGE), **params}
    while True:
        body = api.get("/transactions", query).body
        for document in body["transactions"]:
            yield read(document, metadata)
        if body["next_cursor"] is None:
            return
        query["cursor"] = body["next_cursor"]


def _in_fleet(api: Api, serial: str) -> bool:
    return any(item["serial"] == serial for item in api.get("/terminals").body["terminals"])


def _zone(ctx: click.Context, name: str | None) -> ZoneInfo:
    """Return the time zone of the days. Raise UsageError where it is not known: a day of another zone is another."""
    if name is None and times.in_utc():
        name = "UTC"
    if name is None:
        config, problems = examine(Path(context(ctx).config_path), check_files=False)
        name = None if config is None else config.merchant.timezone
        if name is None or any(problem.key.startswith("merchant") for problem in problems):
            raise click.UsageError(
                "which time zone? The merchant's stands in the configuration, which cannot be used "
                f"({'; '.join(map(str, problems))}): name the file with --config FILE, or the zone with --timezone NAME"
            )
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"{name!r} is not a time zone: write one as America/Guayaquil"
        raise click.BadParameter(message, param_hint="--timezone") from error


def _span(day: str | None, first: str | None, last: str | None, today: date, zone: ZoneInfo) -> Span:
    if day is not None and (first is not None or last is not None):
        raise click.UsageError("DAY is one day, --from and --to are several: give the one or the others")
    if last is not None and first is None:
        raise click.UsageError("--to needs --from: the first of the days")
    begin = _day(first or day or "today", today, "--from" if first else "DAY")
    end = _day(last, today, "--to") if last else (today if first else begin)
    if end < begin:
        raise click.UsageError(f"the days end ({end}) before they begin ({begin})")
    return Span(begin, end, zone)


def _day(text: str, today: date, hint: str) -> date:
    try:
        return read_day(text, today)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=hint) from error


@contextmanager
def _progress(output: Output) -> Iterator[Progress]:
    """Show on a terminal how many payments were read, until the block ends."""
    spinner = SpinnerColumn("line" if output.stderr.options.ascii_only else "dots")
    columns: tuple[Any, ...] = (spinner, TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bar(*columns, console=output.stderr, transient=True, disable=not output.stderr.is_terminal) as bar:
        task = bar.add_task("reading payments", total=None)
        yield lambda count: bar.update(task, description=f"reading payments: {count}")


def _print(text: str) -> None:
    """Print to standard output what is no text for a terminal: the bytes as they are."""
    click.echo(text.encode("utf-8", "replace"), nl=False)


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all; one that is there is replaced, with the permissions of a new file.

    Raise UsageError where it cannot be written.
    """
    content = text.encode("utf-8", "replace")
    try:
        if path.exists() and not path.is_file():  # a pipe or a device is written to, not replaced
            path.write_bytes(content)
            return
        target = path.resolve()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o666 & ~_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        message = f"cannot write {path}: {error.strerror or error}; name a file in a directory that you may write to"
        raise click.UsageError(message) from error


def _umask() -> int:
    """Return the bits that new files lack here; the system tells them only by setting them."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
