"""Rows of print jobs and their journal. An entry, its effect and its line of the feed are in one commit."""

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from posd.base.ids import Channel
from posd.base.times import parse_iso
from posd.printing import documents
from posd.printing import rows as print_jobs
from posd.printing.documents import PrintJobQuery
from posd.printing.documents import report as reported
from posd.printing.entries import (
    Called,
    Created,
    Entry,
    Interrupted,
    Polled,
    Quarantined,
    Reapplied,
    Resolved,
    Stuck,
    Turn,
    replay,
)
from posd.printing.inbox import PrintInbox, print_records
from posd.printing.model import PrintJob, PrintStatus
from posd.printing.rows import derive, difference
from posd.printing.wire import NoAnswer
from posd.records.quarantine import Reprocessing
from posd.records.service import ServiceParts
from posd.storage import changes
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store
from posd.terminals.attempt import NotSent, Replied, ReplyLost
from posd.terminals.fleet import Fleet
from tests.core.test_print_entries import called, polled
from tests.core.test_printing import NOW, starting

ACCEPTED = Created(Replied(202, b'{"printJobId": "T-9"} \xff'))


async def begin(store: Store, job: PrintJob | None = None) -> PrintJob:
    """Insert a job. Return it."""
    inserted = job or starting(document=b'{"n": 1.10}', external_reference="t7", reprint_of="job-0", queued=True)
    await store.write(partial(print_jobs.begin, job=inserted, word="intent"))
    return inserted


async def recorded(store: Store, before: PrintJob, entry: Entry, seconds: float = 1) -> PrintJob:
    now = NOW + timedelta(seconds=seconds)
    return await store.write(partial(print_jobs.record, before=before, entry=entry, now=now))


async def read(store: Store, function: Callable[[sqlite3.Connection], Any]) -> Any:
    return await store.read(function)


async def test_a_stored_job_is_read_back_unchanged(store: Store) -> None:
    job = await begin(store)
    assert await read(store, lambda db: print_jobs.get(db, "job-1")) == job
    assert await read(store, lambda db: print_jobs.get(db, "job-2")) is None
    job = await recorded(store, job, ACCEPTED)
    job = await recorded(store, job, Quarantined("no JSON"))
    job = await recorded(store, job, called("FAILED", errorCode="E-7", errorMessage="paper"))
    assert job.revision == 3
    assert await read(store, lambda db: print_jobs.get(db, "job-1")) == job


async def test_the_bytes_of_a_webhook_are_kept_verbatim(store: Store) -> None:
    body = b' {"printJobId": "job-1",\t"status":"COMPLETED", "externalReference":"caf\xc3\xa9"}\r\n'
    await recorded(store, await recorded(store, await begin(store), ACCEPTED), Called(body))
    assert await read(store, lambda db: print_jobs.callbacks(db, "job-1")) == [body]
    rows = await read(store, lambda db: db.execute("SELECT kind, entry, body FROM print_journal").fetchall())
    assert rows[1] == ("webhook", '{"kind":"webhook"}', body)
    assert rows[0][0] == "attempt"
    assert rows[0][2] is None


async def test_a_change_and_its_entry_in_the_feed_are_stored_together(store: Store) -> None:
    job = await recorded(store, await begin(store), ACCEPTED)

    def fails(unit: WriteTransaction) -> None:
        print_jobs.record(unit, job, called("COMPLETED"), NOW)
        raise ValueError

    with pytest.raises(ValueError):
        await store.write(fails)
    lines = await read(store, lambda db: changes.after(db, 0, 10))
    assert [(line.kind, line.id, line.reason, line.phase, line.status, line.terminal) for line in lines] == [
        ("print_job", "job-1", "intent", "starting", None, "SN-1"),
        ("print_job", "job-1", "accepted", "active", "PENDING", "SN-1"),
    ]
    assert await read(store, lambda db: print_jobs.callbacks(db, "job-1")) == []


async def test_an_entry_without_information_is_not_stored_but_an_action_is(store: Store) -> None:
    job = await recorded(store, await begin(store), ACCEPTED)
    job = await recorded(store, job, polled("PENDING"))  # this poll has the terminal's first report
    count = len(await read(store, lambda db: list(print_jobs.journal(db, "job-1"))))
    assert await recorded(store, job, polled("PENDING")) == job
    assert await recorded(store, job, Polled(NoAnswer("HTTP 404", 404))) == job
    assert len(await read(store, lambda db: list(print_jobs.journal(db, "job-1")))) == count
    assert await recorded(store, job, called("PENDING")) == job
    assert len(await read(store, lambda db: list(print_jobs.journal(db, "job-1")))) == count + 1
    newest = (await read(store, lambda db: changes.after(db, 0, 10)))[-1]
    assert (newest.reason, newest.phase) == ("webhook:PENDING", "active")


async def test_open_jobs_and_reprints_are_listed(store: Store) -> None:
    for number in range(4):
        await begin(store, starting(print_job_id=f"job-{number}", reprint_of="job-0" if number else None))
    one = await read(store, lambda db: print_jobs.get(db, "job-1"))
    await recorded(store, one, Created(NotSent("no way")))
    found = await read(store, print_jobs.open_ones)
    assert [job.print_job_id for job in found] == ["job-0", "job-2", "job-3"]
    assert await read(store, lambda db: print_jobs.reprints(db, "job-0")) == ["job-1", "job-2", "job-3"]
    rows = await read(store, lambda db: print_jobs.by_rowid(db, 2, 5))
    assert [job.print_job_id for _, job in rows] == ["job-2", "job-3"]


async def test_many_jobs_are_read_without_their_documents(store: Store) -> None:
    """The documents of a thousand open jobs, 240 KiB each, are not in memory at once."""
    job = await begin(store)
    (found,) = await read(store, print_jobs.open_ones)
    (listed,), _ = await read(store, lambda db: documents.read_page(db, PrintJobQuery(limit=9)))
    assert found == listed == msgspec.structs.replace(job, document=b"{}")
    await recorded(store, found, Interrupted(in_line=True))
    assert (await read(store, lambda db: print_jobs.get(db, "job-1"))).document == job.document


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [Turn(), ACCEPTED, polled("IN_PROGRESS"), Stuck(300), called("FAILED", errorCode="E-7")],
        [Interrupted(in_line=True)],
        [Interrupted(in_line=False), called("JAMMED"), polled("COMPLETED"), called("FAILED")],
        [Created(Replied(409, b"no")), Quarantined("no JSON"), Reapplied(), called("COMPLETED")],
        [Created(ReplyLost("reset")), Resolved("Ana", "x", 7, PrintStatus.FAILED), called("COMPLETED")],
    ],
    ids=["new", "printed", "in line", "interrupted", "refused", "resolved"],
)
async def test_a_job_is_derived_again_from_its_journal(store: Store, entries: list[Entry]) -> None:
    job = await begin(store)
    for number, entry in enumerate(entries):
        job = await recorded(store, job, entry, number)
    assert difference(job, await read(store, lambda db: derive(db, job))) == {}
    items = await read(store, lambda db: list(print_jobs.journal(db, "job-1")))
    assert replay(starting(), [(parse_iso(at), entry) for at, entry in items]).status == job.status


async def test_a_wrong_stored_job_is_corrected_and_reported(store: Store) -> None:
    job = await recorded(store, await begin(store), ACCEPTED)
    await recorded(store, job, called("COMPLETED"))
    await begin(store, starting(print_job_id="job-2"))
    await store.write(
        lambda unit: unit.db.execute("UPDATE print_jobs SET status = 'FAILED', heard = 0 WHERE rowid = 1")
    )
    printing = print_records(PrintInbox(ServiceParts(store, Fleet(()), lambda: NOW)))
    done = (await Reprocessing(store, [printing]).run())[0][Channel.PRINT]
    report = reported(done)
    assert (report.print_jobs, report.differing) == (2, 1)
    (found,) = report.differences
    assert (found.print_job_id, found.fields) == ("job-1", ("heard", "status"))
    assert (found.before["status"], found.after["status"]) == ("FAILED", "COMPLETED")
    corrected = await read(store, lambda db: print_jobs.get(db, "job-1"))
    assert (corrected.status, corrected.heard) == ("COMPLETED", True)
    assert (await read(store, lambda db: changes.after(db, 0, 99)))[-1].reason == "reprocessed"
    assert (await Reprocessing(store, [printing]).run())[0][Channel.PRINT].differing == 0
