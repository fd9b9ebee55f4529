"""One transaction of the writer: the waiting functions, in their order, and one COMMIT.

The functions run on the event loop, a few at a time. On another thread, each statement would release the interpreter
lock and compete with the event loop for it. A COMMIT or a wait for another process runs on the connection's thread.
"""

import sqlite3
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from posd.base.crashpoints import crash_point
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.connection import BUSY_TIMEOUT_MS

#: Errors after which the transaction has ended and the connection is still usable.
_HARMLESS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT})


class RecordedChange(msgspec.Struct, frozen=True):
    """Row of the feed: a change of one transaction or print job, and its reason."""

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


class WriteTransaction:
    """Argument of a function: the connection inside the transaction, and the changes to publish."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.changes: list[RecordedChange] = []
        self.moved_pages = False  # pages moved, which SQLite does not count as row changes
        self._before = db.total_changes

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit. An empty COMMIT does not wait for the disk."""
        return self.moved_pages or self.db.total_changes != self._before


Function = Callable[[WriteTransaction], Any]


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
            raise RolledBack(error) from error

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

    def failed(self, error: "sqlite3.Error | RolledBack") -> BatchResult:
        """Roll back because `begin` or `go_on` raised. Return the errors for the callers."""
        cause = error.cause if isinstance(error, RolledBack) else error
        self.roll_back()
        return BatchResult([unavailable(cause)] * len(self._functions), distrusted=broken(cause))

    def roll_back(self) -> None:
        """Roll back an open transaction."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


class RolledBack(Exception):
    """Rollback by SQLite itself (disk full, I/O error)."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def _raised(error: Exception) -> Exception:
    """Return `error` for the caller of the function that raised it, without the local variables in its frames.

    The exception is kept until the COMMIT. The rows that the function had read need not stay in memory.
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


#: Errors for a caller, with their reasons.
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
