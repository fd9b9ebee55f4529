"""Reprocessing of print jobs: what can now be applied of the quarantine is applied, and each job is derived again.

The journal of a job, with the raw bytes of its webhooks, is its record. A difference between what follows from it and
what is stored is a fault of this or an earlier version, or of the disk: it is corrected and reported.
"""

import sqlite3
from functools import partial
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta

from posd.base.callback_tokens import Channel
from posd.printing import rows as print_jobs
from posd.printing.inbox import PrintInbox
from posd.printing.model import PrintJob
from posd.printing.record import derive, difference
from posd.records import quarantine
from posd.storage.batch import Unit
from posd.storage.store import Store

#: Jobs that are read at a time: payments wait no longer than for these.
CHUNK = 50
#: Differences that a report shows in full; the rest is counted.
MAX_SHOWN = 500

log = structlog.get_logger("posd.reprocess")


class PrintApplied(msgspec.Struct, frozen=True):
    """A body of the quarantine that was applied."""

    id: Annotated[int, Meta(description="its id in the quarantine")]
    print_job_id: Annotated[str, Meta(description="whose it is")]
    verdict: Annotated[str | None, Meta(description="`applied`, or `repeated` where it said nothing new")]


class PrintDifference(msgspec.Struct, frozen=True):
    """A job that was stored otherwise than it follows from its record."""

    print_job_id: Annotated[str, Meta(description="which")]
    fields: Annotated[tuple[str, ...], Meta(description="in which fields of the record; names are posd's own")]
    before: Annotated[dict[str, Any], Meta(description="what was stored in them")]
    after: Annotated[dict[str, Any], Meta(description="what follows from the record, and is stored now")]


class PrintReport(msgspec.Struct):
    """What was done; `differing` counts all differences."""

    print_jobs: Annotated[int, Meta(description="how many were derived again")] = 0
    applied: Annotated[list[PrintApplied], Meta(description="what was applied of the quarantine")] = []
    differences: Annotated[list[PrintDifference], Meta(description=f"what was corrected; the first {MAX_SHOWN}")] = []
    differing: Annotated[int, Meta(description="how many were corrected")] = 0


class PrintReprocessing:
    """Use case of an operator."""

    def __init__(self, store: Store, inbox: PrintInbox) -> None:
        self._store = store
        self._inbox = inbox

    async def run(self) -> PrintReport:
        """Do it; payments and printing go on meanwhile. Raise StorageUnavailable or CommitUncertain."""
        report = PrintReport()
        await self._apply_quarantine(report)
        after = 0
        while chunk := await self._store.read(partial(_chunk, after=after)):
            after = chunk[-1][0]
            for _, stored, derived in chunk:
                report.print_jobs += 1
                if difference(stored, derived):
                    await self._correct(stored.print_job_id, report)
        log.info("store.print_jobs_reprocessed", count=report.print_jobs, kind=f"{report.differing} differences")
        return report

    async def _apply_quarantine(self, report: PrintReport) -> None:
        after = 0
        while items := await self._store.read(partial(quarantine.page, after=after, limit=CHUNK)):
            after = items[-1].id
            for item in items:
                if item.channel != Channel.PRINT:
                    continue
                receipt = await self._store.write(partial(self._inbox.reapply, item=item))
                if receipt is not None:
                    report.applied.append(PrintApplied(item.id, item.subject, receipt.verdict))

    async def _correct(self, identity: str, report: PrintReport) -> None:
        def work(unit: Unit) -> dict[str, Any] | None:
            stored = print_jobs.get(unit.db, identity)
            if stored is None:
                return None  # retention has removed it meanwhile
            derived = derive(unit.db, stored)
            differing = difference(stored, derived)
            if not differing:
                return None  # it was under way, and has changed meanwhile
            after = msgspec.structs.replace(derived, revision=stored.revision)
            print_jobs.move(unit, stored, after, "reprocessed")
            return differing

        differing = await self._store.write(work)
        if differing is None:
            return
        report.differing += 1
        log.error("store.difference", print_job=identity, detail=", ".join(differing))
        if len(report.differences) < MAX_SHOWN:
            old = {name: pair[0] for name, pair in differing.items()}
            new = {name: pair[1] for name, pair in differing.items()}
            report.differences.append(PrintDifference(identity, tuple(differing), old, new))


def _chunk(db: sqlite3.Connection, after: int) -> list[tuple[int, PrintJob, PrintJob]]:
    """Return the next jobs by rowid, as stored and as derived again."""
    return [(rowid, row, derive(db, row)) for rowid, row in print_jobs.by_rowid(db, after, CHUNK)]
