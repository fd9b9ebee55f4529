"""One request and its answer, between Hypercorn's HTTP/1.1 and the app.

Hypercorn's own stream starts the app when the head has come, in a task of its own, and hands it the body through a
queue. What posd is asked is small and comes whole: then the app starts when all is there. Where no part of its answer
depends on whether the client still listens, it needs no task either. A body that does not come at once is handed over
in pieces, so that it can be refused before it is whole.
"""

from typing import Any
from urllib.parse import unquote

from hypercorn.protocol.events import Body, EndBody, Event, Request, StreamClosed
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import ASGIReceiveEvent, HTTPScope

from posd.web.pieces import Pieces

#: An extension of the scope: the body has come already.
WHOLE = "posd.whole"


class Exchange(HTTPStream):
    """A request of one connection; its state has the `pieces` of it.

    `in_turn`: the connection reads on when a whole request is answered, and not before.
    """

    def __init__(self, *arguments: Any, in_turn: bool) -> None:
        super().__init__(*arguments)
        self.start_time = 0.0  # for the access log, of which there is none
        self._in_turn = in_turn
        self._body = bytearray()
        self._pieces: Pieces | None = None  # None: the app has not started

    async def handle(self, event: Event) -> None:
        """Take what came of the request."""
        if isinstance(event, Request):
            self.scope = self._scope(event)
        elif isinstance(event, Body):
            if self._pieces is None:
                self._body += event.data
            else:
                await self._pieces.bring(_piece(event.data, more=True))
        elif isinstance(event, EndBody):
            if self._pieces is None:
                await self._begin_whole()
            else:
                await self._pieces.bring(_piece(b"", more=False))
        elif isinstance(event, StreamClosed) and not self.closed:
            await self.begin()  # that it was asked and the client has gone is for the app to know
            self.closed = True
            if self._pieces is not None:
                await self._pieces.bring({"type": "http.disconnect"})

    async def begin(self) -> None:
        """Start the app although there is more to come; do nothing where it has started."""
        if self._pieces is None and not self.closed:
            self.task_group.spawn(self._run, self._hand_over(more=True))

    async def _begin_whole(self) -> None:
        self.scope["extensions"][WHOLE] = {}
        pieces = self._hand_over(more=False)
        if self._in_turn:
            await self._run(pieces)
        else:
            self.task_group.spawn(self._run, pieces)

    def _hand_over(self, *, more: bool) -> Pieces:
        self._pieces = Pieces(_piece(self._body, more=more))
        self._body = bytearray()
        self.scope["state"]["pieces"] = self._pieces
        return self._pieces

    async def _run(self, pieces: Pieces) -> None:
        try:
            # The last two are for apps of another kind, of which there are none.
            await self.app(self.scope, pieces.take, self.app_send, None, None)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - an app answers for its own faults; this is the last resort
            await self.config.log.exception("Error in ASGI Framework")
        finally:
            await self.app_send(None)

    async def _send_closed(self) -> None:
        await self.send(EndBody(stream_id=self.stream_id))
        self.state = ASGIHTTPState.CLOSED
        await self.send(StreamClosed(stream_id=self.stream_id))

    def _scope(self, request: Request) -> HTTPScope:
        path, _, query = request.raw_path.partition(b"?")
        return {
            "type": "http",
            "http_version": request.http_version,
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "method": request.method,
            "scheme": self.scheme,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": self.config.root_path,
            "headers": request.headers,
            "client": self.client,
            "server": self.server,
            "state": request.state.copy(),  # type: ignore[typeddict-item]  # Hypercorn's own words
            "extensions": {},
        }


def _piece(body: bytes | bytearray, *, more: bool) -> ASGIReceiveEvent:
    return {"type": "http.request", "body": bytes(body), "more_body": more}
