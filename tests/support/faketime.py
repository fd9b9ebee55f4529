"""A wall clock of a process's own, which a test moves while the process runs (Debian: libfaketime).

The clocks that count since the boot stay what they are.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

#: Where Debian has the library, for the processor of this machine.
LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), Path("libfaketime.so.1"))


@dataclass
class FakeTime:
    """The clock of the processes that get its `environment`; it begins as the machine's own."""

    file: Path

    def __post_init__(self) -> None:
        self.move()

    def move(self, **ahead: float) -> None:
        """Set it so far ahead of the machine's own clock, by the words of `timedelta`; nothing sets it right."""
        beside = self.file.with_name(f".{self.file.name}")
        beside.write_text(f"{timedelta(**ahead).total_seconds():+.0f}\n")
        beside.replace(self.file)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that lives by it."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
