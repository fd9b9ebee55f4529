"""Files of JSON lines that survive the process, and the error for unusable settings and files.

A line is passed to the operating system at once, which survives any end of this process. It is not synced: a simulator
need not survive a power cut of its host.
"""

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from posd.simulator import wire

_T = TypeVar("_T")


class SettingsError(ValueError):
    """Invalid setting; the message has the fault, the reason and the cure."""


class Journal:
    """One such file, mode 0600; each line is a change."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raise OSError."""
        path.touch(mode=0o600)
        self._path = path
        self._file: BinaryIO = path.open("ab")

    def lock(self) -> None:
        """Lock the file against other processes. Raise BlockingIOError if one has locked it."""
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def replay(self, apply: Callable[[bytes], object]) -> None:
        """Call `apply` with each line, the oldest first. Raise as `read`."""
        for _ in self.read(apply):
            pass

    def read(self, read_line: Callable[[bytes], _T]) -> Iterator[_T]:
        """Yield the result of `read_line` for each line, the oldest first.

        Raise SettingsError, and close the file, if `read_line` raises ValueError, LookupError or TypeError.
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
        """Append a line; it is in the file on return."""
        self._file.write(wire.encode(change) + b"\n")
        self._file.flush()

    def empty(self) -> None:
        """Remove every line."""
        self._file.truncate(0)

    def close(self) -> None:
        """Close the file; its lines stay."""
        self._file.close()


def take_up(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; remove a last one that a kill cut short. Raise OSError."""
    with path.open("rb+") as file:
        whole = 0
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(whole)
                return
            whole += len(line)
            yield line
