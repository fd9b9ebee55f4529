"""Turns of the questions to a terminal about its transactions.

A question that is not answered takes as long as `reply_timeout_seconds`, and old transactions in doubt are asked for
again and again. So those that a person or a till waits for go first. The others get their turns in the pause that
follows each question for one transaction.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Urgent = Callable[[], bool]


def always() -> bool:
    """What a person asks for is urgent."""
    return True


class CallTurns:
    """So many turns at a time. Of those that wait the urgent ones come first, and each kind in the order of coming."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[asyncio.Future[None], Urgent] = {}

    @property
    def pressed(self) -> bool:
        """Whether one that waits is urgent."""
        return any(urgent() for urgent in self._waiting.values())

    @asynccontextmanager
    async def turn(self, urgent: Urgent) -> AsyncIterator[None]:
        """Hold a turn for the block. `urgent` is called again whenever a place becomes free."""
        await self._enter(urgent)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, urgent: Urgent) -> None:
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = urgent
        try:
            await place
        except asyncio.CancelledError:
            if self._waiting.pop(place, None) is None:  # it has got its turn, and will not use it
                self._leave()
            raise

    def _leave(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        first = next(iter(self._waiting))
        place = next((place for place, urgent in self._waiting.items() if urgent()), first)
        del self._waiting[place]
        place.set_result(None)
