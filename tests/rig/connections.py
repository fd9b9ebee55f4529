"""Accepted connections of a test's server. The connections end with the server, in any state."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connections:
    """Callback of `asyncio.start_server`. Each connection is passed to `serve`, and open connections are recorded.

    The socket of a closed TLS connection stays open until the peer has also closed. If the loop ends earlier, the
    garbage collector finds the socket, and an unrelated test gets a warning.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._open: set[asyncio.StreamWriter] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection and close it."""
        self._open.add(writer)
        try:
            await self._serve(reader, writer)
        finally:
            if not writer.is_closing():  # asyncio 3.11 loses the connection below TLS after a second close
                writer.close()
            await _gone(writer)
            self._open.discard(writer)

    async def close(self, *servers: asyncio.Server) -> None:
        """Close the servers and all accepted connections. Wait until all connections have ended."""
        await shut(*servers)
        await _let_in()
        left = tuple(self._open)
        for writer in left:
            writer.transport.abort()
        for writer in left:
            await _gone(writer)


@asynccontextmanager
async def serving(
    serve: Serve, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve connections for the block. Yield the port."""
    connections = Connections(serve)
    server = await asyncio.start_server(connections, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await connections.close(server)


async def shut(*servers: asyncio.Server) -> None:
    """Close the servers. All accepted connections stay open.

    When a server closes, asyncio drops connections accepted in the same turn of the loop. The garbage collector then
    finds the sockets, and an unrelated test gets a warning.
    """
    for server in servers:
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
    await asyncio.sleep(0)  # after this turn of the loop every accepted connection has a transport
    for server in servers:
        server.close()


async def _let_in() -> None:
    """Wait until every accepted connection has reached `serve`. A TLS connection reaches `serve` after the handshake.
    asyncio has no function that waits for the end of handshakes.
    """
    tasks = [task for task in asyncio.all_tasks() if "_accept_connection2" in repr(task.get_coro())]
    if tasks:
        await asyncio.wait(tasks)
    await asyncio.sleep(0)  # the task of the connection begins


async def _gone(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
