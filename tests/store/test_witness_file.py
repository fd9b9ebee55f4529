"""The file of the witness, and the numbers of the feed. The file is bounded and up to date.

A fault of the file blocks no payment.
"""
# ruff: noqa: ASYNC240 - nothing else runs on the loop of a test

import asyncio
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from posd.records import witness
from posd.records.witness import StartedPayment
from posd.records.witness_file import WitnessFile
from posd.storage import CommitUncertain, StorageUnavailable, changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.changes import IdentityCause
from posd.storage.store import Store
from tests.rig.disk import broken_disk
from tests.rig.folders import folders_not_synced
from tests.rig.needs import needs
from tests.rig.tmpfs import SmallDisk, small_disk


def line(number: int) -> bytes:
    return witness.start_line(number, StartedPayment(f"id-{number}", "SN-1", "2026-11-20T10:00:00.000Z"))


def known(path: Path) -> list[str]:
    return list(witness.read(path.read_bytes()).started)


async def newest(path: Path) -> None:
    """Write the last three payments of the database to the witness."""
    path.write_bytes(
        b"".join(witness.whole("first", 9, [StartedPayment(f"id-{number}", "SN-1", "at") for number in (7, 8, 9)]))
    )


async def nothing(path: Path) -> None:
    path.write_bytes(b"".join(witness.whole("first", 0, [])))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "posd.db.witness"


async def test_a_too_large_file_is_rewritten(path: Path) -> None:
    file = WitnessFile(path, most_bytes=600)
    await file.open(nothing)
    sizes = []
    for number in range(10):
        file.add(line(number))
        await file.keep(newest)
        sizes.append(path.stat().st_size)
    assert max(sizes) < 800
    assert known(path)[-3:] == ["id-7", "id-8", "id-9"]
    assert path.stat().st_mode & 0o777 == 0o600
    file.add(line(10))
    file.close(witness.seq_line(12))
    assert known(path)[-1] == "id-10"
    assert witness.read(path.read_bytes()).seq == 12
    assert [item.name for item in path.parent.iterdir()] == [path.name]


async def test_lines_added_during_a_rewrite_are_in_both_files(path: Path) -> None:
    file = WitnessFile(path, most_bytes=-1)
    await file.open()
    began, go_on = asyncio.Event(), asyncio.Event()

    async def content(path: Path) -> None:
        await newest(path)
        began.set()
        await go_on.wait()

    keeping = asyncio.create_task(file.keep(content))
    await began.wait()
    file.add(line(10))
    assert known(path) == ["id-10"], "the line is in the old file, which a kill would leave"
    go_on.set()
    await keeping
    assert known(path) == ["id-7", "id-8", "id-9", "id-10"]
    file.close(witness.seq_line(0))


async def test_a_full_disk_blocks_no_payment_and_the_file_is_complete_again_later(path: Path) -> None:
    path.symlink_to("/dev/full")
    file = WitnessFile(path)
    await file.open()
    for number in range(3):
        file.add(line(number))
    assert file.error is not None
    path.unlink()
    path.mkdir()
    await file.keep(newest)
    assert file.error is not None
    path.rmdir()
    await file.keep(newest)
    assert file.error is None
    assert known(path) == ["id-7", "id-8", "id-9"]
    file.close(witness.seq_line(0))


@pytest.fixture
def disk(small_disks: None, tmp_path: Path) -> Iterator[SmallDisk]:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path, tmp_path / "disk", "16m") as disk:
        yield disk


@needs("unshare", "nsenter", "mount")
async def test_a_full_disk_loses_no_line_even_after_a_kill(disk: SmallDisk) -> None:
    """posd finds the started payments by these lines if an older copy of the database is installed."""
    path = disk.files / "posd.db.witness"
    file = WitnessFile(path)
    await file.open(newest)
    disk.fill()
    expected = ["id-7", "id-8", "id-9"]
    for numbers in (range(100, 600), range(600, 1100)):
        for number in numbers:
            file.add(line(number))
        expected += [f"id-{number}" for number in numbers]
        assert (known(path), file.error) == (expected, None)
        file.close(b"")  # a kill leaves the same file
        file = WitnessFile(path)
        await file.open(newest)
        assert known(path) == expected, "the file cannot be rewritten, but keeps its lines"
    await file.keep(newest)
    assert (known(path), file.error) == (expected, None)
    disk.free()
    await file.keep(newest)
    assert known(path) == ["id-7", "id-8", "id-9"]
    file.close(witness.seq_line(0))


@needs("unshare", "nsenter", "mount")
async def test_a_too_large_file_is_still_used_if_there_is_no_room_for_a_rewrite(disk: SmallDisk) -> None:
    path = disk.files / "posd.db.witness"
    file = WitnessFile(path, most_bytes=600)
    await file.open(newest)
    disk.fill()
    for number in range(100, 200):
        file.add(line(number))
        await file.keep(newest)
    assert file.error is None
    assert len(known(path)) == 103
    file.close(witness.seq_line(0))


async def test_a_folder_that_cannot_be_synced_does_not_affect_the_witness(path: Path) -> None:
    for number in (errno.EINVAL, errno.EIO):
        with folders_not_synced(number):
            file = WitnessFile(path)
            await file.open(newest)
            file.add(line(100))
            await file.keep(newest)
            file.add(line(101))
            assert file.error is None
            assert known(path)[-1] == "id-101"
            file.close(witness.seq_line(0))


async def test_a_removed_file_is_created_again(path: Path) -> None:
    file = WitnessFile(path)
    await file.open()
    path.unlink()
    file.add(line(1))
    await file.keep(newest)
    assert known(path) == ["id-7", "id-8", "id-9"]
    file.close(witness.seq_line(0))


async def test_a_new_line_causes_a_sync_after_a_pause(path: Path) -> None:
    file = WitnessFile(path, most_bytes=-1, sync_seconds=0.01)
    await file.open()
    written = asyncio.Event()

    async def content(path: Path) -> None:
        written.set()
        await newest(path)

    running = asyncio.create_task(file.run(content))
    file.add(line(1))
    await asyncio.wait_for(written.wait(), 10)
    running.cancel()
    await asyncio.wait({running})
    file.close(witness.seq_line(0))


# Tests of the numbers of the feed.

CHANGE = RecordedChange(0, "2026-11-20T10:00:00.000Z", "transaction", "id", "reason", "active", None, None, ())


def numbers(db: sqlite3.Connection) -> list[int]:
    return [change.seq for change in changes.after(db, 0, 1000)]


def fail(unit: WriteTransaction) -> None:
    changes.record(unit, CHANGE)
    raise KeyError("mine")


async def test_no_number_of_the_feed_is_skipped(store: Store, tmp_path: Path) -> None:
    """A function fails, alone or in a batch, or a commit fails."""
    for _ in range(3):
        written = (store.write(lambda unit: changes.record(unit, CHANGE)) for _ in range(3))
        failed = (store.write(fail) for _ in range(2))
        done = await asyncio.gather(*written, *failed, return_exceptions=True)
        assert [type(item) for item in done] == [type(None)] * 3 + [KeyError] * 2
        with pytest.raises(KeyError):
            await store.write(fail)
        with broken_disk(tmp_path / "posd.db"), pytest.raises((CommitUncertain, StorageUnavailable)):
            await store.write(lambda unit: changes.record(unit, CHANGE))
        await store.write(lambda unit: changes.record(unit, CHANGE))
    found = await store.read(numbers)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 12


async def test_a_new_database_identity_begins_with_the_given_change_number(store: Store) -> None:
    first = await store.read(changes.present_identity)
    assert first.first_seq == 1
    await store.write(lambda unit: changes.record(unit, CHANGE))

    def renew(unit: WriteTransaction) -> None:
        changes.renew(unit.db, "at", changes.last_seq(unit.db) + 1, IdentityCause.RESTORED)

    await store.write(renew)
    again = await store.read(changes.present_identity)
    assert again.database_id != first.database_id
    assert again.first_seq == 2
    assert [item.cause for item in await store.read(changes.identities)] == [IdentityCause.MADE, IdentityCause.RESTORED]
