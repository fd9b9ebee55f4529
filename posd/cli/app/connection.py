"""Connection to the daemon's socket, and options that most commands have."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click

from posd.base.text import Language
from posd.cli.app import times
from posd.cli.app.completion_words import payments
from posd.cli.app.context import CONFIG_FILE, Context, context, drop_lost_output, usual_socket
from posd.cli.app.output import Output
from posd.cli.explain.catalogue import choose, language, say, translate
from posd.client.connection import Connection, probe
from posd.client.documents import ForeignAnswer, Problem, Unreachable, decode, encode
from posd.client.plans import REPLY_SECONDS, RETRY_SECONDS, Call, Reply

# Client of the local API for the commands: the connection of `posd.client`, called by method and path.
#
# Commands show posd's texts unchanged, also those of a newer posd. So they use documents and bytes, not types.

__all__ = ["Api", "Call", "ForeignAnswer", "Problem", "Reply", "Unreachable", "decode"]

#: Longest wait for the start of posd while the service manager holds its socket, in seconds.
START_SECONDS = 4.0
NOT_RUNNING = "the service manager holds it, and posd is not running (posd status)"

METRICS_URL = "http://posd/metrics"


class Api(Connection):
    """The local API behind one Unix socket. Threads may share it."""

    def reach(self) -> None:
        """Raise Unreachable if no process listens, or if after START_SECONDS still only the service manager listens.

        posd would read a request to the service manager's socket at its next start, perhaps hours later.
        """
        end = time.monotonic() + START_SECONDS
        while not _serves(probe(self.socket)):
            if time.monotonic() > end:
                raise Unreachable(self.socket, NOT_RUNNING, sent=False)
            time.sleep(RETRY_SECONDS)

    def call(self, call: Call) -> Reply:
        """Make one call. Raise Problem or Unreachable."""
        if call.method != "GET":
            drop_lost_output()
        return super().call(call)

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        also: Collection[int] = (),
        seconds: float = REPLY_SECONDS,
    ) -> Reply:
        """GET `path` (below /v1). `also`: 4xx and 5xx statuses that are results of this call and no errors.

        Wait `seconds` for the response. Raise Problem or Unreachable.
        """
        return self.call(Call("GET", path, params or {}, seconds=seconds, also=also))

    def put(self, path: str, body: object) -> Reply:
        """PUT `body` as JSON. Raise Problem or Unreachable."""
        return self.call(Call("PUT", path, body=encode(body)))

    def post(self, path: str, body: object | None = None, *, seconds: float = REPLY_SECONDS) -> Reply:
        """POST `body` as JSON, or nothing. Wait `seconds` for the response. Raise Problem or Unreachable."""
        return self.call(Call("POST", path, body=None if body is None else encode(body), seconds=seconds))

    def receive(self, path: str, body: object, *, seconds: float) -> Iterator[bytes]:
        """POST `body` and yield the bytes of the response as they arrive.

        Raise Problem or Unreachable, also after an early end of the bytes.
        """
        return self.pieces(Call("POST", path, body=encode(body), seconds=seconds))

    def metrics(self) -> str:
        """Get the metrics in Prometheus' format, which is not part of the versioned API."""
        return self.text(Call("GET", METRICS_URL))


def _serves(process: int) -> bool:
    """Return whether the process with this id can be posd: it runs, and is not systemd."""
    if process == 1:
        return not Path("/run/systemd/system").exists()
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def merchant_zone(api: Api) -> ZoneInfo:
    """Return the time zone of the merchant's days."""
    return ZoneInfo(api.get("/version").body["timezone"])


Command = TypeVar("Command", bound=Callable[..., Any])

#: Argument for the id of an open payment, or its first characters (see `posd.cli.app.subject.find`).
id_argument = click.argument("given_id", metavar="ID", shell_complete=payments("open=true"))


def json_option(command: Command) -> Command:
    """Add --json and --utc. The command receives an Output as its parameter `output`."""

    def make(ctx: click.Context, _parameter: click.Parameter, value: bool) -> Output:
        output = Output(as_json=value)
        context(ctx).output = output  # an error is written in the same format
        if not ctx.resilient_parsing:  # a completion writes no texts
            choose(ctx)
        return output

    def in_utc(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context(ctx).utc |= value  # --utc may stand before or after the name of the command
        times.use(utc=context(ctx).utc)

    for option in (
        # Eager, so that the error for a wrong parameter has the right language and format.
        click.option("--json", "output", is_flag=True, is_eager=True, callback=make, help="Print the API's JSON."),
        click.option(
            "--utc", is_flag=True, expose_value=False, callback=in_utc, help="Times in UTC, not in local time."
        ),
    ):
        command = option(command)
    return command


@contextmanager
def connect(ctx: click.Context) -> Iterator[Api]:
    """Connect to the local API: at --socket or POSD_SOCKET, else at the socket of `found_socket`."""
    given = context(ctx)
    for_people = given.output is not None and not given.output.as_json
    cashiers = language() if for_people and language() is Language.ES else None  # None: the daemon's default
    with Api(Path(given.socket_path) if given.socket_path else found_socket(given), cashiers) as api:
        yield api


def found_socket(given: Context) -> Path:
    """Return the usual socket of the configuration.

    If the configuration has an error about sockets, write it to stderr.

    If the default file is missing or unreadable, store the message in `given.unread` instead. An error about
    an unreachable daemon then shows this message.
    """
    file = Path(given.config_path)
    socket, why = usual_socket(file)
    if why is not None:
        reason = f"{why.key} {translate(why.reason)}".strip()
        words = say("error", "no_socket", file=why.file, why=reason, socket=socket)
        if given.config_path == CONFIG_FILE and not os.access(file, os.R_OK):
            given.unread = words
        else:
            Output(as_json=False).note(f"posd: {words}", style="yellow")
    return socket
