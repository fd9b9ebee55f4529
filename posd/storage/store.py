"""The store as the rest of posd sees it: `write`, `read`, and word of every change after its COMMIT."""

import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiosqlite

from posd.base.clocks import wall
from posd.storage import folder
from posd.storage.changes import Hub
from posd.storage.connection import connect_reader, lock
from posd.storage.errors import StorageUnavailable, StoreError
from posd.storage.folder import Told
from posd.storage.writer import Unit, Writer, broken, connect, hand_over, impatient

T = TypeVar("T")


class Store:
    """One database file, held by this process alone. Made by `Store.open`, ended by `close`."""

    def __init__(
        self, path: Path, writer: Writer, reader: aiosqlite.Connection, hub: Hub, lock_descriptor: int
    ) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self._near: sqlite3.Connection | None = None  # what look-ups use; opened by the first
        self._lock = lock_descriptor
        self._closed = False
        self.hub = hub

    @classmethod
    async def open(cls, path: Path, lock_path: Path, now: Callable[[], datetime] = wall) -> "Store":
        """Lock, open and migrate the database. Raise StoreError, in words, where that cannot be done."""
        descriptor = lock(lock_path)
        try:
            hub = Hub()
            writer = await Writer.open(path, hub.publish, now)
            try:
                reader = await connect(lambda: connect_reader(path))
            except sqlite3.Error as error:
                await writer.close()
                raise StoreError(f"the database {path} cannot be read ({error}); start posd again") from error
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, writer, reader, hub, descriptor)

    async def write(self, function: Callable[[Unit], T]) -> T:
        """See Writer.write."""
        return await self._writer.write(function)

    async def ride(self, function: Callable[[Unit], T]) -> T:
        """See Writer.ride."""
        return await self._writer.ride(function)

    async def alive(self) -> None:
        """Return once the thread that commits has answered. Raise StorageUnavailable where none will."""
        await self._writer.alive()

    async def watch(self, told: Told = folder.told) -> None:
        """See Writer.watch."""
        await self._writer.watch(told)

    def check_placed(self) -> None:
        """Raise StorageUnavailable where the path names other files than those that are open (see `Placed`)."""
        self._writer.check_placed()

    @property
    def write_error(self) -> str | None:
        """Why the newest commit failed, None where it did not."""
        return self._writer.error if self._writer.running else "the writer has ended; restart posd"

    @property
    def writer(self) -> Writer:
        """The writer, for what it measures of itself."""
        return self._writer

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on one consistent state of the database, in the caller's context. Raise StorageUnavailable."""
        if self._closed:
            raise StorageUnavailable("posd is stopping")
        reader = self._reader
        try:
            return await hand_over(reader, partial(copy_context().run, _snapshot, reader._conn, function))
        except sqlite3.DatabaseError as error:
            self._writer.damage.tell(error)
            if broken(error):
                await self._reopen(reader)
            raise StorageUnavailable(f"the database cannot be read now ({error})") from error

    async def read_in_steps(
        self, function: Callable[[sqlite3.Connection], Generator[None, None, T]], wanted: Callable[[], bool]
    ) -> T | None:
        """Run a generator that reads much on one consistent state of the database, on a connection of its own.

        No other read waits for it, and the loop turns to other things between two steps. Return what it returned; None
        where it is not `wanted` any more. Raise StorageUnavailable.
        """
        if self._closed:
            raise StorageUnavailable("posd is stopping")
        try:
            self.check_placed()
            reader = await connect(lambda: connect_reader(self._path))
            try:
                await hand_over(reader, lambda: reader._conn.execute("BEGIN"))
                steps = function(reader._conn)
                while wanted():
                    if (done := await hand_over(reader, partial(_step, steps))) is not None:
                        return done[0]
            finally:
                await reader.close()
        except sqlite3.DatabaseError as error:
            self._writer.damage.tell(error)
            raise StorageUnavailable(f"the database cannot be read now ({error})") from error
        return None

    async def look_up(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function that reads a few rows by an index on one consistent state of the database.

        It runs here, on the loop: two changes of threads cost more than that. What may read much is for `read`. Raise
        StorageUnavailable.
        """
        if self._closed:
            raise StorageUnavailable("posd is stopping")
        try:
            if self._near is None:
                self.check_placed()
                self._near = impatient(connect_reader(self._path))
            return _snapshot(self._near, function)
        except sqlite3.DatabaseError as error:
            if broken(error) and self._near is not None:
                self._near.close()
                self._near = None
        return await self.read(function)  # it waits, and says what is wrong

    async def empty_log(self) -> bool:
        """See Writer.empty_log."""
        return await self._writer.empty_log()

    async def release_memory(self) -> None:
        """Give back what the connections keep of the file; the system keeps it as well. Raise as `write` and `read`."""
        await self.write(lambda unit: _release(unit.db))
        await self.read(_release)
        if self._near is not None:
            await self.look_up(_release)

    async def _reopen(self, failed: aiosqlite.Connection) -> None:
        """Replace a reader that is no longer trusted; where that fails, the next read fails and tries again."""
        try:
            self.check_placed()
            fresh = await connect(lambda: connect_reader(self._path))
        except (sqlite3.Error, StorageUnavailable):
            return
        if self._reader is not failed or self._closed:  # another read was faster
            await fresh.close()
            return
        self._reader = fresh
        with suppress(sqlite3.Error):
            await failed.close()

    async def close(self) -> None:
        """Finish what is waiting, close the connections, give up the lock."""
        self._closed = True
        with suppress(sqlite3.Error):
            if self._near is not None:
                self._near.close()
            await self._reader.close()  # first: the last connection to close leaves no WAL behind, if it can write
        await self._writer.close()
        os.close(self._lock)


def _step(steps: Generator[None, None, T]) -> tuple[T] | None:
    """Take a step; return in a tuple what the last one returns."""
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
