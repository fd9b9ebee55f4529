"""Retention. Old records are removed completely, and the file shrinks. Needed records stay. No id can be used again."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.base.times import iso
from posd.clock.clock import Stretch
from posd.payments import rows as transactions
from posd.payments.entries import Dismissed
from posd.payments.model import AttentionCode
from posd.payments.record import record
from posd.payments.rows import PAYMENT
from posd.printing.rows import PRINT_JOB
from posd.records import quarantine
from posd.records.model import Pruned
from posd.records.quarantine import ReceivedCallback
from posd.records.service import CallsInFlight
from posd.storage import changes, connection, marks
from posd.storage.batch import WriteTransaction
from posd.storage.connection import connect_reader
from posd.storage.store import Store
from posd.upkeep.retention import Removed, Report, Retention
from posd.upkeep.retention_rules import RetentionReason
from posd.upkeep.verify import verify
from tests.store.disasters import State, destroy
from tests.store.filled import MORNING, OPEN, Filled, filling, name, snapshot
from tests.store.printed import print_out

#: Personal texts that only the old payments have.
SECRETS = ("ada@example.com", "Lovelace", "Analytical Engine")
YEAR = timedelta(days=365)
LATER = MORNING + 3 * YEAR


def secret(number: int) -> dict[str, Any]:
    return {"metadata": b'{"mail": "%s", "note": "%s %d"}' % (SECRETS[0].encode(), b"x" * 200, number)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "posd.db"


@asynccontextmanager
async def retaining(
    path: Path, now: datetime = LATER, days: int = 400, doubt: str | None = None
) -> AsyncIterator[Retention]:
    store = await Store.open(path, path.with_name("lock"))
    try:
        yield Retention(store, days, lambda _identity: False, lambda: now, lambda: now, lambda: doubt)
    finally:
        await store.close()


async def prune(path: Path, now: datetime = LATER, days: int = 400, *, dry_run: bool = False) -> Report:
    async with retaining(path, now, days) as retention:
        return await retention.prune(days, dry_run=dry_run)


def left(path: Path) -> set[str]:
    with closing(connect_reader(path)) as db:
        return {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}


def sound(path: Path) -> None:
    assert verify(path, lambda *_: None).findings == []


def size(path: Path) -> int:
    return path.stat().st_size


def in_files(path: Path) -> set[str]:
    """Return the secrets that are in any page of the database's files."""
    found = set()
    for file in path.parent.iterdir():
        content = file.read_bytes()
        found |= {word for word in SECRETS if word.encode() in content}
    return found


@pytest.mark.slow
async def test_an_old_payment_is_removed_with_its_space_and_every_text(path: Path) -> None:
    with filling(path) as filled:
        filled.db.execute("BEGIN")
        for number in range(1500):
            filled.pay(number, OPEN, **secret(number))
            filled.event(name(number), "APPROVAL_REQUESTED")
            filled.event(name(number), "APPROVAL", metadata={"engine": SECRETS[2]})
            if number % 10 == 0:
                filled.quarantine(name(number), SECRETS[1].encode() + b" %d" % number)
                dismiss(filled, name(number))
                print_out(filled, f"P-{number}", pad=3000)
        filled.clock = LATER - timedelta(days=10)
        newer = [filled.pay(number) for number in range(2000, 2020)]
        filled.db.execute("COMMIT")
    assert in_files(path) == set(SECRETS)
    with closing(connect_reader(path)) as db:
        kept = {identity: snapshot(db, identity) for identity in newer}
    before = size(path)

    report = await prune(path)

    assert report.removed == Removed(1500, 150, 150, report.removed.changes)
    assert report.kept == {}
    assert (left(path), in_files(path)) == (set(newer), set())
    sound(path)
    assert report.bytes_returned is not None
    assert before - size(path) >= report.bytes_returned > before * 0.8
    with closing(connect_reader(path)) as db:
        assert {identity: snapshot(db, identity) for identity in newer} == kept
        assert db.execute("SELECT count(*) FROM pruned_transactions").fetchone() == (1500,)
        for table in ("transaction_words", "quarantine", "print_journal", "print_jobs"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        lines = changes.after(db, 0, 10_000)
        assert {line.id for line in lines} == set(newer)


def dismiss(filled: Filled, identity: str) -> None:
    entry = Dismissed("ada", "seen", None, AttentionCode.QUARANTINED_EVENT)
    record(WriteTransaction(filled.db), filled.get(identity), entry, filled.now(), CallsInFlight())


def old(path: Path, work: Any) -> None:
    with filling(path) as filled:
        filled.db.execute("BEGIN")
        work(filled)
        filled.db.execute("COMMIT")


async def test_records_of_a_kept_chain_stay(path: Path) -> None:
    def work(filled: Filled) -> None:
        pre_auth = filled.pay(1)
        filled.pay(2, type=OperationType.CAPTURE, original=pre_auth, derives_from=pre_auth)
        filled.pay(3, type=OperationType.VOID, original=name(2), derives_from=name(2))
        filled.pay(4, OPEN, type=OperationType.CAPTURE, original=pre_auth, derives_from=pre_auth)
        filled.pay(5)
        filled.pay(6, OPEN)
        filled.quarantine(filled.pay(7))
        filled.pay(8, sale="basket")
        print_out(filled, "done")
        print_out(filled, "open", "open")
        filled.clock = LATER
        filled.pay(9, ("TERMINAL_CANCELED",), sale="basket")
        again = print_out(filled, "again")
        filled.db.execute("UPDATE print_jobs SET reprint_of = 'done' WHERE print_job_id = ?", (again.print_job_id,))

    old(path, work)
    told = await prune(path, LATER + timedelta(days=1), dry_run=True)
    report = await prune(path, LATER + timedelta(days=1))
    assert told.removed == Removed(1) == msgspec.structs.replace(report.removed, changes=0)
    assert told.kept == report.kept == {"chain": 5, "open": 2, "attention": 1, "sale": 1}
    assert left(path) == {name(number) for number in (1, 2, 3, 4, 6, 7, 8, 9)}
    with closing(connect_reader(path)) as db:
        assert PAYMENT.find_pruned(db, name(5)) == Pruned(name(5), "SN-5", "charge", "approved", "2026-11-20")
        assert PRINT_JOB.find_pruned(db, "done") is None
        assert len(quarantine.page(db, 0, 10)) == 1
    sound(path)


async def test_a_call_in_progress_keeps_its_payment(path: Path) -> None:
    old(path, lambda filled: filled.pay(1))
    store = await Store.open(path, path.with_name("lock"))
    try:
        busy = lambda identity: identity == name(1)  # noqa: E731
        report = await Retention(store, 400, busy, lambda: LATER, lambda: LATER, lambda: None).prune(0)
    finally:
        await store.close()
    assert (report.kept, left(path)) == ({RetentionReason.OPEN: 1}, {name(1)})


async def test_with_an_untrusted_clock_nothing_is_removed_even_on_request(path: Path) -> None:
    old(path, lambda filled: filled.pay(1))
    async with retaining(path, doubt="it jumped") as retention:
        for run in (retention._by_itself(), retention.prune(0)):
            with pytest.raises(Problem, match="it jumped"):
                await run
        assert (await retention.prune(0, dry_run=True)).removed.transactions == 1
    assert left(path) == {name(1)}


@pytest.mark.parametrize(("since_then", "removed"), [(timedelta(hours=1), 0), (timedelta(days=401), 3)])
async def test_a_payment_recorded_by_a_slow_clock_has_the_age_of_its_end(
    path: Path, since_then: timedelta, removed: int
) -> None:
    """The clock of a new machine was three years behind during the first payments, and was set afterwards."""
    until = LATER - since_then
    with filling(path) as filled:
        began = filled.clock
        for number in range(3):
            filled.pay(number)
        print_out(filled, "first-print")
        came = ReceivedCallback(b"half a bo", "127.0.0.1", filled.now())
        quarantine.put(WriteTransaction(filled.db), "transactions", "nobody", "no event", came)
        told = Stretch(iso(LATER), iso(until), "behind", iso(began), iso(filled.clock))
        marks.add(filled.db, told.since, marks.CLOCK_UNSURE, told)
    found = (await prune(path, dry_run=True)).removed
    assert (await prune(path)).removed.transactions == found.transactions == removed
    assert len(left(path)) == 3 - removed
    assert bool(found.print_jobs) == bool(removed)
    with closing(connect_reader(path)) as db:
        assert bool(quarantine.count(db)) == (not removed)


async def test_a_payment_recorded_before_the_clock_was_set_ahead_has_the_age_of_that_change(path: Path) -> None:
    with filling(path) as filled:
        filled.clock -= 2 * YEAR
        filled.pay(0)
        filled.clock += 2 * YEAR
        filled.pay(1)
        told = Stretch(iso(filled.clock), iso(LATER - timedelta(hours=1)), "stepped_ahead", set_ahead=True)
        marks.add(filled.db, told.since, marks.CLOCK_UNSURE, told)
    assert (await prune(path)).removed.transactions == 1
    assert left(path) == {name(1)}, "the other payment is old by that clock too"
    assert (await prune(path, LATER + 2 * YEAR)).removed.transactions == 1


async def test_the_daily_run_uses_only_the_confirmed_time(path: Path) -> None:
    old(path, lambda filled: filled.pay(1))
    store = await Store.open(path, path.with_name("lock"))
    try:
        retention = Retention(store, 400, lambda _: False, lambda: LATER, lambda: MORNING, lambda: None)
        await retention._by_itself()
        assert left(path) == {name(1)}
        assert (await retention.prune(400)).removed.transactions == 1, "a requested prune removes the payment"
    finally:
        await store.close()


async def test_a_requested_prune_does_not_wait_for_the_daily_run(path: Path) -> None:
    old(path, lambda filled: [filled.pay(number) for number in range(100)])
    async with retaining(path, MORNING + timedelta(days=30), days=20) as retention:
        daily = asyncio.create_task(retention._by_itself())
        while not retention._one_at_a_time.locked():  # noqa: ASYNC110 - the lock is held once the run has begun
            await asyncio.sleep(0)
        report = await retention.prune(20)
        with pytest.raises(Problem, match="posd is stopping"):
            await daily
        assert report.removed.transactions > 0
    assert left(path) == set()


async def test_an_interrupted_run_is_finished_by_the_next_run(path: Path) -> None:
    old(path, lambda filled: [filled.pay(number, **secret(number)) for number in range(60)])
    async with retaining(path) as retention:
        run = asyncio.create_task(retention.prune(400))
        while len(left(path)) in (60, 0):  # noqa: ASYNC110 - only the file shows the progress
            await asyncio.sleep(0)
        retention.stop()
        with pytest.raises(Problem, match="posd is stopping"):
            await run
    sound(path)
    assert 0 < len(left(path)) < 60
    await prune(path)
    assert (left(path), in_files(path)) == (set(), set())
    sound(path)


@pytest.mark.parametrize("newest_is", ["backup", "old"])
def test_a_restore_takes_over_the_removed_ids(tmp_path: Path, newest_is: str) -> None:
    state = State(tmp_path)
    state.database.parent.mkdir()
    old(state.database, lambda filled: (filled.pay(1), filled.pay(2, OPEN), print_out(filled, "p")))
    if newest_is == "old":  # the backup has everything, and one payment is still open
        state.back_up()
        old(
            state.database,
            lambda filled: [filled.event(name(2), status) for status in ("APPROVAL_REQUESTED", "APPROVAL")],
        )
        asyncio.run(prune(state.database))
    else:  # the replaced file is an older copy, installed by hand
        older = state.database.read_bytes()
        old(
            state.database,
            lambda filled: [filled.event(name(2), status) for status in ("APPROVAL_REQUESTED", "APPROVAL")],
        )
        asyncio.run(prune(state.database))
        state.back_up()
        state.database.write_bytes(older)
    state.restore()
    assert left(state.database) == set()
    sound(state.database)
    with closing(connect_reader(state.database)) as db:
        for number in (1, 2):
            with pytest.raises(Problem, match="do not charge again"):
                PAYMENT.refuse_pruned(db, name(number))
        for identity in ("p", "P"):
            with pytest.raises(Problem, match="a print job that ended COMPLETED"):
                PRINT_JOB.refuse_pruned(db, identity)
        assert db.execute("SELECT count(*) FROM leases").fetchone() == (0,)


@pytest.mark.slow
def test_a_damaged_file_still_has_the_removed_ids(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.database.parent.mkdir()
    old(state.database, lambda filled: [filled.pay(number) for number in range(300)])
    old(state.database, lambda filled: [print_out(filled, f"p-{number}") for number in range(20)])
    asyncio.run(prune(state.database))
    old(state.database, lambda filled: filled.pay(999))
    destroy(state.database, "transactions", "leases")
    prepared = state.restore(without=True)
    assert left(state.database) == {name(999)}
    assert prepared.mark.by_id == 0
    with closing(connect_reader(state.database)) as db:
        assert db.execute("SELECT count(*) FROM pruned_transactions").fetchone() == (300,)
        assert db.execute("SELECT count(*) FROM pruned_print_jobs").fetchone() == (20,)
    sound(state.database)


async def test_an_older_database_is_converted_so_that_its_file_can_shrink(path: Path) -> None:
    old(path, lambda filled: [filled.pay(number) for number in range(50)])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
        db.execute("UPDATE transactions SET rowid = -7 WHERE rowid = 3")
        rows = db.execute("SELECT rowid, client_transaction_id FROM transactions ORDER BY 1").fetchall()
        assert not connection.can_shrink(db)
    async with retaining(path):
        pass
    with closing(connect_reader(path)) as reader:
        assert connection.can_shrink(reader)
        assert reader.execute("SELECT rowid, client_transaction_id FROM transactions ORDER BY 1").fetchall() == rows


async def test_after_retention_the_feed_continues_with_the_next_number(path: Path) -> None:
    old(path, lambda filled: [filled.pay(number) for number in range(3)])
    with closing(connect_reader(path)) as db:
        newest = changes.after(db, 0, 1000)[-1].seq
    await prune(path)
    old(path, lambda filled: filled.pay(9))
    with closing(connect_reader(path)) as db:
        assert changes.after(db, 0, 1000)[0].seq == newest + 1
        assert transactions.get(db, name(1)) is None
