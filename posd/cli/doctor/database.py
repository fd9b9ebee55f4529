"""The database: can it be opened, is it whole, has it been looked after. Not a byte is written, nor a file made."""

import shlex
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from posd.base.files import acting_as_owner
from posd.base.times import parse_iso
from posd.cli.doctor.context import (
    DoctorContext,
    Findings,
    SubjectFinding,
    failure,
    may_not_read,
    ok,
    refusal,
    unseen,
    warning,
)
from posd.storage import backup, changes, database_files, marks, wal
from posd.storage.connection import KEY_TABLE, is_damage, open_file, refuse_lost, schema_version
from posd.storage.errors import StoreError

#: How long SQLite may look for damage, in seconds: a database of years is larger; `posd verify` takes its time.
QUICK_CHECK_SECONDS = 20.0
#: The same for `posd config check`.
SHORT_CHECK_SECONDS = 3.0
#: SQLite's operations between two looks at the time: some milliseconds.
OPERATIONS_AT_A_TIME = 100_000

DAMAGED = "see what is wrong, then put a backup in its place; what can be read of the damaged file is taken over"
KEY = "database.path"


def check(shop: DoctorContext) -> Findings:
    """Tell whether there is a database, and what is wrong with it."""
    path = shop.settings.database.path
    try:
        if not path.exists():
            yield _missing(shop)
            return
        with open_unchanged(path) as db:
            found = list(_contents(db, shop, path))
        yield from found
        yield from _beside(path)
    except PermissionError as error:
        storage = shop.health("storage")
        if storage.get("status") == "ok":
            yield ok(path, f"{may_not_read(error)}; posd says of it: {storage.get('detail')}")
        else:
            yield unseen(path, may_not_read(error))
    except sqlite3.Error as error:
        if is_damage(error):
            meaning = f"the database is damaged ({error}): posd will not start with it"
            yield refusal(KEY, path, meaning, DAMAGED, *_put_back(shop, shop.posd("verify")))
        elif getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            yield warning(path, f"the database is in use just now ({error})", "try again in a moment")
        else:
            meaning = f"the database cannot be opened without changing it ({error})"
            yield warning(path, meaning, "look at it", shop.posd("verify"))


def newest_backup(shop: DoctorContext) -> Path | None:
    """Return the newest backup of the timer; None where there is none, or this user may not see it."""
    found = backup.newest_backup(shop.settings.database.backups)
    return found[1] if found else None


def _put_back(shop: DoctorContext, *first: str) -> tuple[str, ...]:
    """Return the commands that put the newest backup in the place of the database."""
    newest = newest_backup(shop)
    restore = shop.posd("restore", newest) if newest else shop.posd("restore", "--without-backup")
    return (*shop.systemctl("stop"), *first, restore, *shop.systemctl("start"))


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


def _missing(shop: DoctorContext) -> SubjectFinding:
    path = shop.settings.database.path
    try:
        refuse_lost(path, shop.settings.database.callback_key, shop.settings.database.witness)
    except StoreError:
        meaning = (
            "the database is not there, and it was before: it was lost or moved, and posd will not start without it"
        )
        todo = "look for the file and put it back; else restore the newest backup"
        return refusal(KEY, path, meaning, todo, *_put_back(shop))
    if shop.running.answers:
        return failure(
            path, "posd runs, but its database is not there", "is this the configuration that posd runs with?"
        )
    return ok(path, "not made yet: posd makes it at its first start")


def _contents(db: sqlite3.Connection, shop: DoctorContext, path: Path) -> Findings:
    if path.stat().st_size == 0:
        yield refusal(
            KEY, path, "the database is empty: it was damaged, and posd will not start", DAMAGED, *_put_back(shop)
        )
        return
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if KEY_TABLE in tables:
        aside = path.with_name(f"{path.stem}-backup{path.suffix}")
        yield refusal(
            KEY,
            path,
            "this is a backup that was put there by hand: nothing is known of what was started since, so posd will "
            "not start",
            "move it to another place, and restore it from there",
            *shop.systemctl("stop"),
            shop.as_root("mv", path, aside),
            shop.posd("restore", aside),
            *shop.systemctl("start"),
        )
        return
    if not version or "transactions" not in tables:
        meaning = "this is no database of posd: posd will not start"
        yield refusal(KEY, path, meaning, "correct database.path, or move the file away", shop.edit(KEY))
        return
    if version > schema_version():
        yield refusal(
            KEY,
            path,
            f"a newer posd has used it (schema {version}; this one knows schemas up to {schema_version()}), so this "
            "one will not start",
            "install that version again, or restore a backup from before the upgrade",
            f"ls -lt {shlex.quote(str(shop.settings.database.backups))}",
            *_put_back(shop),
        )
        return
    yield _whole(db, shop, path, version)
    if version == schema_version():
        yield from _history(db, shop)


def _whole(db: sqlite3.Connection, shop: DoctorContext, path: Path, version: int) -> SubjectFinding:
    seconds = SHORT_CHECK_SECONDS if shop.quick else QUICK_CHECK_SECONDS
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: int(time.monotonic() > end), OPERATIONS_AT_A_TIME)
    try:
        found = [row[0] for row in db.execute("PRAGMA quick_check(1)")]
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        return warning(
            path,
            f"no damage was found in {seconds:g} s, but it is too large to be seen through in that time",
            "check it whole when there is time",
            shop.posd("verify"),
        )
    finally:
        db.set_progress_handler(None, 0)
    if found != ["ok"]:
        meaning = f"the database is damaged ({found[0]}): posd may not start with it"
        return refusal(KEY, path, meaning, DAMAGED, *_put_back(shop, shop.posd("verify")))
    older = f", {schema_version()} after the next start" if version < schema_version() else ""
    return ok(path, f"no damage found (quick check), schema {version}{older}")


def _history(db: sqlite3.Connection, shop: DoctorContext) -> Findings:
    happened = [item.words for item in marks.unseen_restores(db)]
    happened += [item.words for item in marks.unseen_gone_back(db)]
    for words in happened:
        seen = shop.command("restore", "--seen", "--operator", "NAME")
        yield warning("restore", words, "look at it, then say so with your name", seen)
    newest = changes.newest_at(db)
    now = datetime.now(UTC)
    if newest is not None and (ahead := (parse_iso(newest) - now).total_seconds()) > 1:
        yield failure(
            "newest record",
            f"it is {ahead:.0f} s in the future ({newest}): the clock of this machine was set back",
            "set the clock of this machine, and let a time service keep it",
            shop.as_root("timedatectl", "set-ntp", "true"),
            "timedatectl",
        )


def _beside(path: Path) -> Findings:
    if (large := wal.trouble(path)) is not None:
        words, todo = large
        yield warning("WAL", words, *todo.split(": ", 1))
    for fresh in database_files.waiting(path):
        yield warning(
            fresh, "a restore was interrupted in its last step", "start posd, or restore again: it is finished then"
        )
