"""Exchange of one HTTP/1.1 request and its reply, over a new connection (RFC 9112).

posd uses no HTTP library here. A payment is safe only if posd can tell whether a byte of its request may have been
sent. So there is one write, and posd calls `about_to_write` just before it. Connection pools, redirects, cookies,
proxies and decompression are not needed.

llhttp parses the replies, with its strict settings. The size of the stored data is limited.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import httptools
import msgspec

from posd.terminals.attempt import CallFailed

#: Maximum number of bytes of a reply, which is a short JSON object. The rest is not read.
MAX_REPLY_BYTES = 256 * 1024
#: Maximum size of status line and headers, including those of interim replies.
MAX_HEAD_BYTES = 16 * 1024
#: Maximum number of headers of a reply, including trailers.
MAX_HEADERS = 256
#: Maximum number of interim replies (1xx). No request of posd asks for an interim reply.
MAX_INTERIM = 16
#: Maximum number of bytes outside the body: sizes and extensions of chunks, trailers.
MAX_FRAMING_BYTES = MAX_REPLY_BYTES

_TARGET: Final = re.compile(r"[!-~]+")
#: Methods whose requests have a content-length even without a body (RFC 9110, 8.6).
_WITH_BODY: Final = frozenset({"POST"})


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the bytes of a request. Raise ValueError if a value would break the framing."""
    if _TARGET.fullmatch(target) is None:
        raise ValueError("its path is not visible ASCII")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method in _WITH_BODY:
        lines.append(f"content-length: {len(body or b'')}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of it contains a line break")
    return "\r\n".join((*lines, "", "")).encode("ascii") + (body or b"")


class HttpAnswer(msgspec.Struct, frozen=True):
    """HTTP status, `date` header or None, and body of a reply. `complete`: False if the body was cut at the limit."""

    status: int
    date: str | None
    body: bytes
    complete: bool = True


class AnswerReader:
    """Parser of one reply. No I/O."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._date: str | None = None
        self._body = bytearray()
        self._begun = self._over = False  # whether the head has arrived, and whether the reply is complete
        self._framed = False  # the reply has a length, so the end of the connection does not complete it
        self._interim = self._headers = self._header_bytes = 0
        self._unused = 0  # bytes outside the body since the head or the body began

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Parse received data. Return the reply once it is complete. Raise CallFailed if the data is invalid."""
        before, begun = len(self._body), self._begun
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self._over:
                # The message quotes nothing, because the reply could echo a till's data.
                raise CallFailed("the reply is not HTTP") from None
        if self._over:
            return self._answer()
        if self._begun and not begun:
            self._unused = 0
        else:
            self._unused += len(data) - (len(self._body) - before)
        if self._unused > (MAX_FRAMING_BYTES if self._begun else MAX_HEAD_BYTES):
            raise CallFailed("the reply is not HTTP")
        return None

    def end(self) -> HttpAnswer:
        """Handle the end of the connection. Return the reply if the end completes it. Raise CallFailed."""
        if not self._begun:
            raise CallFailed("it closed the connection without an answer")
        if self._framed:
            raise CallFailed("it closed the connection in the middle of its answer")
        return self._answer()

    def close(self) -> None:
        """Break the reference cycle with the parser, so that buffers are freed at once."""
        del self._parser

    def _answer(self) -> HttpAnswer:
        body = bytes(self._body[:MAX_REPLY_BYTES])
        return HttpAnswer(self._status, self._date, body, complete=len(self._body) <= MAX_REPLY_BYTES)

    def on_message_begin(self) -> None:
        """Reset the state at the start of a reply or an interim reply.

        This and the following methods are callbacks of the parser.
        """
        if self._over:
            raise httptools.HttpParserCallbackError
        self._date, self._framed = None, False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        self._header_bytes += len(name) + len(value)
        if self._headers > MAX_HEADERS or self._header_bytes > MAX_HEAD_BYTES:
            raise httptools.HttpParserCallbackError
        name = name.lower()
        if self._begun:  # a trailer
            return
        if name == b"content-length":
            self._framed = True
        elif name == b"transfer-encoding":
            self._framed = True
            if value.strip(b" \t").lower() != b"chunked":
                raise httptools.HttpParserCallbackError
        elif name == b"date":
            self._date = value.strip(b" \t").decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._parser.get_http_version() not in ("1.0", "1.1"):
            raise httptools.HttpParserCallbackError
        if self._status >= 200:
            self._begun = True
            return
        self._interim += 1
        if self._interim > MAX_INTERIM or self._status == 101:  # 101: posd never asks for another protocol
            raise httptools.HttpParserCallbackError

    def on_body(self, piece: bytes) -> None:
        self._body += piece
        if len(self._body) > MAX_REPLY_BYTES:
            self._over = True
            raise httptools.HttpParserCallbackError

    def on_message_complete(self) -> None:
        self._over = self._begun


class ClientExchange(asyncio.Protocol):
    """asyncio protocol that writes the request as soon as it is connected, and reads the reply.

    `about_to_write` is called with the transport just before the write. If it raises an error, nothing is written.
    `written` is called just after the write. `silence`: seconds after which the exchange ends if the peer neither reads
    nor sends. After `close` nothing is written.
    """

    def __init__(
        self,
        request: bytes,
        about_to_write: Callable[[asyncio.Transport], None],
        silence: float,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._about_to_write: Callable[[asyncio.Transport], None] | None = about_to_write
        self._silence = silence
        self._written = written
        self._reader = AnswerReader()
        # An error is stored as a result, because asyncio would log an unread exception of a future.
        self._outcome: asyncio.Future[HttpAnswer | Exception] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._heard = 0.0  # time of the peer's last read or write, on the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._full = False  # the network accepts no more data at present

    async def answer(self) -> HttpAnswer:
        """Wait for the reply, after the connection is made. Raise CallFailed, or the exception of `about_to_write`."""
        outcome = await self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Abort the connection. Then nothing more is read or written."""
        self._about_to_write = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport, self._transport = self._transport, None
        if transport is not None:
            with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a closed TLS transport raises it
                transport.abort()

    def _watch(self) -> None:
        """End the exchange after a silence. If data has arrived meanwhile, set the timer for the rest of the time."""
        last = self._heard + self._silence
        if self._loop.time() < last:
            self._timer = self._loop.call_at(last, self._watch)
        else:
            self._end(CallFailed("the request could not be written in time" if self._full else "no reply in time"))

    def _end(self, outcome: HttpAnswer | Exception) -> None:
        if self._outcome.done():
            return
        self._outcome.set_result(outcome)
        self._reader.close()
        self.close()  # abort, because asyncio would first reply to the TLS close_notify

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write the request. Over TLS this happens at the end of the handshake."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - create_connection makes no other
        self._transport = transport
        about_to_write, self._about_to_write = self._about_to_write, None  # call it once, and drop the reference
        if about_to_write is None:  # `close` was called before the connection was made, so nothing is sent
            self.close()
            return
        self._heard = self._loop.time()
        self._watch()
        try:
            about_to_write(transport)
            transport.write(self._request)
            self._written()
        except Exception as error:  # noqa: BLE001 - the task that awaits the reply receives the error
            self._end(error)

    def data_received(self, data: bytes) -> None:
        """Parse a piece of the reply."""
        if self._outcome.done():
            return
        self._heard = self._loop.time()
        try:
            answer = self._reader.feed(data)
        except CallFailed as error:
            self._end(error)
        else:
            if answer is not None:
                self._end(answer)

    def eof_received(self) -> None:
        """Handle the end of the peer's data, which ends a reply without a length."""
        if self._outcome.done():
            return
        try:
            self._end(self._reader.end())
        except CallFailed as error:
            self._end(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection."""
        self._transport = None
        if error is None:
            self.eof_received()
        else:
            self._end(CallFailed(f"the connection broke ({type(error).__name__})"))

    def pause_writing(self) -> None:
        """Record that the network accepts no more data at present."""
        self._full = True

    def resume_writing(self) -> None:
        """Record that the network has accepted all data."""
        self._heard, self._full = self._loop.time(), False
