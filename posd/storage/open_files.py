"""Check that the path of an open database still names the same files; notice of changes in a folder (inotify(7))."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

#: Suffixes of the written files: the database, its log, and the shared index of the log.
WRITTEN = ("", "-wal", "-shm")
#: Tick of the kernel's clock for times of folders, in nanoseconds. Two changes within a tick can have the same time.
TICK = 20_000_000

#: Device and inode number of a file; for a folder also the time of its newest change of entries.
_File = tuple[int, int]
_Folder = tuple[int, int, int]


class OpenFiles:
    """Files of one open database, by device and inode number. SQLite itself does not detect a moved file.

    Writes to a file without a name are lost when posd stops. So posd acknowledges no write while a file has no name.
    """

    def __init__(self, path: Path) -> None:
        self._paths = tuple(f"{path}{suffix}" for suffix in WRITTEN)
        self._folder = str(path.parent)
        self._unchanged: _Folder | None = None  # the folder at the time when all files were last found in place
        self._opened: dict[str, _File] = {}

    def note(self) -> None:
        """Record the present files; called just after the database was opened."""
        for path in self._paths:
            if (found := _file(path)) is not None:
                self._opened.setdefault(path, found)

    def missing(self) -> str | None:
        """Return a sentence about the first file that is not in its place, or None."""
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
        """Return the same as `missing`; skip the files if the folder is unchanged. Called after each commit."""
        if self._unchanged is not None and _entries(self._folder) == self._unchanged:
            return None
        return self.missing()

    @property
    def log_alone(self) -> bool:
        """Whether the database file itself is in its place."""
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


# Notice of files that appear, vanish or move in a folder.

#: IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF (linux/inotify.h). Writes to the files
#: are not among them.
_MASK = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
#: Bytes read of the reports at a time; their content is not used.
_READ_BYTES = 4096

#: Context manager that calls a function, on the running loop, when the folder may have changed.
FolderWatch = Callable[[Path, Callable[[], None]], AbstractContextManager[None]]


@contextmanager
def watch_folder(folder: Path, changed: Callable[[], None]) -> Iterator[None]:
    """Call `changed`, on the running loop, at each change of a folder (see `FolderWatch`).

    Without reports from the kernel (its limits, another system) nothing is called.
    """
    descriptor = _inotify(folder)
    if descriptor is None:
        yield
        return

    def read() -> None:
        with suppress(OSError):  # BlockingIOError: no more reports
            while os.read(descriptor, _READ_BYTES):
                pass
        changed()

    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _inotify(folder: Path) -> int | None:
    """Return a descriptor that becomes readable at a change, or None if there is none."""
    library = ctypes.CDLL(None)
    try:
        descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        added = descriptor >= 0 and library.inotify_add_watch(descriptor, os.fsencode(folder), _MASK) >= 0
    except AttributeError:
        return None
    if added:
        return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    return None
