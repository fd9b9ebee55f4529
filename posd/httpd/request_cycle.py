"""One request and its answer, between the connection and the app (ASGI).

What posd is asked is small and comes whole: then the app starts when all is there. Where no part of its answer depends
on whether the client still listens, it needs no task either. A body that does not come at once is handed over in
pieces, so that it can be refused before it is whole.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent, HTTPScope

from posd.httpd.answers import Answer
from posd.httpd.pieces import Pieces
from posd.httpd.slow_client import Untaken

#: An extension of the scope: the body has come already.
WHOLE = "posd.whole"

log = structlog.get_logger("posd.web")


class Line(Protocol):
    """What an exchange needs of its connection."""

    def spawn(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a function in a task that ends with the connection."""

    async def send(self, data: bytes) -> None:
        """Send bytes. Raise Untaken where the client does not take them."""

    def leave(self, data: bytes) -> None:
        """Leave bytes behind those that the client does not take."""

    def abort(self) -> None:
        """End the connection at once."""

    async def answered(self) -> None:
        """Hear that the app is done with the request, or that its answer is all sent."""


class Exchange:
    """A request of one connection; its state has the `pieces` of it.

    `in_turn`: the connection reads on when a whole request is answered, and not before.
    """

    def __init__(self, app: Any, scope: HTTPScope, line: Line, answer: Answer, *, in_turn: bool) -> None:
        self._app = app
        self._scope = scope
        self._line = line
        self._in_turn = in_turn
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
        self._scope["extensions"][WHOLE] = {}
        pieces = self._hand_over(more=False)
        if self._in_turn:
            await self._run(pieces)
        else:
            self._line.spawn(self._run, pieces)

    async def begin(self) -> None:
        """Start the app although there is more to come; do nothing where it has started."""
        if self._pieces is None:
            self._line.spawn(self._run, self._hand_over(more=True))

    async def gone(self) -> None:
        """Tell the app that the client has gone, or was answered without it; what it sends from now on is nothing."""
        if not self._closed:
            await self.begin()  # that it was asked and the client has gone is for the app to know
            self._closed = True
            if self._pieces is not None:
                await self._pieces.bring({"type": "http.disconnect"})

    def _hand_over(self, *, more: bool) -> Pieces:
        self._pieces = Pieces(_piece(self._body, more=more))
        self._body = bytearray()
        self._scope["state"]["pieces"] = self._pieces
        return self._pieces

    async def _run(self, pieces: Pieces) -> None:
        try:
            # The last two are for apps of another kind, of which there are none.
            await self._app(self._scope, pieces.take, self._send, None, None)
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
            await self._line.send(answer.start(500, [(b"content-length", b"0")]) + answer.piece(b"", more=False))
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
                await self._line.send(data)
        except Untaken:
            self._cut_off()
        if self.answer.over and not self._closed:
            await self._finish()

    def _cut_off(self) -> None:
        """End an answer that is not taken: with the app's last words where it has some, else at once."""
        answer, pieces = self.answer, self._pieces
        if pieces is not None and pieces.last_words is not None and not answer.over:
            pieces.cut_off = True
            self._line.leave(answer.piece(pieces.last_words(), more=False))
        elif pieces is None or not pieces.cut_off:  # else they were written just now
            self._line.abort()
        answer.over = answer.closes = True

    async def _finish(self) -> None:
        self._closed = True
        if self._pieces is not None:
            await self._pieces.bring({"type": "http.disconnect"})
        await self._line.answered()


def _piece(body: bytes | bytearray, *, more: bool) -> ASGIReceiveEvent:
    return {"type": "http.request", "body": bytes(body), "more_body": more}
