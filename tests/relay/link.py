"""The way from a lane to a server, which can be cut, or swallow what is sent over it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

PIECE = 65_536


@dataclass(eq=False)
class Link:
    """Forwards connections to a port of this machine."""

    target: int
    port: int = 0
    _down: bool = False
    _deaf: bool = False
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        """What a relay is told of."""
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._down = True
        self._end()

    def swallow(self) -> None:
        """Forward nothing more, as a cable that is pulled: nobody is told."""
        self._deaf = True

    def mend(self) -> None:
        """Work again. What was swallowed is lost, and so are the connections that it was of."""
        if self._deaf:
            self._end()
        self._down = self._deaf = False

    def _end(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        self._open.add(writer)
        try:
            if self._down:
                return
            there, out = await asyncio.open_connection("127.0.0.1", self.target)
            self._open.add(out)
            try:
                await asyncio.gather(self._pump(reader, out), self._pump(there, writer))
            finally:
                self._open.discard(out)
                out.transport.abort()
        except OSError:
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                if not self._deaf:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def link_to(port: int) -> AsyncIterator[Link]:
    """Have one for the block."""
    link = Link(port)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        link.cut()
