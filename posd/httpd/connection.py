"""One connection: HTTP/1.1 on Hypercorn's TCP server. No other module depends on Hypercorn.

Hypercorn's `TCPServer` provides the addresses, the tasks of requests, the close, and the context of the orderly stop.
Five of its parts are replaced:

- `protocol`: `HttpConnection` itself. Hypercorn's protocol uses h11, which takes 43 µs to read a request and to frame
  its response; llhttp and `ResponseEncoder` take 4 µs. Hypercorn's `HTTPStream` takes 12 µs to talk to the app;
  `HttpExchange` takes 5 µs. `HTTPStream` also has a task for each request, holds 3 KB while a till waits, and takes
  7 µs more for sending and idling.
- `_read_data`: `HttpConnection` reads directly. Hypercorn wraps each read into a wait, and the data into an event.
- `writer`: `BoundedWriter` limits the wait for a client that does not read.
- `idle_task`: the connection itself, with a timer. Hypercorn starts and cancels a task for each request, which takes a
  tenth of the request's time.
- `context`: `ListenerContext` can end the idle connections alone.

tests/web/test_hypercorn.py fails if Hypercorn changes one of these parts.
"""

import asyncio
import fcntl
import logging
import secrets
import select
import socket
import ssl
import struct
import termios
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import structlog
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event
from hypercorn.protocol import ProtocolWrapper
from hypercorn.typing import ASGIFramework, ASGIReceiveEvent, ASGISendEvent, ConnectionState, HTTPScope

from posd.httpd.admission import ListenerPolicy, RejectedTraffic
from posd.httpd.bodies import WHOLE
from posd.httpd.messages import END, RefusedRequest, RequestHead, RequestParser, ResponseEncoder

#: Maximum number of bytes that are parsed at a time, so that a client with many requests does not delay the others.
PIECE_BYTES = 2048
#: Maximum size of one read, in bytes. A client that sends ahead occupies this memory twice: here and in the reader.
READ_BYTES = 8 * 1024
#: Delay (s) of a pipelined request, which arrives together with the request before it. No terminal and no till
#: pipelines, and each such request delays other tasks of the loop.
HASTE_SECONDS = 0.005
#: Seconds without progress after which a slow reader is disconnected. The time is longer than a till waits for its disk
#: or garbage collection, and short enough that forgotten streams do not accumulate. Progress restarts the time. The
#: kernel reports progress in steps of up to 32 KiB, so posd may not notice smaller progress.
TAKE_SECONDS = 30.0
#: After posd has cut off a slow reader, the reader has this many seconds to read the remaining data. Then posd aborts
#: the connection. The same time applies to the remaining data of any response after which the connection ends.
LINGER_SECONDS = 60.0
#: Longest TLS handshake, in seconds. The handshake of a terminal takes much less than a second, and an incomplete
#: handshake must not occupy a place longer.
TLS_HANDSHAKE_SECONDS = 10.0
#: Longest shutdown of a TLS connection, in seconds: shorter than the longest stop of posd.
TLS_SHUTDOWN_SECONDS = 0.3
#: Number of bytes that are read before the app requests them, from a till and from a terminal. asyncio stores up to
#: twice as much, and for terminals also a TLS record. With a smaller value, a refused body of megabytes is not read in
#: time, and the terminal receives a reset instead of the response.
TILL_AHEAD_BYTES = 1024 - 1
TERMINAL_AHEAD_BYTES = 4 * 1024
#: Maximum size of one receive, in bytes, from a till and from a terminal. asyncio's default is 256 KiB, for each of
#: hundreds of connections.
TILL_READ_BYTES = 2 * 1024
TERMINAL_READ_BYTES = 4 * 1024
#: Bytes of encrypted data after which reading pauses: more than a TLS record. asyncio's default is 256 KiB, which is
#: decrypted at once.
TLS_AHEAD_BYTES = 32 * 1024
#: Number of bytes that asyncio buffers before a write waits, in addition to one piece of a response. posd's responses
#: to terminals have a few hundred bytes. The kernel also buffers data (net.core.wmem_default, 208 KiB).
WRITE_AHEAD_BYTES = 4 * 1024
#: Buffer of each TLS connection, in bytes: one record. asyncio's default is 256 KiB, for each of hundreds of
#: connections.
TLS_BUFFER_BYTES = 16 * 1024

#: Result of the ioctl TIOCOUTQ: number of bytes that the peer has not acknowledged. On a Unix socket it includes the
#: kernel's overhead.
_OUTQ = struct.Struct("i")
_GONE: ASGIReceiveEvent = {"type": "http.disconnect"}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST = RequestHead("GET", b"/", "/", "1.1", [], keep_alive=False, expects=False)

sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES

log = structlog.get_logger("posd.web")


class SlowReader(OSError):
    """Error for a client that does not read the data written to it."""


class BoundedWriter(asyncio.StreamWriter):
    """Writer that disconnects a client that reads nothing.

    asyncio would wait for such a client without limit, and keep all data for it. A hanging till or a forgotten stream
    would hold memory and a connection without end.
    """

    _lying = 0
    _timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write data. Raise ConnectionResetError if the connection is closed.

        Without this error, asyncio would log a line for each late response.
        """
        if self.is_closing():
            raise ConnectionResetError
        super().write(data)

    async def drain(self) -> None:
        """Wait until there is room for more data. Raise SlowReader, or OSError if the connection is lost."""
        if not self.transport.get_write_buffer_size():
            return  # all data is sent, or the connection is lost: the reader reports that
        lying = untaken(self.transport)
        while True:
            try:
                async with asyncio.timeout(TAKE_SECONDS) as bound:
                    await super().drain()
                    return
            except TimeoutError:
                if not bound.expired():
                    raise  # from the kernel, if the connection is lost
            before, lying = lying, untaken(self.transport)
            if lying >= before:
                raise SlowReader(f"{lying} bytes are not taken")

    def close(self) -> None:
        """Close the connection after the client has read the data. Abort it if the client reads nothing."""
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
        """Cancel the timer of an ended connection."""
        if self._timer is not None:
            self._timer.cancel()


def untaken(transport: asyncio.WriteTransport) -> int:
    """Return the unread bytes in the socket and in the transport; 0 after the end of the connection."""
    sock = transport.get_extra_info("socket")
    try:
        (lying,) = _OUTQ.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_OUTQ.size)))
    except (OSError, ValueError):
        return 0
    return transport.get_write_buffer_size() + int(lying)


def hung_up(transport: asyncio.WriteTransport) -> bool:
    """Return whether the client has closed its connection. Ending only its own sending (half-close) does not count."""
    poll = select.poll()
    try:
        poll.register(transport.get_extra_info("socket").fileno(), 0)  # the kernel reports a hang-up in any case
    except ValueError:  # the socket has no descriptor after the end of the connection
        return transport.is_closing()
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _no_refusal(_peer: str, _error: BaseException) -> bool:
    """Return False, because without TLS no client can refuse the certificate."""
    return False


async def _its_status(refused: RefusedRequest, _peer: str) -> int:
    """Return the status of the response that the parser chose."""
    return refused.status


class ListenerContext(WorkerContext):
    """Hypercorn's context of a listener, with the shared state of its connections.

    `now`: wall clock for the Date header.
    """

    def __init__(
        self, app: ASGIFramework, policy: ListenerPolicy, noise: RejectedTraffic, now: Callable[[], datetime]
    ) -> None:
        super().__init__(None)
        self.app = app
        self.policy = policy
        self.noise = noise
        self.now = now
        #: `HttpConnection.end_idle` of an idle connection -> timer that calls it.
        self.idle: dict[Callable[[], None], asyncio.TimerHandle] = {}
        #: Open connections. The value is None before the end of the TLS handshake.
        self.transports: dict[asyncio.Task[None], asyncio.Transport | None] = {}
        #: TLS context of new connections. Open connections keep their context.
        self.tls: ssl.SSLContext | None = None
        #: Called with the peer and the error that broke a connection. Returns whether the client refused our
        #: certificate.
        self.refused: Callable[[str, BaseException], bool] = _no_refusal
        #: Called with input that cannot be served, and the peer. Returns the status of the response.
        self.unreadable: Callable[[RefusedRequest, str], Awaitable[int]] = _its_status
        # Hypercorn's settings: no logs, and a time limit on idle connections and half-sent requests.
        self.config = Config()
        self.config.accesslog = None
        self.config.errorlog = logging.getLogger("hypercorn.error")
        self.config.include_server_header = False
        self.config.keep_alive_timeout = policy.keep_alive_seconds

    async def terminate_idle(self) -> None:
        """End idle connections at once, and other connections after their request."""
        await self.terminated.set()
        for end in list(self.idle):
            end()

    def start_idle(self, end: Callable[[], None]) -> None:
        """Start or restart the idle time of a connection. `end` is called after the idle time, and when posd stops."""
        self.stop_idle(end)
        seconds = 0.0 if self.terminated.is_set() else self.policy.keep_alive_seconds
        self.idle[end] = asyncio.get_running_loop().call_later(seconds, end)

    def stop_idle(self, end: Callable[[], None]) -> None:
        """Stop the idle time of a connection, if it runs."""
        if (timer := self.idle.pop(end, None)) is not None:
            timer.cancel()


class HttpConnection(TCPServer):
    """Connection that serves one request after the other.

    A request for HTTP/2 or a WebSocket is served as HTTP/1.1. The connection ends when the client has closed its side
    and no request is open.
    """

    writer: BoundedWriter

    def __init__(
        self,
        context: ListenerContext,
        peer: str,
        state: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: BoundedWriter,
    ) -> None:
        app, loop = ASGIWrapper(context.app), asyncio.get_running_loop()
        super().__init__(app, loop, context.config, context, state, reader, writer)
        self.idle_task = self  # type: ignore[assignment]
        self.shared = context
        self._peer = peer
        self._requests = RequestParser()
        self._exchange: HttpExchange | None = None
        self._ending: asyncio.Task[None] | None = None
        self._over = False
        self._said = False  # whether a response announced the close
        #: Set while no request is open.
        self._free = asyncio.Event()
        self._free.set()
        #: Whether the connection ended because the client did not read a response.
        self.untaken = False

    @property  # type: ignore[override]
    def protocol(self) -> "HttpConnection":
        """Protocol to which Hypercorn passes received data: this connection."""
        return self

    @protocol.setter
    def protocol(self, hypercorns: ProtocolWrapper) -> None:
        self._scheme = "https" if hypercorns.ssl else "http"
        self._client, self._server = hypercorns.client, hypercorns.server
        self.spawn = hypercorns.task_group.spawn

    def let_go(self) -> None:
        """Break the reference cycles, so that buffers are freed at once."""
        del self.idle_task
        self.shared.stop_idle(self.end_idle)
        self.writer.forget()
        self._requests.end()
        self._exchange = None
        if (error := self.reader.exception()) is not None:
            error.__traceback__ = error.__context__ = None

    async def restart(self, *_: object) -> None:
        """Start the idle time again."""
        self.shared.start_idle(self.end_idle)

    async def stop(self) -> None:
        """Stop the idle time."""
        self.shared.stop_idle(self.end_idle)

    def end_idle(self) -> None:
        """Close the connection, unless a request arrives at the same time."""
        if self._ending is None or self._ending.done():
            self._ending = asyncio.get_running_loop().create_task(self._end_idle())

    async def _end_idle(self) -> None:
        if self.end_idle in self.shared.idle:
            await self._gone()
            self.writer.close()

    async def initiate(self) -> None:
        """Do nothing, because the client sends first."""

    async def _read_data(self) -> None:
        while not self.reader.at_eof():
            try:
                data = await self.reader.read(READ_BYTES)
            except OSError:  # TLS errors are OSErrors too
                break
            if not self._over:
                await self._take(data)
        await self._gone()

    async def handle(self, event: Event) -> None:
        """Handle the close of the connection."""
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
                if isinstance(event, RequestHead):
                    heads += 1
                    if heads > 1:
                        await asyncio.sleep(HASTE_SECONDS)
                    await self._free.wait()
                    await self._open(event)
                    if event.expects and event is events[-1] and self._exchange is not None:
                        await self.send(_CONTINUE)
                elif isinstance(event, RefusedRequest):
                    self.shared.noise.note(event.kind, self._peer, event.detail or None)
                    await self._refuse(await self.shared.unreadable(event, self._peer))
                elif self._exchange is None:
                    continue  # the client received an early response, and the connection ends
                elif event is END:
                    await self._exchange.end()
                else:
                    await self._exchange.take(event)
            if self._over:
                return
        if self._exchange is not None and not self._exchange.whole:
            await self._exchange.begin()

    async def _open(self, head: RequestHead) -> None:
        exchange = HttpExchange(self, self._scope(head), ResponseEncoder(self.shared.now, head))
        if self._over:  # the request was pipelined, and the client has disconnected
            if not self._said:  # after an announced close, posd ignores requests (RFC 9112, 9.6)
                await exchange.gone()
            return
        self._free.clear()
        await self.stop()
        self._exchange = exchange

    async def _refuse(self, status: int) -> None:
        """Reply to unparsable input, after a pending response."""
        exchange = self._exchange
        if exchange is not None and exchange.whole:
            await self._free.wait()
            exchange = self._exchange
        if self._over:
            return
        if exchange is not None:
            await exchange.gone()  # report to the app that this request stays incomplete
        if exchange is None or not exchange.answer.started:
            await self.send(ResponseEncoder(self.shared.now, _LAST).empty(status))
        await self._end()
        self._over = True

    async def send(self, data: bytes) -> None:
        """Send bytes. Raise SlowReader if the client does not read the replies."""
        try:
            self.writer.write(data)
            if self.writer.transport.get_write_buffer_size():
                await self.writer.drain()
        except SlowReader:
            raise
        except (OSError, RuntimeError):  # possible under TLS while the client still sends
            await self._gone()

    def abort(self) -> None:
        """Abort the connection, because the client does not read the response."""
        self.untaken = True
        self.writer.transport.abort()

    async def answered(self) -> None:
        """Continue with the next request. End the connection if the response or the stop of posd requires it."""
        exchange, self._exchange = self._exchange, None
        stays = exchange is not None and exchange.whole and not exchange.answer.closes
        if stays and not self.context.terminated.is_set():
            self._free.set()
            await self.restart()
        else:
            self._over = True
            self._said = exchange is not None and exchange.answer.closes
            self._free.set()
            await self._end()

    async def _end(self) -> None:
        """Close the connection after the client has read all data."""
        try:
            await self.protocol_send(Closed())
        except OSError:
            await self._gone()

    def _scope(self, head: RequestHead) -> HTTPScope:
        raw_path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "http_version": head.version,
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "method": head.method,
            "scheme": self._scheme,
            "path": head.path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": head.headers,
            "client": self._client,
            "server": self._server,
            "state": ConnectionState(self.state.copy()),
            "extensions": {},
        }


class BodyChannel:
    """Pieces of a request's body, and whether its client has disconnected. One task adds pieces, and another task takes
    them.

    At most one piece is stored. With the next piece, the connection waits until the first one is taken. A queue would
    cost 3 KB for each waiting till. If a client disconnected while a queue was full, its connection and tasks would
    stay.
    """

    __slots__ = ("_bringer", "_piece", "_taker", "cut_off", "delivered", "gone", "last_words", "on_gone")

    def __init__(self, first: ASGIReceiveEvent) -> None:
        self._piece: ASGIReceiveEvent | None = first
        self._taker: asyncio.Future[None] | None = None
        self._bringer: asyncio.Future[None] | None = None
        #: Whether the client has disconnected or received its response.
        self.gone = False
        #: Whether the newest data reached the client's socket, as far as the kernel reports.
        self.delivered = False
        #: Called when `gone` is set.
        self.on_gone: Callable[[], None] | None = None
        #: Returns the data to send in place of the rest of an unread response. None: no data is sent.
        self.last_words: Callable[[], bytes] | None = None
        #: Whether the response was cut off.
        self.cut_off = False

    async def take(self) -> ASGIReceiveEvent:
        """Return the next piece (ASGI `receive`).

        After the client has disconnected, each call returns the disconnect.
        """
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
        """Add a piece when there is room. Drop the piece if the client has disconnected."""
        while self._piece is not None and not self.gone:
            self._bringer = asyncio.get_running_loop().create_future()
            await self._bringer
        if not self.gone:
            self._piece = piece
            _wake(self._taker)

    def end(self) -> None:
        """Set `gone`, because the client has disconnected or received its response. Later pieces are dropped."""
        self.gone = True
        _wake(self._bringer)
        if self.on_gone is not None:
            self.on_gone()
        _wake(self._taker)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class HttpExchange(msgspec.Struct, eq=False):
    """One request and its response, between the connection and the app (ASGI).

    `pieces` in the state of the request is its `BodyChannel`. Most requests are small and arrive complete. For them the
    app starts after the last byte. If the app needs no report of a disconnect (`in_turn`), the request needs no task. A
    longer body is passed to the app in pieces, so that the app can refuse it early.
    """

    connection: HttpConnection
    scope: HTTPScope
    answer: ResponseEncoder
    #: Whether the request has arrived completely.
    whole: bool = False
    _body: bytearray = msgspec.field(default_factory=bytearray)
    _pieces: BodyChannel | None = None  # None before the app has started
    _closed: bool = False

    async def take(self, piece: bytearray) -> None:
        """Store a piece of the body, or pass it to the app."""
        if self._pieces is None:
            self._body += piece
        else:
            await self._pieces.bring(_piece(piece, more=True))

    async def end(self) -> None:
        """End the body, and start the app if it has not started."""
        self.whole = True
        if self._pieces is not None:
            await self._pieces.bring(_piece(b"", more=False))
            return
        pieces = self._hand_over(more=False)
        if self.connection.shared.policy.in_turn:
            await self._run(pieces)
        else:
            self.connection.spawn(self._run, pieces)

    async def begin(self) -> None:
        """Start the app before the body is complete, unless the app has started."""
        if self._pieces is None:
            self.connection.spawn(self._run, self._hand_over(more=True))

    async def gone(self) -> None:
        """Report to the app that the client has disconnected or received its response.

        Drop all later messages of the app.
        """
        if not self._closed:
            await self.begin()  # the app must receive the request and the disconnect
            self._closed = True
            if self._pieces is not None:
                self._pieces.end()

    def _hand_over(self, *, more: bool) -> BodyChannel:
        body, self._body = bytes(self._body), bytearray()
        if not more:
            self.scope["state"][WHOLE] = body
        self._pieces = self.scope["state"]["pieces"] = BodyChannel(_piece(body, more=more))
        return self._pieces

    async def _run(self, pieces: BodyChannel) -> None:
        try:
            await self.connection.shared.app(self.scope, pieces.take, self._send)
        except Exception:
            log.exception("posd.internal_error", error_id=secrets.token_hex(8))
        finally:
            if not self._closed:
                await self._end()

    async def _end(self) -> None:
        """End the response if the app has not ended it."""
        answer = self.answer
        answer.closes = True
        if not answer.started:
            await self.connection.send(answer.empty(500))
        await self._finish()

    async def _send(self, message: ASGISendEvent) -> None:
        """Process a message of the app (ASGI `send`)."""
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
                await self.connection.send(data)
        except SlowReader:
            self._cut_off()
        else:
            if self._pieces is not None:
                self._pieces.delivered = not self._closed and not self.connection.writer.is_closing()
        if self.answer.over and not self._closed:
            await self._finish()

    def _cut_off(self) -> None:
        """End an unread response. If the app has a last message, send it first."""
        answer, pieces = self.answer, self._pieces
        if pieces is not None and pieces.last_words is not None and not answer.over:
            pieces.cut_off = True
            self.connection.writer.write(answer.piece(pieces.last_words(), more=False))
        elif pieces is None or not pieces.cut_off:  # after a cut-off, the last message has just been written
            self.connection.abort()
        answer.over = answer.closes = True

    async def _finish(self) -> None:
        self._closed = True
        if self._pieces is not None:
            self._pieces.end()
        await self.connection.answered()


def _piece(body: bytes | bytearray, *, more: bool) -> ASGIReceiveEvent:
    return {"type": "http.request", "body": bytes(body), "more_body": more}


async def serve(context: ListenerContext, connection: socket.socket, peer: str, state: dict[str, Any]) -> None:
    """Serve an accepted connection until either side closes, and count a failure.

    `state`: additional state of its requests, for the app.
    """
    loop, tls, noise = asyncio.get_running_loop(), context.tls, context.noise
    reader = asyncio.StreamReader(TERMINAL_AHEAD_BYTES if tls else TILL_AHEAD_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=tls,
            ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS if tls else None,
            ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS if tls else None,
        )
    except (OSError, EOFError) as error:  # ssl.SSLError and time-outs are OSErrors
        if not context.refused(peer, error):
            noise.note("tls_handshake_failed", peer, getattr(error, "reason", None) or type(error).__name__)
        connection.close()
        # asyncio keeps the error, and its traceback would keep the connection until the next garbage collection.
        error.__traceback__ = None
        return
    transport.max_size = TERMINAL_READ_BYTES if tls else TILL_READ_BYTES  # type: ignore[attr-defined]
    transport.set_write_buffer_limits(WRITE_AHEAD_BYTES)
    if tls is not None:
        transport.set_read_buffer_limits(TLS_AHEAD_BYTES)  # type: ignore[attr-defined]
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this code runs as a task
    context.transports[task] = transport
    writer = BoundedWriter(transport, protocol, reader, loop)
    state = {
        **context.policy.state,
        **state,
        "untaken": partial(untaken, transport),
        "hung_up": partial(hung_up, transport),
    }
    served = HttpConnection(context, peer, state, reader, writer)
    try:
        await served.run()
    except asyncio.CancelledError as error:
        # Break the reference cycle of error and task group, which keeps the connection in memory.
        error.__traceback__ = None
    except (OSError, asyncio.IncompleteReadError, ExceptionGroup) as error:
        noise.note("connection_broke", peer, type(error).__name__)
    finally:
        broken_by = reader.exception()
        served.let_go()
        if served.untaken:
            noise.note("untaken_answer", peer)
        if broken_by is not None:  # under TLS 1.3 a client can refuse the certificate after our side's handshake
            context.refused(peer, broken_by)
        cut(transport)


def cut(transport: asyncio.Transport) -> None:
    """Abort a connection, whether it is open or not."""
    with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport without a connection raises it
        transport.abort()
