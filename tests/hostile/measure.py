"""Resources used by a process, from the kernel."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

#: How often descriptors are counted, in seconds.
EVERY_SECONDS = 0.1
#: How long what strangers hold may take to be given back after they are gone, in seconds.
GIVEN_BACK_SECONDS = 30.0
#: Time until memory is measured again: posd returns memory two seconds after the end of many connections.
SETTLE_SECONDS = 3.0


@dataclass
class Usage:
    """Resident memory in megabytes, now and at its peak, and open descriptors."""

    memory_mb: float
    peak_mb: float
    descriptors: int


def usage(pid: int) -> Usage:
    """Return the resources in use now, with the peak since `forget_peak`."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kilobytes = {name: int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM")}
    count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Usage(kilobytes["VmRSS"] / 1024, kilobytes["VmHWM"] / 1024, count)


def forget_peak(pid: int) -> None:
    """Reset the peak of the resident memory (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def processor_seconds(pid: int) -> float:
    """Return how long a process has run on a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def watch_descriptors(pid: int, most: list[int]) -> None:
    """Record the largest number of open descriptors in a list with one item, for ever."""
    while True:
        most[0] = max(most[0], usage(pid).descriptors)
        await asyncio.sleep(EVERY_SECONDS)


async def given_back(pid: int, descriptors: int) -> Usage:
    """Wait until a process has at most this many descriptors, or until the time limit; return its resources a moment
    later.
    """
    for _ in range(int(GIVEN_BACK_SECONDS / EVERY_SECONDS)):
        if usage(pid).descriptors <= descriptors:
            break
        await asyncio.sleep(EVERY_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    return usage(pid)
