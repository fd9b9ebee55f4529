"""One connection: Hypercorn's HTTP/1.1 and nothing else, bounded, and without what it costs and posd does not need."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import h11
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Request, Response
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol

from posd.web.exchange import Exchange

#: Request line and headers together, in bytes; ours are a few hundred.
MAX_HEADER_BYTES = 16 * 1024
#: Pieces of a body that wait for the app, each of about a TLS record.
APP_QUEUE_PIECES = 1


#: Different heads of answers that are kept; those of a second are few.
MAX_HEADS = 64


class Settings(Config):
    """Hypercorn's settings; the head of an answer is made once a second, not for each."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._own: list[tuple[bytes, bytes]] = []
        self._heads: dict[tuple[int, tuple[tuple[bytes, bytes], ...]], h11.Response] = {}

    def head(self, answer: Response) -> h11.Response:
        """Return the head of an answer, with the headers that each has."""
        second = int(time.time())
        if second != self._second or len(self._heads) >= MAX_HEADS:
            self._second, self._own, self._heads = second, self.response_headers("h11"), {}
        key = (answer.status_code, tuple(answer.headers))
        if key not in self._heads:
            self._heads[key] = h11.Response(status_code=answer.status_code, headers=[*answer.headers, *self._own])
        return self._heads[key]


def http_config(keep_alive_seconds: float) -> Config:
    """Return Hypercorn's settings: quiet, HTTP/1.1, headers bounded, idle or half-sent requests closed in time."""
    config = Settings()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.h11_max_incomplete_size = MAX_HEADER_BYTES
    config.keep_alive_timeout = keep_alive_seconds
    config.max_app_queue_size = APP_QUEUE_PIECES
    config.keep_alive_max_requests = 2**31  # its own limit of 1000 would cut busy terminals
    return config


class Http11(H11Protocol):
    """HTTP/1.1 and nothing else, with a bounded head.

    Who asks for HTTP/2 or a WebSocket is answered as if the question were not there: Hypercorn would switch, and
    neither the limits here nor the apps are made for what comes then.
    """

    config: Settings

    def __init__(self, *arguments: Any, in_turn: bool) -> None:
        super().__init__(*arguments)
        self._in_turn = in_turn

    async def _check_protocol(self, event: h11.Request) -> None:
        """Do not take the HTTP/2 preface or an `Upgrade: h2c` up."""

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response):
            await self._send_h11_event(self.config.head(event))
        else:
            await super().stream_send(event)

    async def _handle_events(self) -> None:
        await super()._handle_events()
        await self._begin()

    async def _begin(self) -> None:
        if isinstance(self.stream, Exchange):
            await self.stream.begin()

    async def _send_error_response(self, status_code: int) -> None:
        await self._begin()  # the app hears of a request that does not become whole
        await super()._send_error_response(status_code)

    async def _create_stream(self, request: h11.Request) -> None:
        if _head_bytes(request) > MAX_HEADER_BYTES:  # h11 limits only a head that comes in several pieces
            await self._send_error_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            await self.send(Closed())
            return
        self.stream = Exchange(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
            in_turn=self._in_turn,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )


def _head_bytes(request: h11.Request) -> int:
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


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
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def restart(self, _task_group: object = None, _action: object = None) -> None:
        """Begin to wait, anew."""
        if self._timer is not None:
            self._timer.cancel()
        if self._context.terminated.is_set():
            self.end()
            return
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.end)
        self._context.idle.add(self)

    async def stop(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._context.idle.discard(self)

    def end(self) -> None:
        """End the connection."""
        self._context.idle.discard(self)
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
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
        self.idle_task = Idle(context, config.keep_alive_timeout, self._initiate_server_close)  # type: ignore[assignment]

    async def protocol_send(self, event: Event) -> None:
        """Do not wait for the next request of a peer that has closed; a peer that is gone is no fault of the app's."""
        if isinstance(event, Updated) and event.idle and self.reader.at_eof():
            return
        if isinstance(event, RawData):
            if not event.data:  # the end of an answer is nothing on the wire
                return
            if self.writer.is_closing():
                await self.protocol.handle(Closed())  # asyncio would log a line for each answer to what still waits
                return
        try:
            await super().protocol_send(event)
        except OSError:  # an SSLError of one that goes on sending; Hypercorn knows ConnectionError only
            await self.protocol.handle(Closed())

    async def _read_data(self) -> None:
        chosen = self.protocol  # Hypercorn's switch between protocols, of which there is one
        self.protocol = Http11(  # type: ignore[assignment]
            chosen.app,
            chosen.config,
            chosen.context,
            chosen.task_group,
            chosen.state,
            chosen.ssl,
            chosen.client,
            chosen.server,
            chosen.send,
            in_turn=self._in_turn,
        )
        await super()._read_data()
        await self.idle_task.stop()

    async def _initiate_server_close(self) -> None:
        if "protocol" in vars(self):  # else it has just ended by itself
            await super()._initiate_server_close()

    def let_go(self) -> None:
        """Forget what knows this connection: together they would live on, with their buffers, as garbage."""
        for name in ("protocol", "idle_task", "_task_group"):
            vars(self).pop(name, None)
        if (error := self.reader.exception()) is not None:
            error.__traceback__ = error.__context__ = None
