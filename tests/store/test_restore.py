"""Restore. The backup replaces the database. Readable data of the replaced file is taken over. Nothing is deleted."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from posd.base.times import iso
from posd.payments import journal, reprocess, rows
from posd.payments.accounting import feed_outcome
from posd.payments.entries import Released
from posd.payments.model import AttentionCode, Result
from posd.payments.record import record
from posd.records import quarantine
from posd.records.model import Phase
from posd.records.quarantine import Differing
from posd.records.service import CallsInFlight
from posd.records.witness import StartedPayment
from posd.storage import StoreError, UnusableFile, backup, changes, connection, marks
from posd.storage.batch import WriteTransaction
from posd.storage.connection import KEY_TABLE, PAGE_BYTES, connect_reader, open_database
from posd.storage.marks import OldFile
from posd.terminals.attempt import NotSent
from posd.upkeep.restore import Restore
from posd.upkeep.restore_guard import taken_over
from posd.upkeep.verify import verify
from tests.rig.needs import needs
from tests.rig.slow import first_quick
from tests.rig.tables import there
from tests.store.disasters import BACKUP_KEY, NOON, OLD_KEY, State, destroy
from tests.store.filled import ACKNOWLEDGED, FINAL, OPEN, Filled, filling, name, snapshot, terminal

#: Next step after the kill.
AGAIN = ("start", "restore")


def derived_again(db: sqlite3.Connection, after: int) -> list[tuple[str, Differing]]:
    """Derive the payments after a rowid again from their records. Return their ids and differences."""
    found = [row for _, row in rows.by_rowid(db, after, 50)]
    return [(row.client_transaction_id, reprocess.difference(row, *reprocess.derive(db, row))) for row in found]


def assert_sound(path: Path) -> None:
    """Check that the file is undamaged, and that all data in the file follows from the records."""
    assert verify(path, lambda *_: None).counts == {}
    with closing(connect_reader(path)) as db:
        after = journal.last_incomplete_rowid(db)
        assert all(found == {} for _, found in derived_again(db, after))
    assert path.stat().st_mode & 0o777 == 0o600
    assert not path.with_name("posd.db-journal").exists()


def snapshots(path: Path, ids: list[str]) -> dict[str, tuple[object, ...]]:
    with closing(connect_reader(path)) as db:
        return {identity: snapshot(db, identity) for identity in ids}


def numbers(db: sqlite3.Connection, table: str) -> dict[int, tuple[object, ...]]:
    """Return the rows by number, without the columns by which a payment finds its rows.

    A new event may change those columns.
    """
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "together"]
    return {row[0]: row[1:] for row in db.execute(f"SELECT {', '.join(names)} FROM {table}")}


def run_a_day(filled: Filled, state: State) -> None:
    """Record payments, make a backup, and record more payments and changes."""
    for number in range(6):
        filled.pay(number, FINAL if number % 3 else OPEN)
    state.back_up()
    for number in range(6, 12):
        filled.pay(number, FINAL if number % 3 else OPEN)
    for status in FINAL[2:]:
        filled.event(name(3), status)  # the payment is open in the backup, and approved after the backup
    filled.quarantine(name(0))
    rows.remember_search(WriteTransaction(filled.db), terminal(1), "POST /search", name(1), "at")


# Undamaged files.


def test_everything_of_an_undamaged_file_exists_after_a_restore(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
    before = snapshots(state.database, filled.known)
    content = state.database.read_bytes()
    prepared = state.restore()
    assert (prepared.mark.old, prepared.mark.taken_over, prepared.mark.by_id) == (OldFile.READ, 8, 0)
    assert snapshots(state.database, filled.known) == before
    assert_sound(state.database)
    with closing(connect_reader(state.database)) as db:
        assert rows.leases(db) == {terminal(number): name(number) for number in (0, 6, 9)}
        assert quarantine.count(db) == 1
        assert rows.search_found_another(db, terminal(1), "POST /search", name(2))
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (KEY_TABLE,)).fetchone()
        (mark,) = marks.unseen_restores(db)
    assert mark == prepared.mark
    assert mark.replaced is not None
    assert Path(mark.replaced).read_bytes() == content, "the old file is kept as it was"
    for _ in range(2):  # a repeated restore changes nothing more
        assert state.restore().mark.old is OldFile.READ
        assert snapshots(state.database, filled.known) == before
    replaced = [name for name in state.names() if ".replaced-" in name and not name.endswith(("-wal", "-shm"))]
    assert len(replaced) == 3, "two restores within one second keep the replaced files under different names"


def test_new_rows_have_numbers_above_those_of_both_files(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
        last = {table: max(numbers(filled.db, table)) for table in ("events", "journal", "changes")}
        feed = [row[2:4] for row in filled.db.execute("SELECT * FROM changes WHERE id = ? ORDER BY seq", (name(9),))]
    with closing(connect_reader(state.copy)) as db:
        of_backup = {table: numbers(db, table) for table in last}
    state.restore()
    with closing(connect_reader(state.database)) as db:
        for table, newest in last.items():
            now = numbers(db, table)
            assert {number: row for number, row in now.items() if number <= newest} == of_backup[table]
            first = newest + 1 if table != "events" else (newest // journal.BLOCK + 1) * journal.BLOCK
            assert min(number for number in now if number not in of_backup[table]) == first
        assert feed == [row[2:4] for row in db.execute("SELECT * FROM changes WHERE id = ? ORDER BY seq", (name(9),))]
    db = open_database(state.database)
    Filled(db, NOON).pay(99)
    assert max(numbers(db, "events")) > last["events"]
    db.close()


def test_the_replaced_file_can_be_put_back(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
    replaced = state.restore().mark.replaced
    with filling(state.database, NOON) as later:
        later.pay(50)
    before = snapshots(state.database, [*filled.known, name(50)])
    assert replaced is not None
    state.restore(Path(replaced))
    assert snapshots(state.database, [*filled.known, name(50)]) == before
    assert_sound(state.database)


def test_the_feed_ends_with_the_present_state_of_a_restored_payment(state: State) -> None:
    """The replaced file and the backup have the same first events. The backup has more events, so its row stays.

    In the feed the changes of the replaced file follow the changes of the backup.
    """
    with filling(state.database) as filled:
        filled.pay(0, OPEN[:1])
    early = state.database.read_bytes()
    with filling(state.database) as filled:
        for status in FINAL[1:3]:
            filled.event(name(0), status)
        state.back_up()
    state.database.write_bytes(early)
    with filling(state.database, NOON) as filled:
        filled.event(name(0), FINAL[1])
    state.restore()
    with closing(connect_reader(state.database)) as db:
        newest = db.execute("SELECT phase, status FROM changes WHERE id = ? ORDER BY seq DESC", (name(0),)).fetchone()
    row = state.row(name(0))
    assert newest == (row.phase, row.status)


def test_an_unconfirmed_earlier_restore_is_not_lost(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
    first = state.restore().mark
    second = state.restore().mark
    with closing(connect_reader(state.database)) as db:
        assert marks.unseen_restores(db) == [first, second]
    db = open_database(state.database)
    marks.add(db, "at", marks.SEEN, {"operator": "Ana"})
    db.close()
    third = state.restore().mark
    with closing(connect_reader(state.database)) as db:
        assert marks.unseen_restores(db) == [third]


def crash(state: State) -> tuple[Filled, State]:
    """Return the files of a daemon that was killed after one day.

    The WAL has all changes since the start of the daemon.
    """
    filled = Filled(open_database(state.database))
    run_a_day(filled, state)
    crashed = State(state.directory / "crashed")
    shutil.copytree(state.database.parent, crashed.database.parent)
    shutil.copy(state.copy, crashed.copy)
    filled.db.close()
    return filled, crashed


@pytest.mark.parametrize("gone", [False, True])
def test_the_wal_of_a_lost_file_is_taken_over(state: State, gone: bool) -> None:
    """SQLite deletes the WAL beside an empty file when it opens the file."""
    filled, crashed = crash(state)
    before = snapshots(state.database, filled.known)
    crashed.database.unlink() if gone else crashed.database.write_bytes(b"")
    assert crashed.restore().mark.old is OldFile.DAMAGED
    assert snapshots(crashed.database, filled.known) == before
    assert_sound(crashed.database)
    assert [name for name in crashed.names() if name.endswith("Z-wal")]


def test_a_payment_during_its_start_is_known_and_not_started_again(state: State) -> None:
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
        starting = filled.intent(2)
    state.restore()
    assert state.row(starting).phase is Phase.STARTING, "the next daemon marks it as in doubt, as after any crash"
    with closing(connect_reader(state.database)) as db:
        assert rows.lease_holder(db, terminal(2)) == starting


@pytest.mark.parametrize("damaged", [False, True])
def test_a_terminal_keeps_the_payment_that_holds_it_in_the_backup(state: State, damaged: bool) -> None:
    """The backup is of another database.

    Both databases have an open payment on one terminal, and a released payment on another.
    """
    with filling(state.directory / "other.db") as other:
        mine = other.pay(1, OPEN)
        backup.write(state.directory / "other.db", state.copy, [BACKUP_KEY], "at", lambda: False)
    with filling(state.database) as filled:
        filled.known.clear()
        db = filled.db
        theirs = filled.pay(2, OPEN)
        released = filled.pay(3, OPEN)
        db.execute("UPDATE transactions SET terminal = ? WHERE client_transaction_id = ?", (terminal(1), theirs))
        db.execute("UPDATE leases SET terminal = ? WHERE client_transaction_id = ?", (terminal(1), theirs))
        record(WriteTransaction(db), filled.get(released), Released("Ana", "broken", 1), filled.now(), CallsInFlight())
        rows.give_up_leases(WriteTransaction(db), released)
    if damaged:
        destroy(state.database, "leases")
    state.restore()
    with closing(connect_reader(state.database)) as db:
        assert rows.leases(db) == {terminal(1): mine}
        assert {item.client_transaction_id for item in rows.open_ones(db)} == {mine, theirs, released}


def test_a_terminal_released_after_the_backup_is_not_held_again(state: State) -> None:
    with filling(state.database) as filled:
        stuck = filled.pay(1, OPEN)
        state.back_up()
        record(
            WriteTransaction(filled.db), filled.get(stuck), Released("Ana", "broken", 1), filled.now(), CallsInFlight()
        )
        rows.give_up_leases(WriteTransaction(filled.db), stuck)
    state.restore()
    with closing(connect_reader(state.database)) as db:
        assert rows.leases(db) == {}
    assert state.row(stuck).released


# Damaged files.


@pytest.mark.parametrize("step", first_quick((10, 1), 1))
def test_with_any_page_destroyed_no_id_is_lost(state: State, step: int) -> None:
    """Damage each page in turn, or each tenth page. Undamaged rows are taken over completely.

    The ids of damaged rows are found.
    """
    with filling(state.database) as filled:
        run_a_day(filled, state)
        filled.db.execute("PRAGMA incremental_vacuum").fetchall()  # the content of free pages does not matter
    before, content, random = snapshots(state.database, filled.known), state.database.read_bytes(), Random(1)
    unharmed, starts = 0, range(0, len(content), PAGE_BYTES * step)
    for start in starts:
        for path in state.database.parent.iterdir():
            path.unlink()
        state.database.write_bytes(content[:start] + random.randbytes(PAGE_BYTES) + content[start + PAGE_BYTES :])
        prepared = state.restore()
        assert prepared.mark.old is OldFile.DAMAGED
        after = snapshots(state.database, filled.known)
        assert_sound(state.database)
        for identity in filled.known:
            then, now = before[identity][0], after[identity][0]
            assert now is not None, (start, identity)
            assert now.outcome is None or now.outcome.result is then.outcome.result
        unharmed += after == before
    assert unharmed > len(starts) // 4, "most pages are index pages, or the backup has their content"


def test_a_payment_that_lost_only_its_row_is_derived_from_its_events(state: State) -> None:
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
        paid, waiting = filled.pay(2), filled.pay(3, OPEN)
    before = snapshots(state.database, [paid])
    destroy(state.database, "transactions", "leases")
    prepared = state.restore()
    assert (prepared.mark.old, prepared.mark.taken_over, prepared.mark.by_id) == (OldFile.DAMAGED, 2, 0)
    assert_sound(state.database)
    with closing(connect_reader(state.database)) as db:
        assert journal.final_body(db, paid) == before[paid][4]
    found, active = state.row(paid), state.row(waiting)
    assert there(found.outcome).result is Result.APPROVED
    assert found.terminal == terminal(2)
    assert found.attention_of(AttentionCode.ORPHAN)
    assert (active.phase, active.status) == (Phase.ACTIVE, OPEN[-1])


def test_a_payment_with_only_its_id_left_is_in_doubt(state: State) -> None:
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
        paid = filled.pay(2)
    destroy(state.database, "transactions", "events", "journal", "changes", "sqlite_autoindex_transactions_1")
    prepared = state.restore()
    assert (prepared.mark.taken_over, prepared.mark.by_id) == (1, 1)
    assert_sound(state.database)
    found = state.row(paid)
    assert (found.phase, found.terminal) == (Phase.IN_DOUBT, "")
    assert {item.code for item in found.attention} == {AttentionCode.IN_DOUBT, AttentionCode.ORPHAN}
    assert found.heard, "an empty search proves nothing"


def test_the_history_of_a_payment_is_used_if_its_record_is_lost(state: State) -> None:
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
        paid = filled.pay(2)
    destroy(state.database, "transactions", "events", "journal")
    state.restore()
    found = state.row(paid)
    doubt = there(found.attention_of(AttentionCode.IN_DOUBT))
    assert "final, approved" in doubt.detail
    assert (found.terminal, found.created_at) == (terminal(2), "2026-11-20T10:00:07.000Z")


def test_an_outcome_whose_event_is_lost_stays(state: State) -> None:
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
        paid = filled.pay(2)
    destroy(state.database, "events")
    state.restore()
    assert verify(state.database, lambda *_: None).counts == {}, "the restore has reported it"
    with closing(connect_reader(state.database)) as db:
        assert [identity for identity, _ in derived_again(db, journal.last_incomplete_rowid(db))] == [name(1)]
    assert there(state.row(paid).outcome).result is Result.APPROVED
    state.restore()
    with closing(connect_reader(state.database)) as db:
        assert len(derived_again(db, journal.last_incomplete_rowid(db))) == 1, "a later restore keeps the outcome"


def test_a_row_is_not_taken_over_unchanged_if_parsing_finds_damage(state: State) -> None:
    """SQLite stores no checksums of its pages. Garbage in a text is found when the text is read."""
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
        paid, torn = filled.pay(2), filled.pay(3)
        filled.db.execute("UPDATE transactions SET trail = '{' WHERE client_transaction_id = ?", (paid,))
        filled.db.execute(
            "UPDATE events SET body = substr(body, 1, 50) WHERE client_transaction_id = ? AND status = ?",
            (torn, "CARD_PRESENTED"),
        )
        filled.db.execute("UPDATE transactions SET amount = x'ff' WHERE client_transaction_id = ?", (torn,))
    prepared = state.restore()
    assert prepared.mark.taken_over == 2
    assert_sound(state.database)
    with closing(connect_reader(state.database)) as db:
        for identity, count in ((paid, 4), (torn, 3)):
            assert there(state.row(identity).outcome).result is Result.APPROVED
            assert len(journal.events(db, identity)) == count


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("damage", "old"),
    [
        (lambda path: path.unlink(), OldFile.MISSING),
        (lambda path: path.write_bytes(b""), OldFile.UNREADABLE),
        (lambda path: path.write_bytes(b"garbage" * 9999), OldFile.UNREADABLE),
        (lambda path: os.truncate(path, path.stat().st_size // 2 + 100), OldFile.DAMAGED),
        (lambda path: path.write_bytes(bytes(PAGE_BYTES) + path.read_bytes()[PAGE_BYTES:]), OldFile.DAMAGED),
    ],
    ids=["gone", "empty", "garbage", "truncated", "no header"],
)
def test_the_backup_is_restored_after_any_damage(state: State, damage: Callable[[Path], object], old: OldFile) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
    of_backup = snapshots(state.copy, filled.known[1:3])
    damage(state.database)
    prepared = state.restore()
    assert prepared.mark.old is old
    assert (prepared.mark.replaced is None) == (old is OldFile.MISSING)
    assert "A till that repeats such a call would start it again" in prepared.mark.words
    assert snapshots(state.database, filled.known[1:3]) == of_backup
    assert_sound(state.database)
    with closing(connect_reader(state.copy)) as was, closing(connect_reader(state.database)) as now:
        (seq,) = was.execute("SELECT max(seq) FROM changes").fetchone()
        (given,) = now.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    assert given > seq + 10**8, "readers of the feed have seen higher numbers than the backup has"


def test_all_readable_data_is_saved_without_a_backup(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
    before = snapshots(state.database, filled.known)
    state.database.write_bytes(bytes(PAGE_BYTES) + state.database.read_bytes()[PAGE_BYTES:])
    prepared = state.restore(without=True)
    assert (prepared.backup, prepared.mark.file, prepared.mark.old) == (None, None, OldFile.DAMAGED)
    assert snapshots(state.database, filled.known) == before
    assert_sound(state.database)


def test_the_ids_of_a_newer_posds_file_are_kept(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
        filled.db.execute("ALTER TABLE transactions ADD COLUMN shade TEXT NOT NULL DEFAULT 'green'")
        filled.db.execute("UPDATE transactions SET shade = 'blue'")
        filled.db.execute("PRAGMA user_version = 999")
    state.restore()
    assert_sound(state.database)
    with closing(connect_reader(state.database)) as db:
        assert all(rows.get(db, identity) for identity in filled.known)


# Older schemas.


@pytest.fixture
def first_schema(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, int], None]]:
    """Yield a function that creates a database of the first schema, with one final payment."""

    def make(path: Path, number: int) -> None:
        with monkeypatch.context() as patch:
            first = [item for item in connection.migrations() if item[0] == 1]
            patch.setattr(connection, "migrations", lambda: iter(first))
            db = sqlite3.connect(path, isolation_level=None)
            connection.migrate(db)
        outcome = (
            '{"result":"canceled","status":"TERMINAL_CANCELED","transaction_reference":null,"ticket_number":null,'
            '"failure_reason":null,"reached_acquirer":null,"reading_type":null,"authorized_amount":null,"receipt":null,'
            '"reversal":null,"decided_at":"2026-11-20T10:00:00.000Z","evidence":[]}'
        )
        db.execute(
            "INSERT INTO transactions VALUES (?, 'SN-1', 'charge', NULL, 'final', '{}', '{}', '{}', NULL, NULL, 0,"
            " 'https://x', 1, '{}', NULL, ?, NULL, NULL, '[]', 200, x'7b7d', '2026-11-20T10:00:00.000Z', 'b', 3)",
            (name(number), outcome),
        )
        db.execute(
            "INSERT INTO changes (at, kind, id, reason, phase, result, attention)"
            " VALUES ('2026-11-20T10:00:00.000Z', 'transaction', ?, 'intent', 'final', 'canceled', '[]')",
            (name(number),),
        )
        db.close()

    return make


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("old_is_older", [False, True])
def test_a_backup_or_a_file_of_an_older_schema_is_migrated(
    state: State, first_schema: Callable[[Path, int], None], old_is_older: bool, damaged: bool
) -> None:
    """A payment that is older than the journal cannot be derived again from the records of either file."""
    first_schema(state.database, 2)
    if not old_is_older:
        open_database(state.database).close()
    first_schema(state.copy, 1)
    if damaged:
        destroy(state.database, "leases")
    state.restore()
    assert verify(state.database, lambda *_: None).counts == {}
    assert {state.row(name(number)).phase for number in (1, 2)} == {Phase.FINAL}
    with closing(connect_reader(state.database)) as db:
        assert derived_again(db, journal.last_incomplete_rowid(db)) == []
    db = open_database(state.database)
    Filled(db, NOON).pay(9)
    assert len(derived_again(db, journal.last_incomplete_rowid(db))) == 1
    db.close()


# The callback key.


def key_lines(state: State) -> list[bytes]:
    assert state.key.stat().st_mode & 0o777 == 0o600
    return [bytes.fromhex(line) for line in state.key.read_text().split()]


@pytest.fixture
def backed_up(state: State) -> State:
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
    state.key.chmod(0o600)
    return state


def test_the_present_keys_stay_first_and_those_of_the_backup_are_added_once(backed_up: State) -> None:
    keys = backed_up.restore().keys
    assert (keys.kept, keys.added) == (1, 1)
    assert key_lines(backed_up) == [OLD_KEY, BACKUP_KEY]
    keys = backed_up.restore().keys
    assert (keys.kept, keys.added) == (2, 0)
    assert key_lines(backed_up) == [OLD_KEY, BACKUP_KEY]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_lost_or_damaged_key_comes_back_from_the_backup(backed_up: State, damaged: bool) -> None:
    backed_up.key.write_text("not a key") if damaged else backed_up.key.unlink()
    keys = backed_up.restore().keys
    aside = keys.aside and Path(keys.aside).read_text()
    assert (keys.kept, keys.added, aside) == (0, 1, "not a key" if damaged else None)
    assert key_lines(backed_up) == [BACKUP_KEY]


# Refused restores.


def refused(state: State, file: Path | None = None) -> str:
    """Return the reason of a refused restore. Check that the restore changed nothing."""
    before = {path.name: path.read_bytes() for path in state.database.parent.iterdir()}
    with pytest.raises(StoreError) as error:
        state.restore(file)
    assert {path.name: path.read_bytes() for path in state.database.parent.iterdir() if path.suffix != ".lock"} == {
        name: content for name, content in before.items() if not name.endswith(".lock")
    }
    return str(error.value)


def test_a_file_that_is_not_a_backup_is_refused(backed_up: State) -> None:
    text = backed_up.directory / "text"
    text.write_text("hello")
    other = backed_up.directory / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE t (a)")
    assert "not a backup of posd" in refused(backed_up, text)
    assert "not a database of posd" in refused(backed_up, other)
    assert "there is no file" in refused(backed_up, backed_up.directory / "nowhere")
    assert "there is no file" in refused(backed_up, backed_up.directory)
    assert "is the database itself" in refused(backed_up, backed_up.database)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("PRAGMA user_version = 999", "a newer posd has used it"),
        (f"UPDATE {KEY_TABLE} SET key = x'00'", "callback key"),
        (None, "is damaged"),
    ],
)
def test_an_unusable_backup_is_refused(backed_up: State, harm: str | None, words: str) -> None:
    if harm is None:
        destroy(backed_up.copy, "changes")
    else:
        with closing(sqlite3.connect(backed_up.copy)) as db, db:
            db.execute(harm)
    assert words in refused(backed_up)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    state = State(tmp_path)
    with pytest.raises(StoreError, match="it must exist"):
        state.restore(tmp_path / "backup.db")


def test_a_cancelled_restore_leaves_nothing_behind(backed_up: State) -> None:
    before = backed_up.names()
    restoring = Restore(backed_up.database, backed_up.directory / "state" / "posd.db.lock", backed_up.key, NOON)
    with restoring:
        restoring.prepare(backed_up.copy, lambda *_: None, {})
    assert backed_up.names() - before == {"posd.db.lock"} | {
        name for name in backed_up.names() if name.endswith(("-wal", "-shm"))
    }
    assert key_lines(backed_up) == [OLD_KEY]


@needs(root=True)
def test_a_restore_by_another_user_is_refused_with_the_reason() -> None:
    with TemporaryDirectory(prefix="posd-") as home:
        Path(home).chmod(0o755)
        (Path(home) / "state").mkdir(mode=0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(StoreError, match="belongs to another user"):
                State(Path(home)).restore()
        finally:
            os.seteuid(0)
        assert State(Path(home)).names() == set()


# Lists of ids.


def listed(number: int, at: str = "", serial: str = "") -> StartedPayment:
    return StartedPayment(name(number), serial, at)


def test_a_listed_id_is_in_doubt_only_if_backup_and_old_file_lack_it(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
        filled.db.execute("INSERT INTO pruned_transactions VALUES (?, 'SN-1', 'charge', 'approved', 'at')", (name(20),))
    before = snapshots(state.database, filled.known)
    with closing(connect_reader(state.database)) as db:
        newest = max(numbers(db, "changes"))
    at = "2026-11-19T10:00:00.000Z"
    mark = state.restore(None, listed(1, at), listed(8), listed(20), listed(77, at, "SN-77"), listed(78)).mark
    assert (mark.old, mark.ids, mark.ids_taken_over, mark.taken_over) == (OldFile.READ, 5, 2, 8)
    assert mark.doubtful, "the replaced file does not have all payments"
    assert "2 of them were not known here" in mark.words
    assert snapshots(state.database, filled.known) == before
    assert_sound(state.database)
    with closing(connect_reader(state.database)) as db:
        found, bare = there(rows.get(db, name(77))), there(rows.get(db, name(78)))
        assert (found.phase, found.terminal, found.created_at) == (Phase.IN_DOUBT, "SN-77", at)
        assert (bare.phase, bare.terminal, bare.created_at) == (Phase.IN_DOUBT, "", iso(NOON))
        assert found.attention_of(AttentionCode.ORPHAN)
        assert rows.get(db, name(20)) is None, "removed payments stay removed"
        assert "SN-77" not in rows.leases(db)
        feed = [number for number in numbers(db, "changes") if number > newest]
        assert feed[0] > newest + 1, "an older file does not contain all used numbers"
        assert feed == list(range(changes.present_identity(db).first_seq, feed[-1] + 1))
        assert [item.client_transaction_id for item in taken_over(db)][-2:] == [name(77), name(78)]


@pytest.mark.parametrize("at", ["2026-11-20T11:59:00.000Z", "2031-11-19T10:00:00.000Z"])
def test_the_period_of_missing_records_has_no_end_if_a_known_start_is_later_than_the_clock(
    state: State, at: str
) -> None:
    """When the operator has confirmed the restore, the period has an end, because the clock may be right by then."""
    state.restore(None, listed(77, at, "SN-77"), without=True)
    with closing(open_database(state.database)) as db:
        missing = there(marks.missing_records(db, ""))
        assert missing.until == (marks.NOT_KNOWN_YET if at > iso(NOON) else iso(NOON))
        marks.add(db, "2032-01-01T00:00:00.000Z", marks.SEEN, None)
        missing = there(marks.missing_records(db, ""))
        assert missing.until == ("2032-01-01T00:00:00.000Z" if at > iso(NOON) else iso(NOON))


def test_a_list_of_ids_alone_creates_the_database_of_a_new_machine(state: State) -> None:
    mark = state.restore(None, listed(77), listed(78), without=True).mark
    assert (mark.old, mark.ids, mark.ids_taken_over) == (OldFile.MISSING, 2, 2)
    assert_sound(state.database)
    with closing(connect_reader(state.database)) as db:
        assert [item.client_transaction_id for item in taken_over(db)] == [name(77), name(78)]
        assert marks.unseen_restores(db) == [mark]


def test_a_backup_completes_a_payment_that_came_from_a_list_of_ids(state: State) -> None:
    """The disk was lost, and a list was restored. The operator then finds a backup."""
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
    state.database.unlink()
    state.restore(None, listed(1), listed(2), without=True)
    mark = state.restore(None, listed(1)).mark
    assert (mark.old, mark.ids_taken_over) == (OldFile.READ, 0)
    assert there(state.row(name(1)).outcome).result is Result.APPROVED
    assert state.row(name(2))
    assert_sound(state.database)


def test_a_payment_of_the_replaced_file_is_not_in_doubt_if_the_backup_has_only_its_id(state: State) -> None:
    """An older copy was restored, and only the witness's list had the payments. A backup of this state was made.

    Afterwards the present file was installed again.
    """
    with filling(state.database) as filled:
        for number, attempt in ((1, NotSent("no connection")), (2, ACKNOWLEDGED)):
            filled.attempt(filled.intent(number), attempt)
    whole = state.database.rename(state.database.with_name("whole"))
    state.restore(None, listed(1), listed(2), without=True)
    state.back_up()
    whole.rename(state.database)
    state.restore()
    assert there(state.row(name(1)).outcome).result is Result.NOT_STARTED, "the payment is known as never sent"
    active = state.row(name(2))
    assert active.acknowledged
    assert active.phase is Phase.IN_DOUBT, "the replaced file does not have the payment's later state"
    with closing(connect_reader(state.database)) as db:
        told = changes.after(db, 0, 100)
        assert all(feed_outcome(db, change, metadata=False) for change in told if change.result is not None)
    assert_sound(state.database)


# Kills.


def restoring(state: State) -> list[str]:
    """Return the command line of a process that restores."""
    script = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path\n"
        "from posd.upkeep import takeover; from posd.upkeep.restore import Restore\n"
        "database, lock, key, backup, ids = map(Path, sys.argv[1:])\n"
        "with Restore(database, lock, key, datetime.now(UTC)) as restore:\n"
        "    restore.prepare(backup, lambda *_: None, takeover.read_id_list(ids.open('rb')))\n"
        "    restore.commit()\n"
    )
    ids = state.directory / "lane.ids"
    ids.write_text(f"{name(1)}\n{name(77)}\n")
    files = (state.database, state.directory / "state" / "posd.db.lock", state.key, state.copy, ids)
    return [sys.executable, "-c", script, *map(str, files)]


#: The quick suite runs the first cases.
POINTS = [
    ("replace.committed", "start"),
    ("restore.built", "restore"),
    ("replace.old_aside:1", "restore"),
    *product(("restore.keys_written", "replace.old_aside:2", "replace.old_aside:3", "replace.in_place"), AGAIN),
    ("replace.committed", "restore"),
    ("restore.built", "start"),
    ("replace.old_aside:1", "start"),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("point", "again"), first_quick(POINTS, 3))
def test_a_kill_at_any_point_loses_no_id(state: State, point: str, again: str) -> None:
    """After the kill, posd is started or the restore is repeated."""
    filled, crashed = crash(state)
    before = snapshots(state.database, filled.known)
    environment = os.environ | {"POSD_CRASH": point}
    killed = subprocess.run(restoring(crashed), env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    if again == "restore":
        subprocess.run(restoring(crashed), check=True)
        assert_sound(crashed.database)
    connection.refuse_lost(crashed.database, crashed.key)
    open_database(crashed.database).close()
    assert snapshots(crashed.database, filled.known) == before
    assert crashed.key.read_text().startswith(OLD_KEY.hex())
    with closing(connect_reader(crashed.database)) as db:
        restored = len(marks.unseen_restores(db))
        listed = rows.get(db, name(77))
    assert (listed is not None) == bool(restored), "the file has the old state or the new state"
    committed = not point.startswith("restore.")
    assert restored == committed + (again == "restore")
    assert not {name for name in crashed.names() if ".restored-" in name}
    kept = [name for name in crashed.names() if ".replaced-" in name and name.endswith("Z-wal")]
    assert bool(kept) == bool(restored), "the WAL of the old file is kept beside the old file"


def test_a_second_restore_at_the_same_time_is_refused(backed_up: State) -> None:
    with (
        Restore(backed_up.database, backed_up.directory / "state" / "posd.db.lock", backed_up.key, NOON),
        pytest.raises(StoreError, match="another restore"),
    ):
        backed_up.restore()
    with pytest.raises(UnusableFile):
        backed_up.restore(backed_up.directory)
