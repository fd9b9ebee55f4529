"""The single writer with group commit (design 9).

Callers hand over functions. Whatever has gathered while the last COMMIT was syncing runs inside one `BEGIN IMMEDIATE`,
and the callers are answered after the COMMIT: a burst costs one sync, and state is decided by one thread in one order.
What a function raises undoes what it wrote, and nothing else.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import msgspec

from posd.crashpoints import crash_point
from posd.store.errors import CommitUncertain, StorageUnavailable
from posd.store.opening import connect_again, open_database, tell_damage

T = TypeVar("T")

#: Functions in one COMMIT; more would make the first of them wait for the last.
MAX_BATCH = 256
#: Functions that may wait; past it callers hear at once that they should come again, and memory stays bounded.
MAX_WAITING = 4096

#: The transaction is gone, and the connection is as good as before.
_HARMLESS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT})


class Change(msgspec.Struct, frozen=True):
    """A row of the history: what became of one transaction, and why (feed)."""

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


class Written(msgspec.Struct):
    """What became of a batch: results or exceptions by function, the changes, whether anything was written, and
    whether the connection is not to be trusted any more."""

    results: list[Any]
    changes: list[Change] = []
    anything: bool = False
    distrusted: bool = False


Function = Callable[[Unit], Any]
_Job = tuple[Function, "asyncio.Future[Any]"]


class Writer:
    """Runs functions on the one writing connection. Made by `Writer.open`, ended by `close`."""

    def __init__(self, path: Path, connection: aiosqlite.Connection, publish: Callable[[Sequence[Change]], None]):
        self._path = path
        self._connection = connection
        self._publish = publish
        self._waiting: list[_Job] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._trusted = True
        self.error: str | None = None  # why the newest commit failed, None where it did not
        self._pump = asyncio.create_task(self._run(), name="store-writer")

    @classmethod
    async def open(cls, path: Path, publish: Callable[[Sequence[Change]], None]) -> "Writer":
        """Open and migrate the database. `publish` hears, on the loop, of every change after its COMMIT.

        Raise StoreError.
        """
        return cls(path, await connect(lambda: open_database(path)), publish)

    async def write(self, function: Callable[[Unit], T]) -> T:
        """Run a function in the next COMMIT and return what it returned, once that is on disk.

        It may be run twice, the first time in vain: what it does, it does to the database and to what it returns.

        Raise what the function raised (nothing of it is written then), StorageUnavailable, CommitUncertain.
        A caller that is cancelled does not stop its function.
        """
        if self._closing:
            raise StorageUnavailable("posd is stopping")
        if len(self._waiting) >= MAX_WAITING:
            raise StorageUnavailable("too many writes are waiting for the disk")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((function, future))
        self._wake.set()
        return await future

    @property
    def running(self) -> bool:
        """Whether functions are still run; only a fault of posd's own can end that before `close`."""
        return not self._pump.done()

    async def close(self) -> None:
        """Run what is waiting, then close."""
        self._closing = True
        self._wake.set()
        await self._pump
        await self._connection.close()

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            await self._wake.wait()
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if not self._waiting:
                self._wake.clear()
            if batch:
                await self._commit(batch)
            if self._closing:
                self._wake.set()

    async def _commit(self, batch: Sequence[_Job]) -> None:
        if self._trusted or await self._reopen():
            try:
                written = await hand_over(self._connection, run_batch, [job[0] for job in batch])
            except Exception as error:  # noqa: BLE001 - the writer outlives whatever it was; each caller hears of it
                written = Written([_uncertain(error)] * len(batch), distrusted=True)
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
        failed = [result for result in results if isinstance(result, StorageUnavailable | CommitUncertain)]
        if failed:
            self.error = str(failed[0])
            tell_damage(self._path, failed[0].__cause__)
        elif written.anything:  # a commit of nothing succeeds on a full disk too
            self.error = None
        self._publish(written.changes)
        if written.distrusted:
            self._trusted = False
            await self._reopen()

    async def _reopen(self) -> bool:
        """Replace a connection that is no longer trusted, and tell whether that went well; else it is tried again."""
        try:
            fresh = await connect(lambda: connect_again(self._path))
        except (sqlite3.Error, OSError):
            return False
        old, self._connection = self._connection, fresh
        self._trusted = True
        with suppress(sqlite3.Error):  # what it had open is gone either way
            await old.close()
        return True


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


async def on_thread(connection: aiosqlite.Connection, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function on the connection's own thread. Raise ValueError where the connection is closed."""
    return await hand_over(connection, function, *arguments)


def hand_over(connection: aiosqlite.Connection, function: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
    """Have a function run on the connection's own thread, from now on; return what it will have returned.

    aiosqlite has no public way to do so (pinned, tested). Raise ValueError where the connection is closed.
    """
    if not connection._running or connection._connection is None:
        raise ValueError("Connection closed")
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    connection._tx.put_nowait((future, lambda: function(connection._conn, *arguments)))
    return future


def run_batch(db: sqlite3.Connection, functions: Sequence[Function]) -> Written:
    """Run functions in one transaction: what one of them raises undoes what it wrote, and nothing else.

    A savepoint for each of them is two statements more, so first it is tried without. Where one raises that had written
    something, which is rare, all are rolled back and run again, each in a savepoint.
    """
    before = db.total_changes
    try:
        db.execute("BEGIN IMMEDIATE")
        unit = Unit(db)
        results = _run_plain(unit, functions)
        if results is None:
            db.execute("ROLLBACK")
            before = db.total_changes
            db.execute("BEGIN IMMEDIATE")
            unit = Unit(db)
            results = _run_in_savepoints(unit, functions)
    except _RolledBack as rolled_back:
        error = rolled_back.cause
        return Written([_unavailable(error)] * len(functions), distrusted=broken(error))
    except sqlite3.Error as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        return Written([_unavailable(error)] * len(functions), distrusted=broken(error))
    crash_point("writer.before_commit")
    try:
        db.execute("COMMIT")
    except sqlite3.Error as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        outcome = _unavailable(error) if not broken(error) else _uncertain(error)
        return Written([outcome] * len(functions), distrusted=broken(error))
    crash_point("writer.committed")
    return Written(results, unit.changes, anything=db.total_changes != before)


class _RolledBack(Exception):
    """SQLite has rolled everything back by itself (disk full, I/O error)."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def _run_plain(unit: Unit, functions: Sequence[Function]) -> list[Any] | None:
    """Run functions; None where one raised after it had written. Raise _RolledBack."""
    results: list[Any] = []
    for function in functions:
        written = unit.db.total_changes
        try:
            results.append(function(unit))
        except Exception as error:
            if not unit.db.in_transaction:
                raise _RolledBack(error) from error
            if unit.db.total_changes != written:
                return None
            results.append(_unavailable(error) if _is_trouble(error) else error)
    return results


def _run_in_savepoints(unit: Unit, functions: Sequence[Function]) -> list[Any]:
    """Run functions, each in a savepoint. Raise _RolledBack, sqlite3.Error."""
    results: list[Any] = []
    for function in functions:
        known = len(unit.changes)
        unit.db.execute("SAVEPOINT job")
        try:
            results.append(function(unit))
        except Exception as error:
            if not unit.db.in_transaction:
                raise _RolledBack(error) from error
            unit.db.execute("ROLLBACK TO job")
            del unit.changes[known:]
            results.append(_unavailable(error) if _is_trouble(error) else error)
        unit.db.execute("RELEASE job")
    return results


def _is_trouble(error: Exception) -> bool:
    """Whether it is trouble with the disk or the file, rather than a fault of the function."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def broken(error: BaseException) -> bool:
    """Whether the connection that raised it is not to be trusted any more."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _HARMLESS


def _unavailable(error: BaseException) -> StorageUnavailable:
    refusal = StorageUnavailable(f"the database cannot be written now ({error})")
    refusal.__cause__ = error
    return refusal


def _uncertain(error: BaseException) -> CommitUncertain:
    refusal = CommitUncertain(f"the commit failed ({error})")
    refusal.__cause__ = error
    return refusal
