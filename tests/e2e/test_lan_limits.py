"""Limits of the webhook listener for any device on the LAN. Sockets and TLS are real, and time-outs are short."""

import asyncio
import ctypes
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from posd.api import webhooks
from posd.base import ids
from posd.base.clocks import monotonic, wall
from posd.base.ids import Channel
from posd.config import load
from posd.daemon import sockets
from posd.httpd import bodies, connection, server
from posd.httpd.admission import PLACES_OF_STRANGER, AdmissionGate, ListenerPolicy, RejectedTraffic
from posd.httpd.server import HttpListener
from posd.payments.attentions import ApprovalChecks
from posd.payments.inbox import Inbox
from posd.records.callback_urls import CallbackUrls
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from posd.tls import issue
from posd.tls.files import files_in, load_pair
from tests.rig import events
from tests.rig.daemon import Daemon, toml
from tests.rig.usage import resident_bytes
from tests.rig.waits import until
from tests.rig.webhooks import parse

#: Every time-out of the listener under test, in seconds.
SHORT = 0.25
#: Limit of a wait in seconds, shorter than the daemon's real time-outs.
PATIENCE = 30.0
KEY = bytes(32)


@dataclass
class Lan:
    """A listener in this process, with inbox and database."""

    listener: HttpListener
    noise: RejectedTraffic
    ca: Path

    async def connect(self, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a TLS connection from an address of loopback."""
        tls: Any = {"ssl": ssl.create_default_context(cafile=str(self.ca)), "server_hostname": "127.0.0.1"}
        return await asyncio.open_connection("127.0.0.1", self.listener.port, local_addr=(source, 0), **tls)

    async def talk(self, data: bytes, *, tls: bool = True) -> bytes:
        """Send bytes. Return all bytes until the listener closes or resets. Raise TimeoutError if it does neither in
        time.
        """
        reader, writer = await (self.connect() if tls else asyncio.open_connection("127.0.0.1", self.listener.port))
        writer.write(data)
        received = bytearray()
        with suppress(ConnectionError, ssl.SSLError):
            async with asyncio.timeout(PATIENCE):
                while part := await reader.read(65536):
                    received += part
        writer.close()
        return bytes(received)

    async def empty(self, tasks: set[asyncio.Task[Any]] | None = None) -> None:
        """Wait until no connection is left, and no task except these tasks."""
        await until(lambda: not self.listener.connections and (tasks is None or not asyncio.all_tasks() - tasks))


@asynccontextmanager
async def listening(home: Path, gate: AdmissionGate | None = None, **limits: Any) -> AsyncIterator[Lan]:
    """Run a listener for the block. Check at the end that the log has no internal errors."""
    issue.init(home / "tls", names=["localhost"], addresses=["127.0.0.1"])
    files = files_in(home / "tls")
    async with AsyncExitStack() as stack:
        store = await Store.open(home / "posd.db", home / "posd.lock")
        stack.push_async_callback(store.close)
        (home / "config.toml").write_text(toml(home, '[[terminals]]\nserial = "SN-TEST"\n'))
        fleet = Fleet(load(home / "config.toml").terminals)
        stack.push_async_callback(fleet.close)
        sock = sockets.tcp_socket("127.0.0.1", 0, "webhooks.listen")
        inbox = Inbox(ServiceParts(store, fleet, lambda: datetime.now(UTC)), "", ApprovalChecks("", lambda: True))
        noise = RejectedTraffic()
        usual = {"keep_alive_seconds": SHORT, "max_connections": 50, "in_turn": True}
        urls = CallbackUrls((KEY,), "127.0.0.1", sock.getsockname()[1])
        app = webhooks.WebhookApp((webhooks.transactions(inbox, 100_000),), urls, noise)
        gate = gate or AdmissionGate(lambda: ["127.0.0.1"], clock=monotonic)
        listener = HttpListener(app, sock, ListenerPolicy(name="test", **usual | limits), noise, wall, gate)
        listener.use_tls(load_pair(files.certificate, files.private_key, None).context)
        listener.start()
        stack.push_async_callback(listener.close, SHORT)
        with capture_logs() as lines:
            yield Lan(listener, noise, home / "tls" / "ca.crt")
        assert not [line for line in lines if line["event"] == "posd.internal_error"], lines


def request(*fields: str, event: bool = False) -> bytes:
    """Return the head of a callback request for a new id, or the whole request with an event."""
    identity = str(uuid4())
    path = ids.path(Channel.TRANSACTION, identity, ids.token(KEY, Channel.TRANSACTION, identity))
    content = events.body(identity, "CARD_PRESENTED") if event else b""
    length = [f"content-length: {len(content)}"] if event else []
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: posd", *fields, *length, "", ""]).encode() + content


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time-outs that are constants of the code."""
    monkeypatch.setattr(webhooks, "BODY_SECONDS", SHORT)
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", SHORT)
    monkeypatch.setattr(connection, "TLS_HANDSHAKE_SECONDS", SHORT)


@pytest.fixture
async def lan(home: Path, short: None) -> AsyncIterator[Lan]:
    """Yield a listener with short time-outs."""
    async with listening(home) as lan:
        yield lan


#: Freed bytes that the C library may hold.
FREED = 64 * 2**20
#: Bytes that a client sends before its pause.
SILENT = {
    "nothing": b"",
    "half a request line": b"POST /web",
    "half a header": b"POST / HTTP/1.1\r\nhost: po",
    "all but the last line": b"POST / HTTP/1.1\r\nhost: posd\r\n",
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", SILENT)
async def test_a_silent_connection_is_closed_in_time(lan: Lan, name: str) -> None:
    assert await lan.talk(SILENT[name]) == b""
    await lan.empty()


async def trickle(lan: Lan, first: bytes, drop: bytes) -> bytes:
    """Send a first part, then single bytes while the listener accepts them. Return the response."""
    reader, writer = await lan.connect()
    writer.write(first)
    received = b""
    async with asyncio.timeout(PATIENCE):
        while not reader.at_eof():
            with suppress(TimeoutError, ConnectionError, ssl.SSLError):
                received += await asyncio.wait_for(reader.read(1000), SHORT / 10)
            writer.write(drop)
    writer.transport.abort()
    return received


async def test_a_slow_header_is_cut_off_in_time(lan: Lan) -> None:
    assert await trickle(lan, b"POST / HTTP/1.1\r\nx: ", b"y") == b""
    await lan.empty()


@pytest.mark.quick(1)
@pytest.mark.parametrize("drop", [b"", b" "], ids=["stalls", "trickles"])
@pytest.mark.parametrize("framing", ["content-length: 1000", "transfer-encoding: chunked"])
async def test_a_missing_body_is_answered_408(lan: Lan, drop: bytes, framing: str) -> None:
    if framing.startswith("transfer") and drop:
        drop = b"1\r\n \r\n"
    received = await trickle(lan, request(framing), drop)
    assert [answer.status for answer in parse(received)] == [408]
    await lan.empty()
    assert lan.noise.counts["slow_body"] == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\xff"], ids=["silent", "header", "half"])
async def test_an_incomplete_handshake_is_closed_in_time(lan: Lan, first: bytes) -> None:
    before = asyncio.all_tasks()
    await lan.talk(first, tls=False)
    await lan.empty(before)
    assert lan.noise.counts["tls_handshake_failed"] == 1


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"SSH-2.0\r\n"], ids=["HTTP", "0", "SSH"])
async def test_a_connection_without_tls_is_closed(lan: Lan, first: bytes) -> None:
    before = asyncio.all_tasks()
    assert b"HTTP" not in await lan.talk(first, tls=False)
    await lan.empty(before)
    assert lan.noise.counts["tls_handshake_failed"] == 1


async def refused(lan: Lan, source: str) -> bool:
    """Return whether a new connection from an address is refused."""
    try:
        _, writer = await lan.connect(source)
    except (ConnectionError, ssl.SSLError):
        return True
    writer.transport.abort()
    return False


@pytest.mark.parametrize("places", ["all", "of one address"])
async def test_the_number_of_connections_is_limited(home: Path, places: str) -> None:
    gate = AdmissionGate(of_stranger=50 if places == "all" else 4, clock=lambda: 0.0)
    limit = 4 if places == "all" else 50
    async with listening(home, gate, keep_alive_seconds=PATIENCE, max_connections=limit) as lan:
        streams = [await lan.connect() for _ in range(4)]
        assert await refused(lan, "127.0.0.1")
        assert await refused(lan, "127.0.0.2") == (places == "all")
        assert lan.listener.connections >= 4
        streams[0][1].write(request(event=True))
        assert b" 200 " in await asyncio.wait_for(streams[0][0].readuntil(b"\r\n"), PATIENCE)
        for _, writer in streams:
            writer.close()
            await writer.wait_closed()
        await lan.empty()
        assert not await refused(lan, "127.0.0.1")
        await lan.empty()
        assert lan.noise.counts["too_many_connections"] >= 1


async def test_memory_is_returned_after_many_connections(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TRIM_SECONDS", SHORT)
    gate = AdmissionGate(of_stranger=200, of_strangers=200, clock=lambda: 0.0)
    async with listening(home, gate) as lan:
        keep_freed(FREED)
        kept = resident_bytes(os.getpid())
        for _ in range(server.TRIM_CONNECTIONS):
            socket.create_connection(("127.0.0.1", lan.listener.port)).close()
        await until(lambda: resident_bytes(os.getpid()) <= kept - FREED // 2)


def keep_freed(size: int) -> None:
    """Allocate and free memory. The C library keeps the memory, because later allocations are still in use."""
    library, piece = ctypes.CDLL(None), 1000
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    *blocks, _in_use = (library.malloc(piece) for _ in range(size // piece))
    for block in blocks:
        library.free(block)


async def test_one_address_cannot_occupy_every_connection_of_the_daemon(posd: Daemon) -> None:
    context = ssl.create_default_context(cafile=str(posd.ca))

    async def open_from(source: str) -> asyncio.StreamWriter:
        options: Any = {"ssl": context, "server_hostname": "127.0.0.1", "local_addr": (source, 0)}
        return (await asyncio.open_connection("127.0.0.1", posd.port, **options))[1]

    opened = await asyncio.gather(
        *(open_from("127.0.0.9") for _ in range(3 * PLACES_OF_STRANGER)), return_exceptions=True
    )
    writers = [item for item in opened if isinstance(item, asyncio.StreamWriter)]
    assert 0 < len(writers) < len(opened)
    writers.append(await open_from("127.0.0.10"))
    for writer in writers:
        writer.transport.abort()


async def test_without_file_descriptors_the_listener_waits_and_continues(lan: Lan) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.setblocking(False)
        free = os.dup(client.fileno())  # a new socket would get this descriptor
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", lan.listener.port))
            await until(lambda: lan.noise.counts["accept_failed"] > 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert parse(await lan.talk(request("connection: close", event=True)))[0].status == 200


async def test_a_missing_body_does_not_delay_the_stop(home: Path) -> None:
    async with listening(home, keep_alive_seconds=10 * PATIENCE) as lan:
        reader, writer = await lan.connect()
        writer.write(request("content-length: 100", "expect: 100-continue"))
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")  # the listener has the head, and waits for the body
        async with asyncio.timeout(PATIENCE):
            await lan.listener.close(SHORT)
        assert lan.listener.connections == 0
