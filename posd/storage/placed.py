"""Whether the files of a database that is open are still those that its path names."""

import os
from pathlib import Path

#: What is written: the database, its log, and the index of the log, through which processes share it.
WRITTEN = ("", "-wal", "-shm")
#: So many of them have what a commit has written, and are looked at after each. All are looked at before a start, and
#: from time to time: each look takes time on the way of a payment. Without its index a log is read anew.
HOLDING = 2


class Placed:
    """The files of one open database, by device and inode number. SQLite itself does not notice where one is moved.

    What is written to a file without a name is lost when posd stops. So nothing is acknowledged while it has none.
    """

    def __init__(self, path: Path) -> None:
        self._paths = tuple(f"{path}{suffix}" for suffix in WRITTEN)
        self._opened: dict[str, tuple[int, int]] = {}

    def note(self) -> None:
        """Remember which files are there; called just after the database was opened."""
        for path in self._paths:
            if (found := _file(path)) is not None:
                self._opened.setdefault(path, found)

    def missing(self, count: int = len(WRITTEN)) -> str | None:
        """Return words for the first file that is not where it was opened, None where all are; of the first `count`."""
        for path in self._paths[:count]:
            opened = self._opened.get(path)
            if opened is not None and (found := _file(path)) != opened:
                done = "removed or moved away" if found is None else "replaced by another file"
                return f"{path} was {done} while posd uses it"
        return None

    @property
    def log_alone(self) -> bool:
        """Whether the database file itself is where it was opened."""
        return _file(self._paths[0]) == self._opened.get(self._paths[0])


def _file(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - half as long as that of a Path, before each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino
