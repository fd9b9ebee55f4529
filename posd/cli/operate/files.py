"""`posd restore` and `posd verify`, which use the database files directly and not through the daemon."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.progress import BarColumn

from posd.cli.app.connection import connect, json_option
from posd.cli.app.context import ExitCode, context, drop_lost_output
from posd.cli.app.errors import Failure
from posd.cli.app.output import DESCRIPTION, Output, aside, counted
from posd.cli.app.parameters import asks, caller, check_usage, confirm
from posd.cli.app.times import in_words, moment
from posd.cli.explain.catalogue import chosen, language, named, say, translate
from posd.cli.operate.config import act_as_owner, load_as_owner
from posd.records.callback_urls import NEW_KEY
from posd.records.witness import StartedPayment
from posd.records.witness_file import WitnessFile
from posd.storage import StoreError, UnusableFile
from posd.storage.marks import GoneBack, OldFile, Restored
from posd.upkeep import takeover
from posd.upkeep import verify as checking
from posd.upkeep.restore import Restore, RestorePlan
from posd.upkeep.takeover import InvalidIdList

Look = Callable[[str, int, int], None]


@contextmanager
def _told(output: Output) -> Iterator[None]:
    """Turn a StoreError of the block into a message and an exit code."""
    try:
        yield
    except StoreError as error:
        code = ExitCode.USAGE if isinstance(error, UnusableFile) else ExitCode.NOT_DONE
        raw = msgspec.json.encode({"ok": False, "error": str(error)})
        # Only InvalidIdList has several lines. In other messages a line break can be part of a file name.
        lines = [translate(line) for line in (error.lines if isinstance(error, InvalidIdList) else (str(error),))]
        raise Failure(lines, code, output, raw) from error


@contextmanager
def _progress(output: Output) -> Iterator[Look]:
    """On a terminal, show the present step and, if known, its progress. Yield a function that updates them."""
    with output.progress(named("opening the file"), output.spinner(), DESCRIPTION, BarColumn()) as update:

        def look(what: str, done: int, total: int) -> None:
            update(description=named(what), completed=done, total=total or None)

        yield look


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@json_option
@click.pass_context
def verify(ctx: click.Context, output: Output, file: Path | None) -> None:
    """Check the database, or the backup FILE; nothing is changed.

    posd may run. Exit code 0: nothing is wrong. 1: a fault was found. 2: the file cannot be checked.
    """
    if file is not None:
        act_as_owner(file)
    else:
        file = load_as_owner(context(ctx).config_path, as_json=output.as_json).database.path
    with _told(output), _progress(output) as look:
        report = checking.verify(file, look)
    output.json(msgspec.json.encode({"ok": not report.counts, **msgspec.structs.asdict(report)}))
    _show_report(output, report)
    sys.exit(ExitCode.NOT_DONE if report.counts else ExitCode.DONE)


def _show_report(output: Output, report: checking.VerifyReport) -> None:
    things = {"payment": report.transactions, "event": report.events, "print job": report.print_jobs}
    checked = [counted(count, named(noun)) for noun, count in things.items() if count or noun != "print job"]
    words = {"file": report.file, "checked": ", ".join(checked), "schema": report.schema}
    name = f"{'bad' if report.counts else 'good'}_{'backup' if report.backup else 'database'}"
    output.line(say("verify", name, **words), "red" if report.counts else "green")
    for kind, count in report.counts.items():
        found = [finding for finding in report.findings if finding.kind == kind]
        output.line(f"{kind}: {translate(found[0].means)}", "bold")
        for finding in found:
            output.line(f"{translate(finding.subject)}: {translate(finding.detail)}", indent=2)
        if count > len(found):
            output.line(say("verify", "more", more=count - len(found)), indent=2)
        output.line(say("verify", "todo", todo=translate(found[0].cure)), "yellow", indent=2)


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--without-backup", is_flag=True, help="Make a new database from the readable part of the present one.")
@click.option(
    "--ids",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take over the unknown payments of this list (- is standard input).",
)
@click.option("--seen", is_flag=True, help="Confirm that you have checked the payments in question; posd must run.")
@click.option(
    "--new-callback-key", is_flag=True, help="Make a new callback key in place of a lost one, while posd is stopped."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--operator",
    default=caller,
    show_default="your user",
    metavar="NAME",
    help="With --seen and --new-callback-key: name of the operator.",
)
@click.option("--note", metavar="TEXT", help="With --seen: what you found; if omitted, posd asks.")
@json_option
@click.pass_context
def restore(
    ctx: click.Context, /, output: Output, file: Path | None, without_backup: bool, ids: Path | None, **given: Any
) -> None:
    """Put the backup FILE in place of the database, while posd is stopped.

    posd keeps the present database under another name, and takes over the payments that the backup lacks, if it can
    read them. So no payment is started twice.

    If the disk is lost, --ids names a list of payments that were started on this lane; `posd collect ids` writes it.
    Each line has an id. The time of the start (such as 2026-11-20T10:42:03.120Z), the serial of the terminal and the
    till's key of the sale follow if known, each after a TAB. Payments that only the list knows are in doubt afterwards,
    and are never sent again. --ids without a FILE implies --without-backup.
    """
    restores = without_backup or (ids is not None and file is None)
    kinds = [file is not None, restores, given["seen"], given["new_callback_key"]]
    check_usage("restore", kinds=kinds.count(True) != 1)
    if given["seen"]:
        _confirm_seen(ctx, output, given["operator"], given["note"])
        return
    if given["new_callback_key"]:
        _make_key(ctx, output, given["operator"], given["yes"])
        return
    with _told(output):
        listed = _read_list(ids) if ids is not None else {}
    database = load_as_owner(context(ctx).config_path, as_json=output.as_json).database
    listed |= _witnessed(listed, database.witness)
    with _told(output), Restore(database.path, database.lock, database.callback_key, datetime.now(UTC)) as restoring:
        with _progress(output) as look:
            prepared = restoring.prepare(file, look, listed)
        asked = asks() and not given["yes"]
        if asked:
            _show_plan(aside(), database.path, prepared)
            confirm(aside(), "Do it?")
        drop_lost_output()
        restoring.commit()
    mark, keys = msgspec.structs.asdict(prepared.mark), msgspec.structs.asdict(prepared.keys)
    output.json(msgspec.json.encode({"database": str(database.path), "restored": mark, "keys": keys}))
    output.line(say("restore", "restored", path=database.path), "green")
    output.line(_words(prepared.mark), "yellow" if prepared.mark.doubtful else "")
    for line in () if asked else _key_lines(prepared):
        output.line(line, "yellow")
    output.line("Start posd. It is shown as degraded until a person confirms the restore: posd restore --seen")


def _read_list(ids: Path) -> dict[str, StartedPayment]:
    """Read the list of --ids. Raise StoreError."""
    try:
        with nullcontext(sys.stdin.buffer) if str(ids) == "-" else ids.open("rb") as file:
            return takeover.read_id_list(file)
    except OSError as error:
        raise InvalidIdList(say("restore", "no_list", file=ids, reason=error.strerror)) from error


def _witnessed(named: Mapping[str, StartedPayment], witness: Path) -> dict[str, StartedPayment]:
    """Return what the witness has about the payments of a list, such as the sale, which the list may lack."""
    try:
        left = WitnessFile(witness).read()
    except OSError:  # the daemon reports an unreadable witness at its start
        left = None
    return {identity: left.started[identity] for identity in named if left and identity in left.started}


def _make_key(ctx: click.Context, output: Output, operator: str, yes: bool) -> None:
    """Make a new callback key after a confirmation. Show the consequences."""
    database = load_as_owner(context(ctx).config_path, as_json=output.as_json).database
    if asks() and not yes:
        aside().line(chosen("callback_key")["lost"], "yellow")
        confirm(aside(), "Make a new key?")
    with _told(output), Restore(database.path, database.lock, database.callback_key, datetime.now(UTC)) as restoring:
        drop_lost_output()
        kept, opened = restoring.new_key(operator)
    path, file = str(database.callback_key), str(kept) if kept else None
    output.json(msgspec.json.encode({"path": path, "aside": file, "open": opened}))
    output.line(say("restore", "made_key", path=path), "green")
    if file:
        output.line(say("restore", "kept_key", file=file))
    output.line(chosen("callback_key")["lost"], "yellow")
    output.line(say("restore", "open", payments=counted(opened, named("payment"))))


def _confirm_seen(ctx: click.Context, output: Output, operator: str, note: str | None) -> None:
    """Show the payments that an operator has to check, then record the operator's confirmation."""
    note = (note or "").strip()
    with connect(ctx) as api:
        asked = asks() and not output.as_json
        _show_unseen(aside(), api.get("/restore").body)
        while asked and not note:
            note = click.prompt(say("restore", "found"), err=True).strip()
        reply = api.post("/restore/seen", {"operator": operator, "note": note or NO_NOTE})
    output.json(reply.raw)
    output.line("The restore is confirmed. posd now sends a repeated call even if it does not know the id.")


def _show_unseen(beside: Output, found: Mapping[str, Any]) -> None:
    """Write what happened to the database, and the payments that an operator has to check."""
    happened = [msgspec.convert(item, kind) for kind, name in EVENTS.items() for item in found[name]]
    for event in happened:
        beside.line(_words(event), "yellow")
    for payment in found["transactions"]:
        state = payment["result"] or payment["phase"]
        at = moment(payment["created_at"], date=True)
        beside.line(f"{payment['client_transaction_id']}  {payment['terminal'] or '-'}  {at}  {state}", indent=2)


#: Note that is stored if the operator gave none.
NO_NOTE = "checked, without a note"
#: What happened to the database -> member of the API's response.
EVENTS = {Restored: "restores", GoneBack: "gone_back"}


def _words(event: Restored | GoneBack) -> str:
    """Return the text about a restore or a step back in time: the daemon's own, or in Spanish from the catalogue."""
    if language() == "en":
        return in_words(event.words)
    fields = msgspec.structs.asdict(event) | {"at": moment(event.at, date=True)}
    if isinstance(event, GoneBack):
        return say("restore", "gone_back", **fields)
    parts = {
        "from_backup" if event.file else "from_nothing": True,
        f"old_{event.old}": True,
        "by_id": event.by_id,
        "print_jobs_by_id": event.print_jobs_by_id,
        "listed": event.ids,
        "doubtful": event.doubtful,
    }
    return " ".join(say("restore", name, **fields) for name, holds in parts.items() if holds)


def _taken(count: int, noun: str, by_id: int) -> str:
    return say("restore", "taken_by_id" if by_id else "taken", what=counted(count, named(noun)), by_id=by_id)


def _show_plan(beside: Output, database: Path, prepared: RestorePlan) -> None:
    """Write what a restore is about to do."""
    mark, contents = prepared.mark, prepared.backup
    if contents is None:
        pairs = [("backup", say("restore", "no_backup"))]
    else:
        made = moment(contents.made_at, date=True) if contents.made_at else named("at an unknown time")
        payments = counted(contents.transactions, named("payment"))
        name, newest = "newest" if contents.newest else "taken", moment(contents.newest, date=True)
        pairs = [("backup", say("restore", "made", file=mark.file, made=made))]
        pairs.append(("in it", say("restore", name, what=payments, newest=newest)))
    rows = {
        "present database": chosen("old_file")[mark.old],
        "it is kept as": mark.replaced,
        "taken over from it": _taken(mark.taken_over, "payment", mark.by_id),
        "": mark.print_jobs and _taken(mark.print_jobs, "print job", mark.print_jobs_by_id),
        "ids of the list": mark.ids and say("restore", "ids", ids=mark.ids, unknown=mark.ids_taken_over),
    }
    pairs += [(label, str(text)) for label, text in rows.items() if text]
    beside.panel("restore", [("database", str(database)), *pairs], "cyan")
    for line in _key_lines(prepared):
        beside.line(line, "yellow")


def _key_lines(prepared: RestorePlan) -> Iterator[str]:
    """Yield the texts about the callback key."""
    keys = prepared.keys
    if keys.aside:
        yield say("restore", "unread_key", file=keys.aside)
    if not keys.kept and not keys.added:
        yield chosen("callback_key")["none"].format(new_key=NEW_KEY)
    elif not keys.kept and prepared.mark.old is not OldFile.MISSING:
        yield chosen("callback_key")["of_backup"]
