"""One transaction of the writer: the functions that gathered, in their order, and one COMMIT.

The functions run on the event loop, a few at a time: on a thread of their own, each of their statements would give the
interpreter away and have to get it back from a busy loop. What waits for the disk, which is the COMMIT, or for another
process runs on the connection's thread.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from posd.base.crashpoints import crash_point
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.opening import BUSY_TIMEOUT_MS

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
        self._before = db.total_changes
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
        end = time.perf_counter() + seconds
        while len(self._results) < len(self._functions):
            if not run(self._functions[len(self._results)]):
                self._forget_all()
                return False
            if time.perf_counter() > end:
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
        self._before = self._db.total_changes
        self._results = []
        self._in_savepoints = True

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit; if not, `commit` waits for nothing."""
        return self._unit.moved_pages or self._db.total_changes != self._before

    def commit(self) -> Written:
        """Commit what was written, and tell what became of all. Blocks until it is on disk."""
        wrote = self.wrote
        crash_point("writer.before_commit")
        began = time.perf_counter()
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self.roll_back()
            outcome = uncertain(error) if broken(error) else _unavailable(error)
            return Written([outcome] * len(self._functions), distrusted=broken(error))
        seconds = time.perf_counter() - began if wrote else None
        crash_point("writer.committed")
        return Written(self._results, self._unit.changes, anything=wrote, sync_seconds=seconds)

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


def _unavailable(error: BaseException) -> StorageUnavailable:
    refusal = StorageUnavailable(f"the database cannot be written now ({error})")
    refusal.__cause__ = error
    return refusal


def uncertain(error: BaseException) -> CommitUncertain:
    """Return what the callers hear where it is not known whether the commit is on disk."""
    refusal = CommitUncertain(f"the commit failed ({error})")
    refusal.__cause__ = error
    return refusal
