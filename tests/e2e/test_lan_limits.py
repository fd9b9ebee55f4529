"""Limits of the webhook listener for any device on the LAN. Sockets and TLS are real, and time-outs are short."""

import asyncio
import ctypes
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.api import webhooks
from posd.httpd import bodies, connection, server
from posd.httpd.admission import PLACES_OF_STRANGER, AdmissionGate
from tests.support import events
from tests.support.daemon import Daemon
from tests.support.lan import PATIENCE, SHORT, Lan, answers, head, listening, path_of, request, until_closed
from tests.support.usage import resident_bytes
from tests.support.waits import until
from tests.support.webhooks import parse


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


async def test_a_slow_header_is_closed_in_time(lan: Lan) -> None:
    assert await trickle(lan, b"POST / HTTP/1.1\r\nx: ", b"y") == b""
    await lan.empty()


@pytest.mark.quick(1)
@pytest.mark.parametrize("drop", [b"", b" "], ids=["stalls", "trickles"])
@pytest.mark.parametrize("framing", ["content-length: 1000", "transfer-encoding: chunked"])
async def test_a_missing_body_is_answered_408(lan: Lan, drop: bytes, framing: str) -> None:
    if framing.startswith("transfer") and drop:
        drop = b"1\r\n \r\n"
    received = await trickle(lan, head(path_of(str(uuid4())), framing), drop)
    assert [answer.status for answer in parse(received)] == [408]
    await lan.empty()
    assert lan.noise.counts["slow_body"] == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\xff"], ids=["silent", "header", "half"])
async def test_an_incomplete_handshake_is_closed_in_time(lan: Lan, first: bytes) -> None:
    before = asyncio.all_tasks()
    reader, writer = await lan.plain()
    writer.write(first)
    await until_closed(reader)
    writer.close()
    await lan.empty(before)
    assert lan.noise.counts["tls_handshake_failed"] == 1


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"SSH-2.0\r\n"], ids=["HTTP", "0", "SSH"])
async def test_a_connection_without_tls_is_closed(lan: Lan, first: bytes) -> None:
    before = asyncio.all_tasks()
    reader, writer = await lan.plain()
    writer.write(first)
    assert b"HTTP" not in await until_closed(reader)
    writer.close()
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
        identity = str(uuid4())
        streams[0][1].write(request(identity, events.body(identity, "CARD_PRESENTED")))
        assert [answer.status for answer in await answers(streams[0][0], 1)] == [200]
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
            socket.create_connection(("127.0.0.1", lan.port)).close()
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
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", lan.port))
            await until(lambda: lan.noise.counts["accept_failed"] > 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    identity = str(uuid4())
    answer = await lan.talk(request(identity, events.body(identity, "CARD_PRESENTED"), "connection: close"))
    assert parse(answer)[0].status == 200


async def test_a_missing_body_does_not_delay_the_stop(home: Path) -> None:
    async with listening(home, keep_alive_seconds=10 * PATIENCE) as lan:
        reader, writer = await lan.connect()
        writer.write(head(path_of(str(uuid4())), "content-length: 100", "expect: 100-continue"))
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")  # the listener has the head, and waits for the body
        async with asyncio.timeout(PATIENCE):
            await lan.listener.close(SHORT)
        assert lan.listener.connections == 0
