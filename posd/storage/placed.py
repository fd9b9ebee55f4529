"""Whether the files of a database that is open are still those that its path names."""

import os
import time
from pathlib import Path

#: What is written: the database, its log, and the index of the log, through which processes share it.
WRITTEN = ("", "-wal", "-shm")
#: Times of folders are no finer than the ticks of the kernel's clock: what happened just now may happen again unseen.
#: Nanoseconds.
TICK = 20_000_000

#: A file by device and inode number; of a folder also when its entries last changed.
_File = tuple[int, int]
_Folder = tuple[int, int, int]


class Placed:
    """The files of one open database, by device and inode number. SQLite itself does not notice where one is moved.

    What is written to a file without a name is lost when posd stops. So nothing is acknowledged while it has none.
    """

    def __init__(self, path: Path) -> None:
        self._paths = tuple(f"{path}{suffix}" for suffix in WRITTEN)
        self._folder = str(path.parent)
        self._unchanged: _Folder | None = None  # the folder in which all were where they were opened
        self._opened: dict[str, _File] = {}

    def note(self) -> None:
        """Remember which files are there; called just after the database was opened."""
        for path in self._paths:
            if (found := _file(path)) is not None:
                self._opened.setdefault(path, found)

    def missing(self) -> str | None:
        """Return words for the first file that is not where it was opened, None where all are."""
        folder = _entries(self._folder)
        self._unchanged = None
        for path in self._paths:
            opened = self._opened.get(path)
            if opened is not None and (found := _file(path)) != opened:
                done = "removed or moved away" if found is None else "replaced by another file"
                return f"{path} was {done} while posd uses it"
        if folder is not None and time.time_ns() - folder[2] > TICK:
            self._unchanged = folder
        return None

    def missing_now(self) -> str | None:
        """Return the same, for after each commit: where nothing has changed in the folder, no file is looked at."""
        if self._unchanged is not None and _entries(self._folder) == self._unchanged:
            return None
        return self.missing()

    @property
    def log_alone(self) -> bool:
        """Whether the database file itself is where it was opened."""
        return _file(self._paths[0]) == self._opened.get(self._paths[0])


def _file(path: str) -> _File | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - half as long as that of a Path, after each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _entries(folder: str) -> _Folder | None:
    try:
        found = os.stat(folder)  # noqa: PTH116 - as above
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
