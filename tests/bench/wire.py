"""A raw HTTP/1.1 connection that is kept: a client that costs next to nothing beside what it measures."""

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path


class Wire:
    """One connection."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._reader, self._writer = streams

    def send(self, request: bytes) -> float:
        """Hand a request to the network; return when that began (`time.perf_counter`)."""
        at = time.perf_counter()
        self._writer.write(request)
        return at

    async def answer(self, status: int) -> float:
        """Read one answer; return when it was whole. Raise RuntimeError where it has another status."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, found, rest = head.partition(b"content-length:")
        body = await self._reader.readexactly(int(rest.split(b"\r\n", 1)[0]) if found else 0)
        at = time.perf_counter()
        if int(head[9:12]) != status:
            raise RuntimeError(f"expected {status}: {head.decode()}{body.decode()}")
        return at

    async def discard(self) -> None:
        """Read until the other side ends it, and keep nothing."""
        while await self._reader.read(65_536):
            pass

    async def end(self) -> None:
        """Close it as TLS wants it."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def close(self) -> None:
        """Close it without a goodbye."""
        self._writer.transport.abort()


async def till(path: Path) -> Wire:
    """Connect to the socket of the tills."""
    return Wire(await asyncio.open_unix_connection(str(path)))


async def taken_over(connection: socket.socket) -> Wire:
    """Return a connection that another process has made (`tests.support.senders`)."""
    return Wire(await asyncio.open_unix_connection(sock=connection.dup()))


def call(method: str, path: str, body: bytes = b"") -> bytes:
    """Return a till's request; `path` is below `/v1/transactions/`."""
    head = f"{method} /v1/transactions/{path} HTTP/1.1\r\nhost: posd\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
