"""A street of loopback addresses with devices at some of them, all on one port, for who looks from door to door.

They live on a loop of their own in a thread, so that a command in this process and another process can look at them.
"""

import asyncio
import hashlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trustme

from tests.support.connections import shut
from tests.support.ports import reserve

#: Longest that anything here may take, in seconds.
PATIENCE_SECONDS = 60.0

T = TypeVar("T")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Street:
    """`port` is the one of all devices; `said` is what each was told, after the handshake where it speaks TLS."""

    port: int
    loop: asyncio.AbstractEventLoop
    stack: ExitStack
    said: dict[str, bytes] = field(default_factory=dict)
    visits: list[str] = field(default_factory=list)
    visited: threading.Condition = field(default_factory=threading.Condition)
    doors: list[asyncio.StreamWriter] = field(default_factory=list)

    def terminal(self, address: str, certificate: trustme.LeafCert) -> str:
        """Put a device there that speaks TLS and shows this certificate; return its fingerprint."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        self._serve(address, self._listen, ssl=context)
        return fingerprint(certificate)

    def web(self, address: str) -> None:
        """Put a device there that speaks HTTP without TLS."""
        self._serve(address, self._refuse)

    def mute(self, *addresses: str) -> None:
        """Put devices there that take a connection and say nothing until `let_go`."""
        for address in addresses:
            self._serve(address, self._wait)

    def full(self, address: str) -> None:
        """Put a device there that has no room for a connection, so that nothing answers."""
        listener = self.stack.enter_context(socket.socket())
        listener.bind((address, self.port))
        listener.listen(0)
        for _ in range(3):  # the room is taken; the kernel answers no other client
            taker = self.stack.enter_context(socket.socket())
            taker.setblocking(False)
            with suppress(BlockingIOError):
                taker.connect((address, self.port))

    def let_go(self) -> None:
        """Let one mute device hang up."""
        self.loop.call_soon_threadsafe(lambda: self.doors.pop(0).close())

    def wait_for_visits(self, count: int) -> None:
        """Wait until so many connections have come."""
        with self.visited:
            assert self.visited.wait_for(lambda: len(self.visits) >= count, PATIENCE_SECONDS), self.visits

    def wait_for_goodbye(self, address: str) -> None:
        """Wait until a client has seen the certificate there and hung up."""
        with self.visited:
            assert self.visited.wait_for(lambda: address in self.said, PATIENCE_SECONDS), self.visits

    def _serve(self, address: str, serve: Serve, **options: Any) -> None:
        async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with self.visited:
                self.visits.append(address)
                self.visited.notify_all()
            try:
                with suppress(ConnectionError, ssl.SSLError):
                    await serve(reader, writer)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
            finally:
                writer.transport.abort()

        server = self.do(asyncio.start_server(visited, address, self.port, **options))
        self.stack.callback(lambda: self.do(shut(server)))

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0]
        heard = await reader.read()
        with self.visited:
            self.said[address] = self.said.get(address, b"") + heard
            self.visited.notify_all()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    async def _wait(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.doors.append(writer)
        await reader.read()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the street's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)


def fingerprint(certificate: trustme.LeafCert) -> str:
    """Return the SHA-256 fingerprint of a certificate, in hex."""
    der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    return hashlib.sha256(der).hexdigest()


@contextmanager
def street() -> Iterator[Street]:
    """Build a street for the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with ExitStack() as stack:
            yield Street(reserve(), loop, stack)
    finally:
        asyncio.run_coroutine_threadsafe(_end(), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end() -> None:
    """End all that is still being served: tasks first, and then what they have closed."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)
    for _ in range(10):
        await asyncio.sleep(0)
