"""A server of the runs whose connections end with it."""

import asyncio
import ssl
from abc import ABC, abstractmethod

from tests.support.connections import shut


class Listener(ABC):
    """Listens on one address; `_take` has one connection, and is cancelled by `stop`."""

    def __init__(self) -> None:
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        """Listen. Raise OSError."""
        self._server = await asyncio.start_server(self._accept, host, port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            await shut(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._take(reader, writer)
        finally:
            self._tasks.discard(task)

    @abstractmethod
    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. A cancellation ends here: a server would tell of it as a fault."""
