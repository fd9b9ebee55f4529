"""The process's memory: one heap for all threads; and what many changes have used is given back in a pause after them.

That is what the database's connections keep of the file, and what the C library keeps of freed memory: three megabytes
after some thousand payments. What follows the pause reads some pages from the system again.
"""

import asyncio
import ctypes
from collections.abc import Sequence
from contextlib import suppress

from posd.httpd.server import give_memory_back
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Change

#: After so many changes; a payment is six. It takes some milliseconds, too much for each payment.
MANY = 1000
#: A pause is so long, in seconds.
PAUSE_SECONDS = 5.0

#: From glibc's malloc.h.
_M_ARENA_MAX = -8


def use_one_heap() -> None:
    """Have the C library give all threads memory of one heap; to be called before there is a second thread.

    glibc makes a heap for each thread, and each keeps what is free in it (M_ARENA_MAX in mallopt(3)). posd's threads
    mostly wait for the disk, and do not wait for each other here.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class Memory:
    """Run `run` as a task. It sleeps until there were many changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = 0
        self._many = asyncio.Event()
        store.hub.listen(self._changed, Change)

    def _changed(self, changes: Sequence[Change]) -> None:
        self._changes += len(changes)
        if self._changes >= MANY:
            self._many.set()

    async def run(self) -> None:
        """Give memory back in the first pause after each so many changes, until cancelled."""
        while True:
            await self._many.wait()
            await self._pause()
            self._changes = 0
            self._many.clear()
            with suppress(StorageUnavailable, CommitUncertain):  # the next time, then
                await self._store.release_memory()
            give_memory_back()

    async def _pause(self) -> None:
        """Return when nothing has changed for so long."""
        before = None
        while before != self._changes:
            before = self._changes
            await asyncio.sleep(PAUSE_SECONDS)
