"""`posd report`: the payments of one or more days, and their totals."""

import re
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from posd.base.text import Language
from posd.base.times import iso
from posd.cli.app import times
from posd.cli.app.connection import Api, Problem, Unreachable, connect, json_option, merchant_zone
from posd.cli.app.context import ExitCode
from posd.cli.app.output import Output, counted
from posd.cli.app.parameters import check_usage
from posd.cli.app.private_file import write_private_file
from posd.cli.explain.catalogue import named, use
from posd.cli.operate.config import refuse_own_file
from posd.cli.report import table, view, words
from posd.cli.report.view import Comparison, ReportView, read_day, span

#: Time-out of the daemon's totals, in seconds: enough for a year of a busy machine.
READ_SECONDS = 600.0
#: Pattern of a shift's number. Its limit is far above real numbers.
_NUMBER = re.compile("[1-9][0-9]{,8}")
#: Pattern of a total that the user types for --expect, with or without a currency.
_SUM = re.compile(r"(-?\d{1,12}(?:\.\d{1,4})?)(?: ?([A-Z]{3}))?", re.ASCII)


@click.command()
@click.argument("day", required=False)
@click.option("--from", "first", metavar="DAY", help="The first day of several.")
@click.option("--to", "last", metavar="DAY", help="The last day of several; without it, today.")
@click.option("--since", type=click.Choice(["last"]), help="All payments since the last shift was closed.")
@click.option("--shift", "which", metavar="NUMBER", help="A closed shift, or last.")
@click.option("--close", "closes", is_flag=True, help="Close the shift: all payments since the last shift.")
@click.option("--begin", is_flag=True, help="With --close: begin the first shift now, without earlier payments.")
@click.option("--operator", metavar="NAME", help="With --close: name of the person who closes it.")
@click.option("--note", metavar="TEXT", help="With --close: a note to keep with it.")
@click.option(
    "--expect",
    metavar="SUM",
    help="Compare with the terminal's own total, such as 1234.50, or 1234.50 USD: exit code 1 if they differ.",
)
@click.option("--terminal", metavar="SERIAL", help="Only this terminal.")
@click.option("--csv", "as_table", is_flag=True, help="Print CSV: one row for each payment.")
@click.option("--html", metavar="FILE", help="Write one page for a browser or a printer; - prints it.")
@click.option("--metadata", metavar="KEY", help="Show this member of the till's metadata (JSON, CSV, HTML too).")
@click.option("--timezone", metavar="NAME", help="Time zone of the days; without it, the merchant's.")
@json_option
@click.pass_context
def report(
    ctx: click.Context, /, output: Output, day: str | None, first: str | None, last: str | None, **given: Any
) -> None:
    """Total the payments of a day, of several days, or of a shift.

    DAY is today, yesterday, or a date such as 2026-11-20; without it, today. Days are in the merchant's time zone. A
    payment counts at the time of the terminal's final event, with the authorized amount. Open and uncertain payments
    are listed separately and are in no total. A shift has all payments since the last one was closed, independent of
    the clock. Exit code 0: done. 1: the total differs from --expect.
    """
    since, which, html, expect = (given[name] for name in ("since", "which", "html", "expect"))
    closes, begin, as_table = (given[name] for name in ("closes", "begin", "as_table"))
    operator, note, terminal = (given[name] for name in ("operator", "note", "terminal"))
    check_usage(
        "report",
        formats=sum((output.as_json, as_table, html is not None)) > 1,
        no_name=html == "",
        kinds=sum((closes, since is not None, which is not None, not day is first is last is None)) > 1,
        begin=begin and (output.as_json or as_table or html is not None or expect is not None),
        no_operator=closes and not (operator or "").strip(),
        one_terminal=closes and terminal is not None,
        no_close=not closes and (begin or operator is not None or note is not None),
        days=day is not None and (first is not None or last is not None),
        no_first=last is not None and first is None,
    )
    if html is not None:
        refuse_own_file(Path(html))
    if as_table:  # CSV is for programs, so in English
        use(Language.EN)
    shift = _shift(which)
    expected = None if expect is None else _sum(expect)
    zone = _zone("UTC" if given["timezone"] is None and times.in_utc() else given["timezone"])
    asked_of = {"terminal": terminal, "metadata": given["metadata"], "timezone": zone.key if zone else None}
    with connect(ctx) as api:
        if closes:
            shift = _close(api, output, str(operator).strip(), (note or "").strip(), begin=begin)
            if shift is None:
                return
        with output.busy(words.said("adding_up")):
            asked = {"shift": shift or ("open" if since else None)}
            if asked["shift"] is None:
                zone = zone or merchant_zone(api)
                begins, ends = span(*_days(day, first, last, datetime.now(UTC).astimezone(zone).date()), zone)
                asked = {"since": iso(begins), "until": iso(ends)}
            wanted = {name: value for name, value in (asked | asked_of).items() if value is not None}
            made = ReportView(_read(api, wanted), given["metadata"])
            unknown = terminal is not None and not made["payments"]
            fleet = api.get("/terminals").body["terminals"] if unknown else ()
    unknown = unknown and all(item["serial"] != terminal for item in fleet)
    if unknown:
        output.note(words.said("not_in_fleet", serial=terminal), "yellow")
    if expected is not None:
        made = replace(made, expected=_compared(made, *expected))
    _write(output, made, as_table=as_table, html=html)
    if made.expected is not None and not made.expected.equal:
        sys.exit(ExitCode.NOT_DONE)


def _read(api: Api, query: dict[str, str]) -> Any:
    """Return the daemon's report. Raise Unreachable or Problem. Raise UsageError for an unknown shift."""
    try:
        return api.get("/report", query, seconds=READ_SECONDS).body
    except Problem as problem:
        if problem.code != "not_found":
            raise
        raise click.UsageError(problem.detail) from problem


def _close(api: Api, output: Output, operator: str, note: str, *, begin: bool) -> str | None:
    """Close the shift. Return the number of the shift to show, or None if the first shift began now.

    If nothing changed since the last shift, return the number of the last shift. If another call closed the shift,
    return the number of that shift.
    """
    before = api.get("/shifts").body["shifts"]
    last: Any = before[0] if before else None
    if begin and last is not None:
        raise click.UsageError(words.said("not_first", number=last["number"]))
    body = {"operator": operator, "note": note, "begin": begin, "after": last["up_to"] if last else 0}
    try:
        with output.busy(words.said("closing")):
            reply = api.post("/shifts", body, seconds=READ_SECONDS)
    except Unreachable as error:
        raise Unreachable(error.socket, error.reason, sent=error.sent, advice=words.said("not_known")) from error
    shift = reply.body
    if begin and reply.status == 201:
        output.line(words.said("begun", payments=counted(len(shift["payments"]), named("payment"))))
        return None
    if reply.status != 201:
        same = last is not None and shift["number"] == last["number"]
        output.note(words.said("not_closed" if same else "closed_by_another", **shift), "bold yellow")
    return str(shift["number"])


def _compared(made: ReportView, expected: Decimal, currency: str) -> Comparison:
    """Compare `expected` with the total in a currency.

    `currency`: "" if the report has only one. Raise UsageError for "" if the report has several.
    """
    if not currency and made["total"] is None:
        first, names = made["currencies"][0], ", ".join(words.currency_of(made, row) for row in made.by_currency)
        raise click.UsageError(words.said("currencies", names=names, expected=expected, first=first))
    found = [made["total"]] if not currency else [row for row in made["by_currency"] if row["currency"] == currency]
    return Comparison(expected, Decimal(found[0]["total"]) if found else Decimal(0), currency)


def _write(output: Output, made: ReportView, *, as_table: bool, html: str | None) -> None:
    """Write the report in the chosen form. With a page or CSV the comparison goes to stderr."""
    if output.as_json:
        output.json(view.write_json(made))
        return
    if not as_table and html is None:
        table.show(output, made)
        return
    if as_table:
        if made["unlisted"]:
            raise click.UsageError(words.unlisted(made))
        click.echo(view.write_csv(made).encode("utf-8", "replace"), nl=False)
        for doubt in words.clock_doubts(made):
            output.note(doubt, "yellow")
    else:
        _write_page(output, made, str(html))
    if made.expected is not None:
        output.note(words.comparison(made.expected), "" if made.expected.equal else "yellow")


def _write_page(output: Output, made: ReportView, html: str) -> None:
    from posd.cli.report import page  # here, because the templates take long to import

    text = page.write(made).encode("utf-8", "replace")
    if html == "-":
        click.echo(text, nl=False)
        return
    try:
        write_private_file(Path(html), text, replaces=True)
    except OSError as error:
        raise click.UsageError(words.said("not_written", file=html, reason=error.strerror or error)) from error
    output.line(words.said("page_written", file=html, payments=counted(len(made["payments"]), named("payment"))))
    if made["in_question"] or made.marked("attention"):
        output.line(words.said("page_begins"), "yellow")


def _shift(which: str | None) -> str | None:
    """Return the value of --shift: a number, or `last`. Raise BadParameter."""
    if which not in (None, "last") and _NUMBER.fullmatch(which) is None:
        raise click.BadParameter(words.said("no_shift", text=which), param_hint="--shift")
    return which


def _sum(text: str) -> tuple[Decimal, str]:
    """Parse the value of --expect. Return the sum and its currency ("" without one). Raise BadParameter."""
    if (found := _SUM.fullmatch(text)) is None:
        raise click.BadParameter(words.said("no_sum", text=text), param_hint="--expect")
    return Decimal(found[1]), found[2] or ""


def _zone(name: str | None) -> ZoneInfo | None:
    """Return the time zone of a name, or None for the merchant's. Raise BadParameter."""
    try:
        return None if name is None else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise click.BadParameter(words.said("no_zone", text=name), param_hint="--timezone") from error


def _days(day: str | None, first: str | None, last: str | None, today: date) -> tuple[date, date]:
    begin = _day(first or day or "today", today, "--from" if first else "DAY")
    end = _day(last, today, "--to") if last else (today if first else begin)
    if end < begin:
        raise click.UsageError(words.said("no_days", begin=begin, end=end))
    return begin, end


def _day(text: str, today: date, hint: str) -> date:
    try:
        return read_day(text, today)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=hint) from error
