"""Resources of a process as the kernel counts them: memory, descriptors, processor time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
KIB = 1024
MIB = 1024 * KIB
#: A process counts as idle if it uses less than this share of a processor for this many seconds.
QUIET_SHARE, QUIET_SECONDS = 0.01, 0.1
#: Kind of the clock with the scheduler's own times (CPUCLOCK_SCHED).
_SCHEDULED = 2


#: Command that starts a new interpreter, which executes posd from this checkout (`Daemon.entering`).
FRESH = ("env", f"PYTHONPATH={ROOT}")


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    """Return the resident memory of a process. With `VmHWM`, return the maximum since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * KIB


def forget_peak(pid: int) -> None:
    """Reset the peak of the resident memory (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def descriptors(pid: int) -> int:
    """Return the number of open descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def processor_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process in seconds, including ended threads. The process's own
    clock (clock_getcpuclockid(3)) counts nanoseconds. /proc/PID/stat counts in steps of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


#: Seconds between two counts of descriptors.
EVERY_SECONDS = 0.1


@dataclass
class Meter:
    """Open descriptors of a process before a block, and the largest number during the block."""

    before: int
    most: int = 0


@asynccontextmanager
async def metered(pid: int) -> AsyncIterator[Meter]:
    """Count the descriptors of a process during the block. Reset the peak of its memory before the block."""
    meter = Meter(descriptors(pid))
    forget_peak(pid)

    async def watch() -> None:
        while True:
            meter.most = max(meter.most, descriptors(pid))
            await asyncio.sleep(EVERY_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield meter
    finally:
        watching.cancel()


async def quiet(pid: int) -> None:
    """Wait until a process is idle."""
    used = processor_seconds(pid)
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        before, used = used, processor_seconds(pid)
        if used - before < QUIET_SHARE * QUIET_SECONDS:
            return
