"""A network with faults. TCP proxies block all data for a while. TLS passes unchanged. Other tests break connections
within a request or a reply: `tests/terminals/test_exchange.py` and the simulation.
"""

import asyncio
import socket
import ssl
import struct
from contextlib import suppress

from tests.rig.connections import shut

#: struct linger. Socket option that makes a close reset the connection.
_RESET = struct.pack("ii", 1, 0)


class Lan:
    """State of a network. In an outage, `cut` applies to existing connections, and `refuse` to new connections."""

    def __init__(self) -> None:
        self.refusing = False
        self._up = asyncio.Event()
        self._up.set()
        self.connections: set[Connection] = set()

    async def open(self) -> None:
        """Wait until the network passes data."""
        await self._up.wait()

    def down(self, *, cut: bool, refuse: bool) -> None:
        """Block all traffic. Open connections are cut or freeze. New connections are refused or freeze."""
        self._up.clear()
        self.refusing = refuse
        for connection in list(self.connections) if cut else ():
            connection.cut()

    def up(self, *, lost: bool = False) -> None:
        """Unblock the traffic. Frozen connections continue. With `lost`, open connections are cut."""
        for connection in list(self.connections) if lost else ():
            connection.cut()
        self.refusing = False
        self._up.set()


class Connection:
    """The two ends of one connection."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.ends = [client]

    def cut(self) -> None:
        """Reset both ends."""
        for writer in self.ends:
            cut(writer)

    def close(self) -> None:
        """Close both ends in order."""
        for writer in self.ends:
            if not writer.is_closing():  # asyncio 3.11 loses the connection below TLS after a second close
                writer.close()


def cut(writer: asyncio.StreamWriter) -> None:
    """Reset a connection."""
    # In Python 3.11 a TLS transport raises AttributeError after the end of its connection.
    with suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(AttributeError):
        writer.transport.abort()


class Proxy:
    """Proxy that listens on one address and connects to `upstream`. A test can change `upstream`. None stands for no
    upstream.
    """

    def __init__(self, *lans: Lan) -> None:
        self.upstream: tuple[str, int] | None = None
        self.port = 0
        self._lans = lans
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int = 0, own: ssl.SSLContext | None = None) -> None:
        """Open the listener, with TLS if a context is given. Raise OSError."""
        self._server = await asyncio.start_server(self._accept, host, port, ssl=own)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            await shut(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.current_task())
        connection = Connection(writer)
        for lan in self._lans:
            lan.connections.add(connection)
        try:
            await self._serve(connection, reader, writer)
        except (OSError, asyncio.CancelledError):
            # one end has closed, or `stop` has cancelled the task, which asyncio's server would report as a fault
            connection.cut()
        finally:
            connection.close()
            for lan in self._lans:
                lan.connections.discard(connection)
            self._tasks.discard(task)

    async def _serve(self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if any(lan.refusing for lan in self._lans):
            raise ConnectionRefusedError
        await self._open()
        if self.upstream is None:
            raise ConnectionRefusedError
        far, near = await asyncio.open_connection(*self.upstream)
        connection.ends.append(near)
        pumps = [asyncio.create_task(self._pump(*ends)) for ends in ((reader, near), (far, writer))]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Copy bytes from the first end to the second end, until the first end closes."""
        while data := await source.read(65_536):
            await self._open()
            target.write(data)
            await target.drain()
        await self._open()
        target.write_eof()

    async def _open(self) -> None:
        for lan in self._lans:
            await lan.open()
