"""Online backup: a consistent copy of the database in one file, including the callback keys.

The copy has the state of one moment. A separate connection reads the database in WAL mode, so that the writer does not
wait. The copy is written under another name, checked, synced and renamed. An older backup of that name stays until the
new one is complete. The keys make the file a secret: mode 0600. If the name of the file ends in .gz, posd compresses it
after the check (RFC 1952), to about a seventh of its size, at 170 MB/s. `unpacked` detects the compression from the
content.

A backup leaves enough free space on the database's disk for a week of payments.
"""

import asyncio
import errno
import gzip
import os
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import IO, Annotated

import msgspec
from msgspec import Meta

from posd import __version__
from posd.base import files
from posd.base.crashpoints import crash_point
from posd.base.ids import KEY_BYTES
from posd.base.json_types import Moment
from posd.base.problems import Problem
from posd.base.times import iso
from posd.storage import StorageUnavailable, UnusableFile, connection, database_files, marks
from posd.storage.connection import KEY_TABLE, connect_reader, identify_known, is_damage, open_file

#: Pages copied between two checks of `stop`.
PAGES_AT_A_TIME = 1024
#: Bytes compressed or read back between two checks of `stop`.
PIECE_BYTES = 1 << 20
#: A response waits at most this long for the backup folder, in seconds.
LOOK_SECONDS = 1.0
#: Compression level. A higher level makes the file a tenth smaller and takes twice as long.
GZIP_LEVEL = 3
File = IO[bytes] | gzip.GzipFile
_GZIP, _NOT_GZIP = b"\x1f\x8b", (EOFError, zlib.error, gzip.BadGzipFile)
#: First bytes of a database, and the length of its header.
_SQLITE, _HEADER_BYTES = b"SQLite format 3\0", 100
#: Minimum number of bytes to leave free on the database's disk, and on the disk on which a backup is unpacked.
SPARE_BYTES = 64 * 1024 * 1024
#: Folder for unpacked backups. Backups can be too large for a /tmp in memory.
_UNPACKED = "/var/tmp"  # noqa: S108 - private, under a random name

#: System errors that a better path would avoid.
_BAD_PATH = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP),
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
    }
)
_ALLOW = (
    "posd itself must be able to write there: its user needs the right to, and under systemd the unit needs a "
    "line ReadWritePaths= for the directory (ProtectSystem=strict)"
)


class BadTarget(Exception):
    """Error for a target to which no backup can be written. The message has the reason and what to do."""


def _stopping() -> Problem:
    return Problem("draining", "posd is stopping; no backup was made. Ask again in a moment")


class Written(msgspec.Struct, frozen=True):
    """Complete backup on disk."""

    path: Annotated[str, Meta(description="path of the backup")]
    bytes: Annotated[int, Meta(description="its size")]
    transactions: Annotated[int, Meta(description="number of payments in it")]
    at: Annotated[Moment, Meta(description="time of the backup")]
    synced: Annotated[bool, Meta(description="`false`: a power cut soon afterwards could remove the file")]


class Contents(msgspec.Struct, frozen=True):
    """Content of a backup. `made_at` is None if the file is not a backup.

    `newest`: time of the newest payment. `keys`: callback keys, newest first.
    """

    schema: int
    made_at: str | None
    transactions: int
    newest: str | None
    keys: tuple[bytes, ...]


def write(database: Path, target: Path, keys: Sequence[bytes], at: str, stop: Callable[[], bool]) -> Written:
    """Copy a database in use to `target`, unless `stop` returns True before the end.

    Raise BadTarget, StorageUnavailable (no room, or a damaged database) or Problem draining. After an error no new file
    remains, and an older file at `target` is unchanged.
    """
    check_target(target, database)
    return _write(database, target, keys, at, stop)


def _write(database: Path, target: Path, keys: Sequence[bytes], at: str, stop: Callable[[], bool]) -> Written:
    part = unfinished(target)
    packed = part.with_name(f"{part.name}.gz") if target.suffix == ".gz" else part
    try:
        database_files.remove_database(part)  # left by a killed backup
        packed.unlink(missing_ok=True)
        needed, spare = room(database, target)
        check_room(target.parent, needed, spare)

        def look() -> None:
            if stop():
                raise _stopping()
            check_room(target.parent, 0, spare)

        files.create_private(part)
        try:
            _copy(database, part, look)
            _add(part, keys, at)
            crash_point("backup.copied")
            transactions = connection.check_file(part, stop)
            if packed != part:
                _pack(part, packed, look)
            files.sync(packed)
            crash_point("backup.checked")
            size = packed.stat().st_size
            packed.replace(target)
            synced = sync_name(target)
            crash_point("backup.renamed")
        finally:
            database_files.remove_database(part)
            packed.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _BAD_PATH:
            raise BadTarget(f"cannot be written ({error.strerror}); {_ALLOW}") from error
        raise StorageUnavailable(f"the backup cannot be written ({error.strerror}); free the disk") from error
    except sqlite3.Error as error:
        if stop():
            raise _stopping() from error
        raise StorageUnavailable(_trouble(error)) from error
    return Written(str(target), size, transactions, at, synced)


def room(database: Path, target: Path) -> tuple[int, int]:
    """Return how many bytes a backup needs on its disk at most, and how many must stay free there.

    On the database's disk, a week of payments must still fit. On another disk, nothing must stay free. Raise
    sqlite3.Error.

    A compressed backup needs room for the copy, and half as much again for the compressed file.
    """
    with closing(connect_reader(database)) as db:
        copied = size(db)
        total, lately = db.execute(_OF_A_WEEK).fetchone()
    own_disk = target.parent.stat().st_dev == database.parent.stat().st_dev
    week = max(SPARE_BYTES, copied * lately // max(total, 1)) if own_disk else 0
    return copied + copied // 2 * (target.suffix == ".gz"), week


#: Number of payments, and number of payments in the week before the newest payment.
_OF_A_WEEK = """
SELECT count(*), count(*) FILTER (WHERE created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', newest, '-7 days'))
  FROM transactions, (SELECT max(created_at) AS newest FROM transactions)
"""


def check_room(folder: Path, needed: int, spare: int = SPARE_BYTES) -> None:
    """Raise StorageUnavailable if a disk has less than `needed` plus `spare` free bytes."""
    if lacking := _lacking(folder, needed, spare):
        raise StorageUnavailable(
            f"the disk of {folder} lacks {lacking // 1_000_000 + 1} MB for a backup and for the payments of a week; "
            "free the disk"
        )


def _lacking(folder: Path, needed: int, spare: int) -> int:
    found = database_files.disk_space(folder)
    return 0 if found is None else max(0, needed + spare - found[0])


def _pack(part: Path, packed: Path, look: Callable[[], None]) -> None:
    """Compress a file, and read the result back."""
    files.create_private(packed)
    with part.open("rb") as content, gzip.open(packed, "wb", GZIP_LEVEL) as file:
        _copy_pieces(content, file, look)
    with gzip.open(packed) as file:  # raises OSError if the checksum differs
        while file.read(PIECE_BYTES):
            look()


def _copy_pieces(source: File, target: File, look: Callable[[], None]) -> None:
    while piece := source.read(PIECE_BYTES):
        look()
        target.write(piece)


def sync_name(target: Path) -> bool:
    """Sync the folder of a finished backup. Return whether that succeeded."""
    try:
        return files.sync_folder(target.parent)
    except OSError:
        return False


def unfinished(target: Path) -> Path:
    """Return the path that `write` uses until the backup is complete."""
    return target.with_name(f".{target.name}.part")


def check_target(target: Path, database: Path) -> None:
    """Raise BadTarget if a backup must not or cannot be written to `target`."""
    if not target.is_absolute() or "\0" in str(target):
        raise BadTarget("must be an absolute path, such as /var/backups/posd.db")
    try:
        _refuse_own(target, database)
        if not target.parent.is_dir():
            raise BadTarget(f"is in a directory that posd does not see ({target.parent}); make it first. {_ALLOW}")
        if not target.exists():
            return
        if database.exists() and target.samefile(database):
            raise BadTarget("is the database itself; name another file, best on another disk")
        if target.is_dir():
            raise BadTarget("is a directory; name a file in it")
        _probe(target)
    except UnusableFile as error:
        raise BadTarget("exists and is not a backup of posd; name another file, or remove that one") from error
    except OSError as error:
        raise BadTarget(f"cannot be used ({error}); {_ALLOW}") from error


def _refuse_own(target: Path, database: Path) -> None:
    """Raise BadTarget if posd itself uses that name or folder."""
    if target != database and database_files.is_own(target, database):
        raise BadTarget(
            "is one of posd's own files beside its database; name another file, best on another disk, or one in "
            f"{database.with_name('backups')}"
        )


def _copy(database: Path, part: Path, look: Callable[[], None]) -> None:
    with closing(connect_reader(database)) as source, closing(_connect_copy(part)) as copy:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # starts the snapshot that the copy reads
        source.backup(copy, pages=PAGES_AT_A_TIME, progress=lambda *_: look())


def _add(part: Path, keys: Sequence[bytes], at: str) -> None:
    """Add the keys to the copy, and make the file independent of a WAL."""
    with closing(_connect_copy(part)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("BEGIN")
        copy.execute(f"CREATE TABLE {KEY_TABLE} (place INTEGER PRIMARY KEY, key BLOB NOT NULL)")
        copy.executemany(f"INSERT INTO {KEY_TABLE} (place, key) VALUES (?, ?)", enumerate(keys))  # noqa: S608 - a constant
        marks.add(copy, at, marks.BACKUP, {"version": __version__})
        copy.execute("COMMIT")


def _connect_copy(part: Path) -> sqlite3.Connection:
    """Open the copy, which no other process uses, without syncs.

    The complete file is synced at the end. After a crash, the next backup makes a new copy.
    """
    db = open_file(part)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("PRAGMA synchronous = OFF")
    return db


def _trouble(error: sqlite3.Error) -> str:
    if not hasattr(error, "sqlite_errorcode") or is_damage(error):  # without a code: from `connection.check_file`
        return (
            f"the copy is damaged ({error}), so the database is damaged too; keep your existing backups, and check the "
            "database: posd verify"
        )
    return f"the backup cannot be written ({error}); free the disk"


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a path that SQLite can read: the path itself, or that of a temporary unpacked copy.

    Root reads the file as the owner of its folder. Raise UnusableFile.
    """
    with ExitStack() as stack:
        try:
            with files.acting_as_owner(path):
                if not path.is_file():
                    raise UnusableFile(f"there is no file {path}; name another one")
                file = stack.enter_context(path.open("rb"))
            begin = file.read(len(_GZIP))
            file.seek(0)
        except OSError as error:
            raise UnusableFile(
                f"cannot look at {path} ({error.strerror}); nothing was changed. Root and the user of posd may read it"
            ) from error
        if not begin:
            raise UnusableFile(f"{path} is empty: it is damaged; take another backup")
        if begin != _GZIP:
            yield path
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="posd-", dir=_UNPACKED))
        plain = Path(folder, "unpacked.db")
        try:
            files.create_private(plain)
            with gzip.GzipFile(fileobj=file) as packed, plain.open("wb") as content:
                _copy_pieces(packed, content, lambda: check_room(plain.parent, PIECE_BYTES))
        except _NOT_GZIP as error:
            raise UnusableFile(f"{path} is damaged ({error}); take another backup") from error
        except (OSError, StorageUnavailable) as error:
            raise UnusableFile(f"{path} cannot be unpacked in {folder} ({error}); free the disk") from error
        yield plain


def read(path: Path, named: Path | None = None, mode: str = "mode=ro") -> Contents:
    """Return the contents of an unpacked backup, or of any database of posd. Raise UnusableFile; no file is changed.

    `named`: the path to show in messages. `mode`: see `connect_reader`.
    """
    named = named or path
    try:
        with closing(connect_reader(path, mode)) as db:
            return _contents(db, named)
    except sqlite3.Error as error:
        raise UnusableFile(
            f"{named} cannot be used ({error}): it is damaged, or not a backup of posd; take another"
        ) from error


def is_backup(path: Path) -> bool:
    """Return whether a database of posd is a backup. Raise UnusableFile. Nothing is written beside the file.

    The file is opened as immutable. Otherwise SQLite would create a log beside a database in WAL mode.
    """
    return read(path, mode="mode=ro&immutable=1").made_at is not None


def _contents(db: sqlite3.Connection, path: Path) -> Contents:
    schema, is_backup = identify_known(db, path)
    transactions, newest = db.execute("SELECT count(*), max(created_at) FROM transactions").fetchone()
    keys: tuple[bytes, ...] = ()
    if is_backup:
        keys = tuple(row[0] for row in db.execute(f"SELECT key FROM {KEY_TABLE} ORDER BY place"))  # noqa: S608 - a constant
    if any(not isinstance(key, bytes) or len(key) != KEY_BYTES for key in keys):
        raise UnusableFile(f"{path} is damaged: its callback key cannot be read; take another backup")
    made_at = marks.newest(db, marks.BACKUP) if is_backup else None
    return Contents(schema, made_at, transactions, newest, keys)


# Rotation of backups in one directory. The name of each backup contains its time, and the newest backups are kept.
# After a new backup, rotation removes only complete older backups of posd with such a name. If the disk lacks room,
# rotation removes the oldest backups before it writes the new one, but never the newest. An unreadable file with such a
# name is not counted and stays. The unfinished file of a killed backup is removed first. A directory must hold the
# backups of one posd only.

NAME = re.compile(r"posd-\d{8}T\d{6}Z\.db(\.gz)?", re.ASCII)
#: Pattern for `glob` that matches the names of backups (`NAME`) and a few others.
NAMES = f"posd-{'[0-9]' * 8}T{'[0-9]' * 6}Z.db*"
#: Default number of backups to keep: two weeks with one each night.
KEEP = 14
#: Maximum number of backups to keep. The limit exists because each new backup reads all older ones.
MOST_KEPT = 10_000


class Rotated(Written, frozen=True):
    """Written backup, the number of backups in the directory, and the names of removed and of unusable files."""

    kept: Annotated[int, Meta(description="number of backups in the directory now")]
    removed: Annotated[list[str], Meta(description="names of the older backups that were removed")]
    unusable: Annotated[list[str], Meta(description="names of unusable backups in the directory")]


def write_into(
    database: Path, directory: Path, keep: int, keys: Sequence[bytes], at: datetime, stop: Callable[[], bool]
) -> Rotated:
    """Write a compressed backup into a directory. Keep the `keep` newest backups there, and remove the others.

    Raise as `backup.write` does.
    """
    if not directory.is_absolute() or "\0" in str(directory):
        raise BadTarget("must be an absolute path of a directory, such as /var/backups/posd")
    try:
        _refuse_own(directory, database)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadTarget(f"cannot be made ({error.strerror}); make it, writable for the user of posd") from error
    with suppress(OSError):  # left by killed backups; the next backup tries again
        for path in directory.glob(f".{NAMES}"):
            path.unlink()
    target = directory / f"posd-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}.db.gz"
    removed = _make_room(target, database)
    written = write(database, target, keys, iso(at), stop)
    good, unusable = _look_through(directory, database)
    # the new backup counts as the newest, even if an older backup has a later time from a clock that was ahead
    good = [target, *(path for path in good if path != target)]
    beyond = _remove(good[keep:])
    kept, removed = len(good) - len(beyond), [*removed, *beyond]
    return Rotated(**msgspec.structs.asdict(written), kept=kept, removed=removed, unusable=unusable)


def _make_room(target: Path, database: Path) -> list[str]:
    """Remove the oldest good backups, except the newest, if that makes room for the next backup. Return their names."""
    try:
        good, _ = _look_through(target.parent, database)
        needs, removed = room(database, target), list[str]()
        lacking = _lacking(target.parent, *needs)
        if lacking <= sum(path.stat().st_size for path in good[1:]):
            while len(good) > 1 and _lacking(target.parent, *needs):
                removed += _remove([good.pop()])
    except (OSError, sqlite3.Error):
        return []  # the backup fails with the same error and reports it
    return removed


def _look_through(directory: Path, database: Path) -> tuple[list[Path], list[str]]:
    """Return the good backups of a directory, newest first, and the names of the unusable files."""
    good, unusable = [], []
    for path in sorted((item for item in directory.iterdir() if NAME.fullmatch(item.name)), reverse=True):
        if database_files.is_own(path, database):
            continue
        try:
            _probe(path)
        except (UnusableFile, OSError):
            unusable.append(path.name)
        else:
            good.append(path)
    return good, unusable


def _probe(path: Path) -> None:
    """Raise UnusableFile or OSError if a file cannot be read as a backup. Nothing is written beside the file.

    A compressed file must begin with a database header and end with the size from that header.
    """
    if path.suffix != ".gz":
        if not is_backup(path):
            raise UnusableFile(f"{path} is not a backup of posd")
        return
    with path.open("rb") as file:
        try:
            header = gzip.GzipFile(fileobj=file).read(_HEADER_BYTES)
            file.seek(-4, os.SEEK_END)
        except _NOT_GZIP as error:
            raise UnusableFile(f"{path} is damaged ({error}); take another") from error
        page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])  # sqlite.org/fileformat2.html
        if not header.startswith(_SQLITE) or int.from_bytes(file.read(4), "little") != page * pages % 2**32:
            raise UnusableFile(f"{path} is damaged, or not a backup of posd; take another")


def _remove(paths: Sequence[Path]) -> list[str]:
    """Remove backups, from the end of the list. Return the names of the removed ones."""
    removed = []
    for path in reversed(paths):
        try:
            path.unlink()
        except OSError:
            continue  # the next backup tries again
        crash_point("backup.rotated")
        removed.append(path.name)
    if removed:
        with suppress(OSError):  # a power cut can restore the names; the next backup removes them then
            files.sync_folder(paths[0].parent)
    return removed


def newest_backup(directory: Path) -> tuple[float, Path] | None:
    """Return the newest backup in a directory and its time (s since 1970), or None."""
    with suppress(OSError), os.scandir(directory) as entries:
        found = (item for item in entries if item.name.endswith((".db", ".db.gz")))
        return max(((item.stat().st_mtime, Path(item.path)) for item in found), default=None)
    return None


@dataclass(eq=False)
class BackupFolder:
    """The folder of the backups.

    It may be on a network share that does not respond, so the event loop does not wait for it. One thread at a time
    reads the folder. When posd stops, it does not wait for that thread. `look`: reads the folder and returns its newest
    backup.
    """

    directory: Path
    look: Callable[[Path], tuple[float, Path] | None] = newest_backup
    seconds: float = LOOK_SECONDS
    _newest: tuple[float, Path] | None = field(default=None, init=False)
    _looked: "asyncio.Future[None] | None" = field(default=None, init=False)

    async def newest(self) -> tuple[float, Path] | None:
        """Return the result of `look`, or the previous result if `look` takes too long."""
        if self._looked is None or self._looked.done():
            loop = asyncio.get_running_loop()
            self._looked = loop.create_future()
            Thread(target=self._run, args=(loop, self._looked), name="backups", daemon=True).start()
        await asyncio.wait({self._looked}, timeout=self.seconds)
        return self._newest

    def _run(self, loop: asyncio.AbstractEventLoop, looked: "asyncio.Future[None]") -> None:
        self._newest = self.look(self.directory)
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(looked.set_result, None)


def write_unnamed(database: Path, keys: Sequence[bytes], at: str, stop: Callable[[], bool]) -> tuple[Written, int]:
    """Write a backup beside the database, and remove the name of its file. Return the backup and the file's descriptor.

    The file's space is freed when the descriptor is closed, even by a kill. Raise as `backup.write` does.
    """
    path = database.with_name(f"{database.name}.sent")
    path.unlink(missing_ok=True)  # left by a daemon that was killed here
    written = _write(database, path, keys, at, stop)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    path.unlink()
    return written, descriptor


def size(db: sqlite3.Connection) -> int:
    """Return the size of the database without its log, in bytes."""
    pages, page = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * page)
