"""One connection: HTTP/1.1 on Hypercorn's TCP server. The only module of posd's server that knows Hypercorn.

Hypercorn's `TCPServer` knows the addresses, holds the tasks of the requests, closes, and has the context of the
orderly stop. In five places it takes a part of ours:

- `protocol`: `Connection` is its own. Hypercorn's stands on h11, which takes 43 µs to read a request and to frame its
  answer; llhttp and `Answer` take 4. Its ASGI conversation (`HTTPStream`) takes 12 µs where `Exchange` takes 5, has a
  task for each request, and holds 3 KB for as long as a till waits. Its way to send and to be idle takes 7 µs more.
- `_read_data`: `Connection` reads by itself. Hypercorn wraps each read into a wait, and what came into an event.
- `writer`: `Writer` does not wait for ever for a client that does not read.
- `idle_task`: `Idle` is a timer. Hypercorn starts and cancels a task with each request, a tenth of what it costs.
- `context`: `Context` can end the connections on which nothing is under way, and those only.

tests/web/test_hypercorn.py fails where Hypercorn changes one of these places.
"""

import asyncio
import fcntl
import logging
import secrets
import struct
import termios
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import structlog
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event
from hypercorn.protocol import ProtocolWrapper
from hypercorn.typing import ASGIFramework, ASGIReceiveEvent, ASGISendEvent, ConnectionState, HTTPScope

from posd.httpd.bodies import WHOLE
from posd.httpd.messages import Answer, End, Head, Heads, Refused, Requests

#: So much of what was received is looked at at a time, in bytes: a client that sends many requests at once does not
#: hold up all others by it.
PIECE_BYTES = 2048
#: So much is read at a time, at most, in bytes; the reader keeps less than that.
READ_BYTES = 65_536
#: So long a request waits that came before the answer to the one before. No terminal and no till is in such haste, and
#: each of them would take turns of the loop that others wait for.
HASTE_SECONDS = 0.005
#: A client that takes nothing for so long is cut off, in seconds: longer than a till waits for its disk or a collection
#: of its garbage, short enough that forgotten streams do not gather. If it takes something, it has as long again. The
#: kernel counts in pieces of up to 32 KiB, so less than that may be nothing.
TAKE_SECONDS = 30.0
#: What was left for a client that was cut off waits so long for it to read on, in seconds; then the connection is
#: aborted. So does the rest of any answer whose connection ends.
LINGER_SECONDS = 60.0

#: What the ioctl TIOCOUTQ gives: bytes that the other side has not taken (on a Unix socket with the kernel's overhead).
_OUTQ = struct.Struct("i")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST = Head("GET", b"/", "1.1", [], keep_alive=False, expects=False)
_PERCENT = ord("%")  # bytes look for a number without a detour
_GONE: ASGIReceiveEvent = {"type": "http.disconnect"}

log = structlog.get_logger("posd.web")


def http_config(keep_alive_seconds: float) -> Config:
    """Return Hypercorn's settings: quiet, and idle or half-sent requests closed in time."""
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.keep_alive_timeout = keep_alive_seconds
    return config


class Untaken(OSError):
    """A client does not take what is written to it."""


class Writer(asyncio.StreamWriter):
    """Writes to a client that must take some of it at least.

    asyncio waits for ever for a client that does not read, with all that it was to be sent. A till that hangs, or
    forgot a stream that it had opened, would hold memory and a connection until it ends.
    """

    _lying = 0
    _timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write. Raise ConnectionResetError where it is closed: asyncio would log a line for each answer too late."""
        if self.is_closing():
            raise ConnectionResetError
        super().write(data)

    async def drain(self) -> None:
        """Wait until there is room for more to write. Raise Untaken, or OSError where the connection is lost."""
        if not self.transport.get_write_buffer_size():
            return  # it has gone out, or the connection is lost: who reads hears of that
        lying = untaken(self.transport)
        while True:
            try:
                async with asyncio.timeout(TAKE_SECONDS) as bound:
                    await super().drain()
                    return
            except TimeoutError:
                if not bound.expired():
                    raise  # the kernel's own: the connection is lost
            before, lying = lying, untaken(self.transport)
            if lying >= before:
                raise Untaken(f"{lying} bytes are not taken")

    def close(self) -> None:
        """Close, when the client has taken what was written; abort where it takes nothing."""
        if self._timer is None and not self.is_closing() and self.transport.get_write_buffer_size():
            self._lying = untaken(self.transport)
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._look)
        super().close()

    def _look(self) -> None:
        before, self._lying = self._lying, untaken(self.transport)
        if self._lying >= before:
            self.transport.abort()
        else:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._look)

    def forget(self) -> None:
        """Drop the timer: the connection is over."""
        if self._timer is not None:
            self._timer.cancel()


def untaken(transport: asyncio.WriteTransport) -> int:
    """Return how many bytes lie in the socket and before it; 0 where the connection is over."""
    sock = transport.get_extra_info("socket")
    try:
        (lying,) = _OUTQ.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_OUTQ.size)))
    except (OSError, ValueError):
        return 0
    return transport.get_write_buffer_size() + int(lying)


class Context(WorkerContext):
    """Hypercorn's context of a listener, with the heads of its answers and its connections that are idle."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(None)
        self.heads = Heads(now)
        self.idle: dict[Idle, None] = {}  # in the order in which they became so

    async def terminate_idle(self) -> None:
        """End the connections on which nothing is under way, and each other one after its request."""
        await self.terminated.set()
        for idle in list(self.idle):
            idle.end()


class Idle:
    """Ends a connection on which nothing is under way for too long, or when posd stops."""

    def __init__(self, context: Context, seconds: float, end: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._seconds = seconds
        self._end: Callable[[], Awaitable[None]] | None = end
        self._since: float | None = None  # when it became idle, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def restart(self, *_: object) -> None:
        """Begin to wait, anew."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._context.terminated.is_set():
            self.end()
            return
        self._context.idle[self] = None
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    async def stop(self) -> None:
        """Wait no more."""
        self._since = None
        self._context.idle.pop(self, None)

    def _look(self) -> None:
        """End the connection where it has been idle for so long: one timer for many requests."""
        self._timer = None
        if self._since is None:
            return
        loop = asyncio.get_running_loop()
        over = self._since + self._seconds
        if loop.time() >= over:
            self.end()
        else:
            self._timer = loop.call_at(over, self._look)

    def end(self) -> None:
        """End the connection."""
        self._context.idle.pop(self, None)
        if self._ending is None or self._ending.done():
            self._ending = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        if self._since is not None and self._end is not None:  # else a request has come at this very moment
            await self._end()

    def forget(self) -> None:
        """Drop the timer and the connection: it is over."""
        self._end = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connection(TCPServer):
    """One request after the other, each answered before the next is looked at.

    A client that asks for HTTP/2 or a WebSocket is answered as if the question were not there. When the client has
    closed its side and nothing is under way, the connection ends.
    """

    writer: Writer

    def __init__(
        self,
        app: ASGIFramework,
        config: Config,
        context: Context,
        state: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: Writer,
        *,
        in_turn: bool,
    ) -> None:
        """`in_turn`: what comes behind a whole request is read when that is answered, and not before."""
        super().__init__(ASGIWrapper(app), asyncio.get_running_loop(), config, context, state, reader, writer)
        self._idle = self.idle_task = Idle(context, config.keep_alive_timeout, self._end_idle)  # type: ignore[assignment]
        self.asgi = app
        self.in_turn = in_turn
        self._heads = context.heads
        self._requests = Requests()
        self._exchange: Exchange | None = None
        self._over = False
        self._said = False  # whether an answer said that it is the last one
        #: Set while no request is being answered.
        self._free = asyncio.Event()
        self._free.set()
        #: Whether it was ended because an answer was not taken.
        self.untaken = False

    @property  # type: ignore[override]
    def protocol(self) -> "Connection":
        """The protocol to which Hypercorn hands what it receives: the connection itself."""
        return self

    @protocol.setter
    def protocol(self, hypercorns: ProtocolWrapper) -> None:
        self._scheme = "https" if hypercorns.ssl else "http"
        self._client, self._server = hypercorns.client, hypercorns.server
        self.spawn = hypercorns.task_group.spawn

    async def serve(self) -> None:
        """Serve until either side closes. Raise OSError or ExceptionGroup where the connection breaks."""
        try:
            await self.run()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Break circles of references: its buffers are freed at once, not when garbage is looked for."""
        self._idle.forget()
        self.writer.forget()
        self._requests.end()
        self._exchange = None
        if (error := self.reader.exception()) is not None:
            error.__traceback__ = error.__context__ = None

    async def initiate(self) -> None:
        """Do nothing: the client begins."""

    async def _read_data(self) -> None:
        while not self.reader.at_eof():
            try:
                data = await self.reader.read(READ_BYTES)
            except OSError:  # those of TLS among them
                break
            if not self._over:
                await self._take(data)
        await self._gone()

    async def handle(self, event: Event) -> None:
        """Take that the connection is closed."""
        if isinstance(event, Closed):
            await self._gone()

    async def _gone(self) -> None:
        self._over = True
        if self._exchange is not None:
            await self._exchange.gone()
            self._exchange = None
        self._free.set()

    async def _take(self, data: bytes) -> None:
        heads = 0
        for begin in range(0, len(data), PIECE_BYTES):
            events = self._requests.feed(data[begin : begin + PIECE_BYTES])
            for event in events:
                if isinstance(event, Head):
                    heads += 1
                    if heads > 1:
                        await asyncio.sleep(HASTE_SECONDS)
                    await self._free.wait()
                    await self._open(event)
                    if event.expects and event is events[-1] and self._exchange is not None:
                        await self.send(_CONTINUE)
                elif isinstance(event, Refused):
                    await self._refuse(event.status)
                elif self._exchange is None:
                    continue  # it was answered before it was whole, and the connection is over
                elif isinstance(event, End):
                    await self._exchange.end()
                else:
                    await self._exchange.take(event)
            if self._over:
                return
        if self._exchange is not None and not self._exchange.whole:
            await self._exchange.begin()

    async def _open(self, head: Head) -> None:
        exchange = Exchange(self, self._scope(head), Answer(self._heads, head))
        if self._over:  # it came with one before it, and the client has gone
            if not self._said:  # else it is as if it had not come (RFC 9112, 9.6)
                await exchange.gone()
            return
        self._free.clear()
        await self._idle.stop()
        self._exchange = exchange

    async def _refuse(self, status: int) -> None:
        """Answer what is no request, unless a request before it is being answered."""
        exchange = self._exchange
        if exchange is not None and exchange.whole:
            await self._free.wait()
            exchange = self._exchange
        if self._over:
            return
        if exchange is not None:
            await exchange.gone()  # the app hears of a request that does not become whole
        if exchange is None or not exchange.answer.started:
            await self.send(Answer(self._heads, _LAST).empty(status))
        await self._end()
        self._over = True

    async def send(self, data: bytes) -> None:
        """Send bytes. Raise Untaken where the client does not take them."""
        try:
            self.writer.write(data)
            if self.writer.transport.get_write_buffer_size():
                await self.writer.drain()
        except Untaken:
            raise
        except (OSError, RuntimeError):  # a TLS error of a client that goes on sending is an OSError
            await self._gone()

    def abort(self) -> None:
        """End the connection at once: the client does not take the answer."""
        self.untaken = True
        self.writer.transport.abort()

    async def answered(self) -> None:
        """Turn to the next request, or end the connection where the answer or an end of posd's own asks for it."""
        exchange, self._exchange = self._exchange, None
        stays = exchange is not None and exchange.whole and not exchange.answer.closes
        if stays and not self.context.terminated.is_set():
            self._free.set()
            await self._idle.restart()
        else:
            self._over = True
            self._said = exchange is not None and exchange.answer.closes
            self._free.set()
            await self._end()

    async def _end(self) -> None:
        """Close the connection when the client has taken what was written."""
        try:
            await self.protocol_send(Closed())
        except OSError:
            await self._gone()

    async def _end_idle(self) -> None:
        await self._gone()
        self.writer.close()

    def _scope(self, head: Head) -> HTTPScope:
        path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "http_version": head.version,
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "method": head.method,
            "scheme": self._scheme,
            "path": unquote(path.decode("ascii")) if _PERCENT in path else path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": head.headers,
            "client": self._client,
            "server": self._server,
            "state": ConnectionState(self.state.copy()),
            "extensions": {},
        }


class Exchange:
    """One request and its answer, between the connection and the app (ASGI). Its state has the `pieces` of it.

    What posd is asked is small and comes whole: then the app starts when all is there. Where no part of its answer
    depends on whether the client still listens (`in_turn`), it needs no task either. A body that does not come at once
    is handed over in pieces, so that it can be refused before it is whole.
    """

    def __init__(self, connection: Connection, scope: HTTPScope, answer: Answer) -> None:
        self._connection = connection
        self._scope = scope
        self._body = bytearray()
        self._pieces: Pieces | None = None  # None: the app has not started
        self._closed = False
        self.answer = answer
        #: Whether all of the request has come.
        self.whole = False

    async def take(self, piece: bytearray) -> None:
        """Take a piece of the body."""
        if self._pieces is None:
            self._body += piece
        else:
            await self._pieces.bring(_piece(piece, more=True))

    async def end(self) -> None:
        """Take the end of the body."""
        self.whole = True
        if self._pieces is not None:
            await self._pieces.bring(_piece(b"", more=False))
            return
        pieces = self._hand_over(more=False)
        if self._connection.in_turn:
            await self._run(pieces)
        else:
            self._connection.spawn(self._run, pieces)

    async def begin(self) -> None:
        """Start the app although there is more to come; do nothing where it has started."""
        if self._pieces is None:
            self._connection.spawn(self._run, self._hand_over(more=True))

    async def gone(self) -> None:
        """Tell the app that the client has gone, or was answered without it; what it sends from now on is nothing."""
        if not self._closed:
            await self.begin()  # that it was asked and the client has gone is for the app to know
            self._closed = True
            if self._pieces is not None:
                self._pieces.end()

    def _hand_over(self, *, more: bool) -> "Pieces":
        body, self._body = bytes(self._body), bytearray()
        if not more:
            self._scope["state"][WHOLE] = body
        self._pieces = self._scope["state"]["pieces"] = Pieces(_piece(body, more=more))
        return self._pieces

    async def _run(self, pieces: "Pieces") -> None:
        try:
            await self._connection.asgi(self._scope, pieces.take, self._send)
        except Exception:
            log.exception("posd.internal_error", error_id=secrets.token_hex(8))
        finally:
            if not self._closed:
                await self._end()

    async def _end(self) -> None:
        """End it where the app did not."""
        answer = self.answer
        answer.closes = True
        if not answer.started:
            await self._connection.send(answer.empty(500))
        await self._finish()

    async def _send(self, message: ASGISendEvent) -> None:
        """Take what the app sends (ASGI `send`)."""
        if self._closed:
            return
        if message["type"] == "http.response.start" and not self.answer.started:
            data = self.answer.start(message["status"], list(message["headers"]))
        elif message["type"] == "http.response.body" and self.answer.started:
            data = self.answer.piece(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"the app sent {message['type']} out of order")
        try:
            if data:
                await self._connection.send(data)
        except Untaken:
            self._cut_off()
        else:
            if self._pieces is not None:
                self._pieces.delivered = not self._closed and not self._connection.writer.is_closing()
        if self.answer.over and not self._closed:
            await self._finish()

    def _cut_off(self) -> None:
        """End an answer that is not taken: with the app's last words where it has some, else at once."""
        answer, pieces = self.answer, self._pieces
        if pieces is not None and pieces.last_words is not None and not answer.over:
            pieces.cut_off = True
            self._connection.writer.write(answer.piece(pieces.last_words(), more=False))
        elif pieces is None or not pieces.cut_off:  # else they were written just now
            self._connection.abort()
        answer.over = answer.closes = True

    async def _finish(self) -> None:
        self._closed = True
        if self._pieces is not None:
            self._pieces.end()
        await self._connection.answered()


def _piece(body: bytes | bytearray, *, more: bool) -> ASGIReceiveEvent:
    return {"type": "http.request", "body": bytes(body), "more_body": more}


class Pieces:
    """The pieces of a request's body, and whether its client has gone. One task takes them, one brings them.

    At most one piece waits to be taken; the connection waits with the next one until it is. It takes the place of a
    queue: a till that waits would hold its 3 KB, and a client that goes while the queue is full would leave a
    connection and its tasks behind.
    """

    __slots__ = ("_bringer", "_piece", "_taker", "cut_off", "delivered", "gone", "last_words", "on_gone")

    def __init__(self, first: ASGIReceiveEvent) -> None:
        self._piece: ASGIReceiveEvent | None = first
        self._taker: asyncio.Future[None] | None = None
        self._bringer: asyncio.Future[None] | None = None
        #: Whether the client has hung up, or was answered.
        self.gone = False
        #: Whether what was sent last went to the client's socket, as far as the kernel tells.
        self.delivered = False
        #: Called when that comes about.
        self.on_gone: Callable[[], None] | None = None
        #: Called where the client does not take the answer: what is sent in place of the rest of it. Without it,
        #: nothing is.
        self.last_words: Callable[[], bytes] | None = None
        #: Whether that came about.
        self.cut_off = False

    async def take(self) -> ASGIReceiveEvent:
        """Return the next piece (ASGI `receive`); when the client has gone, that, however often it is asked."""
        while self._piece is None:
            if self.gone:
                return _GONE
            self._taker = asyncio.get_running_loop().create_future()
            await self._taker
        piece, self._piece = self._piece, None
        if self._bringer is not None:
            _wake(self._bringer)
        return piece

    async def bring(self, piece: ASGIReceiveEvent) -> None:
        """Bring a piece; where the client has gone, it is not kept."""
        while self._piece is not None and not self.gone:
            self._bringer = asyncio.get_running_loop().create_future()
            await self._bringer
        if not self.gone:
            self._piece = piece
            _wake(self._taker)

    def end(self) -> None:
        """Tell that the client has gone, or was answered: no other piece is kept."""
        self.gone = True
        _wake(self._bringer)
        if self.on_gone is not None:
            self.on_gone()
        _wake(self._taker)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
