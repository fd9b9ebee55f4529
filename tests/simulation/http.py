"""HTTP/1.1 for the world's side: as little as it takes to call and to answer, so that most of the time is the daemon's.

Nothing here is shared with the daemon. Every answer is checked: one that is not HTTP is a fault of the daemon.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.simulation.network import End


class Broken(Exception):
    """The connection ended before a whole answer came."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def _head(text: bytes) -> tuple[list[str], dict[str, str]]:
    first, *lines = text.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first.split(" ", 2), {name.lower(): value.strip() for name, _, value in pairs}


class _Reading(asyncio.Protocol):
    """Gathers heads and bodies of fixed length."""

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
        """Receive a whole message."""
        raise NotImplementedError

    def connection_lost(self, _error: Exception | None) -> None:
        """It is over."""
        self.over = True


class Client(_Reading):
    """One connection on which requests are made one after the other."""

    def __init__(self, end: End) -> None:
        super().__init__()
        self._end = end
        self._answer: asyncio.Future[Reply] | None = None
        end.attach(self)

    def whole(self, first: list[str], headers: dict[str, str], body: bytes) -> None:
        """Receive an answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Reply(int(first[1]), headers, body))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits."""
        super().connection_lost(error)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(str(error or "closed")))

    def eof_received(self) -> bool:
        """The other side writes no more. A whole answer has come before that, or never comes."""
        return False

    async def call(self, method: str, target: str, body: bytes = b"", content_type: str = "application/json") -> Reply:
        """Ask and wait for the answer. Raise Broken."""
        if self.over:
            raise Broken("closed")
        self._answer = self._end._loop.create_future()
        length = f"content-length: {len(body)}\r\ncontent-type: {content_type}\r\n" if body else ""
        self._end.write(f"{method} {target} HTTP/1.1\r\nhost: posd\r\n{length}\r\n".encode() + body)
        return await self._answer

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._end.write(data)

    def close(self) -> None:
        """Close."""
        self._end.close()

    def abort(self) -> None:
        """End it at once."""
        self._end.abort()


Handler = Callable[[Asked, "Server"], Coroutine[Any, Any, None]]


class Server(_Reading):
    """A connection that was made to a host of the world."""

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
        """Answer, and close."""
        kind = f"content-type: {content_type}\r\n" if body else ""
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{kind}{headers}connection: close\r\n\r\n"
        self.raw(head.encode() + body)
        self.close()

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.end.write(data)

    def close(self) -> None:
        """Close."""
        with suppress(OSError):
            self.end.close()

    def abort(self) -> None:
        """End it at once."""
        self.end.abort()
