"""What a test's server has accepted ends with it, however far asyncio has come with it."""

import asyncio
import socket
from contextlib import suppress

import pytest

from tests.support.connections import Connections


async def waiting(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize("turns", range(6))
async def test_what_was_accepted_just_now_ends_with_the_server(turns: int) -> None:
    connections, loop = Connections(waiting), asyncio.get_running_loop()
    server = await asyncio.start_server(connections, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await connections.close(server)
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):  # the kernel had it, and the loop did not
                assert await loop.sock_recv(client, 1) == b""
