"""`posd collect`: read the stream of all lanes into PostgreSQL at head office, and query it."""

import asyncio
import csv
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
import msgspec

from posd.base.json_types import encode
from posd.base.money import total
from posd.base.text import shown
from posd.base.times import iso, parse_iso
from posd.cli.app import parameters
from posd.cli.app.connection import json_option
from posd.cli.app.context import Context, ExitCode
from posd.cli.app.errors import Failure
from posd.cli.app.output import Output, counted, money
from posd.cli.app.tables import Number
from posd.cli.app.times import moment, roughly
from posd.cli.report.view import read_day
from posd.config import Config, load

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from posd.collect.questions import CompletenessCheck, DayTotal, TotalsGap

T = TypeVar("T")

#: Maximum number of incomplete lanes that the totals name.
NAMED = 10

#: Packages that `posd collect` needs in addition to posd: module -> package.
PACKAGES = {"nats": "nats-py", "psycopg": "psycopg"}


@click.group(invoke_without_command=True)
@click.option("--init", is_flag=True, help="Make the stream, its consumer and the tables, if they are missing.")
@click.option("--replicas", type=click.IntRange(1, 5), default=1, help="With --init: number of servers with a copy.")
@click.option("--once", is_flag=True, help="Collect all stored messages, and end.")
@click.option("--from-start", is_flag=True, help="Read the whole stream once more, and end. Existing rows stay.")
@click.option("--check", is_flag=True, help="Show missing changes, and up to when each lane is complete.")
@click.option("--quick", is_flag=True, help="With --check: do not count earlier rows.")
@json_option
@click.pass_context
def collect(
    ctx: click.Context,
    output: Output,
    init: bool,
    replicas: int,
    once: bool,
    from_start: bool,
    check: bool,
    quick: bool,
) -> None:
    """Read the stream of all lanes into PostgreSQL, until SIGTERM or Ctrl-C.

    Several collectors may run at once. A collector acknowledges a message after its commit. A repeated message makes no
    difference. [collect] in the configuration names the servers and the database.

    --check counts every row of the lanes. --quick uses the counts that were made when the rows arrived.

    Exit code of --check: 0: all lanes are complete and have sent lately. 1: a change is missing or lost, a lane is
    silent, its posd does not answer, or a message could not be used.
    """
    if missing := how_to_get():
        raise Failure(f"posd collect cannot run; {missing}", ExitCode.USAGE, output)
    if ctx.invoked_subcommand is not None:
        return
    if sum((init, once, from_start, check)) > 1:
        raise click.UsageError("choose one of --init, --once, --from-start and --check")
    if quick and not check:
        raise click.UsageError("--quick belongs to --check")
    config = _config(ctx)
    if check:
        from posd.collect import questions

        checked = _asked(config, output, lambda connection: questions.check(connection, counted=not quick))
        ctx.exit(_show_check(output, checked))
    if not config.collect.servers:
        raise click.UsageError(
            'collect.servers is empty: name the NATS servers, like servers = ["tls://nats.example.org:4222"]'
        )
    if init:
        made = _tried(output, _init(config, replicas))
        output.json(msgspec.json.encode({"ok": True, "made": made}))
        output.line(f"Made: {', '.join(made)}." if made else "Everything is there already; nothing was changed.")
    elif once or from_start:
        counts = _tried(output, _once(config, from_start, output))
        output.json(msgspec.json.encode({"messages": counts.messages_total, "unreadable": counts.unreadable_total}))
        aside = f"; {counts.unreadable_total} could not be used (posd.unreadable)" if counts.unreadable_total else ""
        output.line(f"Took {counted(counts.messages_total, 'message')}{aside}.")
    else:
        from posd.collect.collector import run

        ctx.exit(run(config))


@collect.command()
@click.option("--day", default="today", metavar="DAY", help="today, yesterday, or a date such as 2026-11-20.")
@click.option("--to", "last", metavar="DAY", help="The last day of several.")
@click.option("--timezone", metavar="NAME", help="Time zone of the days; without it, the merchant's (configuration).")
@click.option("--csv", "as_table", is_flag=True, help="Print CSV.")
@json_option
@click.pass_context
def totals(
    ctx: click.Context, output: Output, day: str, last: str | None, timezone: str | None, as_table: bool
) -> None:
    """Total what the lanes have charged, by day, lane, type and currency, as `posd report` counts it.

    The output names lanes whose payments may be missing, and counts payments without an outcome.
    """
    from posd.collect import questions

    config = _config(ctx)
    zone = timezone or config.merchant.timezone
    try:
        today = datetime.now(UTC).astimezone(ZoneInfo(zone)).date()
        first_day = read_day(day, today)
        last_day = read_day(last, today) if last is not None else first_day
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise click.UsageError(str(error)) from error

    async def ask(connection: "AsyncConnection[Any]") -> "tuple[list[DayTotal], TotalsGap]":
        days = (first_day, last_day, zone)
        return await questions.totals(connection, *days), await questions.totals_gap(connection, *days)

    found, gap = _asked(config, output, ask)
    if output.as_json:
        rows = [{**row._asdict(), "total": row.total} for row in found]
        lacks = [{"merchant": merchant, "lane": lane, "complete_to_at": at} for merchant, lane, at in gap.lanes]
        document = {"timezone": zone, "totals": rows, "incomplete": lacks, **gap._asdict()}
        del document["lanes"]
        output.json(encode(document))
        return
    _note_gap(output, gap)
    columns = ("day", "merchant", "lane", "type", "payments", "total", "currency")
    cells = [
        (
            row.day.isoformat(),
            row.merchant,
            row.lane,
            row.kind,
            str(row.payments),
            money(row.total),
            _code(row.currency),
        )
        for row in found
    ]
    if as_table:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([columns, *cells])
        return
    output.table(columns, [(*cell[:4], Number(cell[4]), Number(cell[5]), cell[6]) for cell in cells])
    for currency in sorted({_code(row.currency) for row in found}) or [""]:
        of_it = [row for row in found if _code(row.currency) == currency]
        sums = f"{money(total(row.total for row in of_it))} {currency}".rstrip()
        output.note(f"{counted(sum(row.payments for row in of_it), 'payment')}, {sums}; days of {zone}")


def _note_gap(output: Output, gap: "TotalsGap") -> None:
    """Print what the totals may lack."""
    lines = [
        f"{shown(f'{merchant}.{lane}')} is complete up to {moment(at, date=True) if at else 'an unknown time'}: later "
        "payments may be missing"
        for merchant, lane, at in gap.lanes[:NAMED]
    ]
    if len(gap.lanes) > NAMED:
        lines.append(f"{len(gap.lanes) - NAMED} more lanes are not complete (posd collect --check)")
    if gap.open:
        lines.append(f"{counted(gap.open, 'payment')} of these days without an outcome: not counted")
    if gap.unclear:
        lines.append(f"{counted(gap.unclear, 'approved payment')} of unknown type or amount: not counted")
    if gap.lost:
        lines.append(f"{counted(gap.lost, 'change')} of these days lost before the lanes sent them (posd.lost)")
    if gap.unreadable:
        lines.append(f"{counted(gap.unreadable, 'message')} could not be used (posd.unreadable): not counted")
    if lines:
        output.note(lines, style="yellow")


def _code(currency: str | None) -> str:
    """Return a currency with "?" for all but letters and digits. So a spreadsheet reads no CSV cell as a formula."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "?" for letter in currency or "")


@collect.command()
@click.option("--lane", required=True, metavar="LANE", help="The lane.")
@click.option("--merchant", metavar="ID", help="The merchant, if several have a lane of that name.")
@click.option(
    "--since", type=parameters.moment, required=True, metavar="TIME", help="A time like 10:42 or -1h; days are in UTC."
)
@json_option
@click.pass_context
def ids(ctx: click.Context, output: Output, lane: str, merchant: str | None, since: str | date) -> None:
    """Print the ids of payments that started or changed on a lane since a time, for `posd restore --ids FILE`.

    Each line has the id, the time of the start, the terminal and the till's key of the sale, separated by tabs.
    """
    from posd.collect.questions import started

    begin = parse_iso(f"{since}T00:00:00Z" if isinstance(since, date) else since)
    found = _asked(_config(ctx), output, lambda connection: started(connection, merchant, lane, begin))
    names = ("client_transaction_id", "at", "terminal", "sale")
    rows = [(name, iso(at), terminal, sale) for name, at, terminal, sale in found]
    if output.as_json:
        output.json(msgspec.json.encode({"ids": [dict(zip(names, row, strict=True)) for row in rows]}))
        return
    for row in rows:
        if row[0].isprintable():  # faulty data of a lane must not add lines to the list
            click.echo("\t".join(part if part and part.isprintable() else "" for part in row).rstrip("\t"))


@collect.command()
@click.option("--lane", required=True, metavar="LANE", help="The lane.")
@click.option("--merchant", metavar="ID", help="The merchant, if several have a lane of that name.")
@json_option
@click.pass_context
def retire(ctx: click.Context, output: Output, lane: str, merchant: str | None) -> None:
    """Mark a lane as closed: it no longer counts as silent or incomplete. All rows of the lane stay.

    If it sends again, it is a normal lane again.
    """
    from posd.collect import questions

    async def work(connection: "AsyncConnection[Any]") -> list[str]:
        merchants = [name for name in await questions.merchants_of(connection, lane) if merchant in (None, name)]
        if len(merchants) == 1:
            await questions.retire(connection, merchants[0], lane)
        return merchants

    found = _asked(_config(ctx), output, work)
    if not found:
        name = lane if merchant is None else f"{merchant}.{lane}"
        words = f"head office knows no lane {shown(name)}"
        raise Failure(words, ExitCode.NOT_DONE, output, msgspec.json.encode({"ok": False, "error": words}))
    if len(found) > 1:
        names = ", ".join(map(shown, found))
        raise click.UsageError(f"several merchants have a lane {shown(lane)}: name one by --merchant ({names})")
    output.json(msgspec.json.encode({"ok": True, "merchant": found[0], "lane": lane}))
    name = shown(f"{found[0]}.{lane}")
    output.line(f"{name} is no longer expected. Its rows stay, and its next message reverses this.")


def how_to_get() -> str:
    """Return how to install the missing packages, or "" if none is missing."""
    if find_spec("posd.collect") is None:
        return "it is in the package posd-fleet: sudo apt-get install ./posd-fleet_VERSION_all.deb"
    absent = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    return f"it needs {' and '.join(absent)}: pip install 'posd[relay,collect]'" if absent else ""


def _config(ctx: click.Context) -> Config:
    """Read the configuration."""
    given: Context = ctx.find_object(Context) or Context("", None)
    return load(Path(given.config_path), check_files=False)


def _tried(output: Output, work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, and return its result. Raise Failure if a server is unreachable or refuses something."""
    import psycopg

    from posd.collect.collector import words_of
    from posd.collect.store import is_of_the_data
    from posd.relay.messages import OperatorNeeded
    from posd.relay.stream import StreamAway

    def failure(error: Exception, code: ExitCode, *more: str) -> Failure:
        raw = msgspec.json.encode({"ok": False, "error": words_of(error)})
        return Failure([words_of(error), *(f"  {text}" for text in more if text)], code, output, raw)

    try:
        return asyncio.run(work)
    except OperatorNeeded as error:
        raise failure(error, ExitCode.USAGE, error.todo) from error
    except StreamAway as error:
        raise failure(error, ExitCode.UNREACHABLE, error.todo) from error
    except psycopg.Error as error:
        if is_of_the_data(error):
            raise failure(error, ExitCode.NOT_DONE) from error
        advice = (
            "PostgreSQL is named by collect.dsn of the configuration, or by the environment (PGHOST, PGDATABASE, ...)"
        )
        raise failure(error, ExitCode.UNREACHABLE, advice) from error


def _asked(config: Config, output: Output, ask: "Callable[[AsyncConnection[Any]], Coroutine[Any, Any, T]]") -> T:
    """Connect to PostgreSQL, check the tables, and return the result of `ask`. Raise Failure."""
    import psycopg

    from posd.collect.store import CollectorStore

    async def work() -> T:
        async with await psycopg.AsyncConnection.connect(config.collect.dsn, autocommit=True) as connection:
            await CollectorStore(connection).prepare()
            return await ask(connection)

    return _tried(output, work())


async def _init(config: Config, replicas: int) -> list[str]:
    import psycopg

    from posd.collect.collector import connected
    from posd.collect.store import CollectorStore

    async with connected(config.collect) as source:
        made = await source.make(replicas)
    async with await psycopg.AsyncConnection.connect(config.collect.dsn, autocommit=True) as connection:
        if await CollectorStore(connection).prepare(init=True):
            made.append("the tables")
    return made


async def _once(config: Config, from_start: bool, output: Output) -> Any:
    from posd.collect.collector import Collector

    with output.progress("taking messages") as update:
        collector = Collector(config.collect, lambda counts: update(completed=counts.messages_total))
        return await collector.once(from_start=from_start)


def _how(lane: Any) -> str:
    """Return the state of a lane in a few words."""
    if lane.retired_at is not None:
        return "closed"
    if lane.silent:
        return f"silent, posd {lane.health}" if lane.unreachable else "silent"
    return lane.health or ""


def _show_check(output: Output, found: "CompletenessCheck") -> ExitCode:
    """Show the state of all lanes. Return the exit code."""
    lanes, gaps, unreadable, counted_rows = found
    well = found.well
    if not lanes and not output.as_json:
        output.line("No lane has sent anything yet.")
        return ExitCode.DONE
    if output.as_json:
        document = {
            "ok": well,
            "lanes": [lane._asdict() for lane in lanes],
            "gaps": [gap._asdict() for gap in gaps],
            "unreadable": unreadable,
            "rows_counted": counted_rows,
        }
        output.json(msgspec.json.encode(document))
        return ExitCode.DONE if well else ExitCode.NOT_DONE
    now = datetime.now(UTC)
    output.table(
        ("merchant", "lane", "complete to", "last message", "gaps", "in doubt", "attention", "posd"),
        [
            (
                lane.merchant,
                lane.lane,
                moment(lane.complete_to_at, date=True) if lane.complete_to_at else "not known",
                f"{roughly((now - lane.last_state_at).total_seconds())} ago" if lane.last_state_at else "never",
                Number(str(lane.gaps)),
                Number(str(lane.in_doubt)),
                Number(str(lane.attention)),
                _how(lane),
            )
            for lane in lanes
        ],
    )
    for gap in gaps:
        output.line(
            f"Missing: {gap.merchant}.{gap.lane}, database {gap.database_id}: after {gap.after_seq}, before "
            f"{gap.before_seq}",
            "yellow",
        )
        output.line(f"  On that lane: posd relay --once --from {(gap.after_seq or 0) + 1}")
    losing = [lane for lane in lanes if lane.lost and lane.wanting]
    for lane in losing:
        output.line(
            f"Lost: {lane.merchant}.{lane.lane}: {counted(lane.lost, 'change')}, see the table posd.lost", "yellow"
        )
    if unreadable:
        words = f"{counted(unreadable, 'message')} or changes could not be used: see the table posd.unreadable"
        output.line(words, "yellow")
    if not counted_rows:
        output.line("This check did not count the rows, so it cannot notice deleted rows.")
    silent = sum(lane.silent for lane in lanes)
    unreachable = sum(lane.unreachable and lane.retired_at is None for lane in lanes)
    words = f"{silent} silent, {unreachable} unreachable, {counted(len(gaps), 'gap')}"
    if losing:
        words += f", {counted(sum(lane.lost for lane in losing), 'change')} lost"
    output.line(
        f"{counted(len(lanes), 'lane')}: {'all complete, and each has sent recently' if well else words}.",
        "" if well else "bold yellow",
    )
    return ExitCode.DONE if well else ExitCode.NOT_DONE
