"""An online backup. A backup has one state of a database in use, and the keys. A backup is complete or absent."""

import errno
import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from posd.base.problems import Problem
from posd.storage import StorageUnavailable, UnusableFile, backup, connection
from posd.storage.backup import BackupFolder, BadTarget, Written
from posd.storage.connection import PAGE_BYTES, open_database
from posd.upkeep.verify import verify
from tests.rig.folders import folders_not_synced
from tests.rig.needs import needs
from tests.rig.tmpfs import small_disk
from tests.store.filled import Filled, filling

KEYS = (b"n" * 32, b"o" * 32)
AT = "2026-11-20T12:00:00.000Z"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    (tmp_path / "state").mkdir()
    with filling(tmp_path / "state" / "posd.db") as filled:
        for number in range(5):
            filled.pay(number, metadata=b'{"note": "%s"}' % (b"x" * 9000))
        yield filled


@pytest.fixture
def database(filled: Filled, tmp_path: Path) -> Path:
    return tmp_path / "state" / "posd.db"


def write(database: Path, target: Path, stop: bool = False) -> Written:
    return backup.write(database, target, KEYS, AT, lambda: stop)


def test_a_backup_is_one_private_undamaged_file_with_its_time_and_the_keys(database: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written = write(database, tmp_path / "b.db")
    finally:
        os.umask(before)
    assert {path.name for path in tmp_path.iterdir()} == {"state", "b.db"}
    assert (tmp_path / "b.db").stat().st_mode & 0o777 == 0o600
    assert written == Written(str(tmp_path / "b.db"), (tmp_path / "b.db").stat().st_size, 5, AT, synced=True)
    contents = backup.read(tmp_path / "b.db")
    assert (contents.made_at, contents.transactions, contents.keys) == (AT, 5, KEYS)
    report = verify(tmp_path / "b.db", lambda *_: None)
    assert (report.backup, report.counts) == (True, {})
    assert {path.name for path in tmp_path.iterdir()} == {"state", "b.db"}, "posd reads a backup without any other file"
    assert (tmp_path / "b.db").read_bytes()[18:20] == b"\x01\x01", "a backup has no WAL: its medium may be read-only"


@pytest.mark.slow
def test_a_backup_has_one_state_while_payments_continue(
    filled: Filled, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payment is committed between any two pages of the copy.

    The copy contains none of these payments, and no payment waits for the copy.
    """
    monkeypatch.setattr(backup, "PAGES_AT_A_TIME", 1)
    numbers = iter(range(100, 10_000))

    def look() -> bool:
        filled.pay(next(numbers))
        return False

    written = backup.write(database, tmp_path / "b.db", KEYS, AT, look)
    assert written.transactions == 5
    assert verify(tmp_path / "b.db", lambda *_: None).counts == {}
    later = next(numbers) - 100
    assert later > 20
    assert filled.db.execute("SELECT count(*) FROM transactions").fetchone() == (5 + later,)


def test_the_previous_backup_is_replaced_when_the_new_one_is_complete(
    filled: Filled, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(database, tmp_path / "b.db")
    before = (tmp_path / "b.db").read_bytes()
    filled.pay(9)

    def not_sound(*_: object) -> int:
        raise sqlite3.DatabaseError("not sound")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "check_file", not_sound)
        with pytest.raises(StorageUnavailable):
            write(database, tmp_path / "b.db")
    assert (tmp_path / "b.db").read_bytes() == before
    assert write(database, tmp_path / "b.db").transactions == 6
    assert backup.read(tmp_path / "b.db").transactions == 6


def test_a_damaged_database_makes_no_backup(filled: Filled, database: Path, tmp_path: Path) -> None:
    filled.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = filled.db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_of_transaction'").fetchone()
    content = bytearray(database.read_bytes())
    content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    database.write_bytes(content)
    with pytest.raises(StorageUnavailable, match=r"the database is damaged.*posd verify"):
        write(database, tmp_path / "b.db")
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


def test_a_stop_during_the_check_of_the_copy_stops_the_backup(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    monkeypatch.setattr(connection, "OPERATIONS_AT_A_TIME", 100)
    with pytest.raises(Problem, match="posd is stopping"):
        backup.write(database, tmp_path / "b.db", KEYS, AT, stop)
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


#: Program that makes a backup, or prints why it cannot.
SCRIPT = """
import sys
from pathlib import Path
from posd.storage import StorageUnavailable, UnusableFile, backup
try:
    backup.write(Path(sys.argv[1]), Path(sys.argv[2]), [b"k" * 32], "at", lambda: False)
except StorageUnavailable as error:
    print(error)
"""


@pytest.mark.quick(1)
@pytest.mark.usefixtures("small_disks")
@pytest.mark.parametrize("kilobytes", [4, 64])
def test_a_full_disk_is_reported_and_leaves_no_partial_backup(database: Path, tmp_path: Path, kilobytes: int) -> None:
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path, tmp_path / "small", f"{kilobytes}k") as disk:
        command = [str(disk.python), "-c", SCRIPT, str(database), str(tmp_path / "small" / "b.db")]
        assert "free the disk" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert list(disk.files.iterdir()) == []


@pytest.mark.quick(1)
@pytest.mark.parametrize("point", ["backup.copied", "backup.checked", "backup.renamed"])
def test_a_killed_backup_is_complete_or_absent_and_can_be_repeated(database: Path, tmp_path: Path, point: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(database), str(tmp_path / "b.db")]
    killed = subprocess.run(command, env=os.environ | {"POSD_CRASH": point}, check=False)
    assert killed.returncode == -9
    assert (tmp_path / "b.db").exists() == (point == "backup.renamed")
    write(database, tmp_path / "b.db")
    assert {path.name for path in tmp_path.iterdir()} == {"state", "b.db"}
    assert backup.read(tmp_path / "b.db").keys == KEYS


#: Program that makes a backup beside three older backups. The program prints the least free space during the backup, or
#: the error.
INTO = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from posd.storage import StorageUnavailable, UnusableFile, backup
home, least = Path(sys.argv[1]), []
def look():
    found = os.statvfs(home)
    least.append(found.f_bavail * found.f_frsize)
try:
    backup.write_into(home / "posd.db", home / "backups", 14, [b"k" * 32], datetime.now(UTC), look)
    print(min(least))
except StorageUnavailable as error:
    print(error)
"""
MB = 1_000_000
OLD = [f"posd-2020010{day}T000000Z.db" for day in (1, 2, 3)]


@pytest.mark.quick(2)
@pytest.mark.usefixtures("small_disks")
@pytest.mark.parametrize(
    ("more", "left"), [(8 * MB, OLD), (-2 * MB, OLD[1:]), (-6 * MB, OLD[2:]), (-9 * MB, OLD)], ids=str
)
def test_a_backup_leaves_room_for_a_week_and_removes_old_backups_first(
    filled: Filled, database: Path, tmp_path: Path, more: int, left: list[str]
) -> None:
    filled.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    write(database, tmp_path / "b.db")
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path, tmp_path / "small", "96m") as disk:
        backups = disk.files / "backups"
        backups.mkdir()
        shutil.copyfile(database, disk.files / "posd.db")
        for name in OLD:
            (backups / name).write_bytes((tmp_path / "b.db").read_bytes() + bytes(4 * MB))
        disk.fill(backup.SPARE_BYTES + more)
        said = subprocess.run(
            [str(disk.python), "-c", INTO, str(tmp_path / "small")], capture_output=True, text=True, check=True
        ).stdout
        names = sorted(path.name for path in backups.iterdir())
        made = [name for name in names if name not in OLD]
        assert [name for name in names if name in OLD] == left
        if more == -9 * MB:  # too little space, even if posd kept only the newest old backup
            assert "free the disk" in said
            assert made == []
        else:
            assert int(said) >= backup.SPARE_BYTES
            assert len(made) == 1


def test_the_room_for_a_week_is_measured_in_the_last_week_with_payments(
    filled: Filled, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "SPARE_BYTES", 0)
    assert backup.room(database, tmp_path / "b.db")[1] == backup.size(filled.db)
    filled.clock += timedelta(days=8)
    for number in range(5, 20):
        filled.pay(number)
    assert backup.room(database, tmp_path / "b.db")[1] == backup.size(filled.db) * 15 // 20


def test_a_compressed_backup_is_small_and_can_be_read(filled: Filled, database: Path, tmp_path: Path) -> None:
    for number in range(10, 200):
        filled.pay(number)
    plain = write(database, tmp_path / "b.db")
    packed = backup.write_into(database, tmp_path / "all", 3, KEYS, NOON, lambda: False)
    path = Path(packed.path)
    assert (path.suffix, path.stat().st_mode & 0o777) == (".gz", 0o600)
    assert packed.bytes == path.stat().st_size < plain.bytes / 4
    assert gzip.decompress(path.read_bytes())[100:] == (tmp_path / "b.db").read_bytes()[100:]
    shutil.copyfile(path, tmp_path / "renamed")
    for each in (path, tmp_path / "renamed"):
        with backup.unpacked(each) as file:
            contents = backup.read(file)
        assert (contents.transactions, contents.keys) == (plain.transactions, KEYS)
        assert verify(each, lambda *_: None).counts == {}


@pytest.mark.parametrize(
    "damage", [lambda content: content[: len(content) // 2], lambda content: content[:50] + content[60:]]
)
def test_a_damaged_compressed_backup_is_reported(
    database: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    first = Path(backup.write_into(database, tmp_path / "all", 1, KEYS, NOON, lambda: False).path)
    first.write_bytes(damage(first.read_bytes()))
    with pytest.raises(UnusableFile):
        verify(first, lambda *_: None)
    second = backup.write_into(database, tmp_path / "all", 1, KEYS, NOON + timedelta(minutes=1), lambda: False)
    assert (second.removed, second.unusable) == ([], [first.name])


def bad_targets(home: Path) -> Iterator[tuple[Path, str]]:
    (home / "text").write_text("mine")
    (home / "empty").write_text("")
    (home / "link.db").symlink_to(home / "state" / "posd.db")
    (home / "hard.db").hardlink_to(home / "state" / "posd.db")
    yield Path("b.db"), "absolute"
    yield home / "nowhere" / "b.db", "make it first"
    yield home / "text" / "b.db", "make it first"
    yield home / "state", "is a directory"
    yield home / "text", "not a backup of posd"
    yield home / "empty", "not a backup of posd"
    yield home / "state" / "posd.db", "is the database itself"
    yield home / "state" / "posd.db-wal", "posd's own"
    yield home / "link.db", "is the database itself"
    yield home / "hard.db", "is the database itself"
    yield home / ("n" * 256), "posd"
    yield home / "zero\0byte", "absolute"


def test_an_impossible_path_is_refused_with_the_remedy(database: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for target, words in bad_targets(tmp_path):
        with pytest.raises(BadTarget, match=words):
            write(database, target)
    for path, content in before.items():
        if not path.name.endswith("-shm"):
            assert path.read_bytes() == content


def test_the_check_of_a_backup_target_writes_no_file(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "posd-20261120T104203Z.db")) as foreign:
        foreign.execute("PRAGMA journal_mode = WAL")
        foreign.execute("CREATE TABLE mine (x)")
    (folder / "of_a_posd.db").write_bytes(database.read_bytes())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in before:
        with pytest.raises(BadTarget, match="not a backup of posd"):
            write(database, folder / name)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    rotated = backup.write_into(database, folder, 3, KEYS, NOON + timedelta(days=1), lambda: False)
    assert rotated.unusable == ["posd-20261120T104203Z.db"]
    assert {path.name for path in folder.iterdir()} == {*before, Path(rotated.path).name}


@needs(root=True)
def test_for_a_folder_that_posd_may_not_write_the_unit_setting_is_named(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "posd.db")), pytest.raises(BadTarget, match=r"ReadWritePaths="):
        write(tmp_path / "posd.db", Path("/proc/b.db"))


def test_reading_a_backup_does_not_change_it(database: Path, tmp_path: Path) -> None:
    write(database, tmp_path / "b.db")
    before = (tmp_path / "b.db").read_bytes()
    (tmp_path / "b.db").chmod(0o400)
    backup.read(tmp_path / "b.db")
    assert (tmp_path / "b.db").read_bytes() == before
    (tmp_path / "b.db").chmod(0o600)
    (tmp_path / "b.db").write_bytes(before[:100])
    with pytest.raises(UnusableFile):
        backup.read(tmp_path / "b.db")


#: Names that posd uses beside a database, and one name in posd's folder of certificates.
OWN = (
    *("posd.db-wal", "posd.db-shm", "posd.db-journal", "posd.db.lock", "posd.db.alive", "posd.db.witness"),
    *("posd.db.new", "posd.db.restoring", "posd.db.salvaged", "posd.db.sent", "posd.db.witness.new"),
    *(
        "posd.db.restored-20261120T104203Z",
        "posd.db.replaced-20261120T104203Z",
        "posd.db.replaced-20261120T104203Z-wal",
    ),
    *("callback.key", "callback.key.new", "tls", "tls/server.key"),
)


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("through", ["state", "link"])
def test_no_backup_can_have_a_name_that_posd_uses(database: Path, tmp_path: Path, own: str, through: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    (tmp_path / "state" / "tls").mkdir()
    target = tmp_path / through / own
    before = sorted(path.name for path in database.parent.iterdir())
    with pytest.raises(BadTarget, match="posd's own"):
        write(database, target)
    with pytest.raises(BadTarget, match="posd's own"):
        backup.write_into(database, target, 3, KEYS, NOON, lambda: False)
    assert sorted(path.name for path in database.parent.iterdir()) == before


def test_no_rotation_removes_the_database(tmp_path: Path) -> None:
    path = tmp_path / "posd-20200101T000000Z.db"
    with filling(path) as filled:
        filled.pay(1)
        for minute in range(3):
            backup.write_into(path, tmp_path, 1, KEYS, NOON + timedelta(minutes=minute), lambda: False)
    assert path.exists()
    assert len(list(tmp_path.glob(backup.NAMES))) == 2


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EIO])
def test_a_complete_backup_is_reported_and_the_oldest_is_removed(database: Path, tmp_path: Path, number: int) -> None:
    """If the folder's names cannot be synced, the backup still counts as made.

    If such a backup counted as failed, no older backup would be removed, and backups would fill the disk.
    """
    with folders_not_synced(number):
        written = write(database, tmp_path / "b.db")
        rotated = [
            backup.write_into(database, tmp_path / "all", 1, KEYS, NOON + timedelta(minutes=minute), lambda: False)
            for minute in range(2)
        ]
    assert not written.synced
    assert backup.read(tmp_path / "b.db").transactions == 5
    assert [len(one.removed) for one in rotated] == [0, 1]
    assert [path.name for path in (tmp_path / "all").iterdir()] == [Path(rotated[1].path).name]


async def test_a_blocked_folder_of_backups_delays_only_its_own_check(tmp_path: Path) -> None:
    go, there = threading.Event(), [(1.0, tmp_path / "a.db")]
    go.set()

    def look(_folder: Path) -> tuple[float, Path]:
        go.wait()
        return there[-1]

    folder = BackupFolder(tmp_path, look, seconds=0.01)
    while await folder.newest() is None:
        pass
    go.clear()
    there.append((2.0, tmp_path / "b.db"))
    for _ in range(3):
        assert await folder.newest() == there[0]
    assert [thread.name for thread in threading.enumerate()].count("backups") == 1
    go.set()
    while await folder.newest() != there[1]:
        pass
