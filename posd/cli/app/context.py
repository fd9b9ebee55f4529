"""What a command was called with, and what it is about: one object in click's `ctx.obj`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from posd.cli.app.streams import drop_lost_output

if TYPE_CHECKING:
    import click

    from posd.cli.app.output import Output

#: The configuration file, where neither the command line nor the environment names one.
CONFIG_FILE = "/etc/posd/config.toml"
CONFIG_VARIABLE = "POSD_CONFIG"


@dataclass(slots=True)
class Context:
    """The options of `posd`, and what a command says of itself for the message of an error.

    `starts`: it starts something or waits for it, so that an error may leave it open. `utc`: it writes times in
    UTC. `unread`: why the configuration did not name the socket.
    """

    config_path: str = CONFIG_FILE
    socket_path: str | None = None
    output: "Output | None" = None
    starts: bool = False
    utc: bool = False
    unread: str = ""

    def set_starts(self) -> None:
        """Set `starts`. The exit code says how it ended, whether or not the output can be written."""
        self.starts = True
        drop_lost_output()


def context(ctx: "click.Context") -> Context:
    """Return the one of this call."""
    return ctx.ensure_object(Context)
