"""HTTP/1.1 for terminals and tills. The code is small, so that most processor time goes to the daemon.

This module shares no code with the daemon. A response that is not HTTP is a fault of the daemon.
"""

import asyncio
import json
import math
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.simulation.network import End


class Broken(Exception):
    """Error of a connection that ended before a complete response."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The decoded JSON body."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Asked:
    """One HTTP request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def _head(text: bytes) -> tuple[list[str], dict[str, str]]:
    first, *lines = text.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first.split(" ", 2), {name.lower(): value.strip() for name, _, value in pairs}


class _Reading(asyncio.Protocol):
    """Parser of heads and of bodies with a fixed length."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[list[str], dict[str, str]] | None = None
        self._wanted = 0
        self.over = False

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        self._buffer += data
        while True:
            if self._head is None:
                end = self._buffer.find(b"\r\n\r\n")
                if end < 0:
                    return
                self._head = _head(bytes(self._buffer[:end]))
                del self._buffer[: end + 4]
                self._wanted = int(self._head[1].get("content-length", "0"))
            if len(self._buffer) < self._wanted:
                return
            body = bytes(self._buffer[: self._wanted])
            del self._buffer[: self._wanted]
            (first, headers), self._head = self._head, None
            self.whole(first, headers, body)

    def whole(self, first: list[str], headers: dict[str, str], body: bytes) -> None:
        """Handle a complete message."""
        raise NotImplementedError

    def connection_lost(self, _error: Exception | None) -> None:
        """Handle the end of the connection."""
        self.over = True


class Client(_Reading):
    """One connection for several requests, one after the other."""

    def __init__(self, end: End) -> None:
        super().__init__()
        self._end = end
        self._answer: asyncio.Future[Reply] | None = None
        end.attach(self)

    def whole(self, first: list[str], headers: dict[str, str], body: bytes) -> None:
        """Return a complete response to the caller."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Reply(int(first[1]), headers, body))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the waiting call."""
        super().connection_lost(error)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(str(error or "closed")))

    def eof_received(self) -> bool:
        """Handle the end of the peer's data. An incomplete response stays incomplete."""
        return False

    async def call(self, method: str, target: str, body: bytes = b"", content_type: str = "application/json") -> Reply:
        """Send a request and return the response. Raise Broken."""
        if self.over:
            raise Broken("closed")
        self._answer = self._end._loop.create_future()
        length = f"content-length: {len(body)}\r\ncontent-type: {content_type}\r\n" if body else ""
        self._end.write(f"{method} {target} HTTP/1.1\r\nhost: posd\r\n{length}\r\n".encode() + body)
        return await self._answer

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged."""
        self._end.write(data)

    def close(self) -> None:
        """Close."""
        self._end.close()

    def abort(self) -> None:
        """Reset the connection."""
        self._end.abort()


class Stream(asyncio.Protocol):
    """Reader of server-sent events from the pieces of an HTTP response. It stops at the outcome.

    `take`: function that is called with the kind, the id and the data of each message.
    """

    def __init__(self, end: Any, take: Callable[[str, str, bytes], None]) -> None:
        self._end, self._take = end, take
        self._over = asyncio.Event()
        self._received, self._text = b"", b""
        #: Status of the response, kind of the last message, and whether the connection has ended.
        self.status, self.last, self.ended = 0, "", False
        #: Time at which the stream began, in seconds of the loop.
        self.since = math.inf
        end.attach(self)

    async def run(self, target: str, headers: str = "") -> None:
        """Request a stream, and read until it ends."""
        head = f"GET {target} HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n{headers}\r\n"
        self._end.write(head.encode())
        await self._over.wait()

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        self._received += data
        if not self.status:
            head, separator, rest = self._received.partition(b"\r\n\r\n")
            if not separator:
                return
            self.status, self._received = int(head.split(b" ")[1]), rest
            if self.status != 200:
                self.connection_lost(None)
                return
            self.since = self._end._loop.time()
        while b"\r\n" in self._received:
            length, _, rest = self._received.partition(b"\r\n")
            size = int(length, 16)
            if len(rest) < size + 2:
                return
            self._text += rest[:size]
            self._received = rest[size + 2 :]
            self._read()

    def _read(self) -> None:
        *messages, self._text = self._text.split(b"\n\n")
        for message in messages:
            said = dict(line.partition(b": ")[::2] for line in message.split(b"\n"))
            if b"event" in said:
                self.last = said[b"event"].decode()
                self._take(self.last, said.get(b"id", b"").decode(), said[b"data"])
                if self.last == "outcome":
                    self._over.set()

    def eof_received(self) -> bool:
        """Handle the end of the peer's data."""
        self.connection_lost(None)
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Handle the end of the connection."""
        self.ended = True
        self._over.set()


Handler = Callable[[Asked, "Server"], Coroutine[Any, Any, None]]


class Server(_Reading):
    """Connection of a client to a host of the simulation."""

    def __init__(self, end: End, handler: Handler) -> None:
        super().__init__()
        self.end = end
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

    def whole(self, first: list[str], headers: dict[str, str], body: bytes) -> None:
        """Handle a request."""
        task = self.end._loop.create_task(self._handler(Asked(first[0], first[1], headers, body), self))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def answer(self, status: int, body: bytes = b"", headers: str = "", content_type: str = "application/json") -> None:
        """Send a response, and close."""
        kind = f"content-type: {content_type}\r\n" if body else ""
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{kind}{headers}connection: close\r\n\r\n"
        self.raw(head.encode() + body)
        self.close()

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged."""
        self.end.write(data)

    def close(self) -> None:
        """Close."""
        with suppress(OSError):
            self.end.close()

    def abort(self) -> None:
        """Reset the connection."""
        self.end.abort()
