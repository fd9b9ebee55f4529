"""A raw HTTP/1.1 connection that is kept open. This client needs little processor time compared with the measured
daemon.
"""

import asyncio
import socket
import ssl
from pathlib import Path


class Wire:
    """One connection."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._reader, self._writer = streams

    def send(self, method: str, path: str, body: bytes = b"", headers: str = "") -> None:
        """Send a request."""
        head = f"{method} {path} HTTP/1.1\r\nhost: posd\r\ncontent-type: application/json\r\n{headers}"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def answer(self, status: int) -> None:
        """Read one response. Raise RuntimeError for another status."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, found, rest = head.partition(b"content-length:")
        body = await self._reader.readexactly(int(rest.split(b"\r\n", 1)[0]) if found else 0)
        if int(head[9:12]) != status:
            raise RuntimeError(f"expected {status}: {head.decode()}{body.decode()}")

    async def discard(self) -> None:
        """Read and discard all data until the other side ends the connection."""
        while await self._reader.read(65_536):
            pass

    def close(self) -> None:
        """Close the connection without a message to the other side."""
        self._writer.transport.abort()


async def till(path: Path) -> Wire:
    """Connect to the socket of the tills."""
    return Wire(await asyncio.open_unix_connection(str(path)))


async def taken_over(connection: socket.socket) -> Wire:
    """Return a connection that another process has made (`tests.support.senders`)."""
    return Wire(await asyncio.open_unix_connection(sock=connection.dup()))


async def listener(port: int, ca: Path) -> Wire:
    """Connect to the listener for callbacks, over TLS."""
    return Wire(await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context(cafile=str(ca))))
