"""The single writer with group commit.

Callers hand over functions. Those that gather while the last COMMIT is syncing run inside one `BEGIN IMMEDIATE`, and
the callers are answered after the COMMIT: a burst costs one sync, and state is decided in one place in one order.
What a function raises undoes what it wrote, and nothing else (see `Batch`).
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import msgspec
import structlog

from posd.base.clocks import monotonic, next_tick, wall
from posd.base.crashpoints import crash_point
from posd.base.locks import Histogram
from posd.storage import checkpoint, folder
from posd.storage.checkpoint import Checkpoints
from posd.storage.connection import BUSY_TIMEOUT_MS, Damage, connect_again, open_database
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.folder import Told
from posd.storage.placed import Placed

# One transaction of the writer: the functions that gathered, in their order, and one COMMIT.
#
# The functions run on the event loop, a few at a time: on a thread of their own, each of their statements would
# give the interpreter away and have to get it back from a busy loop. What waits for the disk, which is the COMMIT,
# or for another process runs on the connection's thread.

#: The transaction is gone, and the connection is as good as before.
_HARMLESS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT})


class Change(msgspec.Struct, frozen=True):
    """A row of the history: what became of one transaction or print job, and why (feed)."""

    seq: int
    at: str
    kind: str
    id: str
    reason: str
    phase: str
    status: str | None
    result: str | None
    attention: tuple[str, ...]
    terminal: str | None = None  # None in rows of the first schema


class Unit:
    """What a function gets: the connection, inside the transaction, and the changes that it makes known."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.changes: list[Change] = []
        self.moved_pages = False  # something is to be committed that SQLite does not count as a change of a row
        self._before = db.total_changes

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit; if not, COMMIT waits for nothing."""
        return self.moved_pages or self.db.total_changes != self._before


Function = Callable[[Unit], Any]


class Written(msgspec.Struct):
    """What became of a batch: results or exceptions by function, the changes, whether anything was written, and
    whether the connection is not to be trusted any more."""

    results: list[Any]
    changes: list[Change] = []
    anything: bool = False
    distrusted: bool = False
    sync_seconds: float | None = None  # how long the COMMIT of what was written took


class Batch:
    """Functions in one transaction: what one of them raises undoes what it wrote, and nothing else.

    `begin`, `go_on` until it says that all have run, `commit`. Where it does not say so and the transaction is gone, it
    is to be begun again. Any of the first two may raise sqlite3.Error: then nothing is written, and `failed` tells what
    the callers hear.

    A savepoint for each of the functions is two statements more, so first it is tried without. Where one raises that
    had written something, which is rare, all are rolled back and run again, each in a savepoint.
    """

    def __init__(self, db: sqlite3.Connection, functions: Sequence[Function]) -> None:
        self._db = db
        self._functions = functions
        self._unit = Unit(db)
        self._results: list[Any] = []
        self._in_savepoints = False

    def begin(self) -> bool:
        """Begin the transaction; tell whether that went, and no other process has the lock. Wait for nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def wait_to_begin(self) -> None:
        """Begin the transaction when the lock is free, within BUSY_TIMEOUT_MS. Blocks."""
        self._db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").close()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        finally:
            self._db.execute("PRAGMA busy_timeout = 0").close()

    def go_on(self, seconds: float) -> bool:
        """Run functions for so long, but at least one of them; tell whether all have run."""
        run = self._run_in_savepoint if self._in_savepoints else self._run
        end = monotonic() + seconds
        for function in self._functions[len(self._results) :]:
            if not run(function):
                self._forget_all()
                return False
            if monotonic() > end:
                break
        return len(self._results) == len(self._functions)

    def _run(self, function: Function) -> bool:
        """Run a function; False where it raised after it had written."""
        written = self._db.total_changes
        try:
            self._results.append(function(self._unit))
        except Exception as error:  # noqa: BLE001 - its caller hears of it
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
        except Exception as error:  # noqa: BLE001 - its caller hears of it
            self._raise_if_rolled_back(error)
            self._db.execute("ROLLBACK TO job")
            del self._unit.changes[known:]
            self._results.append(_raised(error))
        self._db.execute("RELEASE job")
        return True

    def _raise_if_rolled_back(self, error: Exception) -> None:
        if not self._db.in_transaction:
            raise RolledBack(error) from error

    def _forget_all(self) -> None:
        self.roll_back()
        self._unit = Unit(self._db)
        self._results = []
        self._in_savepoints = True

    @property
    def wrote(self) -> bool:
        """See `Unit.wrote`."""
        return self._unit.wrote

    def commit(self) -> Written:
        """Commit what was written, and tell what became of all. Blocks until it is on disk."""
        wrote = self.wrote
        crash_point("writer.before_commit")
        began = monotonic()
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self.roll_back()
            outcome = uncertain(error) if broken(error) else _unavailable(error)
            return Written([outcome] * len(self._functions), distrusted=broken(error))
        seconds = monotonic() - began if wrote else None
        crash_point("writer.committed")
        return Written(self._results, self._unit.changes, anything=wrote, sync_seconds=seconds)

    def refused(self, moved: str) -> Written:
        """Tell what the callers hear where a file was moved before the commit: nothing is written."""
        self.roll_back()
        return Written([StorageUnavailable(_CANNOT.format(moved))] * len(self._functions))

    def failed(self, error: "sqlite3.Error | RolledBack") -> Written:
        """Tell what the callers hear where `begin` or `go_on` raised: nothing is written."""
        cause = error.cause if isinstance(error, RolledBack) else error
        self.roll_back()
        return Written([_unavailable(cause)] * len(self._functions), distrusted=broken(cause))

    def roll_back(self) -> None:
        """Undo all, where anything is open."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


class RolledBack(Exception):
    """SQLite has rolled everything back by itself (disk full, I/O error)."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def _raised(error: Exception) -> Exception:
    """Return what the caller of a function hears of what it raised."""
    if isinstance(error, StopIteration):  # which no future takes
        error = RuntimeError(f"a function of a commit raised {error!r}")
    return _unavailable(error) if _is_trouble(error) else error


def _is_trouble(error: Exception) -> bool:
    """Whether it is trouble with the disk or the file, rather than a fault of the function."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def broken(error: BaseException) -> bool:
    """Whether the connection that raised it is not to be trusted any more."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _HARMLESS


_CANNOT = "the database cannot be written now ({})"


def _unavailable(error: BaseException) -> StorageUnavailable:
    refusal = StorageUnavailable(_CANNOT.format(error))
    refusal.__cause__ = error
    return refusal


def uncertain(error: BaseException) -> CommitUncertain:
    """Return what the callers hear where it is not known whether the commit is on disk."""
    refusal = CommitUncertain(f"the commit failed ({error})")
    refusal.__cause__ = error
    return refusal


T = TypeVar("T")

#: Functions in one COMMIT; more would make the first of them wait for the last.
MAX_BATCH = 128
#: Functions that may wait; past it callers hear at once that they should come again, and memory stays bounded.
MAX_WAITING = 4096
#: So long functions run before the loop turns to other things, in seconds; each takes a twentieth of that.
SLICE_SECONDS = 0.001
#: On a slow disk it is this part of the newest sync, up to so many seconds: who waits for the disk waits longer than
#: that anyway, and between two slices the disk has nothing to do.
SLICE_OF_SYNC = 0.25
MAX_SLICE_SECONDS = 0.01

#: Buckets of how long a COMMIT takes, in seconds: a disk with a cache takes under one ms, tired flash a second.
COMMIT_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
#: Buckets of how many functions a COMMIT has, up to MAX_BATCH.
FUNCTION_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)

#: How often it is looked whether the files are those that the path names, in seconds, also where nothing is reported of
#: their folder; each commit looks too. And while they are not.
LOOK_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 2.0

#: What a caller hears where what it wrote is not surely on disk.
_NOT_STORED = (StorageUnavailable, CommitUncertain)

_Job = tuple[Function, "asyncio.Future[Any]"]

log = structlog.get_logger("posd.store")


class Writer:
    """Runs functions on the one writing connection. Made by `Writer.open`, ended by `close`."""

    def __init__(self, path: Path, connection: aiosqlite.Connection, publish: Callable[[Sequence[Change]], None]):
        self._path = path
        self._connection = connection
        self._publish = publish
        self._waiting: list[_Job] = []
        self._riding: list[_Job] = []  # they go with the next batch, and wake no one
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()  # who uses the connection: a batch, or what must not be within one
        self._closing = False
        self._trusted = True
        self._placed = Placed(path)
        self._placed.note()
        self.damage = Damage(path)
        self.moved: str | None = None  # which file was not where it was opened at the newest look, in words
        self._saved = False  # what was in a log that lost its name is in the database file
        self.error: str | None = None  # why the newest commit failed, None where it did not
        self._slice_seconds = SLICE_SECONDS
        self.commit_seconds = Histogram(COMMIT_BOUNDS)
        self.commit_functions = Histogram(FUNCTION_BOUNDS)
        self.checkpoints = Checkpoints()
        self._pause_timer: asyncio.TimerHandle | None = None
        self._pump = asyncio.create_task(self._run(), name="store-writer")

    @classmethod
    async def open(
        cls, path: Path, publish: Callable[[Sequence[Change]], None], now: Callable[[], datetime] = wall
    ) -> "Writer":
        """Open and migrate the database. `publish` hears, on the loop, of every change after its COMMIT.

        Raise StoreError.
        """
        return cls(path, await connect(lambda: impatient(open_database(path, now))), publish)

    async def write(self, function: Callable[[Unit], T]) -> T:
        """Run a function in the next COMMIT and return what it returned, once that is on disk.

        It may be run twice, the first time in vain: what it does, it does to the database and to what it returns.

        Raise what the function raised (nothing of it is written then), StorageUnavailable, CommitUncertain.
        A caller that is cancelled does not stop its function.
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

    async def ride(self, function: Callable[[Unit], T]) -> T:
        """Run a function in the next COMMIT that something else asks for: it has no sync of its own.

        Otherwise as `write`; where no other COMMIT comes before `close`, it is not run.
        """
        while True:
            future: asyncio.Future[tuple[T] | None] = asyncio.get_running_loop().create_future()
            self._riding.append((partial(_ride, function), future))
            if (result := await future) is not None:
                return result[0]

    async def watch(self, told: Told = folder.told) -> None:
        """Look from time to time, and when one has moved, whether the files are those that the path names.

        `told`: what tells that something has changed in their folder.
        """
        changed = asyncio.Event()
        with told(self._path.parent, changed.set):
            while True:
                seconds = LOOK_SECONDS if self.moved is None else LOOK_AGAIN_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_tick(seconds)):
                        await changed.wait()
                changed.clear()
                self.look()
                if self.moved is not None and not self._saved and self._placed.log_alone:
                    async with self._turn:
                        with suppress(sqlite3.Error):  # a kill would take what is in a log without a name
                            self._saved = await self._to_its_end(checkpoint.write_back)
                    if self._saved:
                        log.info("store.log_saved", database=str(self._path))

    def look(self) -> None:
        """Look whether the files are those that the path names; while they are not, nothing can be written."""
        before, self.moved = self.moved, self._placed.missing()
        if self.moved is not None:
            self.error = _CANNOT.format(self.moved)
        elif before is not None:
            self.error = None
            self._saved = False
            log.info("store.file_back", database=str(self._path))
        if before is None and self.moved is not None:
            log.error("store.file_moved", database=str(self._path), detail=self.moved)

    def check_placed(self) -> None:
        """Raise StorageUnavailable where another file would be opened by the path."""
        self.look()
        if self.moved is not None:
            raise StorageUnavailable(f"the database cannot be opened now ({self.moved})")

    async def alive(self) -> None:
        """Return once the thread that commits has answered. Raise StorageUnavailable where nothing is run any more."""
        if not self.running:
            raise StorageUnavailable("the writer has ended")
        await hand_over(self._connection, lambda: None)

    async def empty_log(self) -> bool:
        """Write what is committed into the database file, and empty the log; False where a connection reads in it now.

        Commits wait meanwhile, as they do for each checkpoint. Raise StorageUnavailable.
        """
        async with self._turn:
            self.check_placed()
            if self._closing or not self._trusted:
                raise StorageUnavailable("the log of the database cannot be emptied now")
            try:
                return await self._checkpoint(checkpoint.empty_log)
            except sqlite3.Error as error:
                raise _unavailable(error) from error

    async def _checkpoint(self, make: Callable[[sqlite3.Connection], bool]) -> bool:
        """Make a checkpoint, for who has the turn, and return whether it was a whole one. Raise sqlite3.Error."""
        began = monotonic()
        try:
            return await self._to_its_end(make)
        except sqlite3.Error as error:
            self._trusted = not broken(error)
            raise
        finally:
            self.checkpoints.made(monotonic() - began)

    async def _to_its_end(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on the connection's thread, for who has the turn. Raise what it raises."""
        work = hand_over(self._connection, partial(function, self._connection._conn))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})  # a batch that began now would hold up the loop
            raise

    @property
    def waiting(self) -> int:
        """How many functions wait for the next COMMIT."""
        return len(self._waiting)

    @property
    def running(self) -> bool:
        """Whether functions are still run; only a fault of posd's own can end that before `close`."""
        return not self._pump.done()

    async def close(self) -> None:
        """Run what is waiting, then close."""
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
            if (seconds := self.checkpoints.due(monotonic())) is not None:
                await self._write_back(seconds)
            if self._closing:
                self._wake.set()

    async def _write_back(self, seconds: float) -> None:
        """Make the checkpoint that is due, or have it looked at again in so many seconds: the pause may end before.

        The callers of the commits before it have been answered.
        """
        if seconds:
            if self._pause_timer is None:
                self._pause_timer = asyncio.get_running_loop().call_later(seconds, self._look_for_pause)
            return
        async with self._turn:
            if self._trusted and self.moved is None:
                with suppress(Exception):  # all is in the log still, it is tried again, and the writer outlives it
                    await self._checkpoint(checkpoint.write_back)

    def _look_for_pause(self) -> None:
        self._pause_timer = None
        self._wake.set()

    async def _commit(self, batch: Sequence[_Job]) -> None:
        if self._trusted or await self._reopen():
            try:
                written = await self._transact([job[0] for job in batch])
            except Exception as error:  # noqa: BLE001 - the writer outlives it; each caller hears of it
                written = Written([uncertain(error)] * len(batch), distrusted=True)
        else:
            refusal = StorageUnavailable("the disk failed, and the database cannot be trusted again yet")
            written = Written([refusal] * len(batch))
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
            self.damage.tell(failed[0].__cause__)
        elif written.anything:  # a commit of nothing succeeds on a full disk too
            self.error = None
        if written.sync_seconds is not None:
            self._slice_seconds = slice_seconds(written.sync_seconds)
            self.commit_seconds.observe(written.sync_seconds)
            self.commit_functions.observe(len(results))
            self.checkpoints.committed(len(results), monotonic())
        self._publish(written.changes)
        if written.distrusted:
            self._trusted = False
            await self._reopen()

    async def _transact(self, functions: Sequence[Function]) -> Written:
        """Run the functions here, in slices; wait for a lock or for the disk on the connection's thread."""
        db = self._connection._conn
        batch = Batch(db, functions)
        try:
            while True:
                if not db.in_transaction and not batch.begin():
                    await hand_over(self._connection, batch.wait_to_begin)
                if batch.go_on(self._slice_seconds):
                    break
                await asyncio.sleep(0)
        except (sqlite3.Error, RolledBack) as error:
            return batch.failed(error)
        except BaseException:
            with suppress(sqlite3.Error):
                batch.roll_back()  # else the lock would stay, and no other connection could be opened
            raise
        return await self._commit_in_place(batch)

    async def _commit_in_place(self, batch: Batch) -> Written:
        """Commit where the files are those that the path names; else the callers hear.

        Where it is known that they were moved, nothing is written. Where that is found after the commit, it is
        uncertain: what was written counts once they are back, and is lost where they are not. It is looked here and not
        on the other thread, which would have to wait for the interpreter after each system call.
        """
        if self.moved is not None:
            self.look()
        if self.moved is not None:
            return batch.refused(self.moved)
        if not batch.wrote:
            return batch.commit()
        written = await hand_over(self._connection, batch.commit)
        if written.anything and (moved := self._placed.missing_now()) is not None:
            refusal = CommitUncertain(f"the commit is in a file without a name ({moved})")
            written.results = [refusal] * len(written.results)
        return written

    async def _reopen(self) -> bool:
        """Replace a connection that is no longer trusted, and tell whether that went well; else it is tried again."""
        try:
            self.check_placed()
            fresh = await connect(lambda: impatient(connect_again(self._path)))
        except (sqlite3.Error, OSError, StorageUnavailable):
            return False
        old, self._connection = self._connection, fresh
        self._trusted = True
        with suppress(sqlite3.Error):  # what it had open is gone either way
            await old.close()
        return True


def _ride(function: Callable[[Unit], T], unit: Unit) -> tuple[T] | None:
    """Run a function where something is to be committed before it; else return None."""
    return (function(unit),) if unit.wrote else None


def slice_seconds(sync_seconds: float) -> float:
    """Return for how long functions may run at a time where the newest sync took so long."""
    return min(max(SLICE_SECONDS, sync_seconds * SLICE_OF_SYNC), MAX_SLICE_SECONDS)


async def connect(connector: Callable[[], sqlite3.Connection]) -> aiosqlite.Connection:
    """Open a connection on a thread of its own. Raise what the connector raises, when that thread has ended.

    aiosqlite does not wait for the thread of a connection that failed; it could outlive the loop (pinned, tested).
    """
    connection = aiosqlite.Connection(connector, 64)
    try:
        return await connection
    except BaseException:
        await asyncio.to_thread(connection._thread.join)
        raise


def impatient(db: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection for the event loop: it does not wait for a lock, nor write or sync before its COMMIT."""
    db.execute("PRAGMA busy_timeout = 0").close()
    db.execute("PRAGMA cache_spill = OFF").close()
    return db


def hand_over(connection: aiosqlite.Connection, function: Callable[[], T]) -> "asyncio.Future[T]":
    """Have a function run on the connection's own thread, from now on; return what it will have returned.

    aiosqlite has no public way to do so (pinned, tested). Raise ValueError where the connection is closed.
    """
    if not connection._running or connection._connection is None:
        raise ValueError("Connection closed")
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    connection._tx.put_nowait((future, function))
    return future
