"""What the server hands an app of one request: the pieces of its body, and that the client has gone.

It takes the place of the queue that Hypercorn makes for each request: a waiting till would hold its 3 KB for as long as
it waits, and a client that goes away while the queue is full would leave a connection and its tasks behind.
"""

import asyncio
from collections.abc import Callable

from hypercorn.typing import ASGIReceiveEvent

_GONE: ASGIReceiveEvent = {"type": "http.disconnect"}


class Pieces:
    """At most one piece waits to be taken; who brings the next waits for that. One task takes, one brings."""

    __slots__ = ("_bringer", "_piece", "_taker", "cut_off", "gone", "last_words", "on_gone")

    def __init__(self, first: ASGIReceiveEvent) -> None:
        self._piece: ASGIReceiveEvent | None = first
        self._taker: asyncio.Future[None] | None = None
        self._bringer: asyncio.Future[None] | None = None
        #: Whether the client has hung up, or was answered.
        self.gone = False
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
        _wake(self._bringer)
        return piece

    async def bring(self, piece: ASGIReceiveEvent) -> None:
        """Bring a piece. Nobody takes one of a client that has gone, and that it has is told without waiting."""
        if piece["type"] == "http.disconnect":
            self.gone = True
            _wake(self._bringer)
            if self.on_gone is not None:
                self.on_gone()
        else:
            while self._piece is not None and not self.gone:
                self._bringer = asyncio.get_running_loop().create_future()
                await self._bringer
            if self.gone:
                return
            self._piece = piece
        _wake(self._taker)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
