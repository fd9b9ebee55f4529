"""One connection: HTTP/1.1 between Hypercorn's TCP server and the app, bounded, and without what posd does not need.

Hypercorn's own protocol stands on h11, which is a fifth of what a callback costs; here requests are read by llhttp.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.typing import HTTPScope

from posd.httpd.answers import CLOSE, Answer, Heads
from posd.httpd.request_cycle import Exchange
from posd.httpd.requests import End, Head, Refused, Requests
from posd.httpd.slow_client import Linger, Untaken, drain

#: So much is taken from a connection at a time, in bytes: it is held until all of it was looked at.
READ_BYTES = 16 * 1024
#: So much is looked at at a time: who sends many requests at once does not hold up all others by it.
PIECE_BYTES = 2048

#: So long a request waits that came before the answer to the one before. No terminal and no till is in such haste, and
#: each of them would take turns of the loop that others wait for.
HASTE_SECONDS = 0.005

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST = Head("GET", b"/", "1.1", [], keep_alive=False, expects=False)


class Settings(Config):
    """Hypercorn's settings, and the heads of answers."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads()


def http_config(keep_alive_seconds: float) -> Config:
    """Return Hypercorn's settings: quiet, HTTP/1.1, idle or half-sent requests closed in time."""
    config = Settings()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.keep_alive_timeout = keep_alive_seconds
    return config


class Http11:
    """HTTP/1.1 and nothing else: one request after the other, each answered before the next is looked at.

    Who asks for HTTP/2 or a WebSocket is answered as if the question were not there. `chosen` is Hypercorn's wrapper of
    protocols, in whose place it stands.
    """

    def __init__(self, chosen: Any, connection: "Connection", *, in_turn: bool) -> None:
        self._connection = connection
        self._app = chosen.app
        self._config: Settings = chosen.config
        self._context = chosen.context
        self._task_group = chosen.task_group
        self._state = chosen.state
        self._scheme = "https" if chosen.ssl else "http"
        self._client = chosen.client
        self._server = chosen.server
        self._out = chosen.send
        self._in_turn = in_turn
        self._requests = Requests()
        self._exchange: Exchange | None = None
        self._heads = 0  # of requests in what was received last
        self._over = False
        self._said = False  # whether an answer said that it is the last one
        #: Set while no request is being answered.
        self._free = asyncio.Event()
        self._free.set()

    async def handle(self, event: Event) -> None:
        """Take what was received, or that the connection is closed."""
        if isinstance(event, RawData):
            if not self._over:
                await self._take(event.data)
        elif isinstance(event, Closed):
            self._over = True
            if self._exchange is not None:
                await self._exchange.gone()
                self._exchange = None
            self._free.set()

    def let_go(self) -> None:
        """Forget what knows this, or itself."""
        self._requests.end()
        self._exchange = None

    async def _take(self, data: bytes) -> None:
        self._heads = 0
        for begin in range(0, len(data), PIECE_BYTES):
            await self._take_piece(data[begin : begin + PIECE_BYTES])
            if self._over:
                return
        if self._exchange is not None and not self._exchange.whole:
            await self._exchange.begin()

    async def _take_piece(self, data: bytes) -> None:
        events = self._requests.feed(data)
        for event in events:
            if isinstance(event, Head):
                self._heads += 1
                if self._heads > 1:
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

    async def _open(self, head: Head) -> None:
        exchange = Exchange(self._app, self._scope(head), self, Answer(self._config.heads, head), in_turn=self._in_turn)
        if self._over:  # it came with one before it; nobody is there to be answered
            if not self._said:  # else it is as if it had not come (RFC 9112, 9.6)
                await exchange.gone()
            return
        self._free.clear()
        await self._out(Updated(idle=False))
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
            answer = Answer(self._config.heads, _LAST)
            await self.send(answer.start(status, [(b"content-length", b"0"), CLOSE]) + answer.piece(b"", more=False))
        await self._out(Closed())
        self._over = True

    def spawn(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a function in a task that ends with the connection."""
        self._task_group.spawn(function, *arguments)

    async def send(self, data: bytes) -> None:
        """Send bytes. Raise Untaken where the client does not take them."""
        await self._out(RawData(data))

    def leave(self, data: bytes) -> None:
        """Leave bytes behind those that the client does not take."""
        self._connection.writer.write(data)

    def abort(self) -> None:
        """End the connection at once: nobody takes the answer."""
        self._connection.abort()

    async def answered(self) -> None:
        """Turn to the next request, or end the connection where the answer or an end of posd's own asks for it."""
        exchange, self._exchange = self._exchange, None
        stays = exchange is not None and exchange.whole and not exchange.answer.closes
        if stays and not self._context.terminated.is_set():
            self._free.set()
            await self._out(Updated(idle=True))
        else:
            self._over = True
            self._said = exchange is not None and exchange.answer.closes
            self._free.set()
            await self._out(Closed())

    def _scope(self, head: Head) -> HTTPScope:
        path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "http_version": head.version,
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "method": head.method,
            "scheme": self._scheme,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": head.headers,
            "client": self._client,
            "server": self._server,
            "state": self._state.copy(),
            "extensions": {},
        }


class Context(WorkerContext):
    """Hypercorn's context of a listener, and the connections on which nothing is under way."""

    def __init__(self) -> None:
        super().__init__(None)
        self.idle: set[Idle] = set()

    async def terminate_idle(self) -> None:
        """End the connections on which nothing is under way, and each other one after its request."""
        await self.terminated.set()
        for idle in list(self.idle):
            idle.end()


class Idle:
    """Ends a connection on which nothing is under way for too long, or when posd stops.

    Hypercorn starts and cancels a task for that with each request, which is a tenth of what a request costs.
    """

    def __init__(self, context: Context, seconds: float, end: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._seconds = seconds
        self._end = end
        self._since: float | None = None  # when it became idle, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def restart(self, _task_group: object = None, _action: object = None) -> None:
        """Begin to wait, anew."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._context.terminated.is_set():
            self.end()
            return
        self._context.idle.add(self)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    async def stop(self) -> None:
        """Wait no more."""
        self._since = None
        self._context.idle.discard(self)

    def _look(self) -> None:
        """End the connection where it has been idle for so long: one timer for many requests."""
        self._timer = None
        if self._since is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._since >= self._seconds:
            self.end()
        else:
            self._timer = loop.call_at(self._since + self._seconds, self._look)

    def forget(self) -> None:
        """Drop the timer: the connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """End the connection."""
        self._context.idle.discard(self)
        if self._ending is None or self._ending.done():
            self._ending = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        if self._since is not None:  # else a request has come at this very moment
            await self._end()


class Connection(TCPServer):
    """Hypercorn's connection; it speaks HTTP/1.1 only, and ends when its peer has closed it and nothing is under way.

    Hypercorn's own would stay, socket and task, until the keep-alive time-out: a till that opens a connection a call
    would run into the limit.
    """

    def __init__(
        self,
        app: ASGIWrapper,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        context: Context,
        state: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        in_turn: bool,
    ) -> None:
        super().__init__(app, loop, config, context, state, reader, writer)
        self._in_turn = in_turn
        self._lingering: Linger | None = None
        #: Whether it was ended because an answer was not taken.
        self.untaken = False
        self.idle_task = Idle(context, config.keep_alive_timeout, self._initiate_server_close)  # type: ignore[assignment]

    async def protocol_send(self, event: Event) -> None:
        """Send, close, or note whether something is under way; a peer that is gone is no fault of the app's.

        Hypercorn's own takes a lock: here one task at a time has something to send. After the end of a peer's side
        nothing is waited for.
        """
        if isinstance(event, Updated):
            if not event.idle:
                await self.idle_task.stop()
            elif not self.reader.at_eof():
                await self.idle_task.restart(self._task_group, self._idle_timeout)
        elif isinstance(event, RawData):
            if not self.writer.is_closing():  # asyncio would log a line for each answer to what still waits
                try:
                    self.writer.write(event.data)
                    await drain(self.writer)
                except Untaken:
                    raise
                except (OSError, RuntimeError):  # an SSLError of one that goes on sending is an OSError
                    pass
                else:
                    return
            await self.protocol.handle(Closed())
        else:
            try:
                await super().protocol_send(event)
            except OSError:
                await self.protocol.handle(Closed())

    async def _read_data(self) -> None:
        self.protocol = Http11(self.protocol, self, in_turn=self._in_turn)  # type: ignore[assignment]
        while not self.reader.at_eof():
            try:
                data = await self.reader.read(READ_BYTES)
            except OSError:
                break
            await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    async def _initiate_server_close(self) -> None:
        if "protocol" in vars(self):  # else it has just ended by itself
            self._linger()
            await super()._initiate_server_close()

    async def _close(self) -> None:
        self._linger()
        await super()._close()

    def _linger(self) -> None:
        """Let what was written and not taken wait for a while only: closing waits for it."""
        transport = self.writer.transport
        if self._lingering is None and not transport.is_closing() and transport.get_write_buffer_size():
            self._lingering = Linger(transport)

    def abort(self) -> None:
        """End it at once: nobody takes the answer."""
        self.untaken = True
        self.writer.transport.abort()

    def let_go(self) -> None:
        """Forget what knows this connection: together they would live on, with their buffers, as garbage."""
        self.idle_task.forget()  # type: ignore[attr-defined]
        if self._lingering is not None:
            self._lingering.cancel()
        if isinstance(protocol := vars(self).get("protocol"), Http11):
            protocol.let_go()
        for name in ("protocol", "idle_task", "_task_group"):
            vars(self).pop(name, None)
        if (error := self.reader.exception()) is not None:
            error.__traceback__ = error.__context__ = None
