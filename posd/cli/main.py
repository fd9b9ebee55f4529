"""The `posd` command: one file for each command group, imported when a command is called.

`posd.cli.entry` handles a plain `posd run` itself.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from posd import __version__
from posd.base.operations import OPERATIONS
from posd.cli.app.completion_words import files
from posd.cli.app.context import CONFIG_FILE, CONFIG_VARIABLE, Context, OutputLost
from posd.cli.app.lazy import READABLE_COLUMNS, LazyGroup, groups, told

#: Module -> attributes with its commands: `await_` is the command `await`.
MODULES: Mapping[str, str] = {
    "main": "run",
    "demo": "demo",
    "simulate": "simulate",
    "payments.start": "await_",
    "payments.decide": "abort reconcile release resolve acknowledge",
    "payments.show": "show list_",
    "report.command": "report",
    "printing": "print_",
    "operate.database": "quarantine backup prune",
    "operate.files": "restore verify",
    "operate.status": "status metrics completion",
    "operate.clock": "clock",
    "operate.logs": "logs",
    "operate.config": "config openapi",
    "operate.support": "support",
    "terminals.command": "terminals",
    "watch.command": "watch",
    "tls": "tls_",
    "explain.command": "explain",
    "doctor.command": "doctor",
    "relay": "relay",
    "collect": "collect",
}
#: Command -> "module:attribute" of its click command, or of a mapping from names to commands.
COMMANDS: Mapping[str, str] = {
    name.rstrip("_").replace("_", "-"): f"posd.cli.{module}:{name}"
    for module, names in MODULES.items()
    for name in names.split()
} | {row.command: "posd.cli.payments.start:STARTS" for row in OPERATIONS.values()}
#: Old names, which work in this version but are in no help.
ALIASES: Mapping[str, str] = {
    "print-jobs": "posd.cli.payments.show:print_jobs",
    "reprocess": "posd.cli.operate.database:reprocess",
}


class Commands(LazyGroup):
    """Group of all commands. The help lists them as in `groups.toml`. An error of any command becomes one message."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the list of commands in groups, without importing them."""
        most = max(map(len, COMMANDS))
        for title, commands in groups().items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(most), does) for name, does in commands.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options of the group."""
        with _message(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _message(ctx):
            return super().invoke(ctx)


@contextmanager
def _message(ctx: click.Context) -> Iterator[None]:
    """Turn an error of the block into one message and an exit code. There is no traceback."""
    try:
        yield
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        raise
    except (KeyboardInterrupt, click.Abort) as error:
        click.echo(f"\n{told('Aborted!')}", err=True)
        raise click.exceptions.Exit(1) from error
    except Exception as error:
        if isinstance(error, OutputLost) and error.nobody_reads:  # the reader has closed the pipe: posd list | head
            raise click.exceptions.Exit(1) from error
        if os.environ.get("POSD_DEBUG") and not isinstance(error, click.ClickException):  # a traceback for a developer
            raise
        from posd.cli.app.errors import explain  # here, because completion does not need it

        raise explain(error, ctx) from error


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": READABLE_COLUMNS}


@click.group(cls=Commands, targets=COMMANDS, aliases=ALIASES, context_settings=SETTINGS)
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
    help="The daemon's socket (also POSD_SOCKET); else that of the configuration, else the usual one.",
)
@click.pass_context
def main(ctx: click.Context, config_path: str, socket_path: str | None) -> None:
    """Run card payments on the terminals of this LAN, and know whether the customer was charged."""
    ctx.obj = Context(config_path, socket_path)


@click.command()
@click.pass_obj
def run(given: Context) -> None:
    """Run the daemon in the foreground, until SIGTERM or Ctrl-C.

    Logs go to stdout, one JSON line for each event. Exit code 2: the configuration or the certificate is wrong. 1:
    another fault prevents the start, such as another daemon or a port in use.
    """
    from posd.cli.run import run as run_daemon  # imported here, because no other command needs it

    run_daemon(given.config_path)
