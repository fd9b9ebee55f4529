"""The kernel's state of the wall clock (adjtimex(2)): whether a time service keeps it. Reading needs no privilege.

The kernel clears the state when the clock is set by hand, and when the service is silent for too long. A sandbox may
forbid the call, as the unit of the package does (ProtectClock=). Then the file counts that systemd-timesyncd touches
after each correction.
"""

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from posd.clock.rules import Kernel

#: Return value, and bit of the status, of a clock that no service keeps.
TIME_ERROR = 5
STA_UNSYNC = 0x0040
#: Largest difference, in seconds, at which the kernel's state concerns the clock of this process.
SAME_CLOCK_SECONDS = 5.0

#: Movement of the wall clock against the boot clock from which it counts as set.
SET = timedelta(seconds=2)

#: File that systemd-timesyncd touches, and its longest pause (PollIntervalMaxSec=, 2048 s) with a margin.
TIMESYNC = Path("/run/systemd/timesync/synchronized")
TIMESYNC_SECONDS = 2400.0


class _Timex(ctypes.Structure):
    """struct timex, up to the time; the rest is reserved."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("fraction", ctypes.c_long),
        ("rest", ctypes.c_long * 32),
    )


def state(now: float) -> Kernel:
    """Return the state of the clock that shows `now` (seconds since 1970)."""
    timex = _Timex()  # modes 0: nothing is changed
    try:
        found = int(ctypes.CDLL(None).adjtimex(ctypes.byref(timex)))
    except (OSError, AttributeError):
        found = -1
    if found < 0 or abs(timex.seconds - now) > SAME_CLOCK_SECONDS:
        return _timesync(now)
    if found == TIME_ERROR or timex.status & STA_UNSYNC:
        return Kernel.UNSYNCHRONISED
    return Kernel.SYNCHRONISED


def _timesync(now: float) -> Kernel:
    try:
        touched = TIMESYNC.stat().st_mtime
    except OSError:
        return Kernel.UNKNOWN
    return Kernel.SYNCHRONISED if -SAME_CLOCK_SECONDS <= now - touched <= TIMESYNC_SECONDS else Kernel.UNKNOWN


def elapsed() -> float:
    """Return the seconds since the boot, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started() -> float:
    """Return the start of this process, on the clock of `elapsed` (field 22 of proc(5) stat); now if the kernel hides
    it.
    """
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
        return min(elapsed(), int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    return elapsed()


class ProcessMoment:
    """Moment of this process, shown by the present wall clock, which may have been corrected since.

    `elapsed`: seconds since the boot, sleep included. `then`: the moment on it; None: now.
    """

    def __init__(self, elapsed: Callable[[], float], then: float | None = None) -> None:
        self._elapsed = elapsed
        self._then = elapsed() if then is None else then
        self._told: datetime | None = None

    @property
    def seconds(self) -> float:
        """Seconds since then."""
        return self._elapsed() - self._then

    def at(self, wall: datetime) -> datetime:
        """Return it on a wall clock that shows `wall` now: the same time again, unless the clock was set."""
        found = wall - timedelta(seconds=self.seconds)
        if self._told is None or abs(found - self._told) > SET:
            self._told = found
        return self._told
