"""`posd backup`: the running daemon copies its database, to a file, into a directory, or to standard output."""

import sys
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import click

from posd.cli.app.completion_words import files
from posd.cli.app.connection import Api, connect, json_option
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.operate.data_words import payments, size

#: seconds: far above what the largest database needs, so that a fault ends too.
BACKUP_SECONDS = 3600.0
#: Backups that are kept in a directory where nobody says.
KEEP = 14

BUSY = "posd copies the database, and checks the copy"
WARNING = "The callback key is in it: keep it as secret as the key."


@click.command()
@click.argument("path", metavar="[FILE]", required=False, shell_complete=files)
@click.option(
    "--into", metavar="DIRECTORY", shell_complete=files, help="Write it there, under a name with the time in it."
)
@click.option("--keep", type=click.IntRange(1, 10_000), metavar="N", help=f"With --into: keep the newest N [{KEEP}].")
@json_option
@click.pass_context
def backup(ctx: click.Context, output: Output, path: str | None, into: str | None, keep: int | None) -> None:
    """Copy the database to FILE while payments run; `-` is standard output.

    The copy is read from end to end before it counts. The callback key goes with it, so keep it as secret as the key.
    A backup of the name FILE is replaced once the new one is complete. Into a DIRECTORY each has a name of its own,
    and the oldest beyond N are removed when the new one is complete.
    """
    if (path is None) == (into is None):
        raise click.UsageError("name the FILE to write, or --into DIRECTORY")
    if keep is not None and into is None:
        raise click.UsageError("--keep belongs to --into: the directory of which so many are kept")
    if path == "-" and (output.as_json or sys.stdout.isatty()):
        raise click.UsageError("a backup is bytes: send standard output to a file or another command, without --json")
    with connect(ctx) as api:
        try:
            if path == "-":
                _send(api, output)
            elif into is not None:
                _rotate(api, output, Path(into).absolute(), KEEP if keep is None else keep)
            else:
                _write(api, output, Path(path or "").absolute())
        except KeyboardInterrupt:
            output.note("Stopped waiting; posd may go on with it.", "yellow")
            sys.exit(ExitCode.OPEN)


def _post(api: Api, output: Output, body: dict[str, Any]) -> Any:
    with output.busy(BUSY):
        reply = api.post("/backup", body, seconds=BACKUP_SECONDS)
    if output.as_json:
        output.json(reply.raw)
    return reply.body


def _write(api: Api, output: Output, target: Path) -> None:
    written = _post(api, output, {"path": str(target)})
    if not output.as_json:
        _tell(output, written)
    _look_for(output, target)


def _rotate(api: Api, output: Output, directory: Path, keep: int) -> None:
    written = _post(api, output, {"into": str(directory), "keep": keep})
    if not output.as_json:
        _tell(output, written)
        removed = len(written["removed"])
        gone = f", {removed} older removed" if removed else ""
        output.line(f"{written['kept']} in {directory}{gone} (the newest {keep} are kept).")
        for name in written["unusable"]:
            output.line(f"{name} beside it cannot be used; it is not counted, and not removed.", "yellow")
    _look_for(output, directory)


def _tell(output: Output, written: dict[str, Any]) -> None:
    output.line(
        f"Written: {written['path']}, {size(written['bytes'])}, {payments(written['transactions'])}; "
        "read back and found sound.",
        "green",
    )
    output.line(WARNING)


def _look_for(output: Output, target: Path) -> None:
    """Say where the caller cannot see what posd wrote."""
    with suppress(OSError):  # the directory may be closed to this user, and open to posd
        if target.parent.is_dir() and not target.exists():
            output.note(
                f"It cannot be seen from here: has posd a {target.parent} of its own (PrivateTmp=)? Then name "
                "another directory.",
                "yellow",
            )


def _send(api: Api, output: Output) -> None:
    stream, count = sys.stdout.buffer, 0
    with output.busy(BUSY):
        pieces = api.receive("/backup", {"send": True}, seconds=BACKUP_SECONDS)
        first = next(pieces, b"")
    for piece in chain((first,), pieces):
        count += stream.write(piece)
    stream.flush()
    output.note(f"Sent: {size(count)}, read back and found sound. {WARNING}")
