"""Faults of posd's database that the simulated disk has found.

An acknowledged commit was lost, or a start was refused.
"""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from posd.records.witness_file import WitnessFile
from posd.storage import StoreError
from posd.storage.connection import connect_again, connect_reader, open_database
from tests.simulation.disk import Disk
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network
from tests.simulation.test_disk import MakeDisk, disk_of

__all__ = ["disk_of"]

SEEDS = 12


def write(db: sqlite3.Connection, number: int) -> None:
    """Commit a row."""
    db.execute(f"CREATE TABLE t{number} AS SELECT hex(randomblob(2000)) AS b")


def assert_kept(disk: Disk, *numbers: int) -> None:
    """Cut the power, start again, and check the rows."""
    disk.die()
    disk.crash(power=True)
    with closing(open_database(disk.directory / "posd.db")) as db:
        for number in numbers:
            assert db.execute(f"SELECT length(b) FROM t{number}").fetchall() == [(4000,)]


@pytest.mark.parametrize("read", [False, True], ids=["alone", "while another process reads"])
def test_a_start_writes_no_commits_behind_the_remains_of_a_failed_sync(disk_of: MakeDisk, read: bool) -> None:
    for seed in range(SEEDS):
        disk = disk_of(seed)
        path = disk.directory / "posd.db"
        with closing(open_database(path)) as db:
            write(db, 1)
            disk.fail_after(1, "sync")
            with pytest.raises(sqlite3.OperationalError):
                write(db, 2)
            disk.die()  # this power cut comes before posd can open the database again
        disk.crash(power=False)
        with closing(connect_reader(path)) as reader:
            if read:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM t1").fetchone()
            with closing(open_database(path)) as db:
                write(db, 3)
                disk.die()
        assert_kept(disk, 1, 3)


def test_a_start_that_cannot_rewrite_the_log_leaves_the_database_file_unchanged(disk_of: MakeDisk) -> None:
    """The WAL has a hole on disk. After a power cut the file would have only some of the changes after the hole."""
    disk = disk_of(1)
    path = disk.directory / "posd.db"
    with closing(open_database(path)) as db:
        write(db, 1)
    with closing(open_database(path)) as db:
        disk.fail_after(3, "sync")  # this power cut comes after the syncs of the new WAL's header and name
        with pytest.raises(sqlite3.OperationalError):
            db.execute("UPDATE t1 SET b = 'x'")
        disk.die()
    disk.crash(power=False)
    before = path.read_bytes()
    disk.fail_after(1, "sync")
    with pytest.raises(StoreError, match="Input/output error"):
        open_database(path)
    assert path.read_bytes() == before
    with closing(open_database(path)) as db:
        assert db.execute("SELECT b FROM t1").fetchall() == [("x",)]


def test_a_refused_commit_does_not_come_back_when_the_database_is_opened_again(disk_of: MakeDisk) -> None:
    disk = disk_of(1)
    path = disk.directory / "posd.db"
    with closing(open_database(path)) as db:
        write(db, 1)
        disk.fail_after(1, "sync")
        with pytest.raises(sqlite3.OperationalError):
            write(db, 2)
        with closing(connect_again(path)):
            disk.die()
    disk.crash(power=False)
    with closing(open_database(path)) as db, pytest.raises(sqlite3.OperationalError, match="no such table: t2"):
        db.execute("SELECT b FROM t2")


def test_a_new_database_is_in_wal_mode_or_refused(disk_of: MakeDisk) -> None:
    for number in range(1, 14):
        disk = disk_of(number)
        told: list[str] = []
        disk.on_operation = lambda _kind, name, told=told: told.append(name)
        disk.fail_after(number, "write")
        with suppress(StoreError):
            open_database(disk.directory / "posd.db").close()
        # a power cut would restore the journal, and no reader opens a database with a journal
        assert "posd.db-journal" not in told, number


def test_the_name_of_the_log_is_durable_before_the_first_commit(disk_of: MakeDisk) -> None:
    for seed in range(SEEDS):
        disk = disk_of(seed)
        with closing(open_database(disk.directory / "posd.db")) as db:
            disk.fail_after(2, "sync")  # the third sync is the sync of the folder, and SQLite ignores its failure
            write(db, 1)
            disk.die()
        assert_kept(disk, 1)


def test_a_power_cut_does_not_bring_back_an_older_witness(disk_of: MakeDisk) -> None:
    """An older witness describes the database before a restore.

    posd would treat the restored database as gone back in time.
    """

    async def write_anew(path: Path) -> None:
        path.write_bytes(b"of the database that was restored\n")  # noqa: ASYNC240 - the real function also blocks

    for seed in range(SEEDS):
        disk = disk_of(seed)
        path = disk.directory / "posd.db.witness"
        path.write_bytes(b"of the one before\n")
        disk.settle()
        witness, loop = WitnessFile(path), VirtualLoop(Network(seed))
        loop.run_until_complete(witness.open(write_anew))
        loop.close()
        disk.die()
        witness.close(b"")
        disk.crash(power=True)
        assert path.read_bytes() == b"of the database that was restored\n"
