"""The single writer with group commit.

Callers pass functions. The functions that arrive during a sync share the next `BEGIN IMMEDIATE`, and their callers
receive the results after its COMMIT. So a burst costs one sync, and all decisions about state are made one after the
other. An exception of a function undoes only that function's writes (see `WriteBatch`).
"""

import asyncio
import os
import sqlite3
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import msgspec
import structlog

from posd.base.clocks import next_tick, wall
from posd.base.crashpoints import crash_point
from posd.base.exposition import Histogram
from posd.storage import CommitUncertain, StorageUnavailable, database_files
from posd.storage.batch import Function, RecordedChange, WriteTransaction
from posd.storage.connection import BUSY_TIMEOUT_MS, NEXT_STEP, connect_again, is_damage, open_database
from posd.storage.database_files import FolderWatch

# Checkpoints write committed pages from the log (the WAL) back into the database file.
#
# Only the writing connection makes them, between two commits. Before 3.51.3, SQLite can lose a commit of one connection
# while another begins a checkpoint (sqlite.org/wal.html, "The WAL-Reset Bug"). Commits wait during a checkpoint: 10 ms,
# or 20 ms with a million stored payments, or seconds on a hard disk. So checkpoints are made in pauses, after the
# callers of the last commit have received their results.

#: Number of committed functions after which a checkpoint is due in a pause. These functions fill about 2,000 pages of
#: the log if each has its own commit. A page that was changed by many commits is written back once.
DUE_AFTER = 350
#: Multiple of DUE_AFTER at which a checkpoint runs without a pause.
OVERDUE = 2

#: Minimum length of a pause without writes, in seconds. The pause must also last twice as long as the newest
#: checkpoint. So on a fast disk there are pauses between the events of a payment, and on a slow disk only between
#: payments.
LEAST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 10.0
#: Pause before the first checkpoint, when no duration is known.
FIRST_PAUSE_SECONDS = 1.0

#: Buckets of the duration of a checkpoint, in seconds.
CHECKPOINT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class Checkpoints(msgspec.Struct, eq=False):
    """Schedule of checkpoints. `clock`: monotonic seconds."""

    clock: Callable[[], float]
    seconds: Histogram = msgspec.field(default_factory=partial(Histogram, CHECKPOINT_BOUNDS))
    _functions: int = 0
    _newest: float = 0.0  # time of the newest commit that a checkpoint has not written back
    _pause: float = FIRST_PAUSE_SECONDS

    def committed(self, functions: int) -> None:
        """Count the functions of a commit."""
        self._functions += functions
        if self._functions >= DUE_AFTER:
            self._newest = self.clock()

    def due(self) -> float | None:
        """Return the seconds until the next checkpoint, if no commit comes before. Return None if none is due."""
        if self._functions < DUE_AFTER:
            return None
        if self._functions >= OVERDUE * DUE_AFTER:
            return 0.0
        return max(0.0, self._newest + self._pause - self.clock())

    def made(self, seconds: float) -> None:
        """Count a checkpoint. A failed one counts too: the next attempt follows when the next checkpoint is due."""
        self.seconds.observe(seconds)
        self._functions = 0
        self._pause = min(max(LEAST_PAUSE_SECONDS, 2 * seconds), MAX_PAUSE_SECONDS)


def write_back(db: sqlite3.Connection) -> bool:
    """Write back the pages that no other connection needs in the log.

    Return whether all pages were written back. Raise sqlite3.Error.
    """
    busy, frames, done = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return bool(not busy and frames == done)


def empty_log(db: sqlite3.Connection) -> bool:
    """Write back all pages and truncate the log.

    Return False if a connection still reads the log. Raise sqlite3.Error.
    """
    busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


# One transaction of the writer: the waiting functions, in their order, and one COMMIT.
#
# The functions run on the event loop, a few at a time. On another thread, each statement would release the interpreter
# lock and compete with the event loop for it. A COMMIT or a wait for another process runs on the connection's thread.

#: Errors after which the transaction has ended and the connection is still usable.
_HARMLESS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT})


class BatchResult(msgspec.Struct):
    """Outcome of a batch: results or exceptions by function, and the changes.

    `anything`: whether something was written. `distrusted`: whether the connection must be replaced.
    """

    results: list[Any]
    changes: list[RecordedChange] = []
    anything: bool = False
    distrusted: bool = False
    sync_seconds: float | None = None  # duration of the COMMIT, if anything was written


class WriteBatch:
    """Functions in one transaction. An exception of a function undoes only that function's writes.

    Call `begin`, then `go_on` until it returns True, then `commit`. If `go_on` returns False and the transaction has
    ended, call `begin` again. If `begin` or `go_on` raises sqlite3.Error, nothing is written, and `failed` returns the
    errors for the callers.

    A savepoint costs two statements, so the first attempt has no savepoints. If a function raises after a write (which
    is rare), all functions are rolled back and run again, each in a savepoint.
    """

    def __init__(self, db: sqlite3.Connection, functions: Sequence[Function], clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._db = db
        self._functions = functions
        self._clock = clock
        self._unit = WriteTransaction(db)
        self._results: list[Any] = []
        self._in_savepoints = False

    def begin(self) -> bool:
        """Start the transaction without waiting. Return False if another process has the lock."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def wait_to_begin(self) -> None:
        """Start the transaction when the lock is free, within BUSY_TIMEOUT_MS. Blocks."""
        self._db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").close()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        finally:
            self._db.execute("PRAGMA busy_timeout = 0").close()

    def go_on(self, seconds: float) -> bool:
        """Run functions for `seconds`, at least one function. Return whether all have run."""
        run = self._run_in_savepoint if self._in_savepoints else self._run
        left = self._functions[len(self._results) :]
        end = self._clock() + seconds if len(left) > 1 else 0.0  # one function is not timed
        for place, function in enumerate(left):
            if place and self._clock() > end:
                return False
            if not run(function):
                self._forget_all()
                return False
        return True

    def _run(self, function: Function) -> bool:
        """Run a function. Return False if it raised after a write."""
        written = self._db.total_changes
        try:
            self._results.append(function(self._unit))
        except Exception as error:  # noqa: BLE001 - its caller receives the error
            self._raise_if_rolled_back(error)
            if self._db.total_changes != written:
                return False
            self._results.append(_raised(error))
        return True

    def _run_in_savepoint(self, function: Function) -> bool:
        known = len(self._unit.changes)
        self._db.execute("SAVEPOINT job")
        try:
            self._results.append(function(self._unit))
        except Exception as error:  # noqa: BLE001 - its caller receives the error
            self._raise_if_rolled_back(error)
            self._db.execute("ROLLBACK TO job")
            del self._unit.changes[known:]
            self._results.append(_raised(error))
        self._db.execute("RELEASE job")
        return True

    def _raise_if_rolled_back(self, error: Exception) -> None:
        if not self._db.in_transaction:
            raise sqlite3.OperationalError("SQLite has rolled the transaction back") from error

    def _forget_all(self) -> None:
        self.roll_back()
        self._unit = WriteTransaction(self._db)
        self._results = []
        self._in_savepoints = True

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit (see `WriteTransaction.wrote`)."""
        return self._unit.wrote

    def commit(self) -> BatchResult:
        """Commit the writes. Return the outcome of all functions. The call blocks until the writes are on disk."""
        wrote = self.wrote
        crash_point("writer.before_commit")
        began = self._clock()
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self.roll_back()
            outcome = uncertain(error) if broken(error) else unavailable(error)
            return BatchResult([outcome] * len(self._functions), distrusted=broken(error))
        seconds = self._clock() - began if wrote else None
        crash_point("writer.committed")
        return BatchResult(self._results, self._unit.changes, anything=wrote, sync_seconds=seconds)

    def refused(self, moved: str) -> BatchResult:
        """Roll back because a file was moved before the commit. Return the errors for the callers."""
        self.roll_back()
        return BatchResult([StorageUnavailable(CANNOT.format(moved))] * len(self._functions))

    def failed(self, error: sqlite3.Error) -> BatchResult:
        """Roll back because `begin` or `go_on` raised. Return the errors for the callers."""
        cause = error.__cause__ or error
        self.roll_back()
        return BatchResult([unavailable(cause)] * len(self._functions), distrusted=broken(cause))

    def roll_back(self) -> None:
        """Roll back an open transaction."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


def _raised(error: Exception) -> Exception:
    """Return `error` for the caller of the function that raised it, without the local variables in its frames.

    The exception is kept until the COMMIT. With the variables, the rows that the function read would stay in memory.
    """
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, StopIteration):  # a future does not accept a StopIteration
        error = RuntimeError(f"a function of a commit raised {error!r}")
    return unavailable(error) if _is_trouble(error) else error


def _is_trouble(error: Exception) -> bool:
    """Return whether an error concerns the disk or the file, rather than the function."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def broken(error: BaseException) -> bool:
    """Return whether the connection that raised an error must be replaced."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _HARMLESS


#: Text of an error for a caller, with the reason.
CANNOT = "the database cannot be written now ({})"


def unavailable(error: BaseException) -> StorageUnavailable:
    """Return the error for callers of a write that is certainly not on disk."""
    refusal = StorageUnavailable(CANNOT.format(error))
    refusal.__cause__ = error
    return refusal


def uncertain(error: BaseException) -> CommitUncertain:
    """Return the error for callers of a commit that may or may not be on disk."""
    refusal = CommitUncertain(f"the commit failed ({error})")
    refusal.__cause__ = error
    return refusal


# Check that the path of an open database still names the same files.

#: Suffixes of the written files: the database, its log, and the shared index of the log.
WRITTEN = ("", "-wal", "-shm")
#: Device and inode number of a file.
_File = tuple[int, int]


class OpenFiles:
    """Files of one open database, by device and inode number. SQLite does not detect that a file was moved or removed.

    Writes to a file without a name are lost when posd stops. So posd acknowledges no write while a file has no name.
    Create the object just after the database is opened.
    """

    def __init__(self, path: Path) -> None:
        self._database = str(path)
        names = [f"{path}{suffix}" for suffix in WRITTEN]
        self._opened: dict[str, _File] = {name: found for name in names if (found := _file(name)) is not None}

    def missing(self) -> str | None:
        """Return a sentence about the first file that is not in its place, or None. Called after each commit."""
        for path, opened in self._opened.items():
            if (found := _file(path)) != opened:
                done = "removed or moved away" if found is None else "replaced by another file"
                return f"{path} was {done} while posd uses it"
        return None

    @property
    def log_alone(self) -> bool:
        """Whether the database file itself is in its place, so that only its log or index is missing."""
        return _file(self._database) == self._opened.get(self._database)


def _file(path: str) -> _File | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - twice as fast as with a Path; called after each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


# The writer.

T = TypeVar("T")

#: Maximum number of functions in one COMMIT. With more, the first caller would wait for the last function.
MAX_BATCH = 128
#: Maximum number of waiting functions, which limits memory. Further callers receive an error at once and retry.
MAX_WAITING = 4096
#: Length of a slice (s): functions run for this time, and then the event loop runs other tasks. One function takes a
#: twentieth of this time.
SLICE_SECONDS = 0.001
#: On a slow disk a slice lasts this fraction of the newest sync, up to a maximum. A longer slice delays the callers
#: little compared with the sync, and the disk is idle until the last slice has run.
SLICE_OF_SYNC = 0.25
MAX_SLICE_SECONDS = 0.01

#: Buckets of the duration of a COMMIT, in seconds. A disk with a cache takes less than one ms, and worn flash a second.
COMMIT_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
#: Buckets of the number of functions in a COMMIT, up to MAX_BATCH.
FUNCTION_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)

#: Seconds between two checks that the path names the open files, and seconds until the next check after a failed one.
#: Each commit checks as well.
LOOK_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 2.0

#: Errors of a write that is not certainly on disk.
_NOT_STORED = (StorageUnavailable, CommitUncertain)

_Job = tuple[Function, "asyncio.Future[Any]"]

log = structlog.get_logger("posd.store")


class DatabaseWriter:
    """Runner of functions on the one writing connection. `DatabaseWriter.open` creates it, and `close` ends it."""

    def __init__(
        self, path: Path, connection: aiosqlite.Connection, publish: Callable[[Sequence[RecordedChange]], None]
    ):
        self._path = path
        self._connection = connection
        self._publish = publish
        self._waiting: list[_Job] = []
        self._riding: list[_Job] = []  # functions that join the next batch without starting one
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()  # held by the user of the connection: a batch, or other work
        self._closing = False
        self._trusted = True
        self._placed = OpenFiles(path)
        self._is_damaged = False  # whether the damage was logged
        self.moved: str | None = None  # sentence about a file that was not in its place at the newest check
        self._saved = False  # whether the content of a log that lost its name was written back
        self.error: str | None = None  # error of the newest commit, None if it succeeded
        self._slice_seconds = SLICE_SECONDS
        self.commit_seconds = Histogram(COMMIT_BOUNDS)
        self.commit_functions = Histogram(FUNCTION_BOUNDS)
        self._clock = asyncio.get_running_loop().time
        self.checkpoints = Checkpoints(self._clock)
        self._pause_timer: asyncio.TimerHandle | None = None
        self._pump = asyncio.create_task(self._run(), name="store-writer")

    @classmethod
    async def open(
        cls, path: Path, publish: Callable[[Sequence[RecordedChange]], None], now: Callable[[], datetime] = wall
    ) -> "DatabaseWriter":
        """Open and migrate the database. `publish` is called on the loop with every change after its COMMIT.

        Raise StoreError.
        """
        return cls(path, await connect(lambda: without_busy_timeout(open_database(path, now))), publish)

    async def write(self, function: Callable[[WriteTransaction], T]) -> T:
        """Run a function in the next COMMIT. Return its result once the commit is on disk.

        The function may run twice, with the first run rolled back. So it may only change the database and return a
        result.

        Raise the function's exception (its writes are undone), StorageUnavailable, CommitUncertain. Cancelling the
        caller does not stop the function.
        """
        if self._closing:
            raise StorageUnavailable("posd is stopping")
        if not self.running:
            raise StorageUnavailable("the writer has ended; restart posd")
        if len(self._waiting) >= MAX_WAITING:
            raise StorageUnavailable("too many writes are waiting for the disk")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((function, future))
        self._wake.set()
        return await future

    async def ride(self, function: Callable[[WriteTransaction], T]) -> T:
        """Run a function together with the next `write`, in the same COMMIT, so that it costs no sync.

        Otherwise this method is like `write`. If no `write` follows before `close`, the function does not run.
        """
        while True:
            future: asyncio.Future[tuple[T] | None] = asyncio.get_running_loop().create_future()
            self._riding.append((partial(_ride, function), future))
            if (result := await future) is not None:
                return result[0]

    async def watch(self, watch_folder: FolderWatch = database_files.watch_folder) -> None:
        """Check regularly, and at each change of the folder, that the path names the open files.

        `watch_folder`: reports changes of the folder.
        """
        changed = asyncio.Event()
        with watch_folder(self._path.parent, changed.set):
            while True:
                seconds = LOOK_SECONDS if self.moved is None else LOOK_AGAIN_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_tick(seconds)):
                        await changed.wait()
                changed.clear()
                self.look()
                if self.moved is not None and not self._saved and self._placed.log_alone:
                    async with self._turn:
                        with suppress(sqlite3.Error):  # after a kill, a log without a name would be lost
                            self._saved = await self._to_its_end(write_back)
                    if self._saved:
                        log.info("store.log_saved", database=str(self._path))

    def look(self) -> None:
        """Check that the path names the open files. Writes are refused until the check succeeds."""
        before, self.moved = self.moved, self._placed.missing()
        if self.moved is not None:
            self.error = CANNOT.format(self.moved)
        elif before is not None:
            self.error = None
            self._saved = False
            log.info("store.file_back", database=str(self._path))
        if before is None and self.moved is not None:
            log.error("store.file_moved", database=str(self._path), detail=self.moved)

    def note_damage(self, error: BaseException | None) -> None:
        """Log the first error that shows damage in the database, with the next step.

        Every caller receives its own error.
        """
        if error is not None and is_damage(error) and not self._is_damaged:
            self._is_damaged = True
            log.error("store.damaged", database=str(self._path), error=str(error), detail=NEXT_STEP)

    def check_placed(self) -> None:
        """Raise StorageUnavailable if the path would open another file."""
        self.look()
        if self.moved is not None:
            raise StorageUnavailable(f"the database cannot be opened now ({self.moved})")

    async def alive(self) -> None:
        """Wait until the thread that commits has replied. Raise StorageUnavailable if no more functions run."""
        if not self.running:
            raise StorageUnavailable("the writer has ended")
        await run_on_db_thread(self._connection, lambda: None)

    async def empty_log(self) -> bool:
        """Write committed pages into the database file, and empty the log.

        Return False if a connection still reads the log. Commits wait during the checkpoint. Raise StorageUnavailable.
        """
        async with self._turn:
            self.check_placed()
            if self._closing or not self._trusted:
                raise StorageUnavailable("the log of the database cannot be emptied now")
            try:
                return await self._checkpoint(empty_log)
            except sqlite3.Error as error:
                raise unavailable(error) from error

    async def _checkpoint(self, make: Callable[[sqlite3.Connection], bool]) -> bool:
        """Make a checkpoint and return whether it was complete. The caller holds the turn. Raise sqlite3.Error."""
        began = self._clock()
        try:
            return await self._to_its_end(make)
        except sqlite3.Error as error:
            self._trusted = not broken(error)
            raise
        finally:
            self.checkpoints.made(self._clock() - began)

    async def _to_its_end(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on the connection's thread, and raise its exception. The caller holds the turn."""
        work = run_on_db_thread(self._connection, partial(function, self._connection._conn))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})  # a batch that began during the work would block the loop
            raise

    @property
    def waiting(self) -> int:
        """Number of functions that wait for the next COMMIT."""
        return len(self._waiting)

    @property
    def running(self) -> bool:
        """Whether functions still run. Before `close`, only a fault of posd can stop them."""
        return not self._pump.done()

    async def close(self) -> None:
        """Run the waiting functions, then close."""
        self._closing = True
        self._wake.set()
        await self._pump
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        await self._connection.close()

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            await self._wake.wait()
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if not self._waiting:
                self._wake.clear()
            if batch:
                batch, self._riding = [*batch, *self._riding], []
                async with self._turn:
                    await self._commit(batch)
            if (seconds := self.checkpoints.due()) is not None:
                await self._write_back(seconds)
            if self._closing:
                self._wake.set()

    async def _write_back(self, seconds: float) -> None:
        """Make the checkpoint that is due. If it is due only after a pause of `seconds`, check again then.

        The callers of earlier commits already have their results.
        """
        if seconds:
            if self._pause_timer is None:
                self._pause_timer = asyncio.get_running_loop().call_later(seconds, self._look_for_pause)
            return
        async with self._turn:
            if self._trusted and self.moved is None:
                # after a failure all pages are still in the log, and a later attempt follows
                with suppress(Exception):
                    await self._checkpoint(write_back)

    def _look_for_pause(self) -> None:
        self._pause_timer = None
        self._wake.set()

    async def _commit(self, batch: Sequence[_Job]) -> None:
        if self._trusted or await self._reopen():
            try:
                written = await self._transact([job[0] for job in batch])
            except Exception as error:  # noqa: BLE001 - the writer must go on; each caller receives the error
                written = BatchResult([uncertain(error)] * len(batch), distrusted=True)
        else:
            refusal = StorageUnavailable("the disk failed, and the database cannot be trusted again yet")
            written = BatchResult([refusal] * len(batch))
        results = written.results
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        failed = [result for result in results if isinstance(result, _NOT_STORED)]
        if failed:
            self.error = str(failed[0])
            self.look()
            self.note_damage(failed[0].__cause__)
        elif written.anything:  # an empty commit succeeds on a full disk too
            self.error = None
        if written.sync_seconds is not None:
            self._slice_seconds = slice_seconds(written.sync_seconds)
            self.commit_seconds.observe(written.sync_seconds)
            self.commit_functions.observe(len(results))
            self.checkpoints.committed(len(results))
        self._publish(written.changes)
        if written.distrusted:
            self._trusted = False
            await self._reopen()

    async def _transact(self, functions: Sequence[Function]) -> BatchResult:
        """Run the functions on the event loop, in slices.

        The connection's thread waits for locks and for the disk.
        """
        db = self._connection._conn
        batch = WriteBatch(db, functions, self._clock)
        try:
            while True:
                if not db.in_transaction and not batch.begin():
                    await run_on_db_thread(self._connection, batch.wait_to_begin)
                if batch.go_on(self._slice_seconds):
                    break
                await asyncio.sleep(0)
        except sqlite3.Error as error:
            return batch.failed(error)
        except BaseException:
            with suppress(sqlite3.Error):
                batch.roll_back()  # a held lock would block other connections
            raise
        return await self._commit_in_place(batch)

    async def _commit_in_place(self, batch: WriteBatch) -> BatchResult:
        """Commit if the path names the open files; otherwise return errors for the callers.

        If the files are known to be moved, nothing is written. If only the check after the commit finds a moved file,
        the outcome is uncertain: the writes are lost, unless the files come back. The check runs on the event loop,
        because another thread would wait for the interpreter lock after each system call.
        """
        if self.moved is not None:
            self.look()
        if self.moved is not None:
            return batch.refused(self.moved)
        if not batch.wrote:
            return batch.commit()
        written = await run_on_db_thread(self._connection, batch.commit)
        if written.anything and (moved := self._placed.missing()) is not None:
            refusal = CommitUncertain(f"the commit is in a file without a name ({moved})")
            written.results = [refusal] * len(written.results)
        return written

    async def _reopen(self) -> bool:
        """Replace an untrusted connection. Return whether that succeeded.

        After a failure the next batch tries again.
        """
        try:
            self.check_placed()
            fresh = await connect(lambda: without_busy_timeout(connect_again(self._path)))
        except (sqlite3.Error, OSError, StorageUnavailable):
            return False
        old, self._connection = self._connection, fresh
        self._trusted = True
        with suppress(sqlite3.Error):  # the open transaction of the old connection is lost in any case
            await old.close()
        return True


def _ride(function: Callable[[WriteTransaction], T], unit: WriteTransaction) -> tuple[T] | None:
    """Run a function if an earlier function has written, else return None."""
    return (function(unit),) if unit.wrote else None


def slice_seconds(sync_seconds: float) -> float:
    """Return for how many seconds functions may run at a time after a sync of `sync_seconds`."""
    return min(max(SLICE_SECONDS, sync_seconds * SLICE_OF_SYNC), MAX_SLICE_SECONDS)


async def connect(connector: Callable[[], sqlite3.Connection]) -> aiosqlite.Connection:
    """Open a connection on its own thread. If that fails, wait for the end of the thread, and raise the connector's
    exception.

    aiosqlite does not wait for the thread of a failed connection, and that thread can outlive the event loop. A test
    checks this for the pinned version.
    """
    connection = aiosqlite.Connection(connector, 64)
    try:
        return await connection
    except BaseException:
        await asyncio.to_thread(connection._thread.join)
        raise


def without_busy_timeout(db: sqlite3.Connection) -> sqlite3.Connection:
    """Prepare the connection for the event loop, and return it.

    The connection then never waits for a lock, and writes only in its COMMIT.
    """
    db.execute("PRAGMA busy_timeout = 0").close()
    db.execute("PRAGMA cache_spill = OFF").close()
    return db


def run_on_db_thread(connection: aiosqlite.Connection, function: Callable[[], T]) -> "asyncio.Future[T]":
    """Run a function on the connection's thread. Return the future of its result.

    aiosqlite has no public method for this. A test checks the pinned version. Raise ValueError if the connection is
    closed.
    """
    if not connection._running or connection._connection is None:
        raise ValueError("Connection closed")
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    connection._tx.put_nowait((future, function))
    return future
