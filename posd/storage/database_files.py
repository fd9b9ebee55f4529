"""Files of a database: own names, replacement, changes in the folder, free disk space, size of the log."""

import asyncio
import ctypes
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from posd.base.crashpoints import crash_point
from posd.base.files import sync_folder
from posd.base.problems import RemedyStep
from posd.base.text import shown

#: Suffixes of the files that SQLite keeps beside a database.
COMPANIONS = ("-wal", "-shm", "-journal")
#: Patterns of posd's own names in the folder of a database; `{}` is the database file.
OWN_NAMES = (
    "{}",
    *(f"{{}}{suffix}" for suffix in COMPANIONS),
    *(f"{{}}.{word}*" for word in ("lock", "alive", "witness", "new", "restoring", "salvaged", "sent")),
    "{}.restored-*",
    "{}.replaced-*",
    ".{}.sent.part*",
    "callback.key*",
    "config.last*",
    "tls",
)


def is_own(path: Path, database: Path) -> bool:
    """Return whether a path is one of posd's own names beside its database, or below one of them."""
    place = Path(os.path.realpath(path.parent)) / path.name
    for at in (database, Path(os.path.realpath(database))):
        folder = Path(os.path.realpath(at.parent))
        if place.is_relative_to(folder):
            first = next(iter(place.relative_to(folder).parts), "")
            if any(fnmatchcase(first, pattern.format(escape(at.name))) for pattern in OWN_NAMES):
                return True
    return False


def closed_to_us(database: Path) -> list[Path]:
    """Return those of posd's files beside a database that this process cannot read and write, also in posd's folders
    there.

    Only files of another user are returned. The content of an unreadable folder is omitted.
    """
    own = [path for path in _inside(database.parent) if is_own(path, database)]
    own += [each for path in own if path.is_dir() for each in _inside(path)]
    kept = (path for path in own if path.exists() and path.stat().st_uid != os.geteuid())
    return [path for path in kept if not os.access(path, os.R_OK | os.W_OK)]


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if os.access(folder, os.R_OK | os.X_OK) else []


def remove_database(path: Path) -> None:
    """Remove an unused database with its companions. Raise OSError."""
    for suffix in ("", *COMPANIONS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


# Atomic replacement of a database by another one, even if the process is killed. A database consists of several files:
# its WAL has the newest commits. No system call renames them together. So one rename gives the complete, synced new
# file a name that says: this file has to be put in place. `finish` puts it in place before the database is opened. No
# file is deleted, because the old files are renamed.

#: posd.db.restored-STAMP is a file that is to be put in place. posd.db.replaced-STAMP is the earlier database.
_WAITING = ".restored-"
_REPLACED = ".replaced-"


def name_for_replaced(path: Path, at: datetime) -> Path:
    """Return an unused path to which the file at `path` can be renamed, such as posd.db.replaced-20261120T104203Z."""
    taken = {item.name for item in path.parent.iterdir()}
    stamp = f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while any(name.startswith(f"{path.name}{word}{stamp}") for word in (_WAITING, _REPLACED) for name in taken):
        number += 1
        stamp = f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{number}"
    return path.with_name(f"{path.name}{_REPLACED}{stamp}")


def commit(fresh: Path, path: Path, replaced: Path) -> None:
    """Replace `path` by a complete, synced database file. The old file is renamed to `replaced`.

    Raise OSError. After the first rename is on disk, `finish` can always complete the replacement.
    """
    fresh.replace(path.with_name(replaced.name.replace(_REPLACED, _WAITING)))
    sync_folder(path.parent)
    crash_point("replace.committed")
    finish(path)


def waiting(path: Path) -> list[Path]:
    """Return the files that a killed restore has not put in place, oldest first. Raise OSError."""
    if not path.parent.is_dir():
        return []
    return sorted(item for item in path.parent.iterdir() if item.name.startswith(path.name + _WAITING))


def finish(path: Path) -> None:
    """Complete a killed `commit`, if there is one. The caller holds the lock. Raise OSError."""
    for fresh in waiting(path):
        replaced = path.with_name(fresh.name.replace(_WAITING, _REPLACED))
        for suffix in (*COMPANIONS, ""):
            old = path.with_name(path.name + suffix)
            if old.exists():
                old.rename(replaced.with_name(replaced.name + suffix))
                crash_point("replace.old_aside")
        # The new file must never be beside the old WAL, even if the renames reach the disk in another order.
        sync_folder(path.parent)
        fresh.rename(path)
        crash_point("replace.in_place")
        with suppress(OSError):  # the file is in place, and the caller syncs the folder before it opens the file
            sync_folder(path.parent)


# Watch for files that appear, vanish or move in a folder.

#: IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF (linux/inotify.h). Writes to the files
#: are not reported.
_MASK = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
#: Bytes of reports read at a time. The content of reports is not used.
_READ_BYTES = 4096

#: Context manager that calls a function, on the running loop, when the folder may have changed.
FolderWatch = Callable[[Path, Callable[[], None]], AbstractContextManager[None]]


@contextmanager
def watch_folder(folder: Path, changed: Callable[[], None]) -> Iterator[None]:
    """Call `changed`, on the running loop, at each change of a folder (see `FolderWatch`).

    `changed` is never called if the kernel cannot report changes, because of its limits, or on another system.
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
    """Return a descriptor that becomes readable at a change, or None if the system provides none."""
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


# Room on the disk.


def disk_space(folder: Path) -> tuple[int, int] | None:
    """Return the free and the total bytes of a folder's file system, or None."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize) if found.f_blocks else None


def mount_point(folder: Path) -> Path:
    """Return the mount point of the file system of a folder."""
    return next(one for one in (folder, *folder.absolute().parents) if one.is_mount())


# Size of the write-ahead log (WAL), and the processes that prevent its reuse from the beginning.
#
# The log is reused from its beginning when all of it is written back and no connection reads an older state. If a
# reader never ends, such as an open SQLite shell, the log grows until the disk is full.

#: If the log is larger than this (bytes), some process never stops reading it. A checkpoint truncates the log to 8 MiB
#: (`storage.connection`).
LARGE_LOG_BYTES = 32 * 1024 * 1024
#: Bytes of the shared memory that reading connections lock (WAL_READ_LOCK of SQLite's wal.c).
READ_LOCKS = range(123, 128)
#: Number of columns of a held lock in /proc/locks (proc_locks(5)). A waiting lock has more columns.
LOCK_COLUMNS = 8


def log_trouble(database: Path) -> tuple[str, RemedyStep] | None:
    """Return the problem with the log of a database as text, and what to do. Return None without a problem."""
    file = database.with_name(f"{database.name}-wal")
    try:
        size = file.stat().st_size
    except OSError:
        return None
    if size <= LARGE_LOG_BYTES:
        return None
    words = f"the write-ahead log of the database has grown to {size // 1024 // 1024} MiB"
    command = shlex.join(("sudo", "fuser", "-v", str(file)))
    found = ", ".join(f"{shown(name)} (process {pid})" for pid, name in log_readers(database))
    if found:
        return f"{words}: {found} reads the database without end", RemedyStep("end that program", command)
    return f"{words}: a program reads the database without end", RemedyStep("find the program and end it", command)


def log_readers(database: Path) -> list[tuple[int, str]]:
    """Return (process id, name) of the processes that read the log, except posd.

    posd must hold the lock of the database. The result is empty if the system does not list locks.
    """
    try:
        memory = database.with_name(f"{database.name}-shm").stat().st_ino
        own = database.with_name(f"{database.name}.lock").stat().st_ino
        rows = [line.split() for line in Path("/proc/locks").read_text("ascii").splitlines()]
    except OSError:
        return []
    # The device is not compared, because on some file systems it differs from that of `stat`.
    locks = [(row[1], int(row[4]), int(row[5].rpartition(":")[2]), row[6]) for row in rows if len(row) == LOCK_COLUMNS]
    posd = {pid for kind, pid, inode, _ in locks if (kind, inode) == ("FLOCK", own)}
    pids = {
        pid
        for kind, pid, inode, first in locks
        if (kind, inode) == ("POSIX", memory) and int(first) in READ_LOCKS and pid > 0
    }
    return [(pid, _name(pid)) for pid in sorted(pids - posd)]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "a program"
