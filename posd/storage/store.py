"""Store that other packages use: it has `write` and `read`, and reports every change after its COMMIT."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiosqlite
import msgspec

from posd.base.clocks import wall
from posd.storage import CommitUncertain, StorageUnavailable, StoreError
from posd.storage.batch import RecordedChange
from posd.storage.changes import Hub
from posd.storage.connection import connect_reader, lock, lock_file, make_database
from posd.storage.writer import DatabaseWriter, broken, connect, run_on_db_thread, without_busy_timeout

T = TypeVar("T")


class Store:
    """One database file, locked by this process. `Store.open` creates the object, and `close` ends it."""

    def __init__(
        self, path: Path, writer: DatabaseWriter, reader: aiosqlite.Connection, hub: Hub, locks: Sequence[int]
    ) -> None:
        self.path = path
        self.writer = writer
        #: Methods of `DatabaseWriter`.
        self.write, self.ride, self.alive = writer.write, writer.ride, writer.alive
        self.watch, self.check_placed, self.empty_log = writer.watch, writer.check_placed, writer.empty_log
        self._reader = reader
        self._near: sqlite3.Connection | None = None  # connection for `look_up`, which opens it at the first call
        self._locks = locks
        self._closed = False
        self.hub = hub

    @classmethod
    async def open(cls, path: Path, lock_path: Path, now: Callable[[], datetime] = wall) -> "Store":
        """Lock, open and migrate the database. Raise StoreError."""
        held = [lock(lock_path)]
        try:
            make_database(path, now)
            held.append(lock_file(path))
            hub = Hub()
            writer = await DatabaseWriter.open(path, hub.publish, now)
            try:
                reader = await connect(lambda: connect_reader(path))
            except sqlite3.Error as error:
                await writer.close()
                raise StoreError(f"the database {path} cannot be read ({error}); start posd again") from error
        except BaseException:
            _give_up(held)
            raise
        return cls(path, writer, reader, hub, held)

    @property
    def write_error(self) -> str | None:
        """Error of the newest commit, or None if it succeeded."""
        return self.writer.error if self.writer.running else "the writer has ended; restart posd"

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on one consistent state of the database.

        The function runs in the caller's context (contextvars). Raise StorageUnavailable.
        """
        if self._closed:
            raise StorageUnavailable("posd is stopping")
        reader = self._reader
        try:
            return await run_on_db_thread(reader, partial(copy_context().run, _snapshot, reader._conn, function))
        except sqlite3.DatabaseError as error:
            self.writer.note_damage(error)
            if broken(error):
                await self._reopen(reader)
            raise StorageUnavailable(f"the database cannot be read now ({error})") from error

    async def read_in_steps(
        self, function: Callable[[sqlite3.Connection], Generator[None, None, T]], wanted: Callable[[], bool]
    ) -> T | None:
        """Run a long reading generator on one consistent state of the database, on its own connection.

        No other read waits for the generator, and the event loop runs other tasks between its steps. Return the
        generator's result, or None once `wanted` returns False. Raise StorageUnavailable.
        """
        if self._closed:
            raise StorageUnavailable("posd is stopping")
        try:
            self.check_placed()
            reader = await connect(lambda: connect_reader(self.path))
            try:
                await run_on_db_thread(reader, lambda: reader._conn.execute("BEGIN"))
                steps = function(reader._conn)
                while wanted():
                    if (done := await run_on_db_thread(reader, partial(_step, steps))) is not None:
                        return done[0]
            finally:
                await reader.close()
        except sqlite3.DatabaseError as error:
            self.writer.note_damage(error)
            raise StorageUnavailable(f"the database cannot be read now ({error})") from error
        return None

    async def look_up(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function that reads a few rows by an index, on one consistent state of the database.

        The function runs on the event loop, because the two thread switches of `read` take longer. Use `read` for more
        rows. Raise StorageUnavailable.
        """
        if self._closed:
            raise StorageUnavailable("posd is stopping")
        try:
            if self._near is None:
                self.check_placed()
                self._near = without_busy_timeout(connect_reader(self.path))
            return _snapshot(self._near, function)
        except sqlite3.DatabaseError as error:
            if broken(error) and self._near is not None:
                self._near.close()
                self._near = None
        return await self.read(function)  # wait for the lock, or raise the error

    async def release_memory(self) -> None:
        """Free the page caches of the connections. The system caches the file too. Raise as `write` and `read` do."""
        await self.write(lambda unit: _release(unit.db))
        await self.read(_release)
        if self._near is not None:
            await self.look_up(_release)

    async def _reopen(self, failed: aiosqlite.Connection) -> None:
        """Replace a read connection after an error. If that fails, the next read tries again."""
        try:
            self.check_placed()
            fresh = await connect(lambda: connect_reader(self.path))
        except (sqlite3.Error, StorageUnavailable):
            return
        if self._reader is not failed or self._closed:  # another read has replaced it
            await fresh.close()
            return
        self._reader = fresh
        with suppress(sqlite3.Error):
            await failed.close()

    async def close(self) -> None:
        """Finish the waiting writes, close the connections, release the locks."""
        self._closed = True
        with suppress(sqlite3.Error):
            if self._near is not None:
                self._near.close()
            # Close readers first: the last connection removes the WAL, and must be able to write.
            await self._reader.close()
        await self.writer.close()
        _give_up(self._locks)


def _give_up(locks: Sequence[int]) -> None:
    for descriptor in reversed(locks):
        os.close(descriptor)


def _step(steps: Generator[None, None, T]) -> tuple[T] | None:
    """Run one step of a generator. After the last step, return the generator's result in a tuple, else None."""
    try:
        next(steps)
    except StopIteration as done:
        return (done.value,)
    return None


def _release(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA shrink_memory").close()


def _snapshot(db: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    db.execute("BEGIN")
    try:
        return function(db)
    finally:
        db.execute("ROLLBACK")


# Release of memory in a pause after many changes: page caches of the connections, and freed memory that the C library
# keeps. After some thousand payments, these are three megabytes together. The next reads load some pages again.

#: Number of changes after which memory is released. A payment has six changes. A release takes some milliseconds, which
#: is too long for each payment.
MANY = 1000
#: Length of a pause without changes, in seconds.
PAUSE_SECONDS = 5.0


class MemoryTrimmer(msgspec.Struct, eq=False):
    """Release of memory after many changes. Run `run` as a task."""

    store: Store
    #: Returns freed memory of the C library to the system.
    give_memory_back: Callable[[], None]
    _changes: int = 0
    _many: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def changed(self, changes: Sequence[RecordedChange]) -> None:
        """Count the changes of a commit."""
        self._changes += len(changes)
        if self._changes >= MANY:
            self._many.set()

    async def run(self) -> None:
        """Release memory in the first pause after many changes, until cancelled."""
        while True:
            await self._many.wait()
            await self._pause()
            self._changes = 0
            self._many.clear()
            with suppress(StorageUnavailable, CommitUncertain):  # the next pause tries again
                await self.store.release_memory()
            self.give_memory_back()

    async def _pause(self) -> None:
        """Wait until nothing has changed for PAUSE_SECONDS."""
        before = None
        while before != self._changes:
            before = self._changes
            await asyncio.sleep(PAUSE_SECONDS)
