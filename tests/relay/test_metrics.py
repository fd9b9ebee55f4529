"""The relay's metrics. The metrics agree with the stream, have a strict format, and are served to this machine only."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
import pytest_asyncio

from posd.relay import process
from posd.relay import relay as metrics
from posd.relay.messages import encode
from tests.relay.lane import Lane, sent
from tests.relay.nats_server import NatsServer
from tests.relay.scrapes import numbers, scraped
from tests.rig.exposition import Family
from tests.rig.needs import needs
from tests.rig.ports import reserve
from tests.rig.shop import Shop
from tests.rig.waits import until


@pytest_asyncio.fixture(loop_scope="module")
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path) as server:
        await server.make_stream()
        yield server


@needs("nats-server")
@pytest.mark.asyncio(loop_scope="module")
async def test_the_metrics_show_what_was_sent_and_what_is_unreachable(shop: Shop, server: NatsServer) -> None:
    payment = await shop.started()
    await payment.approve()
    port = reserve()
    lane = Lane(shop.daemon, server, f'metrics_listen = "127.0.0.1:{port}"')
    relay = await lane.start()
    messages = await lane.until_complete()

    async def acknowledged() -> dict[str, Family] | None:
        told = await scraped(port)
        return told if "posd_relay_state_timestamp_seconds" in told else None

    found = await until(acknowledged)  # the stream has the state before the relay gets the acknowledgement
    assert found.keys() <= metrics.FAMILIES.keys()
    assert {name: family.labels for name, family in found.items()} == {
        name: set(family.labels) for name, family in metrics.FAMILIES.items()
    }
    kinds = Counter(message["kind"] for message in messages)
    told = numbers(found, "posd_relay_messages_total")
    assert {kind: count for kind, count in told.items() if kind != "state"} == {
        "begin": kinds["begin"], "changes": kinds["changes"], "lost": 0
    }  # fmt: skip
    assert told["state"] >= 1
    assert numbers(found, "posd_relay_changes_total")[""] == len(sent(messages))
    size = sum(len(encode({name: member for name, member in m.items() if name != "sequence"})) for m in messages)
    assert size <= numbers(found, "posd_relay_bytes_total")[""] < size * 2, "one or two later states are possible"
    assert numbers(found, "posd_relay_waiting_changes") == {"": 0}
    assert numbers(found, "posd_relay_connected") == {"": 1}
    assert numbers(found, "posd_relay_failures_total") == {"posd": 0, "stream": 0}

    await server.stop()
    await relay.log_line("relay.waiting")
    found = await scraped(port)
    assert numbers(found, "posd_relay_connected") == {"": 0}
    assert numbers(found, "posd_relay_failures_total")["stream"] >= 1
    await server.start()
    assert await relay.stop() == 0


@needs("nats-server")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_port_in_use_does_not_stop_the_relay(shop: Shop, server: NatsServer) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        lane = Lane(shop.daemon, server, f'metrics_listen = "127.0.0.1:{taken.getsockname()[1]}"')
        relay = await lane.start()
        assert (await relay.log_line("metrics.not_served"))["error"] == "Address already in use", relay.lines
        await lane.until_complete()
        assert await relay.stop() == 0


@pytest_asyncio.fixture
async def door(config_listen: process.ListenAddress) -> AsyncIterator[int]:
    async with process.served(config_listen, _text):
        yield config_listen.port


@pytest.fixture
def config_listen() -> process.ListenAddress:
    return process.ListenAddress("127.0.0.1", reserve())


async def _text() -> str:
    return "all of them\n"


async def answer(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        with closing(writer):
            writer.write(request)
            return await reader.read()


async def test_only_a_request_for_the_metrics_gets_them(door: int) -> None:
    for request, status in (
        (b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nhost: [::1]\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\ncontent-length: 1\r\n\r\nx", b"405"),
        (b"\xff\x00 nothing\r\n\r\n", b"404"),
        (b"\r\n\r\n", b"404"),
    ):
        head, _, body = (await answer(door, request)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status), (request, head)
        assert b"content-length: %d\r\n" % len(body) in head
        assert (body == b"all of them\n") == (status == b"200")
    assert b"allow: GET\r\n" in await answer(door, b"PUT /metrics HTTP/1.1\r\n\r\n")


async def test_a_too_long_or_silent_request_delays_no_other_request(door: int) -> None:
    assert await answer(door, b"GET /metrics HTTP/1.1\r\nx: " + b"x" * process.MOST_BYTES * 3) == b""
    async with AsyncExitStack() as stack:
        for _ in range(process.MOST_CONNECTIONS - 1):
            _, writer = await asyncio.open_connection("127.0.0.1", door)
            stack.enter_context(closing(writer))
        assert b" 200 " in await answer(door, b"GET /metrics HTTP/1.1\r\n\r\n")
        _, writer = await asyncio.open_connection("127.0.0.1", door)
        stack.enter_context(closing(writer))
        assert await answer(door, b"") == b""
