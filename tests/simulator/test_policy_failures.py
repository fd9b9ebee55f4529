"""How a connection to the consumer fails: each kind is retried, with the delays of the formula (spec 6.2)."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest

from posd.simulator.clock import VirtualClock
from tests.simulator.conftest import Receiver
from tests.simulator.policy import START, Delivering, delivering
from tests.support.connections import Connections
from tests.support.ports import reserve

#: The delay after the first, second, third attempt, and the longest jitter (spec 8).
DELAYS = (2, 4, 8)
BASE = 2


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close as soon as something comes."""
    await reader.read(1)


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close with RST as soon as something comes."""
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def talk_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await writer.drain()
    await reader.read()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        pass


async def hang_up_after_the_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)


async def break_off_in_the_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")
    await writer.drain()


async def answer_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"OK, thank you\r\n\r\n")
    await writer.drain()


#: How a connection fails: the receiver's behaviour, whether within TLS, the word of the ledger.
FAILURES: dict[str, tuple[Behaviour, bool, str]] = {
    "closed in the handshake": (hang_up, False, "connection_reset"),
    "reset in the handshake": (reset, False, "connection_reset"),
    "no TLS": (talk_nonsense, False, "tls_failure"),
    "silent in the handshake": (say_nothing, False, "timeout"),
    "closed after the request": (hang_up_after_the_request, True, "connection_reset"),
    "reset after the request": (reset, True, "connection_reset"),
    "broken off in the head": (break_off_in_the_head, True, "connection_reset"),
    "no HTTP": (answer_nonsense, True, "connection_reset"),
    "silent after the request": (say_nothing, True, "timeout"),
}


@asynccontextmanager
async def failing(behaviour: Behaviour, context: ssl.SSLContext | None) -> AsyncIterator[str]:
    """Serve connections that fail; give the URL."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await behaviour(reader, writer)

    connections = Connections(connected)
    server = await asyncio.start_server(connections, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        await connections.close(server)


async def assert_retried(post: Delivering, url: str, word: str, **fields: Any) -> None:
    event = post.submit(f"transaction-{word}", url=url, **fields)
    await post.clock.advance(10)
    lines = post.attempts(event)
    assert {line["result"] for line in lines} == {word}
    assert len(lines) >= 2
    for line, delay in zip(lines, DELAYS, strict=False):
        assert delay <= line["retry_in_seconds"] <= delay + BASE


@pytest.mark.quick(3)
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_connection_that_fails_is_retried(
    tmp_path: Path,
    pem: dict[str, Path],
    clock: VirtualClock,
    receiver: Receiver,
    server_tls: ssl.SSLContext,
    failure: str,
) -> None:
    behaviour, within_tls, word = FAILURES[failure]
    timeout = 0.5 if word == "timeout" else 30.0
    async with (
        failing(behaviour, server_tls if within_tls else None) as url,
        delivering(tmp_path, pem["ca"], clock, receiver, timeout=timeout) as post,
    ):
        await assert_retried(post, url, word)


async def test_a_receiver_that_is_away_or_has_no_address_or_is_not_trusted_is_retried(
    tmp_path: Path, pem: dict[str, Path], clock: VirtualClock, receiver: Receiver
) -> None:
    async with delivering(tmp_path, pem["ca"], clock, receiver) as post:
        await assert_retried(post, f"https://127.0.0.1:{reserve()}/hook", "unreachable")
        await assert_retried(post, "https://consumer..invalid/hook", "dns_failure")
        await assert_retried(post, post.receiver.url, "tls_failure", distrusted=True)
        assert post.receiver.deliveries == []
