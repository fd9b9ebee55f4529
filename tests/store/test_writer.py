"""The single writer on real SQLite files: group commit, functions that fail, faults of the disk."""

import asyncio
import sqlite3
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from weakref import WeakSet

import pytest

from posd.base.clocks import monotonic
from posd.storage import CommitUncertain, StorageUnavailable, writer
from posd.storage.batch import Function, RecordedChange, WriteTransaction
from posd.storage.connection import open_database
from posd.storage.store import Store
from posd.storage.writer import BatchResult, Checkpoints, DatabaseWriter, WriteBatch
from tests.rig.disk import broken_disk
from tests.rig.waits import until

CHANGE = RecordedChange(1, "t", "transaction", "id", "reason", "active", None, None, ())


def quarantine(unit: WriteTransaction, reason: str) -> str:
    unit.db.execute(
        "INSERT INTO quarantine (received_at, channel, subject, reason, peer, body) VALUES ('t','c','s',?,'p',x'00')",
        (reason,),
    )
    return reason


def changed(reason: str) -> Callable[[WriteTransaction], None]:
    def work(unit: WriteTransaction) -> None:
        quarantine(unit, reason)
        unit.changes.append(CHANGE)

    return work


def insert(reason: str) -> Callable[[WriteTransaction], str]:
    return lambda unit: quarantine(unit, reason)


def run_batch(db: sqlite3.Connection, functions: Sequence[Function]) -> BatchResult:
    """Run a batch without a loop, one function after the other."""
    running = WriteBatch(db, functions, monotonic)
    assert running.begin()
    while not running.go_on(0):
        assert db.in_transaction or running.begin()
    return running.commit()


def reasons(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT reason FROM quarantine ORDER BY id")]


async def test_a_burst_of_writes_is_one_commit(store: Store) -> None:
    def commits(db: sqlite3.Connection) -> int:
        """Return the number of commits. The WAL's frames count the commits of this connection.

        The data version counts the commits of other connections.
        """
        version: int = db.execute("PRAGMA data_version").fetchone()[0]
        return version

    before = await store.read(commits)
    assert await asyncio.gather(*(store.write(insert(str(number))) for number in range(100)))
    assert len(await store.read(reasons)) == 100
    # The first function may have its own commit. The other functions wait for the next commit.
    assert await store.read(commits) - before <= 2


class Read:
    """Data that a function has read from the database."""


def test_the_data_of_a_failed_function_is_freed_before_the_commit(tmp_path: Path) -> None:
    alive: WeakSet[Read] = WeakSet()
    seen: list[int] = []

    def fail(unit: WriteTransaction) -> None:
        def look(read: Read) -> None:
            raise LookupError("too much")

        mine = Read()
        alive.add(mine)
        try:
            look(mine)
        except LookupError:
            raise KeyError("mine") from None

    with closing(open_database(tmp_path / "posd.db")) as db:
        written = run_batch(db, [fail, fail, lambda _unit: seen.append(len(alive))])
    assert seen == [0]
    assert isinstance(error := written.results[0], KeyError)
    assert "look(mine)" in "".join(traceback.format_exception(error.__context__))


def test_all_other_functions_run_again_if_a_function_fails_after_a_write(tmp_path: Path) -> None:
    ran: list[str] = []

    def half(unit: WriteTransaction) -> None:
        ran.append("half")
        quarantine(unit, "half")
        unit.changes.append(CHANGE)
        raise KeyError("mine")

    def whole(unit: WriteTransaction) -> str:
        ran.append("whole")
        unit.changes.append(CHANGE)
        return quarantine(unit, "whole")

    def refuse(unit: WriteTransaction) -> None:
        ran.append("refuse")
        raise LookupError("it has written nothing")

    with closing(open_database(tmp_path / "posd.db")) as db:
        written = run_batch(db, [whole, half, refuse])
        assert (written.results[0], *map(type, written.results[1:])) == ("whole", KeyError, LookupError)
        assert written.changes == [CHANGE]
        assert written.anything
        assert reasons(db) == ["whole"]
        assert ran == ["whole", "half", "whole", "half", "refuse"]
        ran.clear()
        assert [type(item) for item in run_batch(db, [refuse, whole]).results] == [LookupError, str]
        assert ran == ["refuse", "whole"]


async def test_functions_run_in_order_of_arrival(store: Store) -> None:
    names = [str(number) for number in range(2 * writer.MAX_BATCH + 7)]
    await asyncio.gather(*(store.write(insert(name)) for name in names))
    assert await store.read(reasons) == names


async def test_a_cancelled_caller_does_not_stop_its_function(store: Store) -> None:
    task = asyncio.create_task(store.write(insert("left")))
    await asyncio.sleep(0)  # the task passes its function to the writer
    task.cancel()
    await store.write(insert("next"))
    assert await store.read(reasons) == ["left", "next"]


async def test_a_function_without_a_commit_of_its_own_joins_the_next_commit(store: Store) -> None:
    riding = asyncio.create_task(store.ride(insert("rides")))
    await asyncio.sleep(0)  # the task passes its function to the writer
    assert await store.write(lambda unit: reasons(unit.db)) == []  # the riding function is not committed yet
    assert sum(store.writer.commit_seconds.counts) == 0
    await store.write(insert("next"))
    assert await riding == "rides"
    assert await store.read(reasons) == ["next", "rides"]
    assert sum(store.writer.commit_seconds.counts) == 1


async def test_a_function_that_joins_a_commit_fails_alone(store: Store) -> None:
    def half(unit: WriteTransaction) -> None:
        quarantine(unit, "half")
        raise KeyError("mine")

    riding = asyncio.create_task(store.ride(half))
    await asyncio.sleep(0)  # the task passes its function to the writer
    await store.write(insert("next"))
    with pytest.raises(KeyError):
        await riding
    assert await store.read(reasons) == ["next"]


async def test_a_full_disk_is_reported_and_recovers_without_a_restart(store: Store) -> None:
    def bound(pages: int) -> Callable[[WriteTransaction], int]:
        def pragma(unit: WriteTransaction) -> int:
            used: int = unit.db.execute("PRAGMA page_count").fetchone()[0]
            unit.db.execute(f"PRAGMA max_page_count = {used + pages}")
            return used

        return pragma

    def big(unit: WriteTransaction) -> None:
        unit.db.execute(
            "INSERT INTO quarantine (received_at, channel, subject, reason, peer, body)"
            " VALUES ('t','c','s','big','p', zeroblob(1000000))"
        )

    await store.write(insert("before"))
    await store.write(bound(2))
    results = await asyncio.gather(
        store.write(insert("beside")), store.write(big), store.write(insert("after")), return_exceptions=True
    )
    # SQLite rolled the whole commit back, so all callers get an error.
    assert [type(result) for result in results] == [StorageUnavailable] * 3
    assert store.write_error is not None
    await store.write(bound(1000))
    await store.write(big)
    assert store.write_error is None
    assert await store.read(reasons) == ["before", "big"]


async def test_functions_beyond_the_limit_are_refused_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_WAITING", 3)
    tasks = [asyncio.create_task(store.write(insert(str(number)))) for number in range(5)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [str, str, str, StorageUnavailable, StorageUnavailable]


async def test_after_the_close_of_the_writer_no_function_is_accepted(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "posd.db", tmp_path / "lock")
    last = asyncio.create_task(store.write(insert("last")))
    await asyncio.sleep(0)  # the task passes its function to the writer
    await store.close()
    assert await last == "last", "functions passed before the end are written"
    with pytest.raises(StorageUnavailable):
        await store.write(insert("too late"))


async def test_the_close_of_the_writer_waits_for_all_functions(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "posd.db", tmp_path / "lock")
    names = [str(number) for number in range(writer.MAX_BATCH + 1)]  # one COMMIT cannot hold all these functions
    tasks = [asyncio.create_task(store.write(insert(name))) for name in names]
    await asyncio.sleep(0)  # the tasks pass their functions to the writer
    await store.close()
    async with asyncio.timeout(30):
        assert await asyncio.gather(*tasks) == names


async def test_after_a_commit_with_an_uncertain_result_the_connection_is_replaced(store: Store, tmp_path: Path) -> None:
    await store.write(lambda unit: unit.db.execute("CREATE TEMP TABLE mark (a)").close())
    await store.write(lambda unit: unit.db.execute("SELECT * FROM mark").close())
    with broken_disk(tmp_path / "posd.db"), pytest.raises(CommitUncertain):
        await store.write(insert("lost"))
    assert store.write_error is not None
    with pytest.raises(StorageUnavailable, match="no such table"):
        await store.write(lambda unit: unit.db.execute("SELECT * FROM mark").close())
    await store.write(insert("again"))
    assert (await store.read(reasons), store.write_error) == (["again"], None)


async def test_a_commit_to_a_removed_file_is_not_acknowledged(store: Store, tmp_path: Path) -> None:
    """The file is moved after the check before the commit. No watch reports the move."""

    def moves(unit: WriteTransaction) -> str:
        (tmp_path / "posd.db").rename(tmp_path / "aside.db")
        return insert("lost")(unit)

    with pytest.raises(CommitUncertain, match="without a name"):
        await store.write(moves)
    (tmp_path / "aside.db").rename(tmp_path / "posd.db")


class FailingCommit(sqlite3.Connection):
    """A connection whose COMMIT fails like a COMMIT on a broken disk."""

    code = sqlite3.SQLITE_IOERR

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:  # type: ignore[override]
        if sql == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.code
            raise error
        return super().execute(sql, *arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "kind", "reopen"),
    [
        (sqlite3.SQLITE_FULL, StorageUnavailable, False),
        (sqlite3.SQLITE_BUSY, StorageUnavailable, False),
        (sqlite3.SQLITE_IOERR | 4 << 8, CommitUncertain, True),
        (sqlite3.SQLITE_CORRUPT, CommitUncertain, True),
    ],
)
def test_a_connection_with_an_uncertain_commit_is_reopened(tmp_path: Path, code: int, kind: type, reopen: bool) -> None:
    db = sqlite3.connect(tmp_path / "x.db", isolation_level=None, factory=FailingCommit)
    db.execute("CREATE TABLE t (a)")
    db.code = code  # type: ignore[attr-defined]
    written = run_batch(db, [lambda unit: unit.db.execute("INSERT INTO t VALUES (1)").close()])
    assert [type(result) for result in written.results] == [kind]
    assert (written.changes, written.distrusted, db.in_transaction) == ([], reopen, False)
    db.close()


async def test_an_untrusted_writer_is_reopened_while_another_process_reads(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    writer = await DatabaseWriter.open(path, lambda _changes: None)
    await writer.write(insert("a"))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reasons(reader) == ["a"]
    await writer.write(insert("b"))
    writer._trusted = False
    await writer.write(insert("c"))
    assert writer.error is None
    assert reasons(reader) == ["a"]
    reader.execute("COMMIT")
    assert reasons(reader) == ["a", "b", "c"]
    reader.close()
    await writer.close()


async def test_an_untrusted_writer_writes_nothing_until_it_is_reopened(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    writer = await DatabaseWriter.open(path, lambda _changes: None)
    await writer.write(insert("a"))
    writer._trusted = False
    with broken_disk(path), pytest.raises(StorageUnavailable, match="cannot be trusted"):
        await writer.write(insert("b"))
    assert writer.error is not None
    await writer.write(insert("c"))
    assert writer.error is None
    with closing(sqlite3.connect(path)) as other:
        assert reasons(other) == ["a", "c"]
    await writer.close()


async def test_an_empty_commit_proves_nothing_about_the_disk(tmp_path: Path) -> None:
    writer = await DatabaseWriter.open(tmp_path / "posd.db", lambda _changes: None)
    writer.error = "the disk is full"
    await writer.write(lambda _unit: None)
    assert writer.error == "the disk is full"
    await writer.write(lambda unit: unit.db.execute("INSERT INTO marks VALUES ('', 'x', '')").close())
    assert writer.error is None
    await writer.close()


async def test_before_the_commit_nothing_is_written_to_the_disk(tmp_path: Path) -> None:
    """The functions run on the loop. All changes stay in memory until the commit."""
    path = tmp_path / "posd.db"
    store = await Store.open(path, tmp_path / "lock")
    wal = path.with_name("posd.db-wal")
    sizes = []

    def large(unit: WriteTransaction) -> None:
        unit.db.execute(
            "INSERT INTO quarantine (received_at, channel, subject, reason, peer, body)"
            " VALUES ('t','c','s','r','p', zeroblob(500000))"
        )
        sizes.append(wal.stat().st_size)

    before = wal.stat().st_size
    await asyncio.gather(*(store.write(large) for _ in range(16)))
    assert set(sizes[1:]) == {sizes[1]}, "the first function may have its own commit"
    assert sizes[0] == before
    assert wal.stat().st_size > 16 * 500_000
    await store.close()


async def test_an_exception_leaves_no_transaction_open(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(writer.WriteBatch, "go_on", lambda *_: (_ for _ in ()).throw(MemoryError("as if")))
        with pytest.raises(CommitUncertain):
            await store.write(insert("lost"))
    await store.write(insert("again"))
    assert await store.read(reasons) == ["again"]


async def test_a_function_that_raises_stopiteration_fails_with_a_runtimeerror(store: Store) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await store.write(lambda _unit: next(iter(())))
    assert await store.write(insert("again")) == "again"


@pytest.mark.parametrize(("sync", "milliseconds"), [(0.0001, 1), (0.004, 1), (0.012, 3), (0.04, 10), (2.5, 10)])
def test_a_slow_sync_gives_the_functions_of_a_commit_more_time(sync: float, milliseconds: float) -> None:
    assert writer.slice_seconds(sync) == pytest.approx(milliseconds / 1000)


def log_bytes(directory: Path) -> int:
    return (directory / "posd.db-wal").stat().st_size


def in_the_file(directory: Path) -> list[str]:
    """Return the content of the database file alone, without its WAL."""
    with closing(sqlite3.connect(f"file:{directory / 'posd.db'}?immutable=1", uri=True)) as file_alone:
        return reasons(file_alone)


async def test_the_wal_is_emptied_between_two_commits(store: Store, tmp_path: Path) -> None:
    """Functions that wait during the checkpoint are committed after the checkpoint.

    The file then has the content of the WAL.
    """
    await store.write(insert("before"))
    assert log_bytes(tmp_path) > 0
    later = [asyncio.create_task(store.write(insert(str(number)))) for number in range(20)]
    emptied = [asyncio.create_task(store.empty_log()) for _ in range(3)]
    assert await asyncio.gather(*emptied) == [True, True, True]
    await asyncio.gather(*later)
    assert await store.empty_log()
    assert log_bytes(tmp_path) == 0
    assert in_the_file(tmp_path) == ["before", *(str(number) for number in range(20))]


async def test_a_wal_with_a_reader_is_not_emptied(store: Store, tmp_path: Path) -> None:
    """posd does not wait for the reader, because all commits would wait too."""
    with closing(sqlite3.connect(tmp_path / "posd.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        assert reasons(other) == []
        await store.write(insert("a"))
        assert not await store.empty_log()
        assert await store.write(insert("b")) == "b"
        other.execute("ROLLBACK")
        assert await store.empty_log()
    assert log_bytes(tmp_path) == 0


async def test_a_cancelled_wait_for_the_empty_wal_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    await store.write(insert("a"))
    emptied = asyncio.create_task(store.empty_log())
    await asyncio.sleep(0)
    emptied.cancel()
    with pytest.raises(asyncio.CancelledError):
        await emptied
    assert log_bytes(tmp_path) == 0  # the checkpoint ended before the writer accepted the next function
    assert await store.write(insert("b")) == "b"


async def test_a_wal_that_cannot_be_checkpointed_loses_nothing(store: Store, tmp_path: Path) -> None:
    await store.write(insert("a"))
    with broken_disk(tmp_path / "posd.db"), pytest.raises(StorageUnavailable):
        await store.empty_log()
    assert await store.write(insert("b")) == "b"
    assert await store.empty_log()
    with sqlite3.connect(tmp_path / "posd.db") as other:
        assert reasons(other) == ["a", "b"]
    other.close()


async def tried(store: Store) -> None:
    """Wait until a due checkpoint has been made or has failed."""
    await until(lambda: store.writer.checkpoints.due() is None)


def pause(monkeypatch: pytest.MonkeyPatch, seconds: float, functions: int) -> None:
    """Set the number of functions and the length of the pause after which a checkpoint is due."""
    monkeypatch.setattr(writer, "DUE_AFTER", functions)
    for name in ("LEAST_PAUSE_SECONDS", "FIRST_PAUSE_SECONDS", "MAX_PAUSE_SECONDS"):
        monkeypatch.setattr(writer, name, seconds)


async def test_the_wal_is_checkpointed_in_a_pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pause(monkeypatch, 0.01, 3)
    store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    assert await store.empty_log()
    for name in "ab":
        await store.write(insert(name))
    assert store.writer.checkpoints.due() is None
    await store.write(insert("c"))
    await tried(store)
    assert in_the_file(tmp_path) == ["a", "b", "c"]
    await store.write(insert("d"))
    assert in_the_file(tmp_path) == ["a", "b", "c"]  # the checkpoint has restarted the count of functions
    await store.close()


async def test_without_a_pause_the_wal_is_checkpointed_after_twice_the_usual_number_of_functions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pause(monkeypatch, 3600, 3)
    heard: list[list[str]] = []
    store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    assert await store.empty_log()
    store.hub.listen(lambda _changes: heard.append(in_the_file(tmp_path)), RecordedChange)
    for name in "abcdef":
        await store.write(changed(name))
    await tried(store)
    assert in_the_file(tmp_path) == [*"abcdef"]
    # A caller gets its result before the checkpoint that its commit causes.
    assert heard == [[]] * 6
    await store.close()


async def test_a_failed_checkpoint_stops_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pause(monkeypatch, 0.01, 2)
    store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    assert await store.empty_log()
    before = ["a", "b" * 20_000]
    for reason in before:
        await store.write(insert(reason))
    await tried(store)
    more = ["c", "d" * 5000]  # the WAL has room for these rows, but the database file cannot grow for their pages
    with broken_disk(tmp_path / "posd.db"):
        for reason in more:
            await store.write(insert(reason))
        await tried(store)
        assert await store.read(reasons) == before + more
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):  # the checkpoint wrote only some pages
        in_the_file(tmp_path)
    for reason in "ef":
        assert await store.write(insert(reason)) == reason
    await tried(store)
    assert in_the_file(tmp_path) == [*before, *more, "e", "f"]
    await store.close()


async def test_the_close_of_a_writer_waits_for_no_pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pause(monkeypatch, 3600, 1)
    store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    await store.write(insert("a"))
    assert store.writer.checkpoints.due() is not None
    async with asyncio.timeout(20):
        await store.close()


@pytest.mark.parametrize(
    ("took", "functions", "due"),
    [
        (None, 349, None),
        (None, 350, 1.0),
        (None, 700, 0.0),
        (0.004, 349, None),
        (0.004, 350, 0.1),
        (0.2, 699, 0.4),
        (0.2, 700, 0.0),
        (30, 350, 10.0),
    ],
)
def test_a_checkpoints_pause_is_longer_on_a_slow_disk(took: float | None, functions: int, due: float | None) -> None:
    now = 3.0
    checkpoints = Checkpoints(lambda: now)
    if took is not None:
        checkpoints.committed(500)
        checkpoints.made(took)
    now = 50
    checkpoints.committed(functions)
    assert checkpoints.due() == pytest.approx(due)
    if due:
        now = 50 + due / 2
        assert checkpoints.due() == pytest.approx(due / 2)
        now = 50 + due + 1
        assert checkpoints.due() == 0
