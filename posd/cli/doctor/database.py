"""The database: can it be opened, is it whole, is it maintained. Not a byte is written, nor a file made."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from posd.base.files import acting_as_owner
from posd.base.times import parse_iso
from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings, not_seen
from posd.storage import changes
from posd.storage.connection import KEY_TABLE, is_damage, open_file, refuse_lost, schema_version
from posd.storage.errors import StoreError

#: How long SQLite may look for damage, in seconds: a database of years is larger; `posd verify` takes its time.
QUICK_CHECK_SECONDS = 20.0
#: The same for `posd config check`.
SHORT_CHECK_SECONDS = 3.0
#: SQLite's operations between two looks at the time: some milliseconds.
OPERATIONS_AT_A_TIME = 100_000

KEY = "database.path"


def check(shop: DoctorContext) -> Findings:
    """Check whether there is a database, and what is wrong with it."""
    path = shop.settings.database.path
    try:
        if not path.exists():
            yield _missing(shop)
            return
        with open_unchanged(path) as db:
            found = list(_contents(db, shop, path))
        yield from found
    except PermissionError as error:
        storage = shop.health("storage")
        if storage.get("status") == "ok":
            yield shop.tell("database.unseen", path, reason=not_seen(shop, error), said=storage.get("detail"))
        else:
            yield shop.unseen(path, error)
    except sqlite3.Error as error:
        if is_damage(error):
            yield shop.tell("database.damaged", path, key=KEY, reason=error)
        else:
            busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            yield shop.tell("database.busy" if busy else "database.unopened", path, reason=error)


@contextmanager
def open_unchanged(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database so that nothing is written, not even the files that SQLite keeps beside it, as their owner.

    Raise PermissionError, OSError or sqlite3.Error. Without a WAL no program uses the file, and it is read as it lies
    there; else a snapshot is read, from the memory that posd shares or, where it was killed, from our own.
    """
    with acting_as_owner(path):
        with path.open("rb"):
            pass  # SQLite would not say why it cannot
        written = path.with_name(f"{path.name}-wal")
        shared = path.with_name(f"{path.name}-shm").exists() or (written.exists() and written.stat().st_size)
        how = "readonly_shm=1" if shared else "immutable=1"
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&{how}"
        with closing(open_file(uri, uri=True)) as db:
            db.execute("PRAGMA query_only = ON").close()
            yield db


def _missing(shop: DoctorContext) -> CheckFinding:
    files = shop.settings.database
    try:
        refuse_lost(files.path, files.callback_key, files.witness)
    except StoreError:
        return shop.tell("database.lost", files.path, key=KEY)
    return shop.tell("database.another" if shop.answers else "database.not_made", files.path)


def _contents(db: sqlite3.Connection, shop: DoctorContext, path: Path) -> Findings:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    aside = path.with_name(f"{path.stem}-backup{path.suffix}")
    if path.stat().st_size == 0:
        yield shop.tell("database.empty", path, key=KEY)
    elif KEY_TABLE in tables:
        yield shop.tell("database.put_by_hand", path, key=KEY, aside=aside)
    elif not version or "transactions" not in tables:
        yield shop.tell("database.foreign", path, key=KEY)
    elif version > schema_version():
        yield shop.tell("database.newer", path, key=KEY, version=version, known=schema_version())
    else:
        yield _whole(db, shop, path, version)
        if version == schema_version():
            yield from _newest(db, shop)


def _whole(db: sqlite3.Connection, shop: DoctorContext, path: Path, version: int) -> CheckFinding:
    seconds = SHORT_CHECK_SECONDS if shop.quick else QUICK_CHECK_SECONDS
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: int(time.monotonic() > end), OPERATIONS_AT_A_TIME)
    try:
        ((found,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        return shop.tell("database.too_large", path, seconds=seconds)
    finally:
        db.set_progress_handler(None, 0)
    if found != "ok":
        return shop.tell("database.damaged", path, key=KEY, reason=found)
    older = f", {schema_version()} after the next start" if version < schema_version() else ""
    return shop.tell("database.whole", path, version=version, older=older)


def _newest(db: sqlite3.Connection, shop: DoctorContext) -> Findings:
    newest = changes.newest_at(db)
    if newest is not None and (ahead := (parse_iso(newest) - datetime.now(UTC)).total_seconds()) > 1:
        yield shop.tell("database.future", "newest record", ahead=ahead, newest=newest)
