"""Opening the database: mode, lock, pragmas, migrations, and what is refused."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from posd.storage import connection
from posd.storage.connection import connect_reader, lock, open_database, schema_version
from posd.storage.errors import StoreError
from posd.storage.store import Store


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
def test_pragmas(tmp_path: Path, pragma: str, value: object) -> None:
    db = open_database(tmp_path / "posd.db")
    assert db.execute(f"PRAGMA {pragma}").fetchone()[0] == value
    db.close()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_database(tmp_path / "posd.db").close()
    reader = connect_reader(tmp_path / "posd.db")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM events")
    reader.close()


def test_opening_again_keeps_everything(tmp_path: Path) -> None:
    db = open_database(tmp_path / "posd.db")
    db.execute("INSERT INTO changes (at, kind, id, reason, phase, attention) VALUES ('t','k','i','r','p','[]')")
    db.close()
    db = open_database(tmp_path / "posd.db")
    assert db.execute("SELECT count(*) FROM changes").fetchone()[0] == 1
    assert db.execute("PRAGMA user_version").fetchone()[0] == schema_version()
    db.close()


def test_a_newer_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    open_database(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {schema_version() + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="a newer posd has used it"):
        open_database(path)
    assert path.read_bytes() == before


def test_a_migration_that_fails_leaves_the_step_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("content", [b"this is no database, but it is long enough to be looked at" * 40])
def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "posd.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="put a backup in its place"):
        open_database(path)
    assert path.read_bytes() == content


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open"):
        lock(tmp_path / "nowhere" / "posd.db.lock")
    with pytest.raises(StoreError, match="cannot open the database"):
        open_database(tmp_path / "nowhere" / "posd.db")


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "posd.db", tmp_path / "lock")
    script = (
        "import sys; from pathlib import Path; from posd.storage.connection import lock\n"
        "from posd.storage.errors import StoreError\n"
        "try: lock(Path(sys.argv[1]))\n"
        "except StoreError as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    assert "another posd is running" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    await store.close()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
