"""Which of the daemon's sockets a command talks to, and what most commands take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from posd.cli.app.api import Api, Unreachable, probe
from posd.cli.app.completion_words import payments
from posd.cli.app.context import context
from posd.cli.app.output import Output

Command = TypeVar("Command", bound=Callable[..., Any])

id_argument = click.argument("transaction_id", metavar="ID", type=click.UUID, shell_complete=payments("open=true"))
#: of a command that takes any payment, not only an open one.
any_id_argument = click.argument("transaction_id", metavar="ID", type=click.UUID, shell_complete=payments(""))


def json_option(command: Command) -> Command:
    """Add --json; the command receives an Output as its parameter `output`."""

    def make(ctx: click.Context, _parameter: click.Parameter, value: bool) -> Output:
        output = Output(as_json=value)
        context(ctx).output = output  # errors are written the same way
        return output

    option = click.option("--json", "output", is_flag=True, callback=make, help="Print the API's JSON.")
    return option(command)


@contextmanager
def connect(ctx: click.Context) -> Iterator[Api]:
    """Open the local API: --socket or POSD_SOCKET, else the configuration's admin socket, else its till socket.

    Raise ConfigError where the configuration is needed and cannot be used.
    """
    given = context(ctx).socket_path
    with Api(Path(given) if given else configured_socket(context(ctx).config_path)) as api:
        yield api


def configured_socket(config_path: str) -> Path:
    """Return the admin socket of the configuration where this user can open it, else the till socket.

    Raise ConfigError.
    """
    from posd.config import load  # most of the time that a command takes to begin, and not needed with --socket

    # Not the files that it names: the daemon's private key is not for a till's user to read.
    config = load(Path(config_path), check_files=False)
    local = config.local_api
    return local.admin_socket if can_open(local.admin_socket) else local.till_socket


def can_open(path: Path) -> bool:
    """Whether somebody listens on the socket and lets this user in."""
    try:
        probe(path)
    except Unreachable:
        return False
    return True
