"""Opening the database: mode, lock, pragmas, migrations, and refusals."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from posd.client import PaymentStore, StoredPayment
from posd.records.callback_urls import load_keys
from posd.storage import StoreError, connection
from posd.storage.connection import connect_reader, open_database, schema_version
from posd.storage.store import Store
from posd.tls import issue
from posd.upkeep.restore import Restore
from tests.rig.folders import folders_not_synced


def test_the_file_is_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_database(tmp_path / "posd.db").close()
    finally:
        os.umask(before)
    assert (tmp_path / "posd.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", connection.BUSY_TIMEOUT_MS)],
)
def test_the_pragmas_are_set(tmp_path: Path, pragma: str, value: object) -> None:
    db = open_database(tmp_path / "posd.db")
    assert db.execute(f"PRAGMA {pragma}").fetchone()[0] == value
    db.close()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_database(tmp_path / "posd.db").close()
    reader = connect_reader(tmp_path / "posd.db")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM events")
    reader.close()


def test_a_failed_migration_leaves_the_previous_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "posd.db"
    open_database(path).close()
    good = list(connection.migrations())
    broken = (schema_version() + 1, "CREATE TABLE half (a); INSERT INTO nowhere VALUES (1);")
    monkeypatch.setattr(connection, "migrations", lambda: iter([*good, broken]))
    with pytest.raises(StoreError, match="nothing was changed"):
        open_database(path)
    monkeypatch.undo()
    db = open_database(path)
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    assert "half" not in tables
    db.close()


#: Program that opens the database as a daemon does, or prints why it cannot.
OPENS = """
import asyncio, sys
from pathlib import Path
from posd.storage import StoreError
from posd.storage.store import Store

async def opens(path):
    store = await Store.open(path, path.with_name("posd.db.lock"))
    await store.close()

try:
    asyncio.run(opens(Path(sys.argv[1])))
except StoreError as error:
    print(error)
"""


def opened(path: Path) -> str:
    """Open a database in another process. Return the error, or "" without an error."""
    return subprocess.run([sys.executable, "-c", OPENS, str(path)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("link", [Path.hardlink_to, Path.symlink_to])
async def test_a_database_is_opened_only_once_whatever_its_path(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    path, other = tmp_path / "posd.db", tmp_path / "other" / "posd.db"
    store = await Store.open(path, tmp_path / "posd.db.lock")
    other.parent.mkdir()
    link(other, path)
    assert "another posd is running" in opened(other)
    files = {item.name for item in other.parent.iterdir()}
    assert files <= {"posd.db", "posd.db.lock"}, "a second WAL beside a second name would lose payments"
    await store.close()


@pytest.mark.parametrize("link", [Path.hardlink_to, Path.symlink_to])
async def test_a_database_in_use_under_another_path_is_not_replaced(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    path, other = tmp_path / "posd.db", tmp_path / "other" / "posd.db"
    store = await Store.open(path, tmp_path / "posd.db.lock")
    other.parent.mkdir()
    link(other, path)
    with (
        pytest.raises(StoreError, match="posd is running"),
        Restore(other, other.with_name("posd.db.lock"), other.with_name("callback.key"), datetime.now(UTC)),
    ):
        pass
    await store.close()


def test_a_database_with_two_names_is_refused_until_one_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    assert opened(path) == ""
    other = tmp_path / "copy.db"
    other.hardlink_to(path)
    assert f"find / -xdev -samefile {path}" in opened(path)
    other.unlink()
    assert opened(path) == ""


async def test_the_lock_on_the_file_does_not_conflict_with_sqlites_locks(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    store = await Store.open(path, tmp_path / "posd.db.lock")
    alone = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode = DELETE')"
    command = [sys.executable, "-c", alone, str(path)]
    for _ in range(2):
        assert "database is locked" in subprocess.run(command, capture_output=True, text=True, check=False).stderr
        await store.write(lambda unit: unit.db.execute("CREATE TABLE IF NOT EXISTS t (a)"))
    await store.close()
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


async def test_a_file_system_that_cannot_sync_folders_is_accepted(tmp_path: Path) -> None:
    with folders_not_synced():
        (tmp_path / "tls").mkdir()
        issue.init(tmp_path / "tls", names=["localhost"], addresses=[])
        keys = load_keys(tmp_path / "callback.key", may_make=True)
        for _ in range(2):
            store = await Store.open(tmp_path / "posd.db", tmp_path / "lock")
            await store.close()
        with Restore(
            tmp_path / "posd.db", tmp_path / "lock", tmp_path / "callback.key", datetime.now(UTC)
        ) as restoring:
            restoring.prepare(None, lambda *_: None, {})
            restoring.commit()
        assert load_keys(tmp_path / "callback.key", may_make=False) == keys
        PaymentStore(tmp_path / "till").save(StoredPayment("4b0d5b0c-7a9e-4a8e-9d7d-3d2a6b9f0c11", b"{}"))
