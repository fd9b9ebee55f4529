"""Work on large input in a thread of its own, so that the loop and the commits continue.

One piece of work runs at a time: more threads would take the interpreter's lock from the loop more often. The wait
depends on the number of senders, not on the load of one.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from posd.base.fair_queue import FairQueue

#: Size above which input is read in the thread, in bytes. Nearly all data of a terminal is smaller, and is read faster
#: than a thread switch.
APART_BYTES = 8 * 1024

_Result = TypeVar("_Result")


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = WeakKeyDictionary()


async def read_apart(read: Callable[[bytes], _Result], body: bytes, sender: str) -> _Result:
    """Return the result of a pure function for a body, or raise its exception."""
    if len(body) <= APART_BYTES:
        return read(body)
    queue = _queues.setdefault(asyncio.get_running_loop(), FairQueue(1))
    async with queue.turn(sender):
        return await asyncio.to_thread(read, body)
