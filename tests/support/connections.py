"""Accepted connections of a test's server: they end with the server, in any state."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connections:
    """Passes each connection to `serve`, and records the open ones. It is the callback of `asyncio.start_server`.

    A closed TLS connection stays until the other side has closed too. If the loop ends before, its socket is left to
    the garbage collector, and an unrelated test gets the warning.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._open: set[asyncio.StreamWriter] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one, and close it."""
        self._open.add(writer)
        try:
            await self._serve(reader, writer)
        finally:
            if not writer.is_closing():  # a second time, asyncio 3.11 forgets the connection below TLS
                writer.close()
            await _gone(writer)
            self._open.discard(writer)

    async def close(self, *servers: asyncio.Server) -> None:
        """Close the servers, break off open and just accepted connections, and wait until they are gone."""
        await shut(*servers)
        await _let_in()
        left = tuple(self._open)
        for writer in left:
            writer.transport.abort()
        for writer in left:
            await _gone(writer)


async def shut(*servers: asyncio.Server) -> None:
    """Close servers; accepted connections stay, also those accepted just now.

    If a server is closed, asyncio drops the connections accepted in the same turn of the loop. It leaves their sockets
    to the garbage collector, and an unrelated test gets the warning.
    """
    for server in servers:
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
    await asyncio.sleep(0)  # every accepted connection has its transport
    for server in servers:
        server.close()


async def _let_in() -> None:
    """Wait until every accepted connection has come to `serve`: for TLS, until the handshake is over.

    asyncio has nothing that does so.
    """
    tasks = [task for task in asyncio.all_tasks() if "_accept_connection2" in repr(task.get_coro())]
    if tasks:
        await asyncio.wait(tasks)
    await asyncio.sleep(0)  # its own task begins


async def _gone(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
