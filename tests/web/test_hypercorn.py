"""What `posd.httpd.connection` relies on of Hypercorn: a red test here means that Hypercorn has changed a seam."""

import asyncio
import socket
from pathlib import Path
from typing import Any

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed

from posd.base.clocks import wall
from posd.httpd.connection import HttpConnection, IdleTimeout, ListenerContext, http_config

PATIENCE = 30.0
POSD = Path(__file__).parents[2] / "posd"


class Parts:
    """A part of each kind that posd replaces: it writes down what Hypercorn does with it."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    async def initiate(self) -> None:
        self.calls.append("initiate")

    async def handle(self, event: object) -> None:
        self.calls.append(event)

    async def restart(self, task_group: object, action: object) -> None:
        assert callable(action)
        self.calls.append("restart" if hasattr(task_group, "spawn") else "restart without a task group")

    async def stop(self) -> None:
        self.calls.append("stop")


class Recording(TCPServer):
    """Hypercorn's server with those parts, as `HttpConnection` has its own."""

    def __init__(self, *arguments: Any) -> None:
        self.parts = Parts()
        super().__init__(*arguments)
        self.idle_task = self.parts  # type: ignore[assignment]

    @property  # type: ignore[override]
    def protocol(self) -> Parts:
        return self.parts

    @protocol.setter
    def protocol(self, made: Any) -> None:
        self.parts.calls.append(("made", made.ssl, made.client, made.server, callable(made.task_group.spawn)))


class Writer(asyncio.StreamWriter):
    """A writer that tells what is done with it."""

    parts: Parts

    def write_eof(self) -> None:
        self.parts.calls.append("write_eof")

    def close(self) -> None:
        self.parts.calls.append("close")
        super().close()

    async def wait_closed(self) -> None:
        self.parts.calls.append("wait_closed")
        await super().wait_closed()


CLOSING = ["write_eof", "close", "wait_closed", "stop"]


async def _nothing(*_: object) -> None:
    """Be an app that is not called."""


async def served(kind: type[Recording] = Recording) -> tuple[Recording, socket.socket]:
    """Return Hypercorn's server of one connection, which does not run yet, and the client's end."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
    writer = Writer(transport, protocol, reader, loop)
    server = kind(ASGIWrapper(_nothing), loop, http_config(PATIENCE), ListenerContext(wall), {}, reader, writer)
    writer.parts = server.parts
    return server, theirs


async def test_hypercorn_has_the_connection_read_and_closes() -> None:
    class Read(Recording):
        async def _read_data(self) -> None:
            self.parts.calls.append(await self.reader.read())

    server, client = await served(Read)
    with client:
        client.sendall(b"one")
        client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(PATIENCE):
            await server.run()
    made = ("made", False, None, None, True)
    assert server.parts.calls == [made, "initiate", "restart", b"one", *CLOSING]


async def test_hypercorn_closes_when_the_protocol_asks_for_it() -> None:
    server, client = await served()
    with client:
        await server.protocol_send(Closed())
        assert client.recv(10) == b""
    assert server.parts.calls == CLOSING


async def test_hypercorns_server_keeps_what_posd_reads_of_it() -> None:
    server, client = await served()
    with client:
        kept = vars(server)
        assert (kept["state"], type(kept["context"]), type(kept["writer"])) == ({}, ListenerContext, Writer)
        assert isinstance(kept["reader"], asyncio.StreamReader)
        await server.protocol_send(Closed())


def test_hypercorns_server_has_no_other_places() -> None:
    own = {name for name, value in vars(TCPServer).items() if callable(value)}
    reading = {"_read_data", "_close", "_initiate_server_close", "_idle_timeout"}
    assert own == {"__init__", "__await__", "run", "protocol_send"} | reading
    assert (own - {"__init__"}) & set(vars(HttpConnection)) == {"_read_data"}  # posd overrides no other
    assert {"initiate", "handle"} <= set(vars(HttpConnection))
    assert {"restart", "stop"} <= set(vars(IdleTimeout))


async def test_an_end_begins_with_the_context() -> None:
    context = ListenerContext(wall)
    assert isinstance(context, WorkerContext)
    assert not context.terminated.is_set()
    await context.terminate_idle()
    assert context.terminated.is_set()


def test_the_settings_are_hypercorns_own() -> None:
    made, plain = http_config(1.5), Config()
    changed = {name for name in vars(made) if getattr(made, name) != getattr(plain, name)}
    assert changed == {"errorlog", "include_server_header", "keep_alive_timeout"}
    assert made.read_timeout is None  # the idle time is the limit


def test_one_module_of_the_server_knows_hypercorn_and_others_only_its_types() -> None:
    found = {
        path.stem
        for path in POSD.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("from hypercorn", "import hypercorn")) and not line.startswith("from hypercorn.typing ")
    }
    assert found == {"connection", "listener"}
