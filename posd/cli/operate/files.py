"""`posd restore` and `posd verify`, which read the database files themselves; `restore` replaces them."""

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
from posd.cli.app.parameters import asks, caller, confirm
from posd.cli.app.times import in_words, moment
from posd.cli.explain.catalogue import chosen
from posd.cli.operate.config import act_as_owner, load_as_owner
from posd.records.callback_urls import NEW_KEY
from posd.records.witness import StartedPayment
from posd.records.witness_file import WitnessFile
from posd.storage import StoreError
from posd.storage.backup import NotABackup
from posd.storage.marks import GoneBack, OldFile, Restored
from posd.upkeep import takeover
from posd.upkeep import verify as checking
from posd.upkeep.restore import Restore, RestorePlan
from posd.upkeep.takeover import InvalidIdList

Look = Callable[[str, int, int], None]


@contextmanager
def _told(output: Output) -> Iterator[None]:
    """Turn refusals into a message and an exit code."""
    try:
        yield
    except StoreError as error:
        code = (
            ExitCode.USAGE
            if isinstance(error, NotABackup | checking.NothingToVerify | InvalidIdList)
            else ExitCode.NOT_DONE
        )
        raw = msgspec.json.encode({"ok": False, "error": str(error)})
        lines = (
            error.lines if isinstance(error, InvalidIdList) else (str(error),)
        )  # a file name in the message can contain a line break
        raise Failure(lines, code, output, raw) from error


@contextmanager
def _progress(output: Output) -> Iterator[Look]:
    """Show on a terminal the present step, and its progress if known."""
    with output.progress("opening the file", output.spinner(), DESCRIPTION, BarColumn()) as update:

        def look(what: str, done: int, total: int) -> None:
            update(description=what, completed=done, total=total or None)

        yield look


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@json_option
@click.pass_context
def verify(ctx: click.Context, output: Output, file: Path | None) -> None:
    """Check the database, or the backup FILE; nothing is changed.

    posd may run. Exit code 0: nothing is wrong. 1: something is. 2: the file cannot be checked.
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
    what = "backup" if report.backup else "database"
    checked = f"{counted(report.transactions, 'payment')}, {report.events} events"
    if report.print_jobs:
        checked += f", {counted(report.print_jobs, 'print job')}"
    checked += f", schema {report.schema}"
    if not report.counts:
        output.line(f"{report.file}: nothing is wrong with this {what} ({checked}).", "green")
        return
    output.line(f"{report.file}: something is wrong with this {what} ({checked}).", "red")
    for kind, count in report.counts.items():
        found = [finding for finding in report.findings if finding.kind == kind]
        output.line(f"{kind}: {found[0].means}", "bold")
        for finding in found:
            output.line(f"{finding.subject}: {finding.detail}", indent=2)
        if count > len(found):
            output.line(f"and {count - len(found)} more", indent=2)
        output.line(f"What to do: {found[0].cure}", "yellow", indent=2)


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--without-backup", is_flag=True, help="Make a new database from the readable part of the present one.")
@click.option(
    "--ids",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take over the unknown payments of this list (- is standard input).",
)
@click.option("--seen", is_flag=True, help="Confirm that you have checked the payments in question; posd runs.")
@click.option(
    "--new-callback-key", is_flag=True, help="Make a new callback key in place of a lost one; posd is stopped."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--operator",
    default=caller,
    show_default="who calls",
    metavar="NAME",
    help="With --seen and --new-callback-key: name of the operator.",
)
@click.option("--note", metavar="TEXT", help="With --seen: what you found; asked for on a terminal.")
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    output: Output,
    file: Path | None,
    without_backup: bool,
    ids: Path | None,
    seen: bool,
    new_callback_key: bool,
    yes: bool,
    operator: str,
    note: str | None,
) -> None:
    """Put the backup FILE in place of the database; posd is stopped.

    The present database is kept under another name. posd takes over the payments that it has and the backup lacks, if
    they can be read. So no payment is started twice.

    If the disk is lost, --ids names a list of payments that were started on this lane; `posd collect ids` writes it. A
    line has an id, then, each after a TAB and if known: the time of the start (such as 2026-11-20T10:42:03.120Z), the
    serial of the terminal, and the till's key of the sale. Payments that only the list knows are in doubt afterwards,
    and are never sent again. --ids without a FILE implies --without-backup.
    """
    restores = without_backup or (ids is not None and file is None)
    if [file is not None, restores, seen, new_callback_key].count(True) != 1:
        raise click.UsageError("name the backup FILE, or give --without-backup, --ids, --seen or --new-callback-key")
    if seen:
        _confirm_seen(ctx, output, operator, note)
        return
    if new_callback_key:
        _make_key(ctx, output, operator, yes)
        return
    with _told(output):
        named = _read_list(ids) if ids is not None else {}
    database = load_as_owner(context(ctx).config_path, as_json=output.as_json).database
    named |= _witnessed(named, database.witness)
    with _told(output), Restore(database.path, database.lock, database.callback_key, datetime.now(UTC)) as restoring:
        with _progress(output) as look:
            prepared = restoring.prepare(file, look, named)
        asked = asks() and not yes
        if asked:
            _show_plan(aside(), database.path, prepared)
            confirm(aside(), "Do it?")
        drop_lost_output()
        restoring.commit()
    mark, keys = msgspec.structs.asdict(prepared.mark), msgspec.structs.asdict(prepared.keys)
    output.json(msgspec.json.encode({"database": str(database.path), "restored": mark, "keys": keys}))
    output.line(f"Restored: {database.path}.", "green")
    output.line(in_words(prepared.mark.words), "yellow" if prepared.mark.doubtful else "")
    for line in () if asked else _key_lines(prepared):
        output.line(line, "yellow")
    output.line("Start posd. It is shown as degraded until a person confirms the restore: posd restore --seen")


def _read_list(ids: Path) -> dict[str, StartedPayment]:
    """Read the list of --ids. Raise StoreError."""
    try:
        with nullcontext(sys.stdin.buffer) if str(ids) == "-" else ids.open("rb") as file:
            return takeover.read_id_list(file)
    except OSError as error:
        raise InvalidIdList(f"cannot read the list of --ids, {ids} ({error.strerror}); nothing was changed") from error


def _witnessed(named: Mapping[str, StartedPayment], witness: Path) -> dict[str, StartedPayment]:
    """Return the witness's data about payments, such as their sale, which a list lacks."""
    try:
        left = WitnessFile(witness).read()
    except OSError:  # the daemon reports it at its start
        left = None
    return {identity: left.started[identity] for identity in named if left and identity in left.started}


def _make_key(ctx: click.Context, output: Output, operator: str, yes: bool) -> None:
    """Make a new callback key on request, after naming the consequences."""
    database = load_as_owner(context(ctx).config_path, as_json=output.as_json).database
    if asks() and not yes:
        aside().line(chosen("callback_key")["lost"], "yellow")
        confirm(aside(), "Make a new key?")
    with _told(output), Restore(database.path, database.lock, database.callback_key, datetime.now(UTC)) as restoring:
        drop_lost_output()
        made = restoring.new_key(operator)
    output.json(msgspec.json.encode(made))
    output.line(f"A new callback key was made: {made.path}.", "green")
    if made.aside:
        output.line(f"The damaged one is kept as {made.aside}.")
    output.line(chosen("callback_key")["lost"], "yellow")
    output.line(
        f"{counted(made.open, 'payment')} open: posd asks the terminals about them when it is started. Start posd."
    )


def _confirm_seen(ctx: click.Context, output: Output, operator: str, note: str | None) -> None:
    """Show the payments in question, then record the operator's confirmation."""
    note = (note or "").strip()
    with connect(ctx) as api:
        asked = asks() and not output.as_json
        _show_unseen(aside(), api.get("/restore").body)
        while asked and not note:
            note = click.prompt("What was found (it is kept with the database)", err=True).strip()
        reply = api.post("/restore/seen", {"operator": operator, "note": note or NO_NOTE})
    output.json(reply.raw)
    output.line("The restore is confirmed. posd now sends a repeated call even if it does not know the id.")


def _show_unseen(beside: Output, found: Mapping[str, Any]) -> None:
    """Write the events, and the id of each payment that was taken over."""
    happened = [msgspec.convert(item, Restored).words for item in found["restores"]]
    happened += [msgspec.convert(item, GoneBack).words for item in found["gone_back"]]
    for words in happened:
        beside.line(in_words(words), "yellow")
    for payment in found["transactions"]:
        state = payment["result"] or payment["phase"]
        at = moment(payment["created_at"], date=True)
        beside.line(f"{payment['client_transaction_id']}  {payment['terminal'] or '-'}  {at}  {state}", indent=2)


#: Note that is stored if the operator gave none.
NO_NOTE = "looked at, without a note"


def _taken(what: str, by_id: int) -> str:
    return f"{what}, of {by_id} only the id" if by_id else what


def _show_plan(beside: Output, database: Path, prepared: RestorePlan) -> None:
    """Write what a restore will do."""
    mark, contents = prepared.mark, prepared.backup
    pairs = [("database", str(database))]
    if contents is not None:
        made = moment(contents.made_at, date=True) if contents.made_at else "at an unknown time"
        newest = moment(contents.newest, date=True) if contents.newest else "none"
        pairs += [
            ("backup", f"{mark.file}, made {made}"),
            ("in it", f"{counted(contents.transactions, 'payment')}, newest {newest}"),
        ]
    else:
        pairs.append(("backup", "none: a new database"))
    pairs.append(("present database", chosen("old_file")[mark.old]))
    if mark.replaced:
        pairs.append(("it is kept as", mark.replaced))
    pairs.append(("taken over from it", _taken(counted(mark.taken_over, "payment"), mark.by_id)))
    if mark.print_jobs:
        pairs.append(("", _taken(counted(mark.print_jobs, "print job"), mark.print_jobs_by_id)))
    if mark.ids:
        pairs.append(("ids of the list", f"{mark.ids}, of these {mark.ids_taken_over} not known: taken over in doubt"))
    beside.panel("restore", pairs, "cyan")
    for line in _key_lines(prepared):
        beside.line(line, "yellow")


def _key_lines(prepared: RestorePlan) -> Iterator[str]:
    """Yield the texts about the callback key."""
    keys = prepared.keys
    if keys.aside:
        yield f"The callback key could not be read; it is kept as {keys.aside}."
    if not keys.kept and not keys.added:
        yield chosen("callback_key")["none"].format(new_key=NEW_KEY)
    elif not keys.kept and prepared.mark.old is not OldFile.MISSING:
        yield chosen("callback_key")["of_backup"]
