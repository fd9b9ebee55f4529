"""Clocks: the monotonic clock of the event loop's timers, the wall clock, and the boot clock."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

#: Returns the time of this machine's wall clock, in UTC. posd never sorts by this clock.
wall: Callable[[], datetime] = partial(datetime.now, UTC)
#: Returns the seconds since the boot, including sleep.
elapsed: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

#: If the difference between wall clock and boot clock changes by more than this, the wall clock was set.
SET = timedelta(seconds=2)


def monotonic() -> float:
    """Return the time of the running loop's clock (s). Only differences have a meaning.

    In a thread without a loop, read the system's monotonic clock, which the loop also uses.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def next_tick(seconds: float) -> float:
    """Return the next multiple of `seconds` on the running loop's clock.

    Periodic checks run at such times. Their pauses are multiples of each other, so many checks wake the processor
    together. This saves power.
    """
    now = monotonic()
    return now - now % seconds + seconds


async def tick(seconds: float) -> None:
    """Sleep until `next_tick`, at most `seconds`."""
    await asyncio.sleep(next_tick(seconds) - monotonic())


def started() -> float:
    """Return the start of this process, on the clock of `elapsed` (field 22 of proc(5) stat).

    Return the present time if the kernel hides the start.
    """
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
        return min(elapsed(), int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    return elapsed()


class ProcessMoment:
    """Moment in the life of this process. A later correction of the wall clock does not change it.

    `elapsed`: seconds since the boot, including sleep. `then`: the moment on that clock; None: now.
    """

    def __init__(self, elapsed: Callable[[], float], then: float | None = None) -> None:
        self._elapsed = elapsed
        self._then = elapsed() if then is None else then
        self._told: datetime | None = None

    @property
    def seconds(self) -> float:
        """Seconds since that moment."""
        return self._elapsed() - self._then

    def at(self, wall: datetime) -> datetime:
        """Return the moment as wall time.

        `wall`: present wall time. Later calls return the same time, unless the clock was set.
        """
        found = wall - timedelta(seconds=self.seconds)
        if self._told is None or abs(found - self._told) > SET:
            self._told = found
        return self._told
