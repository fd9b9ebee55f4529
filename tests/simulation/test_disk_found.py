"""What the simulated disk has shown of posd's database: an acknowledged commit that was lost, or a start refused."""

import sqlite3
from contextlib import closing, suppress

import pytest

from posd.storage.connection import open_database
from posd.storage.errors import StoreError
from tests.simulation.disk import Disk
from tests.simulation.test_disk import MakeDisk, disk_of

__all__ = ["disk_of"]

SEEDS = 12


def write(db: sqlite3.Connection, number: int) -> None:
    """Commit a row."""
    db.execute(f"CREATE TABLE t{number} AS SELECT hex(randomblob(2000)) AS b")


def assert_kept(disk: Disk, *numbers: int) -> None:
    """Cut the power, start again, and look for the rows."""
    disk.dead = True
    disk.crash(power=True)
    with closing(open_database(disk.directory / "posd.db")) as db:
        for number in numbers:
            assert db.execute(f"SELECT length(b) FROM t{number}").fetchall() == [(4000,)]


def test_a_start_does_not_write_on_behind_what_a_failed_sync_left(disk_of: MakeDisk) -> None:
    for seed in range(SEEDS):
        disk = disk_of(seed)
        path = disk.directory / "posd.db"
        with closing(open_database(path)) as db:
            write(db, 1)
            disk.fail_after(1, "sync")
            with pytest.raises(sqlite3.OperationalError):
                write(db, 2)
            disk.dead = True  # before it could open the database again
        disk.crash(power=False)
        with closing(open_database(path)) as db:
            write(db, 3)
            disk.dead = True
        assert_kept(disk, 1, 3)


def test_a_new_database_is_in_wal_mode_or_refused(disk_of: MakeDisk) -> None:
    for number in range(1, 14):
        disk = disk_of(number)
        told: list[str] = []
        disk.on_operation = lambda _kind, name, told=told: told.append(name)
        disk.fail_after(number, "write")
        with suppress(StoreError):
            open_database(disk.directory / "posd.db").close()
        assert "posd.db-journal" not in told, number  # a power cut would bring it back: no reader opens that


def test_the_name_of_the_log_is_certain_before_the_first_commit(disk_of: MakeDisk) -> None:
    for seed in range(SEEDS):
        disk = disk_of(seed)
        with closing(open_database(disk.directory / "posd.db")) as db:
            disk.fail_after(2, "sync")  # that of the folder, at which SQLite does not look
            write(db, 1)
            disk.dead = True
        assert_kept(disk, 1)
