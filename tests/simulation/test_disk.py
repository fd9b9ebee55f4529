"""The simulated disk: writes of SQLite and Python, faults, and the content after a crash."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest

from posd.base import files
from posd.storage import StoreError
from posd.storage.connection import connect_writer, open_database
from tests.simulation import vfs
from tests.simulation.disk import Disk
from tests.simulation.vfs import Kind

SEEDS = 16
ROOT = Path(__file__).parents[2]

MakeDisk = Callable[[int], Disk]


@pytest.fixture
def disk_of(tmp_path: Path) -> Iterator[MakeDisk]:
    """Return a function that makes a disk from a seed, in a new directory.

    A disk is active until the function makes the next disk.
    """
    try:
        vfs.shared()
    except vfs.Unavailable as error:
        pytest.skip(str(error))
    current, numbers = ExitStack(), count()

    def make(seed: int) -> Disk:
        current.close()
        directory = tmp_path.resolve() / str(next(numbers))
        directory.mkdir()
        return current.enter_context(Disk(directory, Random(seed)).active())

    with current:
        yield make


@pytest.fixture
def disk(disk_of: MakeDisk) -> Disk:
    """Return an active disk."""
    return disk_of(1)


def database(disk: Disk) -> Path:
    """Create a small database in WAL mode, durable from the beginning, like the database of posd."""
    path = disk.directory / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA page_size = 1024")
        db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    with closing(connect_writer(path)):
        pass
    files.sync_folder(path.parent)
    return path


def add(db: sqlite3.Connection, *numbers: int) -> None:
    """Add rows of several pages in one commit."""
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT INTO t VALUES (?, ?)", [(number, "b" * 700) for number in numbers])
    db.execute("COMMIT")


def failures(db: sqlite3.Connection, *numbers: int) -> list[int]:
    """Commit a row for each number. Return SQLite's error code for each row, 0 for success."""
    codes = []
    for number in numbers:
        try:
            add(db, number)
        except sqlite3.OperationalError as error:
            codes.append(error.sqlite_errorcode)
            if db.in_transaction:
                db.execute("ROLLBACK")
        else:
            codes.append(0)
    return codes


def rows(path: Path) -> list[int]:
    """Check that the database is undamaged. Return the rows that a new process finds."""
    with closing(connect_writer(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in db.execute("SELECT a FROM t ORDER BY a")]


def kill_before(disk: Disk, number: int) -> None:
    """Kill the process just before the `number`-th operation from this moment."""
    operations = count(1)

    def look(_kind: str, _name: str) -> None:
        if next(operations) == number:
            disk.die()

    disk.on_operation = look


def test_a_later_sync_does_not_write_the_data_of_a_failed_sync(disk_of: MakeDisk) -> None:
    found = set()
    for seed in range(SEEDS):
        disk = disk_of(seed)
        path = disk.directory / "lines"
        files.replace(path, b"")
        append(path, b"a" * 512 * 8)
        disk.fail_after(1, "sync")
        with pytest.raises(OSError, match="Input/output error"):
            files.sync(path)
        append(path, b"b" * 512)
        files.sync(path)
        assert path.read_bytes() == b"a" * 512 * 8 + b"b" * 512
        disk.crash(power=True)
        content = path.read_bytes()
        assert content.endswith(b"b" * 512)
        found.add(content.count(b"a") // 512)
    assert len(found - {8}) > 3


def test_a_full_disk_refuses_only_operations_that_need_space(disk: Disk) -> None:
    path = database(disk)
    with closing(connect_writer(path)) as db:
        add(db, 1)
        other = path.with_name("other")
        files.create_private(other)
        disk.full = True
        assert failures(db, 2) == [sqlite3.SQLITE_FULL]
        with pytest.raises(OSError, match="No space left"):
            files.create_private(path.with_name("third"))
        with pytest.raises(OSError, match="No space left"):
            append(other, b"line")
        assert os.statvfs(path).f_bavail == os.statvfs(disk.directory).f_bavail == 0
        disk.clear_faults()
        assert os.statvfs(path).f_bavail * os.statvfs(path).f_frsize == disk.free_bytes
        add(db, 2)
    assert rows(path) == [1, 2]


def append(path: Path, line: bytes) -> None:
    """Append a line as the witness does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


KINDS: list[tuple[Kind, int]] = [("write", sqlite3.SQLITE_IOERR_WRITE), ("sync", sqlite3.SQLITE_IOERR_FSYNC)]


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_the_nth_operation_fails_once(disk: Disk, kind: Kind, code: int) -> None:
    with closing(connect_writer(database(disk))) as db:
        assert failures(db, 1, 2) == [0, 0]
        done: list[str] = []
        disk.on_operation = lambda done_kind, _name: done.append(done_kind)
        assert failures(db, 3) == [0]
        disk.fail_after(done.count(kind) + 1, kind)
        assert failures(db, 4, 5, 6) == [0, code, 0]


@pytest.mark.parametrize("power", [False, True])
def test_a_kill_at_each_operation_of_a_commit_and_a_checkpoint_loses_no_commit(disk_of: MakeDisk, power: bool) -> None:
    found = []
    for number in count(1):
        disk = disk_of(number)
        path = database(disk)
        acknowledged = False
        with closing(connect_writer(path)) as db:
            add(db, 1, 2)
            kill_before(disk, number)
            with suppress(sqlite3.OperationalError):
                add(db, 3, 4)
                acknowledged = not disk.dead
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        over = not disk.dead
        disk.on_operation = None
        assert disk.open_files() == []
        disk.crash(power)
        found.append(rows(path))
        assert found[-1] in ([1, 2], [1, 2, 3, 4])
        assert not acknowledged or found[-1] == [1, 2, 3, 4]
        if over:
            break
    assert len(found) > 12
    assert [1, 2] in found


@pytest.mark.parametrize("power", [False, True])
def test_a_killed_creation_leaves_a_complete_database_or_none(disk_of: MakeDisk, power: bool) -> None:
    for number in (1, 20, 200, *range(260, 270)):
        disk = disk_of(number)
        path = disk.directory / "posd.db"
        kill_before(disk, number)
        with suppress(StoreError):
            open_database(path).close()
        disk.on_operation = None
        assert disk.open_files() == []
        disk.crash(power)
        with closing(open_database(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_unsynced_file_names_and_contents_survive_only_in_some_runs(disk_of: MakeDisk) -> None:
    found = set()
    for seed in range(3 * SEEDS):
        disk = disk_of(seed)
        append(disk.directory / "a", b"a" * 512)
        (disk.directory / "backups").mkdir()
        (disk.directory / "backups" / "b").write_bytes(b"b")
        disk.crash(power=True)
        found.add(tuple((path.name, path.read_bytes()[:1]) for path in sorted(disk.directory.rglob("?"))))
    assert found >= {(), (("a", b"a"),), (("a", b""),), (("a", b"a"), ("b", b"b"))}


def test_a_dead_process_changes_nothing(disk: Disk) -> None:
    path = database(disk)
    lines, alive = path.with_name("lines"), path.with_name(".alive")
    append(lines, b"one")
    alive.write_text("boot")
    alive.chmod(0o640)
    os.utime(alive, (1000, 2000))
    before = {item.name: item.stat() for item in disk.directory.iterdir()}
    # the file stays open, so that its inode number is not used again
    held = disk.directory.with_name(f"{disk.directory.name}-held")
    held.mkdir()
    for item in before:
        os.link(disk.directory / item, held / item)
    with closing(connect_writer(path)) as db, lines.open("ab") as buffered:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (1, 'b')")
        descriptor = os.open(lines, os.O_RDONLY)
        disk.die()
        buffered.write(b"two")
        with pytest.raises(sqlite3.OperationalError):
            db.execute("COMMIT")
        with pytest.raises(OSError, match="Input/output error"):
            append(lines, b"two")
        with pytest.raises(OSError, match="Input/output error"):
            os.fsync(descriptor)
        with pytest.raises(OSError, match="Input/output error"):
            alive.replace(lines)
        with pytest.raises(OSError, match="Input/output error"):
            files.create_private(path.with_name("more"))
        lines.unlink()
        os.close(descriptor)
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            rows(path)
        path.with_name("more").write_bytes(b"past the disk")
        path.with_name("more").replace(path.with_name("more still"))
    disk.crash(power=False)
    assert not disk.dead
    assert disk.open_files() == []
    assert rows(path) == []
    assert lines.read_bytes() == b"one"
    after = {item.name: item.stat() for item in disk.directory.iterdir()}
    assert after[".alive"].st_mtime == 2000
    assert after[".alive"].st_mode == before[".alive"].st_mode
    assert all(after[name].st_ino != before[name].st_ino for name in before)
    shutil.rmtree(held)
