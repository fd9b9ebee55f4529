"""Restore: a backup in place of the database, which is kept; what that one and a list of ids tell is taken over.

Everything is prepared in a file of its own beside the database, checked and synced; nothing that is there changes
before `commit`. The lock is held meanwhile, so that no daemon runs on it.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec

from posd.base import locks
from posd.base.crashpoints import crash_point
from posd.base.times import iso
from posd.payments import journal, rows
from posd.records.callback_urls import KeyFileError, load_keys, make_key
from posd.records.witness import Started
from posd.storage import backup, connection, database_id, files, marks
from posd.storage.backup import Contents, NotABackup
from posd.storage.connection import KEY_TABLE, connect_reader, migrate, schema_version
from posd.storage.errors import StoreError
from posd.storage.marks import OldFile, Restored
from posd.storage.writer import Unit
from posd.upkeep import merge
from posd.upkeep.salvage import Salvaged, salvage
from posd.upkeep.takeover import Taken, take_over, take_over_by_id
from posd.upkeep.unseen import not_in

#: Hears what is being done, how much of it is done, and of how much (0 and 0 where that is not known).
Look = Callable[[str, int, int], None]


class Keys(msgspec.Struct, frozen=True):
    """What becomes of the callback key: how many the file has, how many the backup adds, where a damaged file goes."""

    kept: int
    added: int
    aside: str | None


class NewKey(msgspec.Struct, frozen=True):
    """A callback key that was made anew: its file, where the damaged one is, how many payments are open."""

    path: str
    aside: str | None
    open: int


class Prepared(msgspec.Struct, frozen=True):
    """What a restore will do: the backup (None without one), the mark that it leaves, and the keys."""

    backup: Contents | None
    mark: Restored
    keys: Keys


class Restore:
    """One restore, a context manager: `prepare`, then `commit`; without that nothing is changed."""

    def __init__(self, database: Path, lock: Path, callback_key: Path, now: datetime) -> None:
        self._database = database
        self._lock_file = lock
        self._callback_key = callback_key
        self._now = now
        self._fresh = database.with_name(f"{database.name}.restoring")
        self._scratch = database.with_name(f"{database.name}.salvaged")
        self._lock = -1
        self._replaced = database
        self._content = b""  # of the key file, where it changes
        self._aside: Path | None = None

    def __enter__(self) -> Self:
        """Take the lock. Raise StoreError, in words, where a restore is not possible here."""
        directory = self._database.parent
        try:
            if os.geteuid() not in (0, directory.stat().st_uid):
                raise StoreError(f"{directory} belongs to another user; restore as that user, or as root")
            self._lock = locks.take(self._lock_file)
            files.keep_owner(self._lock_file)
            files.finish(self._database)  # of a restore that was killed
        except locks.Held:
            raise StoreError(
                f"posd is running on {self._database}, or another restore is; stop it first "
                "(systemctl stop posd), and start it again afterwards"
            ) from None
        except OSError as error:
            self.__exit__()
            raise StoreError(
                f"cannot restore into {directory} ({error.strerror}); it must exist, and be writable for this user"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock >= 0:
            self._clean()
            os.close(self._lock)
            self._lock = -1

    def _clean(self) -> None:
        for path in (self._fresh, self._scratch):
            files.remove_database(path)

    def prepare(self, file: Path | None, look: Look, named: Mapping[str, Started]) -> Prepared:
        """Build the new database of a backup (without one: of nothing) and of what the present one tells.

        `named` are payments that were started, by id: those that neither knows are recorded in doubt. Raise NotABackup
        or StoreError, in words.
        """
        contents = self._check(file, look) if file is not None else None
        replaced = files.name_for_replaced(self._database, self._now)
        keys = self._merge_keys(contents.keys if contents else (), replaced)
        self._clean()
        try:
            files.create_private(self._fresh)
            with closing(sqlite3.connect(self._fresh, isolation_level=None, uri=True)) as db:
                self._fill(db, file, look)
                newest_at = database_id.newest_change_at(db)
                old, taken = self._take_over(db, look, named)
                missing = not_in(db, named)
                db.execute("BEGIN")
                take_over_by_id(Unit(db), missing.values(), self._now, "the list that was given to the restore says")
                db.execute("COMMIT")
                mark = Restored(
                    at=iso(self._now),
                    file=str(file.absolute()) if file else None,
                    made_at=contents.made_at if contents else None,
                    replaced=None if old is OldFile.MISSING else str(replaced),
                    old=old,
                    taken_over=taken.payments,
                    by_id=taken.by_id,
                    print_jobs=taken.print_jobs,
                    print_jobs_by_id=taken.print_jobs_by_id,
                    ids=len(named),
                    ids_taken_over=len(missing),
                    newest_at=newest_at,
                )
                marks.add(db, mark.at, marks.RESTORED, mark)
                database_id.renew(db, mark.at, taken.first_seq, database_id.Cause.RESTORED)
            look("checking the new database", 0, 0)
            backup.check(self._fresh)
            files.keep_owner(self._fresh)
            files.sync(self._fresh)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise StoreError(
                f"cannot make the new database ({why}); nothing was changed. Free the disk, and try again"
            ) from error
        crash_point("restore.built")
        self._replaced = replaced
        return Prepared(contents, mark, keys)

    def commit(self) -> None:
        """Put it in place. Raise StoreError: a restore that breaks off here can be made again, or posd started."""
        try:
            if self._aside is not None:
                self._aside.unlink(missing_ok=True)
                self._aside.hardlink_to(self._callback_key)
            if self._content:
                files.write_private(self._callback_key, self._content)
            elif self._aside is not None:
                self._callback_key.unlink()
            crash_point("restore.keys_written")
            files.commit(self._fresh, self._database, self._replaced)
        except OSError as error:
            raise StoreError(f"cannot put the new database in place ({error.strerror}); restore again") from error

    def new_key(self, operator: str) -> NewKey:
        """Make a new callback key in place of one that is missing or damaged, which is kept; a mark says who did it.

        Raise StoreError, in words, where there is no database, or the key is good.
        """
        if not self._database.exists():
            raise StoreError(f"there is no database {self._database}; a new key is made with it, at the first start")
        aside = None
        try:
            if self._callback_key.exists():
                with suppress(KeyFileError):
                    load_keys(self._callback_key, may_make=False)
                    raise StoreError(f"{self._callback_key} is a good callback key; nothing was changed")
                aside = self._key_aside(files.name_for_replaced(self._database, self._now))
                self._callback_key.rename(aside)
            with closing(connection.open_database(self._database)) as db:
                query = f"SELECT count(*) FROM transactions WHERE {rows.OPEN}"  # noqa: S608 - a constant
                opened: int = db.execute(query).fetchone()[0]
                detail = {"operator": operator, "uid": os.getuid(), "open": opened}
                marks.add(db, iso(self._now), marks.KEY_MADE, detail)
            make_key(self._callback_key)
            files.keep_owner(self._callback_key)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot make a new callback key ({error}); free the disk, and try again") from error
        return NewKey(str(self._callback_key), str(aside) if aside else None, opened)

    def _key_aside(self, replaced: Path) -> Path:
        """Return the name that a damaged key file gets."""
        return self._callback_key.with_name(self._callback_key.name + replaced.name.removeprefix(self._database.name))

    def _check(self, file: Path, look: Look) -> Contents:
        if file.exists() and self._database.exists() and file.samefile(self._database):
            raise NotABackup(f"{file} is the database itself; name a backup")
        contents = backup.read(file)
        look("checking the backup", 0, 0)
        try:
            backup.check(file)
        except sqlite3.Error as error:
            raise NotABackup(f"{file} is damaged ({error}); nothing was changed. Take another backup") from error
        return contents

    def _fill(self, db: sqlite3.Connection, file: Path | None, look: Look) -> None:
        """Copy the backup, and bring it to this posd's schema."""
        for pragma in ("main.locking_mode = EXCLUSIVE", "synchronous = OFF", "secure_delete = ON"):
            db.execute(f"PRAGMA {pragma}").close()
        if file is not None:
            with closing(connect_reader(file)) as source:
                source.backup(
                    db,
                    pages=backup.PAGES_AT_A_TIME,
                    progress=lambda _status, left, total: look("copying the backup", total - left, total),
                )
        db.execute("PRAGMA journal_mode = DELETE").close()
        migrate(db, self._fresh)
        connection.make_shrinkable(db)
        db.execute(f"DROP TABLE IF EXISTS {KEY_TABLE}")

    def _take_over(self, db: sqlite3.Connection, look: Look, named: Mapping[str, Started]) -> tuple[OldFile, Taken]:
        """Take over what the present database tells; return how much of it could be read."""
        wal = self._database.with_name(f"{self._database.name}-wal")
        if not (self._database.exists() or wal.exists()):
            return OldFile.MISSING, _nothing(db)
        look("looking at the database that is replaced", 0, 0)
        old, source, found = OldFile.READ, self._readable(), Salvaged()
        if source is None:
            old, source = OldFile.DAMAGED, self._scratch
            files.create_private(source)
            found = salvage(self._database, source, lambda done, total: look("reading the damaged pages", done, total))
            if not (found.ids or found.print_ids or found.rows):
                return OldFile.UNREADABLE, _nothing(db)
        if source == self._scratch:
            with closing(sqlite3.connect(source, isolation_level=None)) as scratch:
                migrate(scratch, source)
                journal.scatter_all(scratch)
        look("taking over payments and print jobs", 0, 0)
        sound = old is OldFile.READ
        with closing(connect_reader(source)) as reader:
            behind = sound and bool(not_in(reader, not_in(db, named)))
        return old, take_over(db, source, found.ids, found.print_ids, sound=sound, behind=behind, now=self._now)

    def _readable(self) -> Path | None:
        """Return where the present database can be read with this posd's schema, None where it is damaged.

        Raise OSError where this user may not read it.
        """
        if not self._database.exists() or not self._database.stat().st_size:
            return None  # of an empty file SQLite would delete the WAL, which may have everything
        self._database.open("rb").close()
        try:
            backup.check(self._database)
            schema = backup.read(self._database).schema
        except (NotABackup, sqlite3.Error):
            return None
        if schema == schema_version():
            return self._database
        files.create_private(self._scratch)
        with closing(connect_reader(self._database)) as source, closing(sqlite3.connect(self._scratch)) as scratch:
            source.backup(scratch)
        return self._scratch

    def _merge_keys(self, of_backup: tuple[bytes, ...], replaced: Path) -> Keys:
        """Plan the key file: its own keys first, for callbacks under way, then those of the backup that it has not."""
        kept: tuple[bytes, ...] = ()
        if self._callback_key.exists():
            try:
                kept = load_keys(self._callback_key, may_make=False)
            except KeyFileError:
                self._aside = self._key_aside(replaced)
        added = tuple(key for key in of_backup if key not in kept)
        if added:
            self._content = "".join(f"{key.hex()}\n" for key in (*kept, *added)).encode()
        return Keys(len(kept), len(added), str(self._aside) if self._aside else None)


def _nothing(db: sqlite3.Connection) -> Taken:
    """Take over nothing, from a file that may have given out any numbers."""
    merge.leave_out_numbers(db)
    return Taken(first_seq=database_id.last_seq(db) + 1)
