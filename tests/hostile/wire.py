"""Connections of attackers from their own addresses."""

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

#: Host of the posd listener.
HOST = "127.0.0.1"
#: Seconds that an attacker waits for a response that may never come.
PATIENCE = 20.0
#: Seconds until a refused worker tries again.
AGAIN_SECONDS = 0.001
#: Buffers of an attacker's sockets, in bytes. The kernel keeps sent bytes until they are read.
SOCKET_BUFFER = 65_536

#: Line that an attacker's process prints at its first connection.
BEGUN = b"begun\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Exceptions at the end of a connection that posd has refused.
CUT_OFF = (OSError, EOFError, asyncio.LimitOverrunError)


@dataclass
class Attacker:
    """One attacker process, with source addresses and target."""

    port: int
    sources: Sequence[str]
    #: Path and body of an accepted callback.
    path: str
    body: str
    #: The socket of the tills.
    till_socket: str
    random: Random = field(default_factory=lambda: Random(1))

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.sources)
        self._tls = trusting()
        self._begun = False

    def connected(self) -> None:
        """Report the first connection."""
        if not self._begun:
            os.write(1, BEGUN)
        self._begun = True

    @asynccontextmanager
    async def _kept(self, opening: Coroutine[Any, Any, Streams]) -> AsyncIterator[Streams]:
        """Open a connection. Reset the connection at the end."""
        reader, writer = await asyncio.wait_for(opening, PATIENCE)
        self.connected()
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def tcp(self) -> AbstractAsyncContextManager[Streams]:
        """Return a connection from the next address."""
        return self._kept(self._open())

    @asynccontextmanager
    async def secure(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Streams]:
        """Open a TLS connection from the next address. Reset the connection at the end."""
        async with self.tcp() as (_, writer):
            await asyncio.wait_for(writer.start_tls(context or self._tls, server_hostname="posd"), PATIENCE)
            reader = writer._protocol._stream_reader  # type: ignore[attr-defined]
            yield reader, writer

    def till(self) -> AbstractAsyncContextManager[Streams]:
        """Return a connection to the tills' socket."""
        return self._kept(asyncio.open_unix_connection(self.till_socket))

    async def _open(self) -> Streams:
        sock = self._socket()
        try:
            await asyncio.get_running_loop().sock_connect(sock, (HOST, self.port))
            return await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise

    def _socket(self) -> socket.socket:
        sock = socket.socket()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
            sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT permits 28,000 ports for each address
            sock.bind((next(self._next), 0))
        except OSError:
            sock.close()
            raise
        return sock

    # Reactions after a piece has been sent.

    async def leave(self, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """End the connection."""

    async def hear(self, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> bytes:
        """Read the head of a response. Return the head."""
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a whole response."""
        fields = (await self.hear(reader, writer)).lower().split(b"\r\n")
        (length,) = (int(field.partition(b":")[2]) for field in fields if field.startswith(b"content-length:"))
        await asyncio.wait_for(reader.readexactly(length), PATIENCE)

    async def until_cut(self, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Read until the peer closes."""
        with suppress(*CUT_OFF):
            async with asyncio.timeout(PATIENCE):
                while await reader.read(65_536):
                    pass

    async def hear_and_hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the head of a response, and keep the connection until the peer closes."""
        await self.hear(reader, writer)
        await self.until_cut(reader, writer)

    async def pump(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Send a piece repeatedly, as fast as the peer reads."""
        with suppress(*CUT_OFF):
            while not writer.is_closing():
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), PATIENCE)
                await asyncio.sleep(0)  # `drain` alone does not always wait


def trusting() -> ssl.SSLContext:
    """Return the TLS context of a client that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def forged() -> str:
    """Return a callback path of the right form with a wrong token."""
    return f"/webhooks/transactions/{uuid4()}/{'A' * 43}"


def head(path: str, *fields: str, method: str = "POST") -> bytes:
    """Return a request line and headers."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: posd", *fields, "", ""]).encode()


def whole(path: str, body: bytes | str) -> bytes:
    """Return a complete request."""
    body = body if isinstance(body, bytes) else body.encode()
    return head(path, "content-type: application/json", f"content-length: {len(body)}") + body


def client_hello() -> bytes:
    """Return the first flight of a TLS client."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="posd").do_handshake()
    return outgoing.read()
