"""Print jobs after a restore and in a damaged file. Every sent id is found, with its newest state."""

from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from posd.printing import rows
from posd.printing.model import DecidedBy, PrintAttentionCode, PrintJob, PrintStatus
from posd.storage.connection import PAGE_BYTES as PAGE
from posd.storage.connection import connect_reader
from posd.storage.marks import OldFile
from posd.upkeep.verify import verify
from tests.rig.slow import first_quick
from tests.rig.tables import there
from tests.store.disasters import State, destroy
from tests.store.filled import Filled, filling, name
from tests.store.printed import STORIES, happen, orphan, print_intent, print_out, webhook

EARLY = tuple(f"early-{number}" for number in range(len(STORIES)))
LATE = tuple(f"late.{number}" for number in range(len(STORIES)))
OPEN = EARLY[list(STORIES).index("open")]
#: The id of a print job can be a UUID, even the UUID of a payment.
ALIKE, SHARED = name(700), name(1)
ORPHAN = "orphan"
JOBS = (*EARLY, *LATE, ALIKE, SHARED, ORPHAN)


def run_a_day(filled: Filled, state: State) -> None:
    """Record every story before and after the backup.

    After the backup, record the end of a job that is open in the backup.
    """
    filled.pay(1)
    for number, story in enumerate(STORIES):
        print_out(filled, EARLY[number], story)
    state.back_up()
    filled.pay(2)
    for number, story in enumerate(STORIES):
        print_out(filled, LATE[number], story, pad=(0, 6000)[number % 2])
    happen(filled, OPEN, "COMPLETED")
    print_out(filled, ALIKE)
    print_out(filled, SHARED)
    orphan(filled, ORPHAN)


def snapshots(path: Path) -> dict[str, tuple[object, ...]]:
    """Return all records of each job, without their row numbers."""
    with closing(connect_reader(path)) as db:
        return {
            identity: (
                rows.get(db, identity),
                list(rows.journal(db, identity)),
                db.execute(
                    "SELECT at, reason, phase, status, attention, terminal FROM changes"
                    " WHERE (kind, id) = ('print_job', ?) ORDER BY seq",
                    (identity,),
                ).fetchall(),
            )
            for identity in JOBS
        }


def jobs(path: Path) -> dict[str, PrintJob]:
    with closing(connect_reader(path)) as db:
        return {job.print_job_id: job for _, job in rows.by_rowid(db, -1000, 1000)}


def assert_sound(path: Path) -> None:
    report = verify(path, lambda *_: None)
    assert report.counts == {}, report.findings
    assert report.print_jobs == len(jobs(path))


# Tests of the derivation from the record.


@pytest.mark.parametrize("story", [*STORIES, ORPHAN])
def test_every_stored_job_can_be_derived_from_its_record(state: State, story: str) -> None:
    with filling(state.database) as filled:
        job = orphan(filled, "x") if story == ORPHAN else print_out(filled, "x", story)
        assert rows.difference(job, rows.derive(filled.db, job)) == {}
        print_intent(filled, "waiting", queued=True)
        print_intent(filled, "sent")
    assert_sound(state.database)


# Undamaged files.


def test_every_job_of_an_undamaged_file_exists_after_a_restore(state: State) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
    before = snapshots(state.database)
    assert set(jobs(state.copy)) == set(EARLY)
    mark = state.restore().mark
    assert (mark.old, mark.taken_over, mark.print_jobs, mark.print_jobs_by_id) == (OldFile.READ, 1, 14, 0)
    assert "1 payment and 14 print jobs were taken over from it." in mark.words
    assert snapshots(state.database) == before
    assert_sound(state.database)
    assert state.restore().mark.old is OldFile.READ
    assert snapshots(state.database) == before, "a repeated restore changes nothing more"


# Damaged files.


@pytest.mark.parametrize("step", first_quick((10, 1), 1))  # damage each tenth page, or each page
def test_with_any_page_destroyed_no_job_is_lost_and_none_is_invented(state: State, step: int) -> None:
    with filling(state.database) as filled:
        run_a_day(filled, state)
        filled.db.execute("PRAGMA incremental_vacuum").fetchall()  # posd does not read free pages
    before, content, random = jobs(state.database), state.database.read_bytes(), Random(1)
    for start in range(0, len(content), PAGE * step):
        for path in state.database.parent.iterdir():
            path.unlink()
        state.database.write_bytes(content[:start] + random.randbytes(PAGE) + content[start + PAGE :])
        assert state.restore().mark.old is OldFile.DAMAGED
        assert_sound(state.database)
        after = jobs(state.database)
        assert after.keys() == before.keys(), start // PAGE
        for identity, job in after.items():
            ended = job.decided_by is not None and not (job.status is None and before[identity].status)
            assert not ended or job.status is before[identity].status, (start // PAGE, identity)
        with closing(connect_reader(state.database)) as db:
            payments = {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}
        assert payments == {name(1), name(2)}, start // PAGE


def test_a_job_that_lost_only_its_row_is_derived_from_its_journal(state: State) -> None:
    with filling(state.database) as filled:
        filled.pay(1)
        state.back_up()
        print_out(filled, "printed")
        print_out(filled, "failed", "failed by poll")
    destroy(state.database, "print_jobs")
    mark = state.restore().mark
    assert (mark.print_jobs, mark.print_jobs_by_id) == (2, 0)
    assert_sound(state.database)
    found = jobs(state.database)
    assert (found["printed"].status, found["printed"].decided_by) == (PrintStatus.COMPLETED, DecidedBy.WEBHOOK)
    assert (found["failed"].status, found["failed"].decided_by) == (PrintStatus.FAILED, DecidedBy.POLL)
    assert found["failed"].terminal == "SN-1", "the feed has a line of the job"
    with closing(connect_reader(state.database)) as db:
        assert rows.callbacks(db, "printed") == [webhook("printed", "COMPLETED")]


def test_the_history_of_a_job_is_not_mixed_with_a_payment_of_the_same_id(state: State) -> None:
    with filling(state.database) as filled:
        print_out(filled, "early")
        state.back_up()
        print_out(filled, SHARED, "failed by poll", number=7)
        filled.pay(1)
    destroy(state.database, "print_jobs", "print_journal")
    state.restore()
    found = jobs(state.database)[SHARED]
    doubt = there(found.attention_of(PrintAttentionCode.IN_DOUBT))
    assert "(the last known of it: final, FAILED, " in doubt.detail
    assert found.terminal == "SN-7"


# Verify.


WRONG = {
    "a final job without an end": ("UPDATE print_jobs SET phase = 'final'", "print_job", "final, IN_PROGRESS"),
    "an open job with an end": ("UPDATE print_jobs SET status = 'COMPLETED'", "print_job", "active, COMPLETED"),
    "an open job with a decision": ("UPDATE print_jobs SET decided_by = 'poll'", "print_job", "decided by poll"),
    "an unsent job with a state": (
        "UPDATE print_jobs SET phase = 'final', decided_by = 'unsent'",
        "print_job",
        "final, IN_PROGRESS, decided by unsent",
    ),
    "a state that differs from the record": (
        "UPDATE print_jobs SET status = 'PENDING'",
        "print_job",
        "status is PENDING, and IN_PROGRESS by its record",
    ),
    "an invalid attention": ("UPDATE print_jobs SET attention = '{'", "unreadable", "print job x"),
    "an invalid entry": ("UPDATE print_journal SET entry = '{' WHERE seq = 1", "unreadable", "the journal of"),
    "an incomplete webhook": ("UPDATE print_journal SET body = x'7b' WHERE seq = 1", "unreadable", "the journal of"),
    "no history": ("DELETE FROM changes", "history", "says nothing"),
    "a wrong history": ("UPDATE changes SET status = 'PENDING'", "history", "the history says active, PENDING"),
    "no job": ("DELETE FROM print_jobs", "dangling", "print_journal"),
}


@pytest.mark.quick(7)
@pytest.mark.parametrize("wrong", WRONG)
def test_verify_finds_each_fault_and_says_what_to_do(state: State, wrong: str) -> None:
    statement, kind, names = WRONG[wrong]
    with filling(state.database) as filled:
        print_out(filled, "x", "open")
        filled.db.execute("PRAGMA foreign_keys = OFF")
        filled.db.execute("PRAGMA ignore_check_constraints = ON")
        filled.db.execute(statement)
    report = verify(state.database, lambda *_: None)
    found = [item for item in report.findings if item.kind == kind]
    assert any(names in f"{item.subject}: {item.detail}" for item in found), report.findings
    assert all(item.cure for item in found)
