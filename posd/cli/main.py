"""The `posd` command: one file a command group, imported only when its command is called.

`posd run` must start quickly and small, so nothing but click is imported here: the table below says where each
command lives.
"""

import importlib
from collections.abc import Mapping

import click

from posd import __version__

#: command -> "module:attribute" of its click command, in the order in which `posd --help` shows them.
COMMANDS: Mapping[str, str] = {
    "run": "posd.cli.run:run",
    "demo": "posd.cli.demo:demo",
    "simulate": "posd.cli.simulate:simulate",
    "charge": "posd.cli.payments:charge",
    "await": "posd.cli.payments:await_",
    "abort": "posd.cli.payments:abort",
    "show": "posd.cli.payments:show",
    "list": "posd.cli.payments:list_",
    "terminals": "posd.cli.terminals:terminals",
    "status": "posd.cli.status:status",
    "config": "posd.cli.config:config",
    "tls": "posd.cli.tls:tls",
}


class LazyGroup(click.Group):
    """A click group whose commands are imported from `COMMANDS` on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="posd")
@click.option(
    "--config",
    "config_path",
    envvar="POSD_CONFIG",
    default="/etc/posd/config.toml",
    show_default=True,
    metavar="FILE",
    help="Configuration file (also POSD_CONFIG).",
)
@click.pass_context
def main(ctx: click.Context, config_path: str) -> None:
    """Run card payments on the terminals of this LAN, and know whether the customer was charged."""
    ctx.obj = config_path
