"""Answers, framed (RFC 9112): status, headers and pieces of a body in, bytes out. No I/O.

An answer with a length goes out in one piece where it is whole. One without is a stream: chunks, or for an HTTP/1.0
client all that comes until the connection closes.
"""

import time
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus

from posd.httpd.requests import Head

Headers = Sequence[tuple[bytes, bytes]]

#: Different heads that are kept; those of one second are few.
MAX_HEADS = 64
#: Statuses of answers that never have a body.
_BODYLESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})

CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")


class Heads:
    """Makes the heads of answers, each once a second: they have the time in them."""

    def __init__(self) -> None:
        self._second = 0
        self._date = b""
        self._made: dict[tuple[int, tuple[tuple[bytes, bytes], ...]], bytes] = {}

    def make(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
        """Return status line and headers, with the date. Raise ValueError where a header would be more than one."""
        second = int(time.time())
        if second != self._second or len(self._made) >= MAX_HEADS:
            self._second, self._made = second, {}
            self._date = formatdate(second, usegmt=True).encode("ascii")
        if (made := self._made.get((status, headers))) is None:
            made = self._made[status, headers] = self._write(status, headers)
        return made

    def _write(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode("ascii")]
        lines += [b"%b: %b" % header for header in (*headers, (b"date", self._date))]
        if any(b"\r" in line or b"\n" in line for line in lines):
            raise ValueError("a header of the answer has a line break in it")
        return b"\r\n".join(lines) + b"\r\n\r\n"


class Answer:
    """One answer: `start`, then `piece` until the last. `closes`: the connection has to end with it."""

    def __init__(self, heads: Heads, request: Head) -> None:
        self._heads = heads
        self._request = request
        self._head = b""
        self._chunked = self._bodyless = False
        self._left: int | None = None  # bytes of the body that are to come, None in a stream
        self.closes = not request.keep_alive
        #: Whether it has begun, and whether all of it was given out.
        self.started = self.over = False

    def start(self, status: int, headers: Headers) -> bytes:
        """Begin; return what can be sent: nothing where a body of known length follows, to go with its first piece.

        Raise ValueError where the app's headers or status are none; then it has not begun.
        """
        self._left, self._chunked = None, False
        self._bodyless = self._request.method == "HEAD" or status in _BODYLESS
        own = []
        for name, value in headers:
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection":
                self.closes = self.closes or value == b"close"
        if self._left is None and not self._bodyless:
            self._chunked = self._request.version == "1.1"
            own = [_CHUNKED] if self._chunked else []
            self.closes = self.closes or not self._chunked
        if self.closes and CLOSE not in headers:
            own.append(CLOSE)
        self._head = self._heads.make(status, (*headers, *own))
        self.started = True
        return self._given() if self._left is None else b""

    def piece(self, data: bytes, *, more: bool) -> bytes:
        """Return what can be sent with a piece of the body. Raise ValueError where it is longer than its length."""
        self.over = not more
        given = self._given()
        if self._bodyless:
            return given
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            return given + chunk + (b"" if more else b"0\r\n\r\n")
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise ValueError("the body of the answer is longer than its content-length")
            self.closes = self.closes or (self.over and self._left > 0)
        return given + data

    def _given(self) -> bytes:
        head, self._head = self._head, b""
        return head
