"""Relay in front of a server. The relay reads each HTTP exchange completely, stores the exchange, and applies a script.

An exchange that the relay has read counts as received by the server. An exchange without a response was lost on the
wire. The tests therefore see both sides of a lost reply.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.connections import shut

#: Exceptions of a broken connection on either side. A time-out is an OSError.
BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


@dataclass
class Exchange:
    """One request, and the status from the server behind the relay. The status is None without a reply."""

    method: str
    path: str
    head: bytes
    body: bytes
    status: int | None = None

    @property
    def json(self) -> Any:
        """The body of the request."""
        return json.loads(self.body)


#: Function that returns the reply on the wire. None ends the connection without a reply.
Script = Callable[[Exchange], Awaitable[bytes | None]]


@dataclass
class Relay:
    """Relay that listens on `sock` with the certificate of `own`, and calls the server at host and port. With `trust`
    the relay uses TLS.
    """

    sock: socket.socket
    own: ssl.SSLContext
    host: str
    port: int
    trust: ssl.SSLContext | None = None
    script: Script | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def start(self, *, cut: bool = False) -> None:
        """Open the listener. With `cut` the relay closes every connection without a byte."""
        if cut:
            self._server = await asyncio.start_server(self._hang_up, sock=self.sock)
        else:
            self._server = await asyncio.start_server(self._connected, sock=self.sock, ssl=self.own)

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            await shut(self._server)
        self.sock.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forward(self, exchange: Exchange) -> bytes | None:
        """Pass a request on. Return the whole reply, or None without a reply."""
        try:
            async with asyncio.timeout(15):  # a kernel can accept a connection for a process that is about to be killed
                reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.trust)
                try:
                    writer.write(exchange.head + exchange.body)
                    head, body = await _read(reader)
                    exchange.status = int(head.split(b" ", 2)[1])
                finally:
                    await _close(writer)
        except BROKEN:
            return None
        return head + body

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with suppress(*BROKEN):
                head, body = await _read(reader)
                method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                exchange = Exchange(method, path, head, body)
                self.exchanges.append(exchange)
                reply = await (self.script or self.forward)(exchange)
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
            await _close(writer)
        except asyncio.CancelledError:  # cancelled by `stop`; Python 3.11 would print a traceback of the connection
            _cut(writer)

    async def _hang_up(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
        _cut(writer)


def _cut(writer: asyncio.StreamWriter) -> None:
    # in Python 3.11.2 (Debian 12) a TLS transport raises this error after the end of its connection
    with suppress(AttributeError):
        writer.transport.abort()
