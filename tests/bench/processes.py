"""What the kernel says of a process: its memory, its processor time, and how often it was woken."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

KIB = 1024
#: A process that computes for less than so long in such a time has done what it had to, in seconds.
QUIET_SECONDS = 0.1
QUIET_COMPUTED = 0.001
#: The clock of the scheduler's own accounts (CPUCLOCK_SCHED).
_SCHEDULED = 2


def resident_bytes(pid: int) -> int:
    """Return how much of it is in memory (VmRSS)."""
    return int(_field(Path(f"/proc/{pid}/status").read_text(), "VmRSS")) * KIB


def processor_seconds(pid: int) -> float:
    """Return the processor time of all its threads, also those that have ended, in steps of a nanosecond.

    It is the process's own clock, as clock_getcpuclockid(3) names it; /proc/PID/stat counts in steps of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def switches(pid: int) -> Mapping[str, int]:
    """Return how often each of its threads has come off the processor since it began, by thread id.

    A thread that sleeps has come off once for each time that it was woken. One that is put off by another process
    counts too: on a machine that does something else at the same time there are more of them.
    """
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found[task.name] = int(_field(status, "voluntary_ctxt_switches")) + int(
            _field(status, "nonvoluntary_ctxt_switches")
        )
    return found


async def quiet(pid: int) -> None:
    """Wait until a process has nothing more to do at once."""
    used = processor_seconds(pid)
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        before, used = used, processor_seconds(pid)
        if used - before < QUIET_COMPUTED:
            return


@contextmanager
def on_one_core(pids: Sequence[int]) -> Iterator[None]:
    """Within the block all these processes run on one core, and this one on the others, where there are any."""
    cores = os.sched_getaffinity(0)
    theirs = {max(cores)}
    _run_on(pids, theirs)
    os.sched_setaffinity(0, cores - theirs or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        _run_on(pids, cores)


def _run_on(pids: Sequence[int], cores: set[int]) -> None:
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def _field(status: str, name: str) -> str:
    return next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1]
