"""Size of the write-ahead log (WAL), and the processes that prevent its reuse from the beginning.

The log begins again when all is written back and no connection reads an older state. An endless reader, such as an open
shell, lets the log grow until the disk is full.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from posd.base.text import shown

#: Size of a log that a reader holds open, in bytes. A checkpoint cuts the log back to 8 MiB (`storage.connection`).
LARGE_BYTES = 32 * 1024 * 1024
#: Bytes of the shared memory that reading connections lock (WAL_READ_LOCK of SQLite's wal.c).
READ_LOCKS = range(123, 128)
#: Columns of a held lock in /proc/locks (proc_locks(5)); a waiting lock has more.
COLUMNS = 8


class WalReader(NamedTuple):
    """Process that reads in the log."""

    pid: int
    name: str


def trouble(database: Path) -> tuple[str, str] | None:
    """Return the trouble with the log of a database and the cure, in words, or None."""
    file = database.with_name(f"{database.name}-wal")
    try:
        size = file.stat().st_size
    except OSError:
        return None
    if size <= LARGE_BYTES:
        return None
    words = f"what is not yet in the database file has grown to {size // 1024 // 1024} MiB (the WAL)"
    command = shlex.join(("sudo", "fuser", "-v", str(file)))
    found = ", ".join(f"{shown(reader.name)} (process {reader.pid})" for reader in readers(database))
    if found:
        return f"{words}: {found} reads the database without end", f"end that program: {command}"
    return f"{words}: something reads the database without end", f"find the program and end it: {command}"


def readers(database: Path) -> list[WalReader]:
    """Return the processes that read in the log, without posd itself, which holds the lock of the database.

    Return none if the system does not list its locks.
    """
    try:
        memory = database.with_name(f"{database.name}-shm").stat().st_ino
        own = database.with_name(f"{database.name}.lock").stat().st_ino
        rows = [line.split() for line in Path("/proc/locks").read_text("ascii").splitlines()]
    except OSError:
        return []
    # The device is left out: on some file systems it differs from that of `stat`.
    locks = [(row[1], int(row[4]), int(row[5].rpartition(":")[2]), row[6]) for row in rows if len(row) == COLUMNS]
    posd = {pid for kind, pid, inode, _ in locks if (kind, inode) == ("FLOCK", own)}
    pids = {
        pid
        for kind, pid, inode, first in locks
        if (kind, inode) == ("POSIX", memory) and int(first) in READ_LOCKS and pid > 0
    }
    return [WalReader(pid, _name(pid)) for pid in sorted(pids - posd)]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "a program"
