"""What the kernel says of the wall clock (adjtimex(2)): whether a time service keeps it. To ask needs no privilege.

The kernel takes the word back when the clock is set by hand, and when the service has been silent for too long. A
sandbox may forbid the question, as the unit of the package does (ProtectClock=). Then the file counts that
systemd-timesyncd touches each time that it has set the clock right.
"""

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from posd.clock.rules import Kernel

#: The return value, and the bit of the status, that say that nothing keeps the clock.
TIME_ERROR = 5
STA_UNSYNC = 0x0040
#: The kernel's word is about the clock of which it tells the time: that of this process may be another. Seconds.
SAME_CLOCK_SECONDS = 5.0

#: A wall clock that has moved by more than this against the one that no one sets was set.
SET = timedelta(seconds=2)

#: What systemd-timesyncd touches, and its longest pause between two times (PollIntervalMaxSec=, 2048 s) with a margin.
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
    """Return what is known of the clock that says `now` (seconds since 1970)."""
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
    """Return the seconds since the boot, those included in which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started() -> float:
    """Return when this process was started, by `elapsed` (field 22 of proc(5) stat); now where the kernel hides it."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
        return min(elapsed(), int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    return elapsed()


class Past:
    """A moment of this process, told by the wall clock as it is now: that may have been set right since.

    `elapsed`: seconds since the boot, sleep included. `then` is the moment by it; None: now.
    """

    def __init__(self, elapsed: Callable[[], float], then: float | None = None) -> None:
        self._elapsed = elapsed
        self._then = elapsed() if then is None else then
        self._told: datetime | None = None

    @property
    def seconds(self) -> float:
        """How long ago it was."""
        return self._elapsed() - self._then

    def at(self, wall: datetime) -> datetime:
        """Return it by a wall clock that is now at `wall`: the same time again, unless the clock was set."""
        found = wall - timedelta(seconds=self.seconds)
        if self._told is None or abs(found - self._told) > SET:
            self._told = found
        return self._told
