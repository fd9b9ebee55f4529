"""What a test's server has accepted ends with it, however far asyncio has come with it."""

import asyncio
import gc
import socket
from contextlib import suppress

import pytest

from tests.support.connections import Connections, shut


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


@pytest.mark.parametrize("turns", range(6))
async def test_what_was_accepted_just_now_stays_where_its_server_is_shut(turns: int) -> None:
    came: list[asyncio.StreamWriter] = []

    async def greeting(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        writer.write(b"hello")
        await writer.drain()

    connections, loop = Connections(greeting), asyncio.get_running_loop()
    server = await asyncio.start_server(connections, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await shut(server)
        async with asyncio.timeout(10):
            try:
                heard = await loop.sock_recv(client, 5)
            except ConnectionResetError:  # the kernel had it, and the loop did not
                heard = b""
        assert heard == (b"hello" if came else b"")
        await connections.close()
    gc.collect()
