"""`posd backup`: the running daemon copies its database."""

import sys
from contextlib import suppress
from pathlib import Path

import click

from posd.cli.connection import connect, json_option
from posd.cli.data.words import payments, size
from posd.cli.exit_codes import ExitCode
from posd.cli.output import Output

#: seconds: far above what the largest database needs, so that a fault ends too.
BACKUP_SECONDS = 3600.0


@click.command()
@click.argument("path", metavar="FILE")
@json_option
@click.pass_context
def backup(ctx: click.Context, output: Output, path: str) -> None:
    """Copy the database to FILE while payments run.

    The callback key goes with it, so keep FILE as secret as the key. A backup of that name is replaced once the new
    one is complete.
    """
    if path == "-":
        raise click.UsageError("name a file: a backup to standard output is not available in this version")
    target = Path(path).absolute()
    with connect(ctx) as api:
        try:
            with output.busy("posd copies the database, and checks the copy"):
                reply = api.post("/backup", {"path": str(target)}, seconds=BACKUP_SECONDS)
        except KeyboardInterrupt:
            output.note("Stopped waiting; posd may go on with it.", "yellow")
            sys.exit(ExitCode.OPEN)
    if output.as_json:
        output.json(reply.raw)
    else:
        written = reply.body
        output.line(
            f"Written: {written['path']}, {size(written['bytes'])}, {payments(written['transactions'])}.", "green"
        )
        output.line("The callback key is in it: keep it as secret as the key.")
    with suppress(OSError):  # the directory may be closed to this user, and open to posd
        if target.parent.is_dir() and not target.exists():
            output.note(
                f"It cannot be seen from here: has posd a {target.parent} of its own (PrivateTmp=)? Then name "
                "another directory.",
                "yellow",
            )
