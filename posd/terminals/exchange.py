"""One HTTP/1.1 request and its answer, over a connection of its own (RFC 9112).

posd writes and reads these itself. A payment is safe only if it is known whether a byte of its request can have left,
so the write has to be one call, in plain sight, that the caller can put its mark before. Nothing else of an HTTP
library is wanted: no pool, no redirects, no cookies, no proxies, no decompression.

llhttp reads the answers, with its own strict settings. It keeps a bounded part of what the other side sends.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import httptools
import msgspec

#: A reply is a short JSON object; more is not read.
MAX_REPLY_BYTES = 256 * 1024
#: Status line and headers of an answer, with those of interim ones before it, in bytes.
MAX_HEAD_BYTES = 16 * 1024
#: Headers of an answer, with those behind its body.
MAX_HEADERS = 256
#: Interim answers (1xx) before the one that counts. One is asked for by nothing that posd sends.
MAX_INTERIM = 16
#: What may come with a body beside it, in bytes: sizes and extensions of chunks, headers behind it.
MAX_FRAMING_BYTES = MAX_REPLY_BYTES

_TARGET: Final = re.compile(r"[!-~]+")
#: Methods whose requests say that they have no body (RFC 9110, 8.6).
_WITH_BODY: Final = frozenset({"POST"})


class Broken(Exception):
    """No answer came of it; the message says why."""


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return a request as it is sent. Raise ValueError where it would be more or less than one."""
    if _TARGET.fullmatch(target) is None:
        raise ValueError("its path is not visible ASCII")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method in _WITH_BODY:
        lines.append(f"content-length: {len(body or b'')}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of it has a line break")
    return "\r\n".join((*lines, "", "")).encode("ascii") + (body or b"")


class Answer(msgspec.Struct, frozen=True):
    """HTTP status, the `date` header if there is one, and the body; `complete`: False where it was cut at the limit."""

    status: int
    date: str | None
    body: bytes
    complete: bool = True


class _Enough(Exception):
    """Ends the parsing, from within one of its callbacks: nothing that follows is wanted."""


class AnswerReader:
    """Reads one answer. No I/O: bytes in, and the answer out."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._date: str | None = None
        self._body = bytearray()
        self._begun = self._over = False  # of the answer: its head has come, all of it has come
        self._framed = False  # its end can be told without the end of the connection
        self._interim = self._headers = self._header_bytes = 0
        self._unused = 0  # bytes that are not of the body, since the head or the body began

    def feed(self, data: bytes) -> Answer | None:
        """Take what was received; return the answer when it is whole. Raise Broken where it is none."""
        before, begun = len(self._body), self._begun
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, _Enough):
            if not self._over:
                raise Broken("the reply is not HTTP") from None  # quoted, it would show what a till sent along
        if self._over:
            return self._answer()
        if self._begun and not begun:
            self._unused = 0
        else:
            self._unused += len(data) - (len(self._body) - before)
        if self._unused > (MAX_FRAMING_BYTES if self._begun else MAX_HEAD_BYTES):
            raise Broken("the reply is not HTTP")
        return None

    def end(self) -> Answer:
        """Take the end of the connection; return the answer that ends with it. Raise Broken."""
        if not self._begun:
            raise Broken("it closed the connection without an answer")
        if self._framed:
            raise Broken("it closed the connection in the middle of its answer")
        return self._answer()

    def close(self) -> None:
        """Read nothing more. The parser and this know each other: together they would live on as garbage."""
        del self._parser

    def _answer(self) -> Answer:
        body = bytes(self._body[:MAX_REPLY_BYTES])
        return Answer(self._status, self._date, body, complete=len(self._body) <= MAX_REPLY_BYTES)

    def on_message_begin(self) -> None:
        """Begin an answer, interim ones too. Callback of the parser, as the following."""
        if self._over:
            raise _Enough
        self._date, self._framed = None, False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        self._header_bytes += len(name) + len(value)
        if self._headers > MAX_HEADERS or self._header_bytes > MAX_HEAD_BYTES:
            raise _Enough
        name = name.lower()
        if self._begun:  # behind the body
            return
        if name == b"content-length":
            self._framed = True
        elif name == b"transfer-encoding":
            self._framed = True
            if value.strip(b" \t").lower() != b"chunked":
                raise _Enough
        elif name == b"date":
            self._date = value.strip(b" \t").decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._parser.get_http_version() not in ("1.0", "1.1"):
            raise _Enough
        if self._status >= 200:
            self._begun = True
            return
        self._interim += 1
        if self._interim > MAX_INTERIM or self._status == 101:  # another protocol: posd never asks for one
            raise _Enough

    def on_body(self, piece: bytes) -> None:
        self._body += piece
        if len(self._body) > MAX_REPLY_BYTES:
            self._over = True
            raise _Enough

    def on_message_complete(self) -> None:
        self._over = self._begun


class Exchange(asyncio.Protocol):
    """The protocol of a connection: it writes the request as soon as there is one, and takes the answer.

    `about_to_write` is called just before, with the transport; where it raises, nothing is written. `silence` is how
    long the other side may take nothing and send nothing, in seconds. Once it is closed it writes nothing any more.
    """

    def __init__(self, request: bytes, about_to_write: Callable[[asyncio.Transport], None], silence: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._about_to_write: Callable[[asyncio.Transport], None] | None = about_to_write
        self._silence = silence
        self._reader = AnswerReader()
        # An error is a result too: as an exception of the future, asyncio would log it if the caller had gone.
        self._outcome: asyncio.Future[Answer | Exception] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._heard = 0.0  # when the other side took or sent something last, on the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        #: Whether the whole request was handed to the network, once that is known.
        self._taken: asyncio.Future[bool] = self._loop.create_future()
        self._full = False  # the network takes no more for now

    async def answer(self, written: Callable[[], None]) -> Answer:
        """Wait for the answer, once there is a connection. Raise Broken, or what `about_to_write` raised.

        `written` is called when the whole request was handed to the network.
        """
        if await self._taken:
            written()
        outcome = await self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """End the connection at once; nothing on it is wanted any more, and nothing is written to it."""
        self._about_to_write = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport, self._transport = self._transport, None
        if transport is not None:
            with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport fails so where it is closed
                transport.abort()

    def _watch(self) -> None:
        """End it where nothing was heard for too long. One timer: what comes does not set a new one."""
        last = self._heard + self._silence
        if self._loop.time() < last:
            self._timer = self._loop.call_at(last, self._watch)
        elif not self._taken.done():
            self._end(Broken("the request could not be written in time"))
        else:
            self._end(Broken("no reply in time"))

    def _end(self, outcome: Answer | Exception) -> None:
        if self._outcome.done():
            return
        self._outcome.set_result(outcome)
        self._reader.close()
        self.close()  # now: asyncio would answer the goodbye of a TLS connection first
        if not self._taken.done():
            self._taken.set_result(False)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write the request: over TLS that goes out together with the end of the handshake."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - create_connection makes no other
        self._transport = transport
        about_to_write, self._about_to_write = self._about_to_write, None  # it is called once, and not kept
        if about_to_write is None:  # it was closed before: the caller knows that nothing was sent
            self.close()
            return
        self._heard = self._loop.time()
        self._watch()
        try:
            about_to_write(transport)
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer hears of it
            self._end(error)
        else:
            transport.write(self._request)
            if not self._full and not self._taken.done():
                self._taken.set_result(True)

    def data_received(self, data: bytes) -> None:
        """Take a piece of the answer."""
        if self._outcome.done():
            return
        self._heard = self._loop.time()
        try:
            answer = self._reader.feed(data)
        except Broken as error:
            self._end(error)
        else:
            if answer is not None:
                self._end(answer)

    def eof_received(self) -> None:
        """Take the end of what the other side sends: an answer without a length ends by it."""
        if self._outcome.done():
            return
        try:
            self._end(self._reader.end())
        except Broken as error:
            self._end(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Take the end of the connection."""
        self._transport = None
        if error is None:
            self.eof_received()
        else:
            self._end(Broken(f"the connection broke ({type(error).__name__})"))

    def pause_writing(self) -> None:
        """Note that the network takes no more for now."""
        self._full = True

    def resume_writing(self) -> None:
        """Note that it has taken what there was."""
        self._heard = self._loop.time()
        if not self._taken.done():
            self._taken.set_result(True)
