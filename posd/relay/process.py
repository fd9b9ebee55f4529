"""Common process of the relay and the collector: run until a signal, retry after failures."""

import asyncio
import random
import signal
import time
from collections.abc import Coroutine
from typing import Any

from posd.logs import output

#: Seconds before the work is cancelled again. `asyncio.wait_for` of Python 3.11, in the clients of NATS and PostgreSQL,
#: loses a cancellation if its result arrives in the same turn.
AGAIN_SECONDS = 2.0


def run(work: Coroutine[Any, Any, int], level: str) -> int:
    """Run the work with its log on stdout; return its exit code. SIGTERM and SIGINT cancel it."""
    output.configure(level)
    try:
        return asyncio.run(_until_signal(work))
    finally:
        output.floods.tell()
        output.flush()


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

    def end() -> None:
        if task.cancel():  # it has not ended
            loop.call_later(AGAIN_SECONDS, end)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        return await task
    except asyncio.CancelledError:  # a second cancellation, during the close
        return 0


class Pauses:
    """Pauses before the next attempt, in seconds: doubled each time, and reset after a long run.

    Each is random from its half on, so that ten thousand lanes do not return at once.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first = self._next = first
        self._most = most
        self._said = ""
        self._began = time.monotonic()

    def begin(self) -> None:
        """Start an attempt."""
        self._began = time.monotonic()

    def draw(self) -> float:
        """Return the pause after a failed attempt."""
        if time.monotonic() - self._began > self._most:
            self._next = self._first
        wait = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, and hides nothing
        self._next = min(2 * self._next, self._most)
        return wait

    def is_news(self, words: str) -> bool:
        """Return whether this failure differs from the last one."""
        news, self._said = words != self._said, words
        return news
