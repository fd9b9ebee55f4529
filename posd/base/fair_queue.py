"""Fair queue of work. A few pieces of work run at a time, and their owners take turns.

The event loop serves all connections in turn. Without a queue, a process with hundreds of busy connections would have
hundreds of turns for each turn of a till with one connection. In the queue each owner has one turn, so an owner waits
only for a few pieces of work.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TypeVar
from weakref import WeakKeyDictionary


class FairQueue:
    """Queue of work by owner. `at_once`: number of pieces of work that run at a time.

    `seconds`: length of a turn. After that time the next piece of work starts too, while the first continues. So a slow
    disk does not block other work. None: a turn ends with its work.
    """

    def __init__(self, at_once: int, seconds: float | None = None) -> None:
        self._free = at_once
        self._seconds = seconds
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait for a turn of the owner, and hold it until the end of the block or `end_turn`."""
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait(owner)
        timer: asyncio.TimerHandle | None = None
        ended = False

        def end() -> None:
            nonlocal ended
            if timer is not None:
                timer.cancel()
            if not ended:
                ended = True
                self.pass_on(owner)

        if self._seconds is not None:
            timer = asyncio.get_running_loop().call_later(self._seconds, end)
        token = _end_present.set(end)
        try:
            yield
        finally:
            _end_present.reset(token)
            end()

    async def _wait(self, owner: Hashable) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # this owner received the turn in the same step
                self.pass_on(owner)
            raise

    def pass_on(self, owner: Hashable) -> None:
        """Pass the ended turn of an owner to the next waiting owner."""
        if owner in self._waiting:
            self._waiting.move_to_end(owner)
        while self._waiting:
            following, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[following] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


#: Function that ends the turn of the present call.
_end_present: ContextVar[Callable[[], None] | None] = ContextVar("turn", default=None)


def end_turn() -> None:
    """End the turn of the present call, if any, because the call begins to wait for a terminal or a change."""
    if (end := _end_present.get()) is not None:
        end()


# Work on large input in a separate thread, so that the loop and the commits continue.
#
# One piece of work runs at a time, because more threads would take the interpreter's lock from the loop. How long a
# sender waits depends on the number of senders, and not on the load of one of them.

#: Size above which input is read in the thread, in bytes. Nearly all data of a terminal is smaller, and a thread switch
#: takes longer than reading it.
APART_BYTES = 8 * 1024

_Result = TypeVar("_Result")


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = WeakKeyDictionary()


async def read_apart(read: Callable[[bytes], _Result], body: bytes, sender: str) -> _Result:
    """Return `read(body)`, or raise its exception. A large body is read in the thread. `sender`: owner of the turn."""
    if len(body) <= APART_BYTES:
        return read(body)
    queue = _queues.setdefault(asyncio.get_running_loop(), FairQueue(1))
    async with queue.turn(sender):
        return await asyncio.to_thread(read, body)
