"""The two clocks: the monotonic one, which the event loop uses for its timers, and the wall clock."""

import asyncio
import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Return the running loop's clock, in seconds; in a thread without a loop the system's monotonic clock, the same.

    Only differences of two of them mean something.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def next_tick(seconds: float) -> float:
    """Return when the running loop's clock is next at a multiple of `seconds`.

    What is looked at from time to time is looked at then: pauses that are multiples of each other wake the processor
    together, which matters on a machine that is idle nearly always.
    """
    now = monotonic()
    return now - now % seconds + seconds


async def tick(seconds: float) -> None:
    """Sleep until `next_tick`: at most `seconds`."""
    await asyncio.sleep(next_tick(seconds) - monotonic())


def wall() -> datetime:
    """Return the wall clock of this machine, in UTC; nothing is ever ordered by it."""
    return datetime.now(UTC)
