"""What the relay and the collector do as processes: they run until a signal, and try again where something is away."""

import asyncio
import random
import signal
import time
from collections.abc import Coroutine
from typing import Any

from posd.logs import output

#: After so many seconds the work is cancelled once more. `asyncio.wait_for` of Python 3.11, which the clients of NATS
#: and PostgreSQL use, forgets that it was cancelled where what it waits for comes in the same turn.
AGAIN_SECONDS = 2.0


def run(work: Coroutine[Any, Any, int], level: str) -> int:
    """Run it with its log on stdout; return its exit code. SIGTERM and SIGINT cancel it."""
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
    except asyncio.CancelledError:  # once more, while it closed
        return 0


class Pauses:
    """How long to wait before the next try, in seconds: twice as long each time, and from the first after a long run.

    Each is drawn from half of it on, so that ten thousand lanes do not come back at once.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first = self._next = first
        self._most = most
        self._said = ""
        self._began = time.monotonic()

    def begin(self) -> None:
        """Note that a try begins."""
        self._began = time.monotonic()

    def draw(self) -> float:
        """Return how long to wait after a try that has failed."""
        if time.monotonic() - self._began > self._most:
            self._next = self._first
        wait = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, and hides nothing
        self._next = min(2 * self._next, self._most)
        return wait

    def is_news(self, words: str) -> bool:
        """Whether this failure was not said the last time."""
        news, self._said = words != self._said, words
        return news
