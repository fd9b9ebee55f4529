"""The `posd` command: one file a command group, imported only when its command is called.

The table below says where each command lives. A plain `posd run` does not come here: see `posd.cli.entry`.
"""

import errno
import os
from collections.abc import Mapping
from typing import Any

import click

from posd import __version__
from posd.cli.completing import files
from posd.cli.entry import CONFIG_FILE, CONFIG_VARIABLE
from posd.cli.lazy import LazyGroup

#: command -> "module:attribute" of its click command, in the order in which `posd --help` shows them.
COMMANDS: Mapping[str, str] = {
    "run": "posd.cli.run:run",
    "demo": "posd.cli.demo.command:demo",
    "simulate": "posd.cli.simulate:simulate",
    "charge": "posd.cli.starting:charge",
    "preauth": "posd.cli.starting:preauth",
    "reauth": "posd.cli.starting:reauth",
    "capture": "posd.cli.starting:capture",
    "tip": "posd.cli.starting:tip",
    "void": "posd.cli.starting:void",
    "await": "posd.cli.awaiting:await_",
    "abort": "posd.cli.aborting:abort",
    "show": "posd.cli.show:show",
    "list": "posd.cli.listing:list_",
    "report": "posd.cli.report.command:report",
    "print": "posd.cli.printing:print_",
    "print-jobs": "posd.cli.print_jobs:print_jobs",
    "reconcile": "posd.cli.operator:reconcile",
    "release": "posd.cli.operator:release",
    "resolve": "posd.cli.operator:resolve",
    "acknowledge": "posd.cli.operator:acknowledge",
    "quarantine": "posd.cli.quarantine:quarantine",
    "reprocess": "posd.cli.quarantine:reprocess",
    "terminals": "posd.cli.terminals:terminals",
    "watch": "posd.cli.watch.command:watch",
    "status": "posd.cli.status:status",
    "logs": "posd.cli.logs:logs",
    "metrics": "posd.cli.metrics:metrics",
    "config": "posd.cli.config:config",
    "tls": "posd.cli.tls:tls",
    "backup": "posd.cli.data.backup:backup",
    "restore": "posd.cli.data.restore:restore",
    "verify": "posd.cli.data.verify:verify",
    "prune": "posd.cli.data.prune:prune",
    "doctor": "posd.cli.doctor.command:doctor",
    "openapi": "posd.cli.openapi:openapi",
    "completion": "posd.cli.completion:completion",
}


class Commands(LazyGroup):
    """The group of all commands: whatever ends one is told in one message."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An error becomes one message and an exit code: no traceback reaches a user."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            # A closed pipe (posd list | head) is click's to handle; POSD_DEBUG is for who repairs posd.
            if (isinstance(error, OSError) and error.errno == errno.EPIPE) or os.environ.get("POSD_DEBUG"):
                raise
            from posd.cli.errors import explain

            raise explain(error, ctx.meta) from error


@click.group(cls=Commands, targets=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="posd")
@click.option(
    "--config",
    "config_path",
    envvar=CONFIG_VARIABLE,
    default=CONFIG_FILE,
    show_default=True,
    metavar="FILE",
    shell_complete=files,
    help="Configuration file (also POSD_CONFIG).",
)
@click.option(
    "--socket",
    "socket_path",
    envvar="POSD_SOCKET",
    metavar="PATH",
    help="The daemon's socket (also POSD_SOCKET); without it, the one that the configuration names.",
)
@click.pass_context
def main(ctx: click.Context, config_path: str, socket_path: str | None) -> None:
    """Run card payments on the terminals of this LAN, and know whether the customer was charged."""
    ctx.obj = config_path
    ctx.meta["posd.socket"] = socket_path
