"""Files of JSON lines that outlive the process, and the error for settings and files that cannot be used.

A line is handed to the operating system at once, which survives the end of this process in any form; it is not synced
to the disk, for a simulator need not survive a power cut of its host.
"""

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from posd.simulator import wire

_T = TypeVar("_T")


class SettingsError(ValueError):
    """Something in the settings cannot be; the message says what, why and what to do."""


class Journal:
    """One such file, mode 0600, of which each line is a change."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises OSError."""
        path.touch(mode=0o600)
        self._path = path
        self._file: BinaryIO = path.open("ab")

    def lock(self) -> None:
        """Keep other processes from locking it too. Raises BlockingIOError where one has locked it."""
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def replay(self, apply: Callable[[bytes], object]) -> None:
        """Call `apply` with each line, the oldest first; for what it may raise see `read`."""
        for _ in self.read(apply):
            pass

    def read(self, read_line: Callable[[bytes], _T]) -> Iterator[_T]:
        """Yield what `read_line` returns for each line, the oldest first.

        Raises SettingsError, and closes the file, where `read_line` raises ValueError, LookupError or TypeError.
        """
        for number, line in enumerate(take_up(self._path), start=1):
            try:
                yield read_line(line)
            except (LookupError, TypeError, ValueError) as error:
                self.close()
                raise SettingsError(
                    f"line {number} of {self._path} cannot be read: {error!r}; choose another directory with --state"
                ) from error

    def append(self, change: Any) -> None:
        """Append a line; it is in the file when this returns."""
        self._file.write(wire.encode(change) + b"\n")
        self._file.flush()

    def empty(self) -> None:
        """Remove every line."""
        self._file.truncate(0)

    def close(self) -> None:
        """Close the file; what was appended stays in it."""
        self._file.close()


def take_up(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; a last one that was cut short by a kill is removed from it. Raises OSError."""
    with path.open("rb+") as file:
        whole = 0
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(whole)
                return
            whole += len(line)
            yield line
