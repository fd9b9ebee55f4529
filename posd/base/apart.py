"""Work on large input in a thread of its own, so that the loop and the commits continue.

One piece of work runs at a time: more threads would take the interpreter's lock from the loop more often. Each sender
has one piece in the queue, so that the wait depends on the number of senders, not on the load of one.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

#: Size above which input is read in the thread, in bytes. Nearly all data of a terminal is smaller, and is read faster
#: than a thread switch.
APART_BYTES = 8 * 1024

_Result = TypeVar("_Result")


class _Turnstile:
    """Locks of one loop: one for all, and one for each waiting sender."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.of_senders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turnstile] = WeakKeyDictionary()


async def read_apart(read: Callable[[bytes], _Result], body: bytes, sender: str) -> _Result:
    """Return the result of a pure function for a body, or raise its exception."""
    if len(body) <= APART_BYTES:
        return read(body)
    lines = _lines.setdefault(asyncio.get_running_loop(), _Turnstile())
    line = lines.of_senders.setdefault(sender, asyncio.Lock())
    async with line, lines.turn:
        return await asyncio.to_thread(read, body)
