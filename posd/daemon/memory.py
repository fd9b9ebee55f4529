"""Memory of the process: one heap for all threads, and its release in a pause after many changes.

The release covers the page caches of the database's connections and the freed memory in the C library: three megabytes
after some thousand payments. The next reads fetch some pages from the system again.
"""

import asyncio
import ctypes
from collections.abc import Sequence
from contextlib import suppress

from posd.httpd.server import give_memory_back
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import RecordedChange

#: Changes after which memory is released; a payment has six. A release takes some milliseconds, too much for each
#: payment.
MANY = 1000
#: Length of a pause without changes, in seconds.
PAUSE_SECONDS = 5.0

#: From glibc's malloc.h.
_M_ARENA_MAX = -8


def use_one_heap() -> None:
    """Set the C library to one heap for all threads; called before there is a second thread.

    glibc makes a heap for each thread, and each retains its free memory (M_ARENA_MAX in mallopt(3)). posd's threads
    mostly wait for the disk, not for each other.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class MemoryTrimmer:
    """Release of memory after many changes. Run `run` as a task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = 0
        self._many = asyncio.Event()

    def changed(self, changes: Sequence[RecordedChange]) -> None:
        """Count the changes of a commit."""
        self._changes += len(changes)
        if self._changes >= MANY:
            self._many.set()

    async def run(self) -> None:
        """Release memory in the first pause after many changes, until cancelled."""
        while True:
            await self._many.wait()
            await self._pause()
            self._changes = 0
            self._many.clear()
            with suppress(StorageUnavailable, CommitUncertain):  # the next pause tries again
                await self._store.release_memory()
            give_memory_back()

    async def _pause(self) -> None:
        """Wait until nothing has changed for PAUSE_SECONDS."""
        before = None
        while before != self._changes:
            before = self._changes
            await asyncio.sleep(PAUSE_SECONDS)
