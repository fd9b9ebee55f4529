"""Online backup: a consistent copy of the database in one file, with the callback keys in it.

The copy is of one moment. It reads on a connection of its own, in WAL mode: the writer neither waits for it nor
disturbs it. It is written under another name, checked, synced, and then renamed: a file that had the name before stays
until the new one is whole. With the keys in it the file is a secret, mode 0600.
"""

import errno
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from posd import __version__
from posd.base.crashpoints import crash_point
from posd.base.ids import KEY_BYTES
from posd.base.json_types import Moment
from posd.base.times import iso
from posd.storage import files, marks
from posd.storage.connection import KEY_TABLE, connect_reader, is_damage, schema_version
from posd.storage.errors import StorageUnavailable, StoreError
from posd.storage.writer import Unit

#: Pages of 4 KiB that are copied between two looks at whether to stop.
PAGES_AT_A_TIME = 1024
#: SQLite's operations between two looks at whether to stop, while the copy is checked: some milliseconds.
OPERATIONS_AT_A_TIME = 100_000

#: What the caller can cure by another path, as the system's error.
_BAD_PATH = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
_ALLOW = (
    "posd itself must be able to write there: its user needs the right to, and under systemd the unit a line "
    "ReadWritePaths= for the directory (ProtectSystem=strict)"
)


class BadTarget(Exception):
    """A backup cannot be written to that path; the message says why and what to do."""


class NotABackup(StoreError):
    """A file cannot be restored from; the message says why and what to do."""


class Stopped(Exception):
    """It was told to stop; nothing is left behind."""


class Written(msgspec.Struct, frozen=True):
    """A backup that is complete and on disk."""

    path: Annotated[str, Meta(description="where it is")]
    bytes: Annotated[int, Meta(description="its size")]
    transactions: Annotated[int, Meta(description="how many payments are in it")]
    at: Annotated[Moment, Meta(description="of when it is")]


class Contents(msgspec.Struct, frozen=True):
    """What a backup holds; `made_at` is None for a database that no backup has made. Keys are newest first."""

    schema: int
    made_at: str | None
    transactions: int
    newest: str | None
    keys: tuple[bytes, ...]


def write(database: Path, target: Path, keys: Sequence[bytes], at: str, stop: Callable[[], bool]) -> Written:
    """Copy a database that is in use to `target`; `stop` is asked now and then.

    Raise BadTarget, StorageUnavailable (no room, or the database is damaged) or Stopped; then nothing is left behind,
    and what was at `target` is still there.
    """
    check_target(target, database)
    part = unfinished(target)
    try:
        files.remove_database(part)  # of a backup that was killed
        files.create_private(part)
        try:
            _copy(database, part, stop)
            _add(part, keys, at)
            crash_point("backup.copied")
            transactions = check(part, stop)
            files.sync(part)
            crash_point("backup.checked")
            size = part.stat().st_size
            part.replace(target)
            files.sync(target.parent)
            crash_point("backup.renamed")
        finally:
            files.remove_database(part)
    except OSError as error:
        if error.errno in _BAD_PATH:
            raise BadTarget(f"cannot be written ({error.strerror}); {_ALLOW}") from error
        raise StorageUnavailable(f"the backup cannot be written ({error.strerror}); free the disk") from error
    except sqlite3.Error as error:
        if stop():
            raise Stopped from error
        raise StorageUnavailable(_trouble(error)) from error
    return Written(str(target), size, transactions, at)


def unfinished(target: Path) -> Path:
    """Return the file that `write` writes to until the backup is complete."""
    return target.with_name(f".{target.name}.part")


def check_target(target: Path, database: Path) -> None:
    """Raise BadTarget where a backup may not, or cannot, be put there."""
    if not target.is_absolute() or "\0" in str(target):
        raise BadTarget("must be an absolute path, such as /var/backups/posd.db")
    try:
        if not target.parent.is_dir():
            raise BadTarget(f"is in a directory that posd does not see ({target.parent}); make it first. {_ALLOW}")
        if not target.exists():
            return
        if database.exists() and target.samefile(database):
            raise BadTarget("is the database itself; name another file, best on another disk")
        if target.is_dir():
            raise BadTarget("is a directory; name a file in it")
        read(target)
    except NotABackup as error:
        raise BadTarget("is there, and no backup of posd; name another file, or remove that one") from error
    except OSError as error:
        raise BadTarget(f"cannot be used ({error}); {_ALLOW}") from error


def _copy(database: Path, part: Path, stop: Callable[[], bool]) -> None:
    def look(_status: int, _remaining: int, _total: int) -> None:
        if stop():
            raise Stopped

    with closing(connect_reader(database)) as source, closing(_connect_copy(part)) as copy:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it reads one moment
        source.backup(copy, pages=PAGES_AT_A_TIME, progress=look)


def _add(part: Path, keys: Sequence[bytes], at: str) -> None:
    """Add the keys, and make it a file that stands alone, without WAL."""
    with closing(_connect_copy(part)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("BEGIN")
        copy.execute(f"CREATE TABLE {KEY_TABLE} (place INTEGER PRIMARY KEY, key BLOB NOT NULL)")
        copy.executemany(f"INSERT INTO {KEY_TABLE} (place, key) VALUES (?, ?)", enumerate(keys))  # noqa: S608 - a constant
        marks.add(copy, at, marks.BACKUP, {"version": __version__})
        copy.execute("COMMIT")


def _connect_copy(part: Path) -> sqlite3.Connection:
    """Open a file that is in use nowhere else: it is synced as a whole in the end, and made anew after a crash."""
    db = sqlite3.connect(part, isolation_level=None)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("PRAGMA synchronous = OFF")
    return db


#: Whether the schema has the view of events that are lost; before it, an index and a foreign key told.
_KNOWS_LOST = "SELECT 1 FROM sqlite_master WHERE name = 'lost_events'"


def check(path: Path, stop: Callable[[], bool] = lambda: False) -> int:
    """Read a database from end to end and return how many transactions it has. Raise sqlite3.Error."""
    with closing(connect_reader(path)) as db:
        db.set_progress_handler(stop, OPERATIONS_AT_A_TIME)
        fault = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if fault != "ok":
            raise sqlite3.DatabaseError(fault)
        if db.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise sqlite3.DatabaseError("a row refers to a transaction that is not there")
        if db.execute(_KNOWS_LOST).fetchone() and db.execute("SELECT 1 FROM lost_events").fetchone() is not None:
            raise sqlite3.DatabaseError("an event is not found by its transaction")
        transactions: int = db.execute("SELECT count(*) FROM transactions").fetchone()[0]
        return transactions


def _trouble(error: sqlite3.Error) -> str:
    if not hasattr(error, "sqlite_errorcode") or is_damage(error):  # without a code: what `check` has found
        return (
            f"the copy is not sound ({error}): the database is damaged; keep the backups that you have, and see "
            "what is wrong with it: posd verify"
        )
    return f"the backup cannot be written ({error}); free the disk"


def read(path: Path) -> Contents:
    """Return what a backup (or any database of posd) holds. Raise NotABackup; nothing is changed."""
    if not path.is_file():
        raise NotABackup(f"there is no file {path}; name the backup to restore")
    try:
        with closing(connect_reader(path)) as db:
            return _contents(db, path)
    except sqlite3.Error as error:
        raise NotABackup(
            f"{path} cannot be used ({error}): it is damaged, or no backup of posd; take another"
        ) from error


def _contents(db: sqlite3.Connection, path: Path) -> Contents:
    schema: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not schema or "transactions" not in tables:
        raise NotABackup(f"{path} is no backup of posd; take another file")
    if schema > schema_version():
        raise NotABackup(
            f"{path} has schema {schema}, this posd knows schemas up to {schema_version()}: a newer posd has made it; "
            "install that version, and restore with it"
        )
    transactions, newest = db.execute("SELECT count(*), max(created_at) FROM transactions").fetchone()
    keys: tuple[bytes, ...] = ()
    if KEY_TABLE in tables:
        keys = tuple(row[0] for row in db.execute(f"SELECT key FROM {KEY_TABLE} ORDER BY place"))  # noqa: S608 - a constant
    if any(not isinstance(key, bytes) or len(key) != KEY_BYTES for key in keys):
        raise NotABackup(f"{path} is damaged: its callback key cannot be read; take another backup")
    made_at = marks.newest(db, marks.BACKUP) if KEY_TABLE in tables else None
    return Contents(schema, made_at, transactions, newest, keys)


# Backups under names with their time in one directory, of which the newest are kept.
#
# Removed is only what bears such a name, can be read as a backup of posd, and is older than the newest that are
# kept; and nothing before the new one is whole. What bears such a name and cannot be read counts for nothing, and
# stays. The unfinished file of a killed backup is removed first: a directory holds the backups of one posd.

NAME = re.compile(r"posd-\d{8}T\d{6}Z\.db", re.ASCII)
#: The same for `glob`.
NAMES = f"posd-{'[0-9]' * 8}T{'[0-9]' * 6}Z.db"
#: How many are kept by default: two weeks of one a night.
KEEP = 14
#: More would be looked through at each backup.
MOST_KEPT = 10_000


class Rotated(Written, frozen=True):
    """A backup that was written, and what became of those before it: names of files in its directory."""

    kept: Annotated[int, Meta(description="how many backups are in the directory now")]
    removed: Annotated[list[str], Meta(description="names of the older ones that were removed")]
    unusable: Annotated[list[str], Meta(description="names of what looks like a backup there, and cannot be used")]


def write_into(
    database: Path, directory: Path, keep: int, keys: Sequence[bytes], at: datetime, stop: Callable[[], bool]
) -> Rotated:
    """Write a backup into a directory, and remove the oldest there. Raise as `backup.write` does, and then change
    nothing.
    """
    if not directory.is_absolute() or "\0" in str(directory):
        raise BadTarget("must be an absolute path of a directory, such as /var/backups/posd")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadTarget(f"cannot be made ({error.strerror}); make it, writable for the user of posd") from error
    _remove_unfinished(directory)
    target = directory / f"posd-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}.db"
    written = write(database, target, keys, iso(at), stop)
    removed, unusable, kept = _rotate(directory, target, keep)
    return Rotated(**msgspec.structs.asdict(written), kept=kept, removed=removed, unusable=unusable)


def _remove_unfinished(directory: Path) -> None:
    """Remove the unfinished files of killed backups. Errors are ignored: the next backup tries again."""
    with suppress(OSError):
        for path in sorted(directory.glob(unfinished(Path(NAMES)).name)):
            files.remove_database(path)


def _rotate(directory: Path, newest: Path, keep: int) -> tuple[list[str], list[str], int]:
    """Remove the oldest good ones beyond `keep`; return what was removed, what cannot be used, and how many are left.

    What cannot be removed is left to the next time: the backup is there.
    """
    good, unusable, removed = [newest], [], []
    for path in sorted((item for item in directory.iterdir() if NAME.fullmatch(item.name)), reverse=True):
        if path == newest:
            continue
        try:
            read(path)
        except (NotABackup, OSError):
            unusable.append(path.name)
        else:
            good.append(path)
    left = len(good)
    for path in reversed(good[keep:]):
        try:
            path.unlink()
        except OSError:
            continue
        crash_point("backup.rotated")
        removed.append(path.name)
        left -= 1
    if removed:
        files.sync(directory)
    return removed, unusable, left


def write_unnamed(database: Path, keys: Sequence[bytes], at: str, stop: Callable[[], bool]) -> tuple[Written, int]:
    """Write a backup beside the database; return it and a descriptor of its file, which has no name any more.

    So nothing is left of it when that is closed, also after a kill. Raise as `backup.write` does.
    """
    path = database.with_name(f"{database.name}.sent")
    path.unlink(missing_ok=True)  # of a daemon that was killed just here
    written = write(database, path, keys, at, stop)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    path.unlink()
    return written, descriptor


# The size of a database, and giving free space back, for what removes old rows.


def free_pages(db: sqlite3.Connection) -> int:
    """Return how many pages are free."""
    count: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    return count


def size(db: sqlite3.Connection) -> int:
    """Return how large the database is, in bytes, without its log."""
    pages, page = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * page)


def give_back(unit: Unit, pages: int) -> int:
    """Cut so many free pages off; return how many are left."""
    unit.moved_pages = True
    unit.db.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
    return free_pages(unit.db)
