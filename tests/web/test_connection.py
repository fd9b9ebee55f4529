"""What an app and the log hear of a connection that ends otherwise than in order."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from posd.web import bodies
from posd.web.noise import Noise
from posd.web.server import Listener

#: Longest that anything here may take, in seconds.
PATIENCE = 30.0


class House:
    """A listener without TLS, its app, and what the app and the loop heard."""

    def __init__(self, *, in_turn: bool) -> None:
        self.noise = Noise()
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.faults: list[dict[str, Any]] = []
        sock = socket.create_server(("127.0.0.1", 0))
        self.listener = Listener(
            self._answer,
            sock,
            name="test",
            noise=self.noise,
            keep_alive_seconds=PATIENCE,
            max_connections=10,
            in_turn=in_turn,
        )

    async def _answer(self, scope: Any, receive: Any, _send: Any) -> None:
        try:
            await bodies.read(receive, dict(scope["headers"]), 1000, PATIENCE)
        except bodies.Gone:
            self.gone.set()
            return
        self.asked.set()
        await asyncio.Event().wait()


@pytest.fixture(params=[True, False], ids=["in turn", "beside"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    house = House(in_turn=request.param)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: house.faults.append(context))
    house.listener.start()
    yield house
    await house.listener.close(0)
    assert not house.faults


def client(house: House) -> socket.socket:
    """Return a connection that is reset where it is closed."""
    connection = socket.create_connection(("127.0.0.1", house.listener.port))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return connection


async def served(house: House) -> Any:
    """Wait until a connection is being read from; return what ends it when nothing is under way."""
    idle = house.listener._context.idle
    async with asyncio.timeout(PATIENCE):
        while not idle:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.001)
    return next(iter(idle))


@pytest.mark.parametrize("field", ["expect: 100-continue", "x: y"])
async def test_an_app_hears_of_a_request_whose_client_has_gone_already(house: House, field: str) -> None:
    with client(house) as connection:
        await served(house)
        connection.send(f"POST / HTTP/1.1\r\nhost: posd\r\n{field}\r\ncontent-length: 10\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        await house.gone.wait()


async def test_a_request_that_is_cut_at_the_end_is_no_noise(house: House) -> None:
    with client(house) as connection:
        connection.send(b"GET / HTTP/1.1\r\nhost: posd\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            await house.asked.wait()
            await house.listener.close(0)
    assert not house.noise.counts


async def test_a_connection_that_ends_by_itself_as_it_is_to_be_ended_is_no_fault(house: House) -> None:
    with client(house):
        idle = await served(house)
        (transport,) = house.listener._connections.values()
        assert transport is not None
        transport.abort()
        await asyncio.sleep(0)  # the loss of the connection is known, and not yet told to who reads
        idle.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while house.listener.connections:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.001)
        assert idle._ending.exception() is None
