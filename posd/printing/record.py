"""How a print job changes: by an entry of its journal, with its line of the feed; and what the log says of it."""

from collections.abc import Callable
from datetime import datetime

import structlog

from posd.base.times import iso
from posd.printing import rows
from posd.printing.entries import Called, Created, Dismissed, Entry, Interrupted, Resolved, apply, feed_word
from posd.printing.model import PrintAttentionCode, PrintJob, PrintStatus
from posd.records.model import Phase
from posd.records.service import take_over
from posd.storage import changes
from posd.storage.store import Store
from posd.storage.writer import RecordedChange, WriteTransaction

KIND = "print_job"


#: Kept even if they change nothing: results of requests, what the terminal sent, what people did.
ALWAYS = (Created, Called, Resolved, Dismissed)


class PrintJobChanged(RecordedChange, frozen=True, kw_only=True):
    """A line of the feed for its listeners: with the job before (None: not known) and after it."""

    before: PrintJob | None
    after: PrintJob


def record(unit: WriteTransaction, before: PrintJob, entry: Entry, now: datetime) -> PrintJob:
    """Apply an entry to a job, with its journal row and its line of the feed; return what it is now.

    Nothing is written of an entry that changes nothing, unless it records an action or an input. Raise StaleState.
    """
    after = apply(before, entry, now)
    if after == before and not isinstance(entry, ALWAYS):
        return before
    rows.append(unit, before.print_job_id, entry, iso(now))
    if after == before:
        _publish(unit, before, before, feed_word(entry), iso(now))
        return before
    return move(unit, before, after, feed_word(entry))


def _publish(unit: WriteTransaction, before: PrintJob | None, after: PrintJob, word: str, at: str) -> None:
    changes.record(
        unit,
        PrintJobChanged(
            seq=0,
            at=at,
            kind=KIND,
            id=after.print_job_id,
            reason=word,
            phase=after.phase,
            status=after.status,
            result=None,
            attention=tuple(item.code for item in after.attention),
            terminal=after.terminal,
            before=before,
            after=after,
        ),
    )


def begin(unit: WriteTransaction, job: PrintJob, word: str) -> None:
    """Record a job for the first time. `word`: `intent`, `orphan` or `taken_over`."""
    rows.insert(unit, job)
    _publish(unit, None, job, word, job.updated_at)


def move(unit: WriteTransaction, before: PrintJob, after: PrintJob, word: str) -> PrintJob:
    """Change a job from what it was to what it is now, with its line of the feed. Raise StaleState."""
    changed = rows.update(unit, before, after)
    if changed is not before:
        _publish(unit, before, changed, word, changed.updated_at)
    return changed


def note(unit: WriteTransaction, job: PrintJob, word: str, at: str) -> None:
    """Write a line of the feed for something that was done about a job and did not change it."""
    _publish(unit, job, job, word, at)


# The log of new attentions and new ends: it listens to the hub, so that no cause of a change can forget it.

log = structlog.get_logger("posd.printing")

#: The terminal contradicts itself: an error. All other attentions are warnings.
ERRORS = frozenset({PrintAttentionCode.CONFLICTING_FINAL})


def tell(change: PrintJobChanged) -> None:
    """Log what a person should know of a change."""
    before, after = change.before, change.after
    identity, terminal = after.print_job_id, after.terminal
    known = {item.code for item in before.attention} if before else set()
    for item in after.attention:
        if item.code not in known:
            (log.error if item.code in ERRORS else log.warning)(
                "print.attention", print_job=identity, terminal=terminal, code=item.code, detail=item.detail
            )
    old = (before.decided_by, before.status) if before else (None, None)
    if after.decided_by is not None and old != (after.decided_by, after.status):
        (log.info if after.status is PrintStatus.COMPLETED else log.warning)(
            "print.outcome",
            print_job=identity,
            terminal=terminal,
            status=after.status,
            evidence=after.decided_by,
            code=after.error_code,
        )


# What a daemon does with the print jobs that an earlier one left: nothing is sent again.


async def recover(store: Store, now: Callable[[], datetime]) -> list[PrintJob]:
    """Put in doubt what was `starting`; what still waited in line was provably not sent, and ends so.

    Return what is open: the spooler's work.
    """

    def work(unit: WriteTransaction) -> list[PrintJob]:
        taken_over = []
        for found in rows.open_ones(unit.db):
            starting = found.phase is Phase.STARTING
            taken_over.append(record(unit, found, Interrupted(found.queued), now()) if starting else found)
        return taken_over

    taken_over = await take_over(rows.PRINT_JOB, store, "print_recovery", work)
    return [item for item in taken_over if item.phase is not Phase.FINAL]
