"""Checking the print jobs of a database: each can be read, is consistent, and follows from its record."""

import sqlite3
from collections.abc import Iterator

from posd.printing import record, rows
from posd.printing.entries import Called
from posd.printing.events import read_webhook
from posd.printing.model import FINALS, NOT_ACCEPTED, PrintJob
from posd.records.model import Phase
from posd.upkeep import print_merge
from posd.upkeep.merge import UNREADABLE

#: One thing that is wrong: its kind of `posd.upkeep.verify.KINDS`, what it is about, what was seen.
Found = tuple[str, str, str]


def faults(db: sqlite3.Connection) -> Iterator[list[Found]]:
    """Yield for each job what is wrong with it. Raise sqlite3.Error where the tables cannot be read."""
    for rowid, identity in db.execute("SELECT rowid, print_job_id FROM print_jobs ORDER BY rowid").fetchall():
        yield list(_faults(db, rowid, identity))


def _faults(db: sqlite3.Connection, rowid: int, identity: str) -> Iterator[Found]:
    subject = f"print job {identity}"
    try:
        job = rows.get(db, identity)
    except UNREADABLE as error:
        if isinstance(error, sqlite3.Error):
            raise
        yield "unreadable", subject, str(error)
        return
    if job is None or job.print_job_id != identity:
        yield "unreadable", subject, "it is not found by its index"
        return
    yield from _consistent(job, subject)
    journal = list(_journal(db, identity, subject))
    yield from journal
    # Rows from 0 downwards are known to have lost a part of their record: a restore has told of it.
    if rowid > 0 and not journal:
        for name, (stored, derived) in record.difference(job, record.derive(db, job)).items():
            yield "print_job", subject, f"{name} is {stored}, and {derived} by its record"


def history(db: sqlite3.Connection) -> Iterator[Found]:
    """Yield the jobs of which the newest row of the history does not say what the job says."""
    for identity, phase, status, last_phase, last_status in print_merge.history_behind(db):
        said = f"{last_phase}, {last_status or 'no state'}" if last_phase else "nothing"
        yield "history", f"print job {identity}", f"it is {phase}, {status or 'no state'}; the history says {said}"


def _consistent(job: PrintJob, subject: str) -> Iterator[Found]:
    decided = job.decided_by is not None
    stated = decided and job.decided_by not in NOT_ACCEPTED
    final, ended = job.phase is Phase.FINAL, job.status in FINALS
    # A job that was not accepted has no state, and what is open has none that ends it.
    if final is not decided or ended is not stated or (final and not stated and job.status is not None):
        detail = f"{job.phase}, {job.status or 'no state'}, decided by {job.decided_by or 'nothing'}"
        yield "print_job", subject, detail


def _journal(db: sqlite3.Connection, identity: str, subject: str) -> Iterator[Found]:
    try:
        for item in rows.journal(db, identity):
            if isinstance(item.entry, Called):
                read_webhook(item.entry.body)
    except UNREADABLE as error:
        if isinstance(error, sqlite3.Error):
            raise
        yield "unreadable", f"the journal of {subject}", str(error)
