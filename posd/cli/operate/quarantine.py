"""`posd quarantine` and `posd reprocess`: authentic messages that could not be used, and applying them after all."""

import base64
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec

from posd.base.text import escaped
from posd.cli.app.connection import connect, json_option
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output, inline
from posd.cli.app.subject import COMMANDS_FOR
from posd.cli.app.tables import Id, Number
from posd.cli.app.times import TimeCell, moment

#: seconds: posd derives every transaction again; far above what the largest database needs, so that a fault ends too.
REPROCESS_SECONDS = 3600.0
#: `channel` of a message -> its name in the table (terminal API, Events).
CHANNELS: Mapping[str, str] = {"transactions": "payment", "print-jobs": "print"}
#: bytes in a line of a hex dump: 79 columns.
DUMP_BYTES = 16
#: Stands before each line of a body, so that none can pass for a line of posd's.
MARGIN = "  "


@click.command()
@click.argument("entry_id", metavar="[ID]", type=click.IntRange(min=1), required=False)
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many at a time.")
@click.option("--all", "everything", is_flag=True, help="All of them (--json: a page a line).")
@json_option
@click.pass_context
def quarantine(ctx: click.Context, output: Output, entry_id: int | None, limit: int, everything: bool) -> None:
    """Show messages that were set aside.

    A terminal sent them, but posd could not use them. With ID: one of them, with its body.
    """
    with connect(ctx) as api:
        if entry_id is not None:
            output.reply(api.get(f"/quarantine/{entry_id}"), show_entry)
            return
        params = {"limit": str(limit), "after": "0"}
        entries: list[Mapping[str, Any]] = []
        while True:
            reply = api.get("/quarantine", params)
            page = reply.body["quarantine"]
            if page or not entries:
                output.json(reply.raw)
            entries += page
            if not (page and everything):
                break
            params["after"] = str(reply.body["next_after"])
    if entries or not output.rich:
        columns = ("id", "received", "channel", "about", "peer", "bytes", "reason")
        output.table(columns, map(entry_row, entries))
    else:
        output.line("Nothing is set aside.")
    if entries:
        output.note(f"the first of them: posd quarantine {entries[0]['id']}; once its reason is mended: posd reprocess")
    if len(page) == limit:
        output.note("there may be more: --all shows them, --limit more of them")


def entry_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the row of a message that was set aside: its channel, and its payment or print job."""
    about = entry["client_transaction_id"] or entry["print_job_id"] or "-"
    return (
        str(entry["id"]),
        TimeCell(entry["received_at"]),
        CHANNELS.get(entry["channel"], entry["channel"]),
        Id(about),
        entry["peer"] or "-",
        Number(len(base64.b64decode(entry["body"]))),
        entry["reason"],
    )


def show_entry(output: Output, entry: Mapping[str, Any]) -> None:
    """Write a message that was set aside, with its body in a form that cannot steer the screen."""
    body = base64.b64decode(entry["body"])
    pairs = {**entry, "received_at": moment(entry["received_at"], date=True), "body": f"{len(body)} bytes:"}
    output.panel("set aside", [(name, inline(value)) for name, value in pairs.items() if inline(value)], "cyan")
    for line in body_lines(body):
        click.echo(f"{MARGIN}{line}")


def body_lines(body: bytes) -> Iterator[str]:
    """Yield a body: JSON indented, other text with its unprintable characters escaped, anything else as a hex dump."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        yield from hex_dump(body)
        return
    with suppress(ValueError, RecursionError):  # not JSON: that may be why it is here
        text = msgspec.json.format(text, indent=2)
    yield from escaped(text).split("\n")


def hex_dump(body: bytes) -> Iterator[str]:
    """Yield lines of offset, hexadecimal bytes, and what of them is printable ASCII."""
    for offset in range(0, len(body), DUMP_BYTES):
        part = body[offset : offset + DUMP_BYTES]
        readable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{offset:08x}  {part.hex(' '):<{3 * DUMP_BYTES - 1}}  |{readable}|"


@click.command()
@json_option
@click.pass_context
def reprocess(ctx: click.Context, output: Output) -> None:
    """Apply what was set aside, and check all payments and print jobs.

    posd derives each of them again from what the terminals sent, and corrects what differs. Exit code 0 where
    nothing differed, 1 where something did and was corrected.
    """
    with connect(ctx) as api:
        try:
            with output.busy("posd derives every payment and print job again"):
                reply = api.post("/reprocess", seconds=REPROCESS_SECONDS)
        except KeyboardInterrupt:
            output.note("Stopped waiting; posd may go on with it. Run the command again to see the result.", "yellow")
            sys.exit(ExitCode.OPEN)
    output.reply(reply, show_result)
    sys.exit(ExitCode.NOT_DONE if _differences(reply.body) else ExitCode.DONE)


def _differences(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*result["differences"], *result["printing"]["differences"]]


def show_result(output: Output, result: Mapping[str, Any]) -> None:
    """Write what `reprocess` applied and corrected, and what is left."""
    printing = result["printing"]
    applied, differences = [*result["applied"], *printing["applied"]], _differences(result)
    output.line(f"payments checked: {result['transactions']}, print jobs: {printing['print_jobs']}")
    if result["skipped"]:
        output.line(f"payments of an earlier version, which kept too little to check them: {result['skipped']}")
    output.line(f"messages applied: {len(applied)}, still set aside: {result['quarantined']} (posd quarantine)")
    if applied:
        rows = [(str(item["id"]), Id(_about(item)), item["verdict"] or "known") for item in applied]
        output.table(("id", "about", "verdict"), rows)
    if not differences:
        output.line("Nothing differed.", "green")
        return
    counts = [each.get("differing", len(each["differences"])) for each in (result, printing)]
    what = " and ".join(
        f"{noun}: {count}" for noun, count in zip(("payments", "print jobs"), counts, strict=True) if count
    )
    output.line(f"What differed from what is on record for it, and was corrected: {what}", "yellow")
    show_differences(output, differences)
    if sum(counts) > len(differences):
        output.line(f"and {sum(counts) - len(differences)} more; posd's log names them", "yellow")
    output.line("Compare them with what the till booked:", "yellow")
    for item in differences[:COMMANDS_FOR]:
        command = "posd show" if item.get("client_transaction_id") else "posd print-jobs"
        output.line(f"{command} {_about(item)}", indent=4)


def _about(item: Mapping[str, Any]) -> str:
    """Return the id of the payment or the print job that a message or a difference is about."""
    return str(item.get("client_transaction_id") or item.get("print_job_id"))


def show_differences(output: Output, differences: Sequence[Mapping[str, Any]]) -> None:
    """Write what was corrected: a table for each of them on a terminal, one table of all in a pipe."""
    columns = ("field", "before", "after")
    told = [
        (
            _about(difference),
            [
                row
                for field in difference["fields"]
                for row in changes(field, difference["before"].get(field), difference["after"].get(field))
            ],
        )
        for difference in differences
    ]
    if not output.rich:
        output.table(("about", *columns), [(about, *row) for about, rows in told for row in rows])
        return
    for about, rows in told:
        output.line(about, "bold")
        output.table(columns, rows)


def changes(field: str, before: object, after: object) -> Iterator[tuple[str, str, str]]:
    """Yield what differs between two values of a field, inside objects member by member; a dash stands for nothing."""
    if isinstance(before, Mapping | None) and isinstance(after, Mapping | None) and (before or after):
        one, other = before or {}, after or {}
        for name in dict.fromkeys((*one, *other)):
            if one.get(name) != other.get(name):
                yield from changes(f"{field}.{name}", one.get(name), other.get(name))
        return
    yield field, inline(before) or "-", inline(after) or "-"
