"""Opening the database file: who may, which pragmas, which schema."""

import os
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from posd import locks
from posd.store.errors import StoreError

#: How long a statement waits for a lock that another process holds, in milliseconds; then callers hear 503.
BUSY_TIMEOUT_MS = 2000

#: The WAL file is cut back to this size after a checkpoint, in bytes, so that one burst does not keep the disk.
JOURNAL_SIZE_LIMIT = 4 * 1024 * 1024


def lock(path: Path) -> int:
    """Take the lock that one daemon holds for as long as it lives; return its file descriptor.

    Raise StoreError where another daemon has it, or where the directory cannot be written.
    """
    try:
        return locks.take(path)
    except locks.Held:
        raise StoreError(
            f"another posd is running on this database ({path} is locked); stop it first, "
            "or give this one its own database.path"
        ) from None
    except OSError as error:
        raise StoreError(
            f"cannot open {path} ({error.strerror}); the directory must exist and be writable for the user of posd"
        ) from error


def create_private(path: Path) -> None:
    """Make sure that the database file exists with mode 0600, before SQLite would make it with the umask's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    os.close(descriptor)


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the writing connection: autocommit off the library, WAL, every COMMIT synced."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        f"journal_size_limit = {JOURNAL_SIZE_LIMIT}",
        "trusted_schema = OFF",
    ):
        db.execute(f"PRAGMA {pragma}").close()
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").close()
    db.execute("PRAGMA query_only = ON").close()
    return db


def migrations() -> Iterator[tuple[int, str]]:
    """Yield the numbered migrations, (version, SQL), ascending."""
    files = sorted(entry for entry in resources.files("posd.store.migrations").iterdir() if entry.name.endswith(".sql"))  # type: ignore[type-var]
    for entry in files:
        yield int(entry.name.split("_", 1)[0]), entry.read_text("utf-8")


def schema_version() -> int:
    """Return the newest schema that this posd knows."""
    return max(version for version, _ in migrations())


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the database to the newest schema, each step in a transaction of its own.

    Raise StoreError where the file is newer than this posd.
    """
    current: int = db.execute("PRAGMA user_version").fetchone()[0]
    newest = schema_version()
    if current > newest:
        raise StoreError(
            f"{path} has schema {current}, this posd knows schemas up to {newest}: a newer posd has used it; "
            "install that version again, or restore a backup from before the upgrade"
        )
    for version, script in migrations():
        if version <= current:
            continue
        try:
            db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {version};\nCOMMIT;")
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def open_database(path: Path) -> sqlite3.Connection:
    """Open and migrate the database. Raise StoreError, in words, where that cannot be done; nothing is deleted."""
    try:
        create_private(path)
        db = connect_writer(path)
    except OSError as error:
        raise StoreError(f"cannot open the database {path} ({error.strerror}); it must be writable for posd") from error
    except sqlite3.Error as error:
        raise _unusable(path, error) from error
    try:
        migrate(db, path)
    except sqlite3.Error as error:
        db.close()
        raise _unusable(path, error) from error
    except StoreError:
        db.close()
        raise
    return db


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    return StoreError(
        f"the database {path} cannot be used ({error}); nothing was changed. Free the disk if it is full; if the file "
        "is damaged, keep it, put a backup in its place and start again"
    )
