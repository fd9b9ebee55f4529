"""`posd report`: the payments of a day, or of several, and what they came to."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
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
from posd.cli.app.output import Output
from posd.cli.report import exports, sums, table, words
from posd.cli.report.facts import CLOCKS_DIFFER, LONGEST_PAYMENT, Facts, Span, read, read_day
from posd.cli.report.sums import Report
from posd.cli.report.words import number
from posd.client.errors import Forbidden
from posd.config import examine

#: Payments asked for at a time: the most that the API gives.
PAGE = 500

#: Called with how many payments were read so far.
Progress = Callable[[int], object]


@click.command()
@click.argument("day", required=False)
@click.option("--from", "first", metavar="DAY", help="The first day of several.")
@click.option("--to", "last", metavar="DAY", help="The last day of several; without it, today.")
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
    terminal: str | None,
    as_table: bool,
    html: str | None,
    metadata: str | None,
    timezone: str | None,
) -> None:
    """Total the payments of a day, or of several.

    DAY is today, yesterday, or a date such as 2026-11-20; without it, today. A day is one in the merchant's time zone.
    A payment counts when the terminal says that it ended, with the amount that was authorized. What is open, or not
    known for sure, stands apart and is in no total. Exit code 0, also then.
    """
    if sum((output.as_json, as_table, html is not None)) > 1:
        raise click.UsageError("--json, --csv and --html are three ways to write the report: choose one")
    if html == "":
        raise click.UsageError("--html needs the name of a file, or - to print the page")
    zone = _zone(ctx, timezone)
    now = datetime.now(UTC)
    span = _span(day, first, last, now.astimezone(zone).date(), zone)
    with connect(ctx) as api, _progress(output) as progress:
        made = _read_days(api, span, now, terminal=terminal, metadata=metadata, progress=progress)
        unknown = terminal is not None and not made.payments and not _in_fleet(api, terminal)
        made = replace(made, clock_doubts=_clock_doubts(api, span))
    if unknown:
        output.note(f"Terminal {terminal} is not in the fleet (posd terminals), and has no payment here.", "yellow")
    if output.as_json:
        output.json(exports.write_json(made))
    elif as_table:
        _print(exports.write_csv(made, metadata=metadata))
        for doubt in made.clock_doubts:
            output.note(doubt, "yellow")
    elif html is not None:
        from posd.cli.report import page  # its templates take longer to import than the rest of the command

        text = page.write(made, metadata=metadata)
        if html == "-":
            _print(text)
            return
        write_file(Path(html), text)
        output.line(f"Written: {html}, {number(len(made.payments), 'payment')}.")
        if made.in_question or made.attention:
            output.line("It begins with what needs attention.", "yellow")
    else:
        table.show(output, made, metadata=metadata)


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
    for identity in sorted(sums.related(found.values())):
        try:
            others[identity] = read(api.get(f"/transactions/{identity}").body)
        except Problem as problem:
            if problem.code != "not_found":  # pruned, or of another database: then it is not known
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
    except Forbidden:
        check = api.get("/health", also={503}).body["checks"]["clock"]
        return [] if check["status"] == "ok" else [words.clock_doubt(None, None)]
    except (Problem, Unreachable, LookupError):
        return []
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
