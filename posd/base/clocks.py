"""The two clocks: the monotonic one of the event loop's timers, and the wall clock."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

#: Returns the wall clock of this machine, in UTC; posd never orders by it.
wall: Callable[[], datetime] = partial(datetime.now, UTC)


def monotonic() -> float:
    """Return the running loop's clock, in seconds; in a thread without a loop the system's monotonic clock, which is
    the same.

    Only differences are meaningful.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def next_tick(seconds: float) -> float:
    """Return the next multiple of `seconds` on the running loop's clock.

    Periodic checks use it: pauses that are multiples of each other wake the processor together, which saves power on an
    idle machine.
    """
    now = monotonic()
    return now - now % seconds + seconds


async def tick(seconds: float) -> None:
    """Sleep until `next_tick`: at most `seconds`."""
    await asyncio.sleep(next_tick(seconds) - monotonic())
