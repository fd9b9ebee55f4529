"""A long read in steps has one state of the database, and nothing waits for the read. The SQLite file is real."""

import asyncio
import sqlite3
from collections.abc import Generator
from pathlib import Path

import pytest

from posd.storage import StorageUnavailable, marks
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store


def mark(unit: WriteTransaction) -> None:
    marks.add(unit.db, "2026-11-20T10:42:00.000Z", "test", {})


def count(db: sqlite3.Connection) -> int:
    found: int = db.execute("SELECT count(*) FROM marks WHERE kind = 'test'").fetchone()[0]
    return found


async def test_a_read_in_steps_sees_one_state_while_others_read_and_write(store: Store) -> None:
    loop, begun, done = asyncio.get_running_loop(), asyncio.Event(), False

    def steps(db: sqlite3.Connection) -> Generator[None, None, tuple[int, int]]:
        first = count(db)
        loop.call_soon_threadsafe(begun.set)
        while not done:
            yield
        return first, count(db)

    reading = asyncio.create_task(store.read_in_steps(steps, lambda: True))
    await begun.wait()
    await store.write(mark)
    assert await store.read(count) == 1
    done = True
    assert await reading == (0, 0)
    assert await store.read_in_steps(steps, lambda: True) == (1, 1)


async def test_a_cancelled_read_in_steps_ends(store: Store) -> None:
    taken = 0

    def steps(_db: sqlite3.Connection) -> Generator[None, None, int]:
        nonlocal taken
        while True:
            taken += 1
            yield

    assert await store.read_in_steps(steps, lambda: taken < 3) is None
    assert taken == 3


async def test_an_exception_of_a_step_is_raised_and_the_connection_closed(store: Store) -> None:
    kept: list[sqlite3.Connection] = []

    def steps(db: sqlite3.Connection) -> Generator[None, None, int]:
        kept.append(db)
        yield
        return count(db) // 0

    with pytest.raises(ZeroDivisionError):
        await store.read_in_steps(steps, lambda: True)

    def broken(db: sqlite3.Connection) -> Generator[None, None, int]:
        kept.append(db)
        yield
        return len(db.execute("SELECT * FROM nowhere").fetchall())

    with pytest.raises(StorageUnavailable, match="no such table"):
        await store.read_in_steps(broken, lambda: True)
    for db in kept:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            db.execute("SELECT 1")


async def test_after_the_close_of_the_store_no_read_begins(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    await store.close()

    def steps(db: sqlite3.Connection) -> Generator[None, None, int]:
        yield
        return count(db)

    with pytest.raises(StorageUnavailable, match="stopping"):
        await store.read_in_steps(steps, lambda: True)
