"""Files beside the database: made private, put in place at once or not at all, and synced."""

import os
from pathlib import Path

#: What SQLite keeps beside a database file, by the suffix of its name.
COMPANIONS = ("-wal", "-shm", "-journal")


def create_private(path: Path) -> None:
    """Make an empty file with mode 0600. Raise FileExistsError, or another OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def write_private(path: Path, content: bytes) -> None:
    """Put a file with mode 0600 in place of whatever has that name, whole or not at all. Raise OSError."""
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


def keep_owner(path: Path) -> None:
    """Give a file that root has made to the owner of its directory: the daemon runs as that user. Raise OSError."""
    if os.geteuid() == 0:
        directory = path.parent.stat()
        os.chown(path, directory.st_uid, directory.st_gid)


def remove_database(path: Path) -> None:
    """Remove a database that is not used any more, with what lies beside it. Raise OSError."""
    for suffix in ("", *COMPANIONS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
