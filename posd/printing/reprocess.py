"""Derivation of print jobs again from their journal. `posd.records.quarantine` uses the result."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta

from posd.base.times import parse_iso
from posd.printing import rows
from posd.printing.entries import Called, Entry, replay
from posd.printing.inbox import PrintInbox
from posd.printing.model import PrintJob, rebuild
from posd.printing.wire import read_webhook
from posd.records.quarantine import MAX_SHOWN, Derivable, Differing, ReprocessResult
from posd.storage.batch import WriteTransaction

log = structlog.get_logger("posd.reprocess")


class PrintApplied(msgspec.Struct, frozen=True):
    """A body of the quarantine that was applied."""

    id: Annotated[int, Meta(description="its id in the quarantine")]
    print_job_id: Annotated[str, Meta(description="the record that it belongs to")]
    verdict: Annotated[str | None, Meta(description="`applied`, or `repeated` if it had nothing new")]


class PrintDifference(msgspec.Struct, frozen=True):
    """A job whose stored state differs from the state derived from its record."""

    print_job_id: Annotated[str, Meta(description="which")]
    fields: Annotated[tuple[str, ...], Meta(description="changed fields of the record; the names are posd's own")]
    before: Annotated[dict[str, Any], Meta(description="the earlier values")]
    after: Annotated[dict[str, Any], Meta(description="the values that follow from the record, now stored")]


class PrintReport(msgspec.Struct):
    """Result of reprocessing. `differing`: number of all jobs that differ."""

    print_jobs: Annotated[int, Meta(description="number of records derived again")] = 0
    applied: Annotated[list[PrintApplied], Meta(description="the applied bodies of the quarantine")] = []
    differences: Annotated[list[PrintDifference], Meta(description=f"the corrections; the first {MAX_SHOWN}")] = []
    differing: Annotated[int, Meta(description="how many were corrected")] = 0


def print_records(inbox: PrintInbox) -> Derivable[PrintJob]:
    """Return the kind of record for print jobs. Every print job has a journal from its beginning."""

    def differing(db: sqlite3.Connection, stored: PrintJob) -> tuple[Differing, Callable[[WriteTransaction], object]]:
        derived = derive(db, stored)
        after = msgspec.structs.replace(derived, revision=stored.revision)
        return difference(stored, derived), partial(rows.move, before=stored, after=after, word="reprocessed")

    def tell(derived: int, differ: int) -> None:
        log.info("store.print_jobs_reprocessed", count=derived, kind=f"{differ} differences")

    return Derivable(rows.PRINT_JOB, differing, inbox.reapply, tell, PrintApplied, PrintDifference)


def report(done: ReprocessResult) -> PrintReport:
    """Return the results for print jobs as a document of the local API."""
    return PrintReport(
        print_jobs=done.derived,
        applied=done.applied,
        differences=done.differences,
        differing=done.differing,
    )


#: Derived fields. Times in them are not compared, because a later application has a later time.
DERIVED = (
    "phase",
    "queued",
    "acknowledged",
    "heard",
    "terminal_job_id",
    "status",
    "error_code",
    "error_message",
    "reason",
    "decided_by",
)


def derive(db: sqlite3.Connection, stored: PrintJob) -> PrintJob:
    """Derive a job again from its beginning and its journal (blocking)."""
    entries = [(parse_iso(at), entry) for at, entry in rows.journal(db, stored.print_job_id)]
    return replay(_beginning(stored, entries[0][1] if entries else None), entries)


def difference(stored: PrintJob, derived: PrintJob) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which the stored and the derived job differ: name -> (stored, derived)."""
    here, there = _comparable(stored), _comparable(derived)
    return {name: (here[name], there[name]) for name in here if here[name] != there[name]}


def _comparable(job: PrintJob) -> dict[str, Any]:
    facts: dict[str, Any] = {name: msgspec.to_builtins(getattr(job, name)) for name in DERIVED}
    facts["accepted"] = job.accepted_at is not None
    facts["attention"] = sorted(item.code for item in job.attention)
    return facts


def _beginning(stored: PrintJob, first: Entry | None) -> PrintJob:
    """Return the job as it was first inserted: by an intent, by a restore, or rebuilt from its first webhook."""
    if stored.orphan and isinstance(first, Called):
        return rebuild(read_webhook(first.body), stored.print_job_id, parse_iso(stored.created_at))
    # Sending sets `sent_to` to the same value. The queue state ended with the first later entry.
    return rows.PRINT_JOBS.as_inserted(stored, sent_to=stored.sent_to, queued=stored.queued)
