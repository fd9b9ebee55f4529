"""Commands on the running daemon's database: `posd backup`, `prune` and `quarantine`."""

import base64
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from posd.base.files import acting_as_owner
from posd.base.text import escaped
from posd.cli.app.completion_words import files
from posd.cli.app.connection import Api, Reply, connect, json_option
from posd.cli.app.context import ExitCode
from posd.cli.app.errors import fail, interruptible
from posd.cli.app.output import Output, aside, counted, inline, size
from posd.cli.app.parameters import asks, check_usage, confirm
from posd.cli.app.private_file import private_file
from posd.cli.app.subject import COMMANDS_FOR
from posd.cli.app.tables import Id, Number
from posd.cli.app.times import TimeCell, moment
from posd.cli.explain.catalogue import chosen, named, say, translate
from posd.cli.operate.config import refuse_own_file
from posd.storage import StorageUnavailable, StoreError, UnusableFile, connection
from posd.storage import backup as backup_file

#: Time-out of a backup, of `prune` and of `quarantine --apply` in seconds, so that a hanging call ends. The largest
#: database needs far less.
WORK_SECONDS = 6 * 3600.0


@click.command()
@click.argument("path", metavar="[FILE]", required=False, shell_complete=files)
@click.option(
    "--into", metavar="DIRECTORY", shell_complete=files, help="Write it into this directory, with the time in its name."
)
@click.option(
    "--keep",
    type=click.IntRange(1, backup_file.MOST_KEPT),
    metavar="N",
    help=f"With --into: keep the newest N [{backup_file.KEEP}].",
)
@json_option
@click.pass_context
def backup(ctx: click.Context, output: Output, path: str | None, into: str | None, keep: int | None) -> None:
    """Copy the database to FILE while payments run; `-` is standard output.

    The finished copy is checked from end to end. It contains the callback key, so keep it as secret as the key. An
    existing backup FILE is replaced when the new one is complete.

    With --into DIRECTORY posd itself writes a compressed backup, and chooses its name. Backups beyond the newest N are
    removed when the new one is complete, or earlier if the disk lacks space.
    """
    check_usage(
        "backup",
        no_file=(path is None) == (into is None),
        no_directory=keep is not None and into is None,
        bytes=path == "-" and (output.as_json or sys.stdout.isatty()),
    )
    with connect(ctx) as api, interruptible(output):
        if path == "-":
            _send(api, output)
        elif path is not None:
            _receive(api, output, Path(path).absolute())
        else:
            _rotate(api, output, Path(into or "").absolute(), backup_file.KEEP if keep is None else keep)


def _rotate(api: Api, output: Output, directory: Path, keep: int) -> None:
    """Request that posd writes a backup into a directory, and show what it wrote and removed."""
    with output.busy(say("backup", "busy")):
        reply = api.post("/backup", {"into": str(directory), "keep": keep}, seconds=WORK_SECONDS)
    if output.as_json:
        output.json(reply.raw)
        return
    written = reply.body
    _show_written(output, written)
    output.line(
        say("backup", "rotated", **written | {"removed": len(written["removed"])}, directory=directory, keep=keep)
    )
    for name in written["unusable"]:
        output.line(say("backup", "unusable", name=name), "yellow")


def _show_written(output: Output, written: Mapping[str, Any]) -> None:
    what = {"size": size(written["bytes"]), "payments": counted(written["transactions"], named("payment"))}
    output.line(say("backup", "written", path=written["path"], **what), "green")
    output.line(say("backup", "warning"))
    if not written["synced"]:
        output.line(say("backup", "not_synced"), "yellow")


def _receive(api: Api, output: Output, file: Path) -> None:
    """Write the backup that posd sends to a file, as the calling user. The file gets its name only after a check."""
    _refuse_other(file)
    pieces = _stream(api, output)
    try:
        with private_file(file, replaces=True) as fresh:
            with fresh.open("wb") as content:
                for piece in pieces:
                    backup_file.check_room(fresh.parent, len(piece))
                    content.write(piece)
            transactions, contents = connection.check_file(fresh), backup_file.read(fresh)
            written = backup_file.Written(
                str(file), fresh.stat().st_size, transactions, contents.made_at or "", backup_file.sync_name(fresh)
            )
    except (OSError, sqlite3.Error, StoreError, StorageUnavailable) as error:
        fail(output, say("backup", "not_written", file=file, reason=getattr(error, "strerror", None) or error))
    document = msgspec.json.encode(written)
    output.json(document)
    if not output.as_json:
        _show_written(output, msgspec.json.decode(document))


def _refuse_other(file: Path) -> None:
    """Raise UsageError if a target exists and is not a backup, or is one of posd's own files."""
    refuse_own_file(file)
    try:
        with acting_as_owner(file):
            if file.exists() and not backup_file.is_backup(file):
                raise click.UsageError(say("backup", "in_use", file=file))
    except (OSError, UnusableFile) as error:
        raise click.UsageError(say("backup", "foreign", file=file)) from error


def _send(api: Api, output: Output) -> None:
    stream, count = sys.stdout.buffer, 0
    for piece in _stream(api, output):
        count += stream.write(piece)
    stream.flush()
    output.note(f"{say('backup', 'sent', size=size(count))} {say('backup', 'warning')}")


def _stream(api: Api, output: Output) -> Iterator[bytes]:
    with output.busy(say("backup", "busy")):
        pieces = api.receive("/backup", {"send": True}, seconds=WORK_SECONDS)
        first = next(pieces, b"")
    return chain((first,), pieces)


@click.command()
@click.option(
    "--older-than",
    type=click.IntRange(0, 36_500),
    metavar="DAYS",
    help="Remove records that ended more than DAYS days ago. Default: database.retention_days.",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_context
def prune(ctx: click.Context, output: Output, older_than: int | None, dry_run: bool, yes: bool) -> None:
    """Remove payments and print jobs that ended long ago.

    posd does so by itself once a day. It keeps records that are open or have an attention, and all records of their
    chain. The id, terminal and result of a removed record stay, so that no payment is started twice. The removal
    cannot be undone.
    """
    asked: dict[str, Any] = {} if older_than is None else {"older_than_days": older_than}
    with connect(ctx) as api:
        if not dry_run and not yes:
            check_usage("prune", no_yes=not asks())
            beside = aside()
            found = _prune(api, output, "posd searches for old records", {**asked, "dry_run": True}).body
            _show(beside, found)
            if not any(found["removed"].values()):
                beside.line("There is nothing to remove.")
                return
            confirm(beside, "Remove it? It cannot be undone", "Nothing was removed.")
        with interruptible(output):
            reply = _prune(api, output, "posd removes what is old", {**asked, "dry_run": dry_run})
    output.reply(reply, _show)


def _prune(api: Api, output: Output, what: str, body: Mapping[str, Any]) -> Reply:
    with output.busy(what):
        return api.post("/prune", body, seconds=WORK_SECONDS)


def _show(output: Output, report: Mapping[str, Any]) -> None:
    removed, dry_run = report["removed"], report["dry_run"]
    nouns = {"transactions": "payment", "print_jobs": "print job", "quarantined": "refused callback"}
    parts = [counted(removed[name], named(noun)) for name, noun in nouns.items() if removed[name] or noun == "payment"]
    words = {"what": ", ".join(parts), "before": moment(report["before"], date=True)}
    output.line(say("prune", "would_remove" if dry_run else "removed", **words), "" if dry_run else "green")
    if report["kept_for_shift"]:
        output.line(say("prune", "kept_for_shift"), indent=2)
    kept = chosen("kept")
    for reason, count in sorted(report["kept"].items()):
        output.line(say("prune", "kept", count=count, reason=kept.get(reason, reason)), indent=2)
    if dry_run:
        return
    if report["bytes_returned"] is None:
        output.line(
            "The file is as large as before, and new payments use the free space. To make it smaller once: posd "
            "backup FILE, stop posd, posd restore FILE."
        )
    else:
        after = report["bytes_before"] - report["bytes_returned"]
        output.line(say("prune", "returned", space=size(max(0, report["bytes_returned"])), after=size(after)))
    output.line("Their ids are kept: none of them is ever started again.")


# `posd quarantine`: show stored messages that could not be used, and apply them later.

#: `channel` of a message -> name in the table (terminal API, Events).
CHANNELS: Mapping[str, str] = {"transactions": "payment", "print-jobs": "print"}
#: Number of bytes on a line of a hex dump, which then has 79 columns.
DUMP_BYTES = 16
#: Prefix of each line of a message's body, so that no such line looks like a text of posd.
MARGIN = "  "


@click.command()
@click.argument("entry_id", metavar="[ID]", type=click.IntRange(min=1), required=False)
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Rows at a time.")
@click.option("--all", "everything", is_flag=True, help="All of them (--json: one page per line).")
@click.option("--apply", "applying", is_flag=True, help="Apply them, and check all payments and print jobs.")
@json_option
@click.pass_context
def quarantine(
    ctx: click.Context, output: Output, entry_id: int | None, limit: int, everything: bool, applying: bool
) -> None:
    """Show or apply the messages in quarantine.

    A terminal sent them, but posd could not use them. With ID: one message, with its body.

    --apply derives each payment and print job again from the terminal's messages, and corrects differences. Exit code
    0: every checked record matches its messages. 1: posd corrected records.
    """
    check_usage("quarantine", all_of_them=applying and entry_id is not None)
    if applying:
        _apply(ctx, output)
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
        word = translate if output.rich else str  # a pipe is for programs
        output.table(columns, [entry_row(entry, word) for entry in entries])
    else:
        output.line("The quarantine is empty.")
    if entries:
        output.note(say("quarantine", "first", id=entries[0]["id"]))
    if len(page) == limit:
        output.note("there may be more: --all shows them, --limit more of them")


def entry_row(entry: Mapping[str, Any], word: Callable[[str], str]) -> tuple[str, ...]:
    """Return the row of a quarantined message. `word`: function that translates a word or a reason."""
    about = entry["client_transaction_id"] or entry["print_job_id"] or "-"
    return (
        str(entry["id"]),
        TimeCell(entry["received_at"]),
        word(CHANNELS.get(entry["channel"], entry["channel"])),
        Id(about),
        entry["peer"] or "-",
        Number(len(base64.b64decode(entry["body"]))),
        word(entry["reason"]),
    )


def show_entry(output: Output, entry: Mapping[str, Any]) -> None:
    """Write a quarantined message, with its body escaped for the screen."""
    body = base64.b64decode(entry["body"])
    told = {"reason": translate(entry["reason"]), "body": f"{len(body)} bytes:"}
    pairs = {**entry, **told, "received_at": moment(entry["received_at"], date=True)}
    output.panel("set aside", [(name, inline(value)) for name, value in pairs.items() if inline(value)], "cyan")
    for line in body_lines(body):
        click.echo(f"{MARGIN}{line}")


def body_lines(body: bytes) -> Iterator[str]:
    """Yield the lines of a body: JSON indented, other text escaped, other bytes as a hex dump."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        yield from hex_dump(body)
        return
    with suppress(ValueError, RecursionError):  # invalid JSON may be the reason for the quarantine
        text = msgspec.json.format(text, indent=2)
    yield from escaped(text).split("\n")


def hex_dump(body: bytes) -> Iterator[str]:
    """Yield the lines of a hex dump: offset, hexadecimal bytes, printable ASCII."""
    for offset in range(0, len(body), DUMP_BYTES):
        part = body[offset : offset + DUMP_BYTES]
        readable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{offset:08x}  {part.hex(' '):<{3 * DUMP_BYTES - 1}}  |{readable}|"


@click.command(hidden=True)
@json_option
@click.pass_context
def reprocess(ctx: click.Context, output: Output) -> None:
    """Apply the messages in quarantine: the old name of posd quarantine --apply."""
    _apply(ctx, output)


def _apply(ctx: click.Context, output: Output) -> NoReturn:
    with connect(ctx) as api:
        words = "Stopped waiting; posd may continue with it. Run the command again to see the result."
        with interruptible(output, words), output.busy("posd derives every payment and print job again"):
            reply = api.post("/reprocess", seconds=WORK_SECONDS)
    output.reply(reply, show_result)
    sys.exit(ExitCode.NOT_DONE if _differences(reply.body) else ExitCode.DONE)


def _differences(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*result["differences"], *result["printing"]["differences"]]


def show_result(output: Output, result: Mapping[str, Any]) -> None:
    """Write the results of `quarantine --apply`, and the messages that are still in quarantine."""
    printing = result["printing"]
    applied, differences = [*result["applied"], *printing["applied"]], _differences(result)
    checked = {"payments": result["transactions"], "jobs": printing["print_jobs"], "skipped": result["skipped"]}
    output.line(say("reprocess", "checked", **checked))
    if result["skipped"]:
        output.line(say("reprocess", "skipped", **checked))
    output.line(say("reprocess", "applied", applied=len(applied), left=result["quarantined"]))
    if applied:
        rows = [(str(item["id"]), Id(_about(item)), named(item["verdict"] or "known")) for item in applied]
        output.table(("id", "about", "verdict"), rows)
    if not differences:
        output.line("Every checked record matches its messages.", "green")
        return
    counts = [each.get("differing", len(each["differences"])) for each in (result, printing)]
    nouns = map(named, ("payments", "print jobs"))
    what = ", ".join(f"{noun}: {count}" for noun, count in zip(nouns, counts, strict=True) if count)
    output.line(say("reprocess", "corrected", what=what), "yellow")
    show_differences(output, differences)
    if sum(counts) > len(differences):
        output.line(say("reprocess", "more", more=sum(counts) - len(differences)), "yellow")
    output.line("Compare them with what the till booked:", "yellow")
    for item in differences[:COMMANDS_FOR]:
        output.line(f"posd show {_about(item)}", indent=4)


def _about(item: Mapping[str, Any]) -> str:
    """Return the id of the payment or the print job that a message or a difference is about."""
    return str(item.get("client_transaction_id") or item.get("print_job_id"))


def show_differences(output: Output, differences: Sequence[Mapping[str, Any]]) -> None:
    """Write the corrected fields: on a terminal in a table for each record, in a pipe in one table."""
    columns = ("field", "before", "after")
    told = [(_about(difference), list(_changes(difference))) for difference in differences]
    if not output.rich:
        output.table(("about", *columns), [(about, *row) for about, rows in told for row in rows])
        return
    for about, rows in told:
        output.line(about, "bold")
        output.table(columns, rows)


def _changes(difference: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for field in difference["fields"]:
        yield from changes(field, difference["before"].get(field), difference["after"].get(field))


def changes(field: str, before: object, after: object) -> Iterator[tuple[str, str, str]]:
    """Yield (field, before, after) for a field, or for each different member of two objects. A dash is not a value."""
    if isinstance(before, Mapping | None) and isinstance(after, Mapping | None) and (before or after):
        one, other = before or {}, after or {}
        for name in dict.fromkeys((*one, *other)):
            if one.get(name) != other.get(name):
                yield from changes(f"{field}.{name}", one.get(name), other.get(name))
        return
    yield field, inline(before) or "-", inline(after) or "-"
