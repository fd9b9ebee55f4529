"""A wall clock for processes of a test (Debian: libfaketime). The test moves the clock while the processes run. Clocks
that count from the boot are not changed.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

#: Path of the library for programs with threads, for this machine's processor. With Debian's other library, threads
#: stop for seconds if they read the time simultaneously.
LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), Path("libfaketimeMT.so.1"))


@dataclass
class FakeTime:
    """The clock of processes with this `environment`. The clock begins at the machine's time."""

    file: Path

    def __post_init__(self) -> None:
        self.move()

    def move(self, **ahead: float) -> None:
        """Set the clock ahead of the machine's clock by `timedelta(**ahead)`."""
        beside = self.file.with_name(f".{self.file.name}")
        beside.write_text(f"{timedelta(**ahead).total_seconds():+.0f}\n")
        beside.replace(self.file)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a process with this clock. The library assumes that glibc waits by the wall clock.
        The assumption is wrong, and threads would wait for each other for seconds. One of these variables switches the
        assumption off.
        """
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


def remove_shared_memory(pid: int) -> None:
    """Remove the shared memory of a killed process with a moved clock."""
    for name in ("faketime_shm_", "sem.faketime_sem_"):
        Path(f"/dev/shm/{name}{pid}").unlink(missing_ok=True)
