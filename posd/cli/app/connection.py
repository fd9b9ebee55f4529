"""Which of the daemon's sockets a command talks to, and what most commands take."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from posd.cli.app import times
from posd.cli.app.completion_words import payments
from posd.cli.app.context import context
from posd.cli.app.output import Output
from posd.client.calls import REPLY_SECONDS, Call, Reply, StreamItem
from posd.client.connection import Connection, probe
from posd.client.documents import decode, encode
from posd.client.errors import ForeignAnswer, Problem, Unreachable

# The local API for the commands: `posd.client`'s connection, called by method and path.
#
# A command shows what posd said word for word, of a newer posd too: so it works on documents and bytes, not on
# types.

__all__ = ["Api", "Call", "ForeignAnswer", "Problem", "Reply", "StreamItem", "Unreachable", "decode"]

METRICS_URL = "http://posd/metrics"


class Api(Connection):
    """The local API behind one Unix socket. Threads may share it."""

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        also: Collection[int] = (),
        seconds: float = REPLY_SECONDS,
    ) -> Reply:
        """GET `path` (below /v1). `also` names 4xx and 5xx that are answers here, where they do not bear a problem.

        Wait `seconds` for the answer. Raise Problem or Unreachable.
        """
        return self.call(Call("GET", path, params or {}, seconds=seconds, also=also))

    def put(self, path: str, body: object) -> Reply:
        """PUT `body` as JSON. Raise Problem or Unreachable."""
        return self.call(Call("PUT", path, body=encode(body)))

    def post(self, path: str, body: object | None = None, *, seconds: float = REPLY_SECONDS) -> Reply:
        """POST `body` as JSON, or nothing; wait `seconds` for the answer. Raise Problem or Unreachable."""
        return self.call(Call("POST", path, body=None if body is None else encode(body), seconds=seconds))

    def receive(self, path: str, body: object, *, seconds: float) -> Iterator[bytes]:
        """POST `body` and yield the bytes of the answer as they come. Raise Problem or Unreachable: they end early."""
        return self.pieces(Call("POST", path, body=encode(body), seconds=seconds))

    def metrics(self) -> str:
        """Get the metrics as Prometheus reads them; they stand outside of the versioned API."""
        return self.text(Call("GET", METRICS_URL))


Command = TypeVar("Command", bound=Callable[..., Any])

#: An id, or the beginning of one: see `posd.cli.app.subject.find`.
id_argument = click.argument("given_id", metavar="ID", shell_complete=payments("open=true"))
#: of a command that takes any payment, not only an open one.
any_id_argument = click.argument("given_id", metavar="ID", shell_complete=payments(""))


def json_option(command: Command) -> Command:
    """Add --json and --utc; the command receives an Output as its parameter `output`."""

    def make(ctx: click.Context, _parameter: click.Parameter, value: bool) -> Output:
        output = Output(as_json=value)
        output.full_ids = context(ctx).full_ids
        context(ctx).output = output  # errors are written the same way
        return output

    def in_utc(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context(ctx).utc |= value  # of the group, or of its command
        times.use(utc=context(ctx).utc)

    for option in (
        click.option("--json", "output", is_flag=True, callback=make, help="Print the API's JSON."),
        click.option(
            "--utc", is_flag=True, expose_value=False, callback=in_utc, help="Times in UTC, not in local time."
        ),
    ):
        command = option(command)
    return command


def full_ids_option(command: Command) -> Command:
    """Add --full-ids."""

    def take(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context(ctx).full_ids = value

    option = click.option(
        "--full-ids",
        is_flag=True,
        is_eager=True,  # before the Output is made
        expose_value=False,
        callback=take,
        help="Whole ids, however narrow the screen.",
    )
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
    """Whether a daemon listens on the socket and lets this user in."""
    try:
        probe(str(path))
    except Unreachable:
        return False
    return True
