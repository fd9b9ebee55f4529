"""Parser of requests (by llhttp) and encoder of responses (RFC 9112). No I/O: bytes to events, and events to bytes.

After a protocol error or an exceeded limit, no further request of the connection is read, because the following bytes
cannot be trusted.

A complete response with a length is sent in one piece. A response without a length is a stream. A stream is sent in
chunks, or to an HTTP/1.0 client until the close.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from email.utils import formatdate
from http import HTTPStatus
from typing import Literal
from urllib.parse import unquote

import httptools
import msgspec

#: Maximum number of bytes of target, headers and trailers together. Requests to posd have a few hundred.
MAX_HEADER_BYTES = 16 * 1024
#: Maximum number of headers and trailers. A small header takes more memory than its bytes.
MAX_HEADERS = 256
#: Maximum number of bytes that complete no event, such as an incomplete head, trailers or extensions of chunks. No head
#: within the limits is longer, unless it is padded with spaces.
MAX_UNUSED_BYTES = MAX_HEADER_BYTES + 2048
#: Maximum number of requests that arrive at once (pipelining). Terminals and tills do not pipeline.
MAX_AT_ONCE = 8

#: Statuses of responses without a body.
_BODYLESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})

CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_TARGET = re.compile(rb"[\x21-\x7e]+")
#: A target in absolute-form (RFC 9112, 3.2.2). Only path and query of such a target are used.
_ABSOLUTE = re.compile(rb"https?://[^/?]*(.*)", re.IGNORECASE)
#: Pattern of the target in a request line that the parser refuses before it has reported the target.
_LINE = re.compile(rb"\s*[!-~]+[ \t]+([!-~]+)")

Headers = Sequence[tuple[bytes, bytes]]


class RequestHead(msgspec.Struct):
    """Head of a request: names of headers in lower case, values without surrounding space."""

    method: str
    target: bytes  # target in origin-form, or "*"
    path: str  # decoded path of the target
    version: str
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    expects: bool  # the client waits for 100 Continue before it sends the body (RFC 9110, 10.1.1)


#: Reasons why input cannot be served as a request.
RefusalKind = Literal["malformed_request", "large_head", "unsupported_request", "requests_at_once"]


class RefusedRequest(msgspec.Struct):
    """Input that cannot be served, and the HTTP status of the response. No event follows.

    `kind` and `detail`: the reason. `path`: path of the request, as far as it could be parsed.
    """

    status: int
    kind: RefusalKind
    detail: str = ""
    path: str = ""


#: Event of the parser: the head of a request, a piece of its body, END, or the refusal of the request.
Event = RequestHead | bytearray | RefusedRequest | None
END = None


class RequestParser:
    """Parser of the requests of one connection."""

    def __init__(self) -> None:
        self._parser = self._new_parser()
        self._events: list[Event] = []
        self._refused = RefusedRequest(400, "malformed_request")
        self._over = False
        self._unused = 0  # bytes since the last event
        self._at_once = 0
        self.on_message_begin()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Chunks take precedence over a length (RFC 9112, 6.1), because there is no proxy that could use the length.
        parser.set_dangerous_leniencies(lenient_chunked_length=True)
        return parser

    def feed(self, data: bytes) -> list[Event]:
        """Parse received data, and return the events that it completes."""
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
            if self._unused > MAX_UNUSED_BYTES:  # the parser stores a header until it is complete
                self._end_with(RefusedRequest(431, "large_head"), data)
        except httptools.HttpParserCallbackError:
            self._end_with(self._refused, data)
        except httptools.HttpParserError as error:
            self._end_with(RefusedRequest(400, "malformed_request", str(error)), data)
        return events

    def _end_with(self, refused: RefusedRequest, data: bytes) -> None:
        target = self._target
        if not target and not self._events and (line := _LINE.match(data)):
            target = line[1]
        self._events.append(msgspec.structs.replace(refused, path=_path_of(_origin_form(target))))
        self.end()

    def end(self) -> None:
        """End the parsing, and break the reference cycle with the parser, so that buffers are freed at once."""
        if not self._over:
            self._over = True
            del self._parser

    def _parse(self, data: bytes) -> bytes:
        """Parse data. Return the bytes that have to be parsed again.

        A request for another protocol is served as HTTP/1.1. The parser would treat all data after such a head as the
        other protocol. So the head is parsed again, without its Upgrade header.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = self._new_parser()
            return self._anew + data[upgrade.args[0] :]
        return b""

    def on_message_begin(self) -> None:
        """Reset the state for a new request. This and the following methods are callbacks of the parser."""
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = True
        self._hosts = self._framings = 0
        self._expects = False
        self._anew = b""  # the head, if it has to be parsed again
        self._size = self._count = 0  # bytes and number of headers of the head so far

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._size += len(part)
        if self._size > MAX_HEADER_BYTES:
            self._refuse(431, "large_head")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        self._count += 1
        if self._size > MAX_HEADER_BYTES or self._count > MAX_HEADERS:
            self._refuse(431, "large_head")
        if not self._in_head:  # a trailer is not passed to the app
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
                self._refuse(501, "unsupported_request", "Transfer-Encoding")

    def on_headers_complete(self) -> None:
        self._in_head = False
        version, method = self._parser.get_http_version(), self._parser.get_method()
        recent = version == "1.1"
        if self._hosts != 1 and (recent or self._hosts):  # RFC 9112, 3.2
            self._refuse(400, "malformed_request", "not one Host")
        if version not in ("1.0", "1.1") or not _TARGET.fullmatch(self._target):
            self._refuse(400, "malformed_request", "version or target")
        if self._parser.should_upgrade():
            if method == b"CONNECT":
                self._refuse(501, "unsupported_request", "CONNECT")
            fields = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
            line = b"%b %b HTTP/%b\r\n" % (method, self._target, version.encode("ascii"))
            self._anew = line + b"".join(fields) + b"\r\n"
            return
        target = _origin_form(self._target)
        self._events.append(
            RequestHead(
                method=method.decode("ascii"),
                target=target,
                path=_path_of(target),
                version=version,
                headers=self._headers,
                # An HTTP/1.0 client expects the close, unless a header of the response announces otherwise.
                keep_alive=recent and self._framings <= 1 and self._parser.should_keep_alive(),
                expects=self._expects and recent,
            )
        )
        self._at_once += 1
        if self._at_once > MAX_AT_ONCE:  # checked after the head, so that the path is known
            self._refuse(503, "requests_at_once")

    def on_body(self, piece: bytes) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, bytearray):  # one event for all pieces, even if the chunks are small
            last += piece
        else:
            self._events.append(bytearray(piece))

    def on_message_complete(self) -> None:
        if not self._anew:
            self._events.append(END)

    def _refuse(self, status: int, kind: RefusalKind, detail: str = "") -> None:
        """End the parsing, within a callback of the parser."""
        self._refused = RefusedRequest(status, kind, detail)
        raise httptools.HttpParserCallbackError


def _path_of(target: bytes) -> str:
    """Return the decoded path of a target in origin-form."""
    return unquote(target.partition(b"?")[0].decode("latin-1"))


def _origin_form(target: bytes) -> bytes:
    """Return a target in origin-form, without scheme and authority."""
    if (absolute := _ABSOLUTE.fullmatch(target)) is None:
        return target
    rest = absolute[1]
    return rest if rest.startswith(b"/") else b"/" + rest


def response_head(status: int, headers: Headers, at: datetime) -> bytes:
    """Return status line and headers, with the date. Raise ValueError if a header contains a line break."""
    date = (b"date", formatdate(int(at.timestamp()), usegmt=True).encode("ascii"))
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode("ascii")]
    lines += [b"%b: %b" % header for header in (*headers, date)]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise ValueError("a header of the answer contains a line break")
    return b"\r\n".join(lines) + b"\r\n\r\n"


class ResponseEncoder:
    """Encoder of one response.

    Call `start`, then `piece` until the last piece. `closes`: whether the connection must end after the response.
    """

    def __init__(self, now: Callable[[], datetime], request: RequestHead) -> None:
        self._now = now
        self._request = request
        self._head = b""
        self._chunked = self._bodyless = False
        self._left: int | None = None  # remaining bytes of the body, or None in a stream
        self.closes = not request.keep_alive
        #: Whether the response has begun, and whether it is complete.
        self.started = self.over = False

    def start(self, status: int, headers: Headers) -> bytes:
        """Start the response. Return the bytes to send.

        If the length of the body is known, the head is returned with the first piece of the body. Raise ValueError if
        the app's headers or status are invalid. Then the response has not begun.
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
        self._head = response_head(status, (*headers, *own), self._now())
        self.started = True
        return self._given() if self._left is None else b""

    def piece(self, data: bytes, *, more: bool) -> bytes:
        """Return the bytes to send for a piece of the body.

        Raise ValueError if the body exceeds the announced length.
        """
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
        """Return a complete response without a body."""
        return self.start(status, [(b"content-length", b"0")]) + self.piece(b"", more=False)

    def _given(self) -> bytes:
        head, self._head = self._head, b""
        return head
