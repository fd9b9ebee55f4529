"""Measured processes: how they run, and their memory and processor time from the kernel."""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
KIB = 1024
MIB = 1024 * KIB
#: A process that uses less processor time than this within that time counts as idle, in seconds.
QUIET_SECONDS = 0.1
QUIET_COMPUTED = 0.001
#: The clock of the scheduler's own accounts (CPUCLOCK_SCHED).
_SCHEDULED = 2


def environment(others: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a process that imports from this checkout, with `others`."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | dict(others or {})


def resident_bytes(pid: int) -> int:
    """Return its resident memory (VmRSS)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) * KIB


def processor_seconds(pid: int) -> float:
    """Return the processor time of all its threads, including ended ones, to the nanosecond.

    It is the process's own clock, as clock_getcpuclockid(3) names it; /proc/PID/stat counts in steps of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


async def quiet(pid: int) -> None:
    """Wait until a process has nothing more to do at once."""
    used = processor_seconds(pid)
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        before, used = used, processor_seconds(pid)
        if used - before < QUIET_COMPUTED:
            return
