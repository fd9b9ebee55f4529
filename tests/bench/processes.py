"""What the kernel says of a process: its memory, its processor time, and how often it was woken."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

KIB = 1024
#: A process that does nothing for so long has done what it had to, in seconds; the clock of its time ticks in 10 ms.
QUIET_SECONDS = 0.5


def resident_bytes(pid: int) -> int:
    """Return how much of it is in memory (VmRSS)."""
    return int(_field(Path(f"/proc/{pid}/status").read_text(), "VmRSS")) * KIB


def processor_seconds(pid: int) -> float:
    """Return the processor time that it has used, in user and in kernel mode."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


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
    before = -1.0
    while (used := processor_seconds(pid)) != before:
        before = used
        await asyncio.sleep(QUIET_SECONDS)


def _field(status: str, name: str) -> str:
    return next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1]
