"""Files beside the database: made private, put in place at once or not at all, and synced."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from posd.base.crashpoints import crash_point

#: What SQLite keeps beside a database file, by the suffix of its name.
COMPANIONS = ("-wal", "-shm", "-journal")
#: So many bytes of a file are written again at a time.
CHUNK_BYTES = 1 << 18
#: How long what is free on the disk is taken as known, in seconds: a burst asks once.
LOOK_SECONDS = 1.0


def create_private(path: Path) -> None:
    """Make an empty file with mode 0600. Raise FileExistsError, or another OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def write_private(path: Path, content: bytes) -> None:
    """Put a file with mode 0600 in place of a file of that name, whole or not at all. Raise OSError."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    create_private(fresh)
    fresh.write_bytes(content)
    keep_owner(fresh)
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on disk. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_again(path: Path) -> int:
    """Write a file's bytes over themselves and wait until they are on disk; return how many. Raise OSError.

    A sync after one that failed may report success although nothing came to disk: what failed counts as written. What
    is written anew is not, so that this sync means what it says.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        done = 0
        while content := os.pread(descriptor, CHUNK_BYTES, done):  # leaves the place of the next write as it is
            done += os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return done


def keep_owner(path: Path) -> None:
    """Give a file that root has made to the owner of its directory: the daemon runs as that user. Raise OSError."""
    if os.geteuid() == 0:
        directory = path.parent.stat()
        os.chown(path, directory.st_uid, directory.st_gid)


def remove_database(path: Path) -> None:
    """Remove a database that is not used any more, with what lies beside it. Raise OSError."""
    for suffix in ("", *COMPANIONS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


# Putting another database in place of the one that is there, at once or not at all, also through kills.
#
# A database is several files (its WAL holds what was committed last), and no system call renames them together. So
# the one rename that counts gives the new file, complete and synced, a name that says what is to be done; `finish`
# does it, and is called before the database is opened. Nothing is ever deleted: the old files get another name.

#: posd.db.restored-STAMP waits to be put in place; posd.db.replaced-STAMP is what was there before.
_WAITING = ".restored-"
_REPLACED = ".replaced-"


def name_for_replaced(path: Path, at: datetime) -> Path:
    """Return a name for what is at `path` now, such as posd.db.replaced-20261120T104203Z, that nothing has yet."""
    taken = {item.name for item in path.parent.iterdir()}
    stamp = f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while any(name.startswith(f"{path.name}{word}{stamp}") for word in (_WAITING, _REPLACED) for name in taken):
        number += 1
        stamp = f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{number}"
    return path.with_name(f"{path.name}{_REPLACED}{stamp}")


def commit(fresh: Path, path: Path, replaced: Path) -> None:
    """Put a complete, synced database file in place of `path`, which is called `replaced` from then on.

    Raise OSError. It is done once the first rename is on disk: `finish` can always go on from there.
    """
    fresh.replace(path.with_name(replaced.name.replace(_REPLACED, _WAITING)))
    sync(path.parent)
    crash_point("replace.committed")
    finish(path)


def waiting(path: Path) -> list[Path]:
    """Return what a restore that was killed left to be put in place, oldest first. Raise OSError."""
    if not path.parent.is_dir():
        return []
    return sorted(item for item in path.parent.iterdir() if item.name.startswith(path.name + _WAITING))


def finish(path: Path) -> None:
    """Go on where a `commit` was killed, if one was. The caller holds the lock. Raise OSError."""
    for fresh in waiting(path):
        replaced = path.with_name(fresh.name.replace(_WAITING, _REPLACED))
        for suffix in (*COMPANIONS, ""):
            old = path.with_name(path.name + suffix)
            if old.exists():
                old.rename(replaced.with_name(replaced.name + suffix))
                crash_point("replace.old_aside")
        sync(
            path.parent
        )  # the new file must never stand beside the old one's WAL, in any order in which they come on disk
        fresh.rename(path)
        crash_point("replace.in_place")
        sync(path.parent)


class FreeSpace:
    """How much of a file system is free. `clock`: monotonic seconds."""

    def __init__(self, directory: Path, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._looked_at = float("-inf")
        self._free, self._size = 0, 0

    @property
    def mounted_at(self) -> Path:
        """Where the file system is mounted."""
        return next(one for one in (self._directory, *self._directory.absolute().parents) if one.is_mount())

    def look(self, enough: int = 0) -> tuple[int, int] | None:
        """Return the free bytes and the size of the file system, None where it does not say.

        Where more than `enough` was free a moment ago, it is not asked again.
        """
        now = self._clock()
        if now - self._looked_at >= LOOK_SECONDS or self._free <= enough:
            self._looked_at = now
            try:
                found = os.statvfs(self._directory)
            except OSError:
                self._size = 0
            else:
                self._free, self._size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        return (self._free, self._size) if self._size else None
