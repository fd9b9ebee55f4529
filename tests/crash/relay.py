"""Relay in front of a server. The relay reads each HTTP exchange completely, stores the exchange, and applies a script.

An exchange that the relay has read counts as received by the server. An exchange without a response was lost on the
wire. The tests therefore see both sides of a lost reply.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.rig.proxy import Connection, Proxy, cut

#: Exceptions of a broken connection on either side. A time-out is an OSError.
BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


@dataclass
class Exchange:
    """One request, and the status from the server behind the relay. The status is None without a reply."""

    relay: "Relay" = field(repr=False)
    method: str
    path: str
    head: bytes
    body: bytes
    status: int | None = None

    @property
    def json(self) -> Any:
        """The body of the request."""
        return json.loads(self.body)

    async def forward(self) -> bytes | None:
        """Pass the request on. Return the whole reply, or None without a reply."""
        try:
            async with asyncio.timeout(15):  # a kernel can accept a connection for a process that is about to be killed
                reader, writer = await asyncio.open_connection(*self.relay.upstream, ssl=self.relay.trust)
                try:
                    writer.write(self.head + self.body)
                    head, body = await _read(reader)
                    self.status = int(head.split(b" ", 2)[1])
                finally:
                    await _close(writer)
        except BROKEN:
            return None
        return head + body


#: Function that returns the reply on the wire. None ends the connection without a reply.
Script = Callable[[Exchange], Awaitable[bytes | None]]


class Relay(Proxy):
    """Relay to the server at `upstream`, by TLS if `trust` is given. Without a script it closes each connection."""

    def __init__(self, upstream: tuple[str, int], trust: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.upstream = upstream
        self.trust = trust
        self.script: Script | None = None
        self.exchanges: list[Exchange] = []

    async def _serve(self, _connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*BROKEN):
            if self.script is not None:
                head, body = await _read(reader)
                method, path, _version = head.split(b"\r\n", 1)[0].decode().split(" ")
                self.exchanges.append(Exchange(self, method, path, head, body))
                if (reply := await self.script(self.exchanges[-1])) is not None:
                    writer.write(reply)
                    await writer.drain()
        await _close(writer)


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one message. Return the head, with `connection: close` as last header, and the body."""
    lines = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = dict(line.lower().split(b":", 1) for line in lines[1:])
    body = await reader.readexactly(int(fields.get(b"content-length", 0)))
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*kept, b"connection: close"]) + b"\r\n\r\n", body


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection in order. If the peer does not close, cut the connection."""
    writer.close()
    try:
        async with asyncio.timeout(1):
            await writer.wait_closed()
    except BROKEN:
        cut(writer)
