"""Requests of one connection, read by llhttp (RFC 9112): bytes in, what came of the requests out. No I/O.

What breaks the protocol or a limit ends it: nothing behind it can be trusted to begin another request.
"""

import re

import httptools
import msgspec

#: Request line and headers together, in bytes; ours are a few hundred.
MAX_HEADER_BYTES = 16 * 1024
#: Requests that may come at once, each before the answer to the one before. No terminal and no till does that.
MAX_AT_ONCE = 32

_TARGET = re.compile(rb"[\x21-\x7e]+")


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
        self._parser = httptools.HttpRequestParser(self)
        self._events: list[Event] = []
        self._status = 400
        self._over = False
        self._in_head = False
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._hosts = 0
        self._expects = False
        self._size = 0  # of what was read of the head

    def feed(self, data: bytes) -> list[Event]:
        """Take what was received, and return what came of it."""
        events: list[Event] = []
        self._events = events
        if self._over:
            return events
        in_head = self._in_head
        try:
            self._parser.feed_data(data)
            if self._in_head and in_head:  # the parser holds a header until it is whole
                self._add(len(data))
        except httptools.HttpParserUpgrade:
            self._over = True  # it is served as any other; what comes after it is of another protocol
        except (httptools.HttpParserError, _Refusal):
            self._over = True
            events.append(Refused(self._status))
        return events

    def on_message_begin(self) -> None:
        """Callback of the parser, as the following."""
        self._begin()
        self._in_head = True

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._add(len(part))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._add(len(name) + len(value))
        if not self._in_head:  # behind the body: nobody wants it
            return
        name, value = name.lower(), value.strip(b" \t")
        self._headers.append((name, value))
        if name == b"host":
            self._hosts += 1
        elif name == b"expect":
            self._expects = value.lower() == b"100-continue"
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            self._refuse(501)

    def on_headers_complete(self) -> None:
        self._in_head = False
        version = self._parser.get_http_version()
        recent = version == "1.1"
        if self._hosts != 1 and (recent or self._hosts):  # RFC 9112, 3.2
            self._refuse(400)
        if version not in ("1.0", "1.1") or not _TARGET.fullmatch(self._target):
            self._refuse(400)
        if len(self._events) > MAX_AT_ONCE * 3:
            self._refuse(400)
        self._events.append(
            Head(
                method=self._parser.get_method().decode("ascii"),
                target=self._target,
                version=version,
                headers=self._headers,
                keep_alive=self._parser.should_keep_alive(),
                expects=self._expects and recent,
            )
        )

    def on_body(self, piece: bytes) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, bytearray):  # one thing to handle, however small the chunks are
            last += piece
        else:
            self._events.append(bytearray(piece))

    def on_message_complete(self) -> None:
        self._events.append(_END)

    def _add(self, size: int) -> None:
        self._size += size
        if self._size > MAX_HEADER_BYTES:
            self._refuse(431)

    def _refuse(self, status: int) -> None:
        self._status = status
        raise _Refusal
