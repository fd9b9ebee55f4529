"""Restore: a backup replaces the database. Payments of the old database and of a list of ids are added to it.

Everything is prepared in a separate file beside the database, checked and synced. No existing file is changed before
`commit`, and the old database is kept. The lock is held during the restore, so that no daemon uses the database.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec

from posd.base import files
from posd.base.crashpoints import crash_point
from posd.base.times import iso
from posd.payments import journal, rows
from posd.records.callback_urls import KeyFileError, load_keys, make_key
from posd.records.witness import StartedPayment
from posd.storage import StoreError, UnusableFile, backup, changes, connection, database_files, marks
from posd.storage.backup import Contents
from posd.storage.batch import WriteTransaction
from posd.storage.connection import KEY_TABLE, connect_reader, migrate, open_file, schema_version
from posd.storage.marks import OldFile, Restored
from posd.upkeep import merge
from posd.upkeep.restore_guard import not_in
from posd.upkeep.salvage import salvage
from posd.upkeep.takeover import TakenCounts, take_over, take_over_by_id

#: Reports the progress: the present step, the completed amount, and the total (0 and 0 if unknown).
Look = Callable[[str, int, int], None]


class KeyMerge(msgspec.Struct, frozen=True):
    """Merge of the callback keys: the numbers of keys that were kept, and that were added from the backup.

    `aside`: new path of a damaged key file, or None.
    """

    kept: int
    added: int
    aside: str | None


class RestorePlan(msgspec.Struct, frozen=True):
    """Plan of a restore: the backup (or None), the record of the restore, and the callback keys."""

    backup: Contents | None
    mark: Restored
    keys: KeyMerge


class Restore(msgspec.Struct, eq=False):
    """One restore, as a context manager. Call `prepare`, then `commit`. Without `commit` nothing changes."""

    database: Path
    lock: Path
    callback_key: Path
    now: datetime
    _locks: list[int] = []
    _replaced: Path = Path()
    _content: bytes = b""  # new content of the key file, if it changes
    _aside: Path | None = None

    @property
    def _fresh(self) -> Path:
        return self.database.with_name(f"{self.database.name}.restoring")

    @property
    def _scratch(self) -> Path:
        return self.database.with_name(f"{self.database.name}.salvaged")

    def __enter__(self) -> Self:
        """Lock the database. Raise StoreError if a restore is not possible here."""
        directory = self.database.parent
        try:
            if os.geteuid() not in (0, directory.stat().st_uid):
                raise StoreError(f"{directory} belongs to another user; restore as that user, or as root")
            self._locks.append(files.lock(self.lock))
            database_files.finish(self.database)  # complete a killed restore
            if self.database.exists():
                self._locks.append(files.lock_inode(self.database))
        except BlockingIOError:
            self.__exit__()
            raise StoreError(
                f"posd is running on {self.database}, or another restore is; stop it first "
                "(systemctl stop posd), and start it again afterwards"
            ) from None
        except OSError as error:
            self.__exit__()
            raise StoreError(
                f"cannot restore into {directory} ({error.strerror}); it must exist, and be writable for its owner "
                "with all that is in it"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._locks:
            self._clean()
        while self._locks:
            os.close(self._locks.pop())

    def _clean(self) -> None:
        for path in (self._fresh, self._scratch):
            database_files.remove_database(path)

    def prepare(self, file: Path | None, look: Look, named: Mapping[str, StartedPayment]) -> RestorePlan:
        """Build the new database from a backup (or from nothing) and from the present database.

        `named`: started payments by id. Those that are in neither database are recorded in doubt. Raise UnusableFile or
        StoreError.
        """
        with backup.unpacked(file) if file else nullcontext() as plain:
            return self._prepare(file, plain, look, named)

    def _prepare(
        self, file: Path | None, plain: Path | None, look: Look, named: Mapping[str, StartedPayment]
    ) -> RestorePlan:
        contents = None
        if file is not None and plain is not None:
            try:  # the file belongs to the operator, and may be unreadable for the user of posd
                with files.acting_as_owner(plain):
                    contents = self._check(file, plain, look)
            except OSError as error:
                raise UnusableFile(f"{file} cannot be read ({error.strerror}); nothing was changed") from error
        replaced = database_files.name_for_replaced(self.database, self.now)
        keys = self._merge_keys(contents.keys if contents else (), replaced)
        self._clean()
        try:
            files.create_private(self._fresh)
            with closing(open_file(self._fresh, uri=True)) as db:
                self._fill(db, plain, look)
                newest_at = changes.newest_at(db)
                old, first_seq, taken = self._take_over(db, look, named)
                missing = not_in(db, named)
                db.execute("BEGIN")
                take_over_by_id(
                    WriteTransaction(db), missing.values(), self.now, "the list that was given to the restore says"
                )
                db.execute("COMMIT")
                mark = Restored(
                    at=iso(self.now),
                    file=str(file.absolute()) if file else None,
                    made_at=contents.made_at if contents else None,
                    replaced=None if old is OldFile.MISSING else str(replaced),
                    old=old,
                    **taken,
                    ids=len(named),
                    ids_taken_over=len(missing),
                    newest_at=newest_at,
                    latest=rows.latest_start(db),
                )
                marks.add(db, mark.at, marks.RESTORED, mark)
                changes.renew(db, mark.at, first_seq, changes.IdentityCause.RESTORED)
            look("checking the new database", 0, 0)
            connection.check_file(self._fresh)
            files.sync(self._fresh)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise StoreError(
                f"cannot make the new database ({why}); nothing was changed. Free the disk, and try again"
            ) from error
        crash_point("restore.built")
        self._replaced = replaced
        return RestorePlan(contents, mark, keys)

    def commit(self) -> None:
        """Replace the database.

        Raise StoreError. After an interruption, the restore can be repeated, or posd can be started.
        """
        try:
            if self._aside is not None:
                self._aside.unlink(missing_ok=True)
                self._aside.hardlink_to(self.callback_key)
            if self._content:
                files.replace(self.callback_key, self._content)
            elif self._aside is not None:
                self.callback_key.unlink()
            crash_point("restore.keys_written")
            database_files.commit(self._fresh, self.database, self._replaced)
        except OSError as error:
            raise StoreError(f"cannot put the new database in place ({error.strerror}); restore again") from error

    def new_key(self, operator: str) -> tuple[Path | None, int]:
        """Create a new callback key in place of a missing or damaged key.

        The damaged file is kept, and a mark records the operator. Return the new path of the damaged file, and the
        number of open payments. Raise StoreError if there is no database, or the key is good.
        """
        if not self.database.exists():
            raise StoreError(f"there is no database {self.database}; a new key is made with it, at the first start")
        aside = None
        try:
            if self.callback_key.exists():
                with suppress(KeyFileError):
                    load_keys(self.callback_key, may_make=False)
                    raise StoreError(f"{self.callback_key} is a good callback key; nothing was changed")
                aside = self._key_aside(database_files.name_for_replaced(self.database, self.now))
                self.callback_key.rename(aside)
            with closing(connection.open_database(self.database)) as db:
                query = f"SELECT count(*) FROM transactions WHERE {rows.OPEN}"  # noqa: S608 - a constant
                opened: int = db.execute(query).fetchone()[0]
                detail = {"operator": operator, "uid": os.getuid(), "open": opened}
                marks.add(db, iso(self.now), marks.KEY_MADE, detail)
            make_key(self.callback_key)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot make a new callback key ({error}); free the disk, and try again") from error
        return aside, opened

    def _key_aside(self, replaced: Path) -> Path:
        """Return the name for a damaged key file."""
        return self.callback_key.with_name(self.callback_key.name + replaced.name.removeprefix(self.database.name))

    def _check(self, file: Path, plain: Path, look: Look) -> Contents:
        if self.database.exists() and plain.samefile(self.database):
            raise UnusableFile(f"{file} is the database itself; name a backup")
        contents = backup.read(plain, file)
        look("checking the backup", 0, 0)
        try:
            connection.check_file(plain)
        except sqlite3.Error as error:
            raise UnusableFile(f"{file} is damaged ({error}); nothing was changed. Take another backup") from error
        return contents

    def _fill(self, db: sqlite3.Connection, plain: Path | None, look: Look) -> None:
        """Copy the backup, and migrate the copy to the schema of this version."""
        for pragma in ("main.locking_mode = EXCLUSIVE", "synchronous = OFF", "secure_delete = ON"):
            db.execute(f"PRAGMA {pragma}").close()
        if plain is not None:
            with files.acting_as_owner(plain):
                source = connect_reader(plain)
            with closing(source):
                source.backup(
                    db,
                    pages=backup.PAGES_AT_A_TIME,
                    progress=lambda _status, left, total: look("copying the backup", total - left, total),
                )
        db.execute("PRAGMA journal_mode = DELETE").close()
        migrate(db)
        connection.make_shrinkable(db)
        db.execute(f"DROP TABLE IF EXISTS {KEY_TABLE}")

    def _take_over(
        self, db: sqlite3.Connection, look: Look, named: Mapping[str, StartedPayment]
    ) -> tuple[OldFile, int, TakenCounts]:
        """Add the payments of the present database. Return how much of it was read, and the result of `take_over`."""
        wal = self.database.with_name(f"{self.database.name}-wal")
        if not (self.database.exists() or wal.exists()):
            return OldFile.MISSING, *_nothing(db)
        look("looking at the database that is replaced", 0, 0)
        old, source = OldFile.READ, self._readable()
        ids, print_ids = set[str](), set[str]()
        if source is None:
            old, source = OldFile.DAMAGED, self._scratch
            files.create_private(source)
            found = salvage(self.database, source, lambda done, total: look("reading the damaged pages", done, total))
            ids, print_ids = found.ids, found.print_ids
            if not (ids or print_ids or found.rows):
                return OldFile.UNREADABLE, *_nothing(db)
        if source == self._scratch:
            with closing(open_file(source)) as scratch:
                migrate(scratch)
                journal.scatter_all(scratch)
        look("taking over payments and print jobs", 0, 0)
        sound = old is OldFile.READ
        with closing(connect_reader(source)) as reader:
            behind = sound and bool(not_in(reader, not_in(db, named)))
        return old, *take_over(db, source, ids, print_ids, sound=sound, behind=behind, now=self.now)

    def _readable(self) -> Path | None:
        """Return the path of the present database, migrated to the schema of this version, or None if it is damaged.

        Raise OSError if this user cannot read it.
        """
        if not self.database.exists() or not self.database.stat().st_size:
            return None  # SQLite would delete the WAL of an empty file, but the WAL may contain all data
        self.database.open("rb").close()
        try:
            connection.check_file(self.database)
            schema = backup.read(self.database).schema
        except (UnusableFile, sqlite3.Error):
            return None
        if schema == schema_version():
            return self.database
        files.create_private(self._scratch)
        with closing(connect_reader(self.database)) as source, closing(open_file(self._scratch)) as scratch:
            source.backup(scratch)
        return self._scratch

    def _merge_keys(self, of_backup: tuple[bytes, ...], replaced: Path) -> KeyMerge:
        """Plan the key file.

        First come the present keys, because open payments use them. Further keys of the backup follow.
        """
        kept: tuple[bytes, ...] = ()
        if self.callback_key.exists():
            try:
                kept = load_keys(self.callback_key, may_make=False)
            except KeyFileError:
                self._aside = self._key_aside(replaced)
        added = tuple(key for key in of_backup if key not in kept)
        if added:
            self._content = "".join(f"{key.hex()}\n" for key in (*kept, *added)).encode()
        return KeyMerge(len(kept), len(added), str(self._aside) if self._aside else None)


def _nothing(db: sqlite3.Connection) -> tuple[int, TakenCounts]:
    """Skip the numbers that an unreadable file may have used. Return an empty result of `take_over`."""
    merge.leave_out_numbers(db)
    return changes.last_seq(db) + 1, dict.fromkeys(("taken_over", "by_id", "print_jobs", "print_jobs_by_id"), 0)
