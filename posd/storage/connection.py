"""Open the database file: its lock, its pragmas, its schema."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import structlog

from posd.base import index_words, locks
from posd.base.clocks import monotonic, wall
from posd.base.json_types import encode
from posd.base.text import composed
from posd.storage import files
from posd.storage.errors import StoreError

#: How long a statement waits for a lock that another process holds, in milliseconds; then callers hear 503.
BUSY_TIMEOUT_MS = 2000

log = structlog.get_logger("posd.store")

#: In a backup: the callback keys, which are never in a database that is in use.
KEY_TABLE = "backup_key"

#: Found by the path of this file: `importlib.resources` would load what reads ZIP archives, half a megabyte.
_MIGRATIONS = Path(__file__).with_name("migrations")

#: How often the log says that an upgrade goes on, in seconds; it is looked at after so many operations of SQLite.
TELL_SECONDS = 10.0
OPERATIONS_AT_A_TIME = 100_000

#: What to type where the database is damaged or lost.
RESTORE = "posd restore BACKUP (without one: posd restore --without-backup)"
_NEXT = (
    f"See what is wrong: posd verify. To put a backup in its place: {RESTORE}; what can be read of the damaged file is "
    "taken over"
)

#: Size of the pages of a new database, in bytes. A commit writes each page that it touches as a whole, and an event
#: touches four or five of them with some hundred bytes each: small pages wear the flash least. Below this, rows do not
#: fit on one page any more, and a file system writes whole blocks of 4 KiB all the same.
PAGE_BYTES = 2048
#: Pages in the WAL after which SQLite itself writes them back, within a COMMIT: what `storage.checkpoint` counts is
#: functions, and some write much.
LOG_PAGES = 4000
#: What a reading connection keeps of the database, in KiB: it reads few pages, and the system keeps the file anyway.
READER_CACHE_KIB = 256
#: The WAL file is cut back to this size after a checkpoint, in bytes, so that one burst does not keep the disk.
JOURNAL_SIZE_LIMIT = 8 * 1024 * 1024


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


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the writing connection: autocommit off the library, WAL, every COMMIT synced."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",  # what retention removes is not left in the file
            f"wal_autocheckpoint = {LOG_PAGES}",
            f"journal_size_limit = {JOURNAL_SIZE_LIMIT}",
            "trusted_schema = OFF",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()  # to its end: only there it says that it failed
    except BaseException:
        db.close()
        raise
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write. Raise sqlite3.Error, also where the schema is damaged."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").close()
    db.execute("PRAGMA query_only = ON").close()
    try:
        db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}").close()  # the first to read the schema
    except UnicodeDecodeError as error:  # of SQLite's words for it: they have the damaged bytes in them
        db.close()
        raise sqlite3.DatabaseError("malformed database schema") from error
    except sqlite3.Error:
        db.close()
        raise
    return db


def connect_again(path: Path, *, at_start: bool = False) -> sqlite3.Connection:
    """Open the writing connection after a commit of uncertain end, which an earlier process may have left as well.

    Raise OSError or sqlite3.Error: still not trusted. The caller has another connection open: the close of the last one
    would write a log with a hole on disk back into the database file.

    What reads as committed may not be on disk: an earlier process was killed before its sync, or its sync failed. The
    log is written once more before anything is said of it, or written behind it. That needs no checkpoint, which a
    process that reads an older state would stop. The commit here takes the place of one that was denied: a start after
    a kill would bring that back. `at_start` there is none to know of, and a full disk has no room for it.
    """
    db = connect_writer(path)
    try:
        db.execute("BEGIN IMMEDIATE").close()  # no other process writes to the log, or cuts it
        if files.write_again(path.with_name(f"{path.name}-wal")) and not at_start:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            db.execute(f"PRAGMA user_version = {version}").close()
        db.execute("COMMIT").close()
        files.sync(path.parent)  # the log has its name: SQLite does not look at whether its own sync of that fails
    except BaseException:
        db.close()
        raise
    return db


def migrations() -> Iterator[tuple[int, str]]:
    """Yield the numbered migrations, (version, SQL), ascending."""
    for script in sorted(_MIGRATIONS.glob("*.sql")):
        yield int(script.name.split("_", 1)[0]), script.read_text("utf-8")


def schema_version() -> int:
    """Return the newest schema that this posd knows."""
    return max(version for version, _ in migrations())


def migrate(db: sqlite3.Connection, path: Path, wanted: int | None = None) -> None:
    """Bring the database to a schema, the newest if none is named, each step in a transaction of its own.

    Raise StoreError where the file is newer than this posd.
    """
    current: int = db.execute("PRAGMA user_version").fetchone()[0]
    newest = schema_version()
    if current > newest:
        raise StoreError(
            f"{path} has schema {current}, this posd knows schemas up to {newest}: a newer posd has used it; "
            "install that version again, or restore a backup from before the upgrade (posd restore BACKUP)"
        )
    db.create_function("index_words", 1, lambda text: encode(index_words.words(text)), deterministic=True)
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


def open_database(path: Path, now: Callable[[], datetime] = wall) -> sqlite3.Connection:
    """Open and migrate the database; make it where there is none. The caller holds the lock.

    Raise StoreError, in words, where that cannot be done; nothing is deleted.
    """
    try:
        files.finish(path)
        if not path.exists():
            _make(path, now())
        path.chmod(0o600)
        with closing(connect_reader(path)) as reader:
            _examine(path, reader)
            # Where that fails, the reader keeps SQLite from writing the log back at the close.
            db = connect_again(path, at_start=True)
    except OSError as error:
        raise StoreError(f"cannot open the database {path} ({error.strerror}); it must be writable for posd") from error
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    try:
        with _telling(db, path):
            migrate(db, path)
        if path.stat().st_size <= SMALL_BYTES:
            with suppress(sqlite3.Error):  # the disk is nearly full: it works as it is
                make_shrinkable(db)
    except sqlite3.Error as error:
        db.close()
        raise unusable(path, error) from error
    except StoreError:
        db.close()
        raise
    return db


@contextmanager
def _telling(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Say in the log that a database is brought up to date, where that takes long."""
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
    """Raise StoreError where the database is gone although it was there before: a new one would know no payment.

    `traces` are files that posd makes beside a database, and a new machine does not have.
    """
    if path.exists() or files.waiting(path):
        return
    left = [item.name for item in (path.with_name(f"{path.name}-wal"), *traces) if item.exists()]
    if left:
        raise StoreError(
            f"the database {path} is not there, but {' and '.join(left)} beside it: it was lost or moved, and a new "
            f"one would not know what was started. Put it back, or restore a backup: {RESTORE}"
        )


def _make(path: Path, at: datetime) -> None:
    """Make a database, empty but whole: a file without content is then always a damaged one."""
    fresh = path.with_name(f"{path.name}.new")
    files.remove_database(fresh)
    files.create_private(fresh)
    with closing(sqlite3.connect(fresh, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}").close()
        db.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()  # see `make_shrinkable`
        # Now, and not by the first writer: that would go through a journal which a power loss can bring back.
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("PRAGMA synchronous = OFF").close()  # the whole file is synced below, before it gets its name
        migrate(db, fresh)
    files.sync(fresh)
    files.commit(fresh, path, files.name_for_replaced(path, at))


def _examine(path: Path, db: sqlite3.Connection) -> None:
    """Look at the file without changing anything. Raise StoreError or sqlite3.Error."""
    if path.stat().st_size == 0:
        raise StoreError(f"the database {path} is damaged: it is empty; nothing was changed. {_NEXT}")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (KEY_TABLE,)).fetchone():
        raise StoreError(
            f"{path} is a backup that was put there by hand, so that nothing is known of what was started since; "
            "move it to another place, and restore it from there: posd restore BACKUP"
        )
    if not version:
        raise StoreError(f"{path} is no database of posd; nothing was changed. {_NEXT}")


def unusable(path: Path, error: BaseException) -> StoreError:
    """Return what to say of a database that cannot be used because of an error."""
    if is_damage(error):
        return StoreError(f"the database {path} is damaged ({error}); nothing was changed. {_NEXT}")
    return StoreError(
        f"the database {path} cannot be used ({error}); nothing was changed. Free the disk if it is full, and check "
        f"it. {_NEXT}"
    )


class Damage:
    """Tells that a database was found damaged while it is in use: once is enough for the log, each call hears of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = False

    def tell(self, error: BaseException | None) -> None:
        """Log it with what to do, where an error says so for the first time."""
        if error is not None and is_damage(error) and not self._told:
            self._told = True
            log.error("store.damaged", database=str(self._path), error=str(error), detail=_NEXT)


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file is damaged: SQLite's words for it, or a row that cannot be understood."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, ValueError | TypeError | AttributeError)


# Whether free space of a database can be given back (`posd.storage.backup` does it), and making it so.

#: SQLite's number for `auto_vacuum = INCREMENTAL`.
INCREMENTAL = 2

#: A database up to this size is written anew when it is opened, in bytes: it takes a second or two. A larger one is
#: when it is restored, while no payment waits.
SMALL_BYTES = 64 * 1024 * 1024


def can_shrink(db: sqlite3.Connection) -> bool:
    """Whether free pages can be given back."""
    return bool(db.execute("PRAGMA auto_vacuum").fetchone()[0] == INCREMENTAL)


def make_shrinkable(db: sqlite3.Connection) -> None:
    """Write a database anew so that it can be cut; nothing where it can be. Raise sqlite3.Error: it is as it was.

    VACUUM may give rows without a number of their own new ones, in principle; payments of before the journal are known
    by theirs. It has never done so where a table has an index; where it ever does, it is not kept.
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
