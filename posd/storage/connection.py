"""Opening of the database file: its lock, its pragmas, its schema, and SQLite's tests of the whole file."""

import os
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from posd.base import files
from posd.base.canonical_json import index_words
from posd.base.clocks import monotonic, wall
from posd.base.json_types import encode
from posd.base.text import composed
from posd.storage import StoreError, UnusableFile, database_files

#: A statement waits this long for a lock of another process, in milliseconds. Then the callers receive 503.
BUSY_TIMEOUT_MS = 2000

log = structlog.get_logger("posd.store")

#: Table of the callback keys in a backup. A database in use does not have this table.
KEY_TABLE = "backup_key"

#: Numbered SQL files, append-only. Each is one step of `user_version`. The files are found by path, because
#: `importlib.resources` would also load the module for ZIP archives, which takes half a megabyte.
_MIGRATIONS = Path(__file__).with_name("migrations")

#: Seconds between two log lines about a running upgrade.
TELL_SECONDS = 10.0
#: Number of SQLite operations between two checks of the time or of a stop. These operations take some milliseconds.
OPERATIONS_AT_A_TIME = 100_000

#: Command for a damaged or lost database.
RESTORE = "posd restore BACKUP (without one: posd restore --without-backup)"
NEXT_STEP = (
    f"See what is wrong: posd verify. To put a backup in its place: {RESTORE}; the readable part of the damaged "
    "file is taken over"
)

#: Page size of a new database, in bytes. A commit writes whole pages. An event changes some hundred bytes in each of
#: four or five pages, so small pages wear out flash storage least. With smaller pages, rows need more than one page,
#: and a file system writes blocks of 4 KiB anyway.
PAGE_BYTES = 2048
#: Number of pages in the WAL above which SQLite itself makes a checkpoint within a COMMIT. Normally `storage.writer`
#: makes a checkpoint earlier. But `storage.writer` counts functions, and some functions write many pages.
LOG_PAGES = 4000
#: Page cache of the writing connection, in KiB.
WRITER_CACHE_KIB = 2000
#: Page cache of a reading connection, in KiB. A reading connection reads few pages, and the system caches the file.
READER_CACHE_KIB = 256
#: Maximum size of the WAL file after a checkpoint, in bytes, so that the WAL of a burst does not stay large.
JOURNAL_SIZE_LIMIT = 8 * 1024 * 1024


def lock(path: Path) -> int:
    """Lock the database for the life of this process. Return the file descriptor.

    Raise StoreError if another daemon holds the lock, or if the directory is not writable.
    """
    try:
        return files.lock(path)
    except BlockingIOError:
        raise StoreError(
            f"another posd is running on this database ({path} is locked); stop it first, "
            "or give this one its own database.path"
        ) from None
    except OSError as error:
        raise StoreError(
            f"cannot open {path} ({error.strerror}); the directory must exist and be writable for the user of posd"
        ) from error


def lock_file(path: Path) -> int:
    """Lock the database file itself. Return the descriptor, to be closed after SQLite has closed the file.

    Raise StoreError if another daemon uses the file by another path, or may use it.
    """
    try:
        descriptor = files.lock_inode(path)
    except BlockingIOError:
        raise StoreError(
            f"another posd is running on the file of this database ({path}), by another path: a link, or a second "
            "mount; stop it first, or give this one its own database.path"
        ) from None
    except OSError as error:
        raise StoreError(f"cannot open the database {path} ({error.strerror}); it must be writable for posd") from error
    if (names := os.fstat(descriptor).st_nlink) > 1:
        os.close(descriptor)
        raise StoreError(
            f"the database {path} has {names} names (hard links), and changes that another program makes by another "
            f"name would be lost. Find them (find / -xdev -samefile {shlex.quote(str(path))}), remove all but this one"
        )
    return descriptor


def open_file(file: Path | str, *, uri: bool = False, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a database file.

    Transactions begin and end only by SQL statements, and never implicitly by the sqlite3 module.
    """
    control: dict[str, Any] = {}
    if sys.version_info >= (3, 12):  # with False, the future default, a transaction is always open
        control["autocommit"] = sqlite3.LEGACY_TRANSACTION_CONTROL
    db: sqlite3.Connection = sqlite3.connect(
        file,
        timeout=BUSY_TIMEOUT_MS / 1000,
        detect_types=0,
        isolation_level=None,
        check_same_thread=check_same_thread,
        uri=uri,
        **control,
    )
    return db


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the writing connection: no implicit transactions, WAL, every COMMIT synced."""
    db = open_file(path, check_same_thread=False)
    try:
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",  # overwrite removed rows with zeros
            f"wal_autocheckpoint = {LOG_PAGES}",
            f"journal_size_limit = {JOURNAL_SIZE_LIMIT}",
            "trusted_schema = OFF",
            "mmap_size = 0",  # an I/O error in a memory-mapped file would end the process by a signal
            f"cache_size = -{WRITER_CACHE_KIB}",
            "locking_mode = NORMAL",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()  # SQLite reports an error only at the end of the rows
    except BaseException:
        db.close()
        raise
    return db


def connect_reader(path: Path, mode: str = "mode=ro") -> sqlite3.Connection:
    """Open a read-only connection. Raise sqlite3.Error, for example for a damaged schema.

    `mode`: parameters of SQLite's URI.
    """
    db = open_file(f"{path.absolute().as_uri()}?{mode}", uri=True, check_same_thread=False)
    db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").close()
    db.execute("PRAGMA query_only = ON").close()
    db.execute("PRAGMA mmap_size = 0").close()
    try:
        db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}").close()  # the first statement that reads the schema
    except UnicodeDecodeError as error:  # SQLite's message contains the damaged bytes
        db.close()
        raise sqlite3.DatabaseError("malformed database schema") from error
    except sqlite3.Error:
        db.close()
        raise
    return db


def connect_again(path: Path, *, at_start: bool = False) -> sqlite3.Connection:
    """Open the writing connection after a commit with an uncertain outcome, in this process or an earlier one.

    Raise OSError or sqlite3.Error if the file still cannot be trusted. The caller keeps another connection open:
    closing the last one would write an incomplete log back into the database file.

    Rows that look committed may not be on disk, if an earlier process was killed before its sync, or its sync failed.
    So the log is written again before any row is reported, and before anything is appended. A checkpoint would do the
    same, but a reader of an older state can block it.

    Then an empty change is committed, to overwrite a commit that was reported as failed. Otherwise a start after a kill
    would restore that commit. With `at_start` there is no such commit, and on a full disk another commit would fail.
    """
    db = connect_writer(path)
    try:
        db.execute("BEGIN IMMEDIATE").close()  # prevent other processes from writing or truncating the log
        if files.rewrite_and_fsync(path.with_name(f"{path.name}-wal")) and not at_start:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            db.execute(f"PRAGMA user_version = {version}").close()
        db.execute("COMMIT").close()
        files.sync_folder(path.parent)  # sync the name of the log, because SQLite ignores a failure of its own sync
    except BaseException:
        db.close()
        raise
    return db


def migrations() -> Iterator[tuple[int, str]]:
    """Yield the numbered migrations, (version, SQL), ascending."""
    for script in sorted(_MIGRATIONS.glob("*.sql")):
        yield int(script.name.split("_", 1)[0]), script.read_text("utf-8")


def schema_version() -> int:
    """Return the newest schema version that this posd knows."""
    return max(version for version, _ in migrations())


def migrate(db: sqlite3.Connection, wanted: int | None = None) -> None:
    """Migrate the database to a schema (default: the newest), each step in its own transaction."""
    current: int = db.execute("PRAGMA user_version").fetchone()[0]
    newest = schema_version()
    db.create_function("index_words", 1, lambda text: encode(index_words(text)), deterministic=True)
    db.create_function("composed", 1, composed, deterministic=True)
    for version, script in migrations():
        if not current < version <= (wanted or newest):
            continue
        try:
            db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {version};\nCOMMIT;")
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def make_database(path: Path, now: Callable[[], datetime] = wall) -> None:
    """Create a missing database, and finish an interrupted replacement. The caller holds the lock.

    Raise StoreError.
    """
    with _as_store_error(path):
        database_files.finish(path)
        if not path.exists():
            _make(path, now())
        path.chmod(0o600)


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    """Translate OSError and sqlite3.Error into StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot open the database {path} ({error.strerror}); it must be writable for posd") from error
    except sqlite3.Error as error:
        raise unusable(path, error) from error


def open_database(path: Path, now: Callable[[], datetime] = wall) -> sqlite3.Connection:
    """Open and migrate the database. Create it if it is missing. The caller holds the locks.

    Raise StoreError. No file is deleted.
    """
    make_database(path, now)
    with _as_store_error(path), closing(connect_reader(path)) as reader:
        _examine(path, reader)
        # If `connect_again` fails, the open reader prevents SQLite from writing the log back at the close.
        db = connect_again(path, at_start=True)
    try:
        with _as_store_error(path):
            with _log_progress(db, path):
                migrate(db)
            if path.stat().st_size <= SMALL_BYTES:
                with suppress(sqlite3.Error):  # on a nearly full disk the database works without this step
                    make_shrinkable(db)
    except StoreError:
        db.close()
        raise
    return db


@contextmanager
def _log_progress(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Log the progress of a long migration."""
    began = told = monotonic()

    def look() -> int:
        nonlocal told
        now = monotonic()
        if now - told >= TELL_SECONDS:
            told = now
            log.info("store.upgrading", database=str(path), seconds=round(now - began))
        return 0

    db.set_progress_handler(look, OPERATIONS_AT_A_TIME)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)


def refuse_lost(path: Path, *traces: Path) -> None:
    """Raise StoreError if the database existed before and is missing. A new database would contain no payment.

    `traces`: files that posd creates beside a database, and that a new machine does not have.
    """
    if path.exists() or database_files.waiting(path):
        return
    left = [item.name for item in (path.with_name(f"{path.name}-wal"), *traces) if item.exists()]
    if left:
        raise StoreError(
            f"the database {path} is missing, but {' and '.join(left)} is beside it: it was lost or moved, and a "
            f"new one would not know what was started. Put it back, or restore a backup: {RESTORE}"
        )


def _make(path: Path, at: datetime) -> None:
    """Create an empty but complete database, so that a file without content is always a damaged database."""
    fresh = path.with_name(f"{path.name}.new")
    database_files.remove_database(fresh)
    files.create_private(fresh)
    with closing(open_file(fresh)) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}").close()
        db.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()  # see `make_shrinkable`
        # Otherwise the first writer would set WAL by a rollback journal, and a power loss could restore that journal.
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("PRAGMA synchronous = OFF").close()  # the whole file is synced below, before it gets its name
        migrate(db)
    files.sync(fresh)
    database_files.commit(fresh, path, database_files.name_for_replaced(path, at))


def identify(db: sqlite3.Connection) -> tuple[int, bool]:
    """Return the schema of a database (0 if it is not from posd), and whether it is a backup. Raise sqlite3.Error."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version if "transactions" in tables else 0, KEY_TABLE in tables


def identify_known(db: sqlite3.Connection, path: Path) -> tuple[int, bool]:
    """Return the result of `identify`. Raise UnusableFile if the database is not from posd, or from a newer posd.

    `path`: the path to show in messages.
    """
    version, is_backup = identify(db)
    if not version:
        raise UnusableFile(f"{path} is not a database of posd; nothing was changed. To replace it: {RESTORE}")
    if version > (newest := schema_version()):
        raise UnusableFile(
            f"{path} has schema {version}, this posd knows schemas up to {newest}: a newer posd has used it; "
            "install that version again, or restore a backup from before the upgrade (posd restore BACKUP)"
        )
    return version, is_backup


def _examine(path: Path, db: sqlite3.Connection) -> None:
    """Check the file without changing it. Raise StoreError or sqlite3.Error."""
    if path.stat().st_size == 0:
        raise StoreError(f"the database {path} is damaged: it is empty; nothing was changed. {NEXT_STEP}")
    _, is_backup = identify_known(db, path)
    if is_backup:
        raise StoreError(
            f"{path} is a backup that was put there by hand, so later payments are not known; move it to another "
            "place, and restore it from there: posd restore BACKUP"
        )


def unusable(path: Path, error: BaseException) -> StoreError:
    """Return the StoreError for an error that makes a database unusable."""
    if is_damage(error) or (error.__cause__ is not None and is_damage(error.__cause__)):
        return StoreError(f"the database {path} is damaged ({error}); nothing was changed. {NEXT_STEP}")
    return StoreError(
        f"the database {path} cannot be used ({error}); nothing was changed. Free the disk if it is full, and check "
        f"it. {NEXT_STEP}"
    )


def is_damage(error: BaseException) -> bool:
    """Return whether an error shows a damaged file: SQLite's own codes, or a row that cannot be decoded."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, ValueError | TypeError | AttributeError)


# Retention returns free pages to the disk. Databases of earlier versions cannot do that before they are rewritten.

#: SQLite's number for `auto_vacuum = INCREMENTAL`.
INCREMENTAL = 2

#: Largest database that is rewritten when it is opened, in bytes. The rewrite takes a second or two. A restore rewrites
#: a larger database, because then no payment waits.
SMALL_BYTES = 64 * 1024 * 1024


def can_shrink(db: sqlite3.Connection) -> bool:
    """Return whether the database can return free pages to the disk."""
    return bool(db.execute("PRAGMA auto_vacuum").fetchone()[0] == INCREMENTAL)


def make_shrinkable(db: sqlite3.Connection) -> None:
    """Rewrite a database that cannot shrink, so that it can. Raise sqlite3.Error.

    VACUUM may change the rowids of a table without an INTEGER PRIMARY KEY. A low rowid marks a payment from before the
    journal. SQLite keeps the rowids of a table with an index, and a changed rowid raises an error.
    """
    if can_shrink(db):
        return
    numbers = _numbers(db)
    db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}").close()
    db.execute("VACUUM").close()
    if _numbers(db) != numbers:
        raise sqlite3.IntegrityError("VACUUM has changed the numbers of rows")


def _numbers(db: sqlite3.Connection) -> list[tuple[int, int, int, int]]:
    query = "SELECT count(*), coalesce(min(rowid), 0), coalesce(max(rowid), 0), coalesce(sum(rowid), 0) FROM"
    return [db.execute(f"{query} {table}").fetchone() for table in ("transactions", "print_jobs", "marks")]


# SQLite's tests of a whole file, for a backup, a restore and `posd verify`. A start reads only the header.

#: Maximum number of faults that SQLite lists for one file.
MAX_FAULTS = 100

#: One fault: ("damaged" or "dangling", subject or "" for the file, finding).
FileFault = tuple[str, str, str]

#: Query that finds the view of lost events. An older schema has an index and a foreign key in its place.
_KNOWS_LOST = "SELECT 1 FROM sqlite_master WHERE name = 'lost_events'"


def _pages(db: sqlite3.Connection) -> Iterator[FileFault]:
    for (fault,) in db.execute(f"PRAGMA integrity_check({MAX_FAULTS})"):
        if fault != "ok":
            yield "damaged", "", fault.replace("\n", "; ")


def _references(db: sqlite3.Connection) -> Iterator[FileFault]:
    for table, rowid, parent, _ in db.execute("PRAGMA foreign_key_check"):
        yield "dangling", f"{table} {rowid}", f"there is no such row in {parent}"


def _lost_events(db: sqlite3.Connection) -> Iterator[FileFault]:
    if db.execute(_KNOWS_LOST).fetchone():
        for seq, identity in db.execute("SELECT seq, client_transaction_id FROM lost_events"):
            yield "dangling", f"events {seq}", f"there is no payment {identity} that names it"


#: Part of the file -> its test.
FILE_TESTS: Mapping[str, Callable[[sqlite3.Connection], Iterator[FileFault]]] = {
    "the file": _pages,
    "references": _references,
    "references of events": _lost_events,
}


def check_file(path: Path, stop: Callable[[], bool] = lambda: False) -> int:
    """Test a whole database. Return the number of its transactions. Raise sqlite3.Error for the first fault."""
    with closing(connect_reader(path)) as db:
        db.set_progress_handler(stop, OPERATIONS_AT_A_TIME)
        for test in FILE_TESTS.values():
            for _, subject, fault in test(db):
                raise sqlite3.DatabaseError(f"{subject}: {fault}" if subject else fault)
        transactions: int = db.execute("SELECT count(*) FROM transactions").fetchone()[0]
        return transactions
