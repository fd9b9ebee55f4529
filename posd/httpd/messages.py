"""Requests read by llhttp, and answers framed (RFC 9112). No I/O: bytes in and events out, and the other way round.

What breaks the protocol or a limit ends the requests of a connection: nothing behind it can be trusted to begin
another one.

An answer with a length goes out in one piece where it is whole. One without is a stream: chunks, or for an HTTP/1.0
client all that comes until the connection closes.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from email.utils import formatdate
from http import HTTPStatus

import httptools
import msgspec

#: Target and headers together, with what comes behind the body, in bytes; ours are a few hundred.
MAX_HEADER_BYTES = 16 * 1024
#: Headers, with those behind the body: a small one takes more memory than it has bytes.
MAX_HEADERS = 256
#: What may come without anything coming of it, in bytes: half a head, headers behind a body, extensions of chunks. No
#: head within the limits is longer, unless it is padded with space.
MAX_UNUSED_BYTES = MAX_HEADER_BYTES + 2048
#: Requests that may come at once, each before the answer to the one before. No terminal and no till does that.
MAX_AT_ONCE = 32

#: Different heads that are kept; those of one second are few.
MAX_HEADS = 64
#: Statuses of answers that never have a body.
_BODYLESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})

CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_TARGET = re.compile(rb"[\x21-\x7e]+")

Headers = Sequence[tuple[bytes, bytes]]


class Head(msgspec.Struct):
    """What stands before the body: names of headers in lower case, values without space around them."""

    method: str
    target: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    expects: bool  # it waits to be told to go on before it sends the body (RFC 9110, 10.1.1)


class End(msgspec.Struct):
    """The request is whole."""


class Refused(msgspec.Struct):
    """It is no request that can be served: the HTTP status of the answer. Nothing comes after it."""

    status: int


#: Of one request: its head, pieces of its body, its end.
Event = Head | bytearray | End | Refused

_END = End()


class _Refusal(Exception):
    """Ends the parsing, from within one of its callbacks."""


class Requests:
    """Reads the requests of one connection."""

    def __init__(self) -> None:
        self._parser = self._new_parser()
        self._events: list[Event] = []
        self._status = 400
        self._over = False
        self._unused = 0  # bytes, since the last event
        self._at_once = 0
        self.on_message_begin()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Chunks count where there is a length too (RFC 9112, 6.1): no proxy stands between, to which the length counts.
        parser.set_dangerous_leniencies(lenient_chunked_length=True)
        return parser

    def feed(self, data: bytes) -> list[Event]:
        """Take what was received, and return what came of it."""
        events: list[Event] = []
        if self._over:
            return events
        self._events = events
        self._at_once = 0
        try:
            rest = data
            while rest:
                rest = self._parse(rest)
            self._unused = 0 if events else self._unused + len(data)
            if self._unused > MAX_UNUSED_BYTES:  # the parser keeps a header until it is whole
                self._refuse(431)
        except (httptools.HttpParserError, _Refusal):
            events.append(Refused(self._status))
            self.end()
        return events

    def end(self) -> None:
        """Read nothing more. The parser and this know each other: together they would live on as garbage."""
        if not self._over:
            self._over = True
            del self._parser

    def _parse(self, data: bytes) -> bytes:
        """Parse; return what has to be parsed anew.

        A request that asks for another protocol is served as if it did not. The parser would take all that follows its
        head, the body with it, for the other protocol's: so it gets the head again, without the question.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = self._new_parser()
            return self._anew + data[upgrade.args[0] :]
        return b""

    def on_message_begin(self) -> None:
        """Begin a request. Callback of the parser, as the following."""
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = True
        self._hosts = self._framings = 0
        self._expects = False
        self._anew = b""  # the head, where it has to be read once more
        self._size = self._count = 0  # of what was read of the head: bytes, headers

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._size += len(part)
        if self._size > MAX_HEADER_BYTES:
            self._refuse(431)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        self._count += 1
        if self._size > MAX_HEADER_BYTES or self._count > MAX_HEADERS:
            self._refuse(431)
        if not self._in_head:  # behind the body: the app does not get it
            return
        name, value = name.lower(), value.strip(b" \t")
        self._headers.append((name, value))
        if name == b"host":
            self._hosts += 1
        elif name == b"expect":
            self._expects = value.lower() == b"100-continue"
        elif name == b"content-length":
            self._framings += 1
        elif name == b"transfer-encoding":
            self._framings += 1
            if value.lower() != b"chunked":
                self._refuse(501)

    def on_headers_complete(self) -> None:
        self._in_head = False
        version, method = self._parser.get_http_version(), self._parser.get_method()
        recent = version == "1.1"
        if self._hosts != 1 and (recent or self._hosts):  # RFC 9112, 3.2
            self._refuse(400)
        if version not in ("1.0", "1.1") or not _TARGET.fullmatch(self._target):
            self._refuse(400)
        if self._parser.should_upgrade():
            if method == b"CONNECT":
                self._refuse(501)
            fields = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
            line = b"%b %b HTTP/%b\r\n" % (method, self._target, version.encode("ascii"))
            self._anew = line + b"".join(fields) + b"\r\n"
            return
        self._events.append(
            Head(
                method=method.decode("ascii"),
                target=self._target,
                version=version,
                headers=self._headers,
                # One of HTTP/1.0 would have to be told that the connection stays.
                keep_alive=recent and self._framings <= 1 and self._parser.should_keep_alive(),
                expects=self._expects and recent,
            )
        )
        self._at_once += 1
        if self._at_once > MAX_AT_ONCE:  # behind its head, so that it is known to whom it was
            self._refuse(503)

    def on_body(self, piece: bytes) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, bytearray):  # one thing to handle, however small the chunks are
            last += piece
        else:
            self._events.append(bytearray(piece))

    def on_message_complete(self) -> None:
        if not self._anew:
            self._events.append(_END)

    def _refuse(self, status: int) -> None:
        self._status = status
        raise _Refusal


class Heads:
    """Makes the heads of answers, each once a second: they have the time in them."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._second = 0
        self._date = b""
        self._made: dict[tuple[int, tuple[tuple[bytes, bytes], ...]], bytes] = {}

    def make(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
        """Return status line and headers, with the date. Raise ValueError where a header would be more than one."""
        second = int(self._now().timestamp())
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

    def empty(self, status: int) -> bytes:
        """Return a whole answer without a body."""
        return self.start(status, [(b"content-length", b"0")]) + self.piece(b"", more=False)

    def _given(self) -> bytes:
        head, self._head = self._head, b""
        return head
