"""A gate before a terminal: bytes pass untouched while it is open; while it is closed every connection is counted."""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.connections import shut

#: struct linger: closing such a socket resets the connection.
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Gate:
    """Listens on loopback and connects to `upstream`, a port of loopback, which can change."""

    upstream: int
    port: int = 0
    closed: bool = False
    #: Connections that came while it was closed: each was reset at once.
    turned_away: int = 0
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None
        await shut(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def turned(self, count: int) -> None:
        """Wait until so many connections came to the closed gate."""
        while self.turned_away < count:
            self._came.clear()
            await self._came.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.closed:
                self.turned_away += 1
                self._came.set()
                with suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            else:
                await self._pass(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # an end is gone; or by `stop`: a task of the server that ends as cancelled is told as a fault
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.transport.abort()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()
