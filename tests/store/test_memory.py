"""SQLite frees memory in a pause after many changes. The test reads SQLite's own count of its memory."""

import _sqlite3
import asyncio
import ctypes
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from posd.httpd.server import give_memory_back
from posd.storage import changes
from posd.storage import store as stores
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.store import MANY, MemoryTrimmer, Store
from tests.rig.waits import until

#: Change with a long reason, which fills pages.
CHANGE = RecordedChange(0, "2026-11-20T10:00:00.000Z", "transaction", "id", "x" * 1000, "active", None, None, ())
#: Pause after which memory is freed, and limit of the wait for the effect, in seconds.
SHORT = 0.05
PATIENCE = 10.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PAUSE_SECONDS", SHORT)


def used() -> int:
    """Return the bytes that SQLite uses, over all connections."""
    try:
        count = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used
    except AttributeError:
        pytest.skip("SQLite is a part of the interpreter, and does not show what it uses")
    count.restype = ctypes.c_int64
    return int(count())


def number(db: sqlite3.Connection) -> int:
    found: int = db.execute("SELECT count(*) FROM changes WHERE reason <> ''").fetchone()[0]
    return found


async def change(store: Store, count: int) -> None:
    def work(unit: WriteTransaction) -> None:
        for _ in range(count):
            changes.record(unit, CHANGE)

    await store.write(work)


@contextmanager
def running(store: Store) -> Iterator[None]:
    trimmer = MemoryTrimmer(store, give_memory_back)
    store.hub.listen(trimmer.changed, RecordedChange)
    task = asyncio.create_task(trimmer.run())
    try:
        yield
    finally:
        task.cancel()


async def test_memory_is_returned_in_a_pause_after_many_changes(store: Store) -> None:
    with running(store):
        await change(store, MANY)
        assert await store.look_up(number) == await store.read(number) == MANY
        full = used()
        await until(lambda: used() <= full - 1_000_000)
        await change(store, 1)
        assert await store.look_up(number) == await store.read(number) == MANY + 1
