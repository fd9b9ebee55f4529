"""A print job as it follows from its record: its first row and its journal (architecture, The way of a webhook)."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from posd.base.times import parse_iso
from posd.printing import rows
from posd.printing.entries import Called, replay
from posd.printing.model import PrintAttentionCode, PrintJob, PrintStatus, rebuild
from posd.printing.rows import Journaled, Moved
from posd.printing.wire import read_webhook
from posd.records.model import Phase
from posd.storage.changes import listener

#: What is derived: the times in it are not compared, for what was applied later bears a later time.
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
    entries = list(rows.journal(db, stored.print_job_id))
    return replay(_beginning(stored, entries), ((parse_iso(item.at), item.entry) for item in entries))


def difference(stored: PrintJob, derived: PrintJob) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which the stored and the derived job differ: name -> (stored, derived)."""
    here, there = _comparable(stored), _comparable(derived)
    return {name: (here[name], there[name]) for name in here if here[name] != there[name]}


def _comparable(job: PrintJob) -> dict[str, Any]:
    facts: dict[str, Any] = {name: msgspec.to_builtins(getattr(job, name)) for name in DERIVED}
    facts["accepted"] = job.accepted_at is not None
    facts["attention"] = sorted(item.code for item in job.attention)
    return facts


def _beginning(stored: PrintJob, entries: Sequence[Journaled]) -> PrintJob:
    """Return the job as it was inserted: by an intent or a restore, or rebuilt from its first webhook."""
    first = entries[0].entry if entries else None
    if stored.orphan and isinstance(first, Called):
        return rebuild(read_webhook(first.body), stored.print_job_id, parse_iso(stored.created_at))
    return PrintJob(
        print_job_id=stored.print_job_id,
        terminal=stored.terminal,
        created_at=stored.created_at,
        updated_at=stored.created_at,
        phase=Phase.STARTING,
        external_reference=stored.external_reference,
        document=stored.document,
        reprint_of=stored.reprint_of,
        sent_to=stored.sent_to,  # its turn to be sent sets it, to the same
        queued=stored.queued,  # whatever happened to it ended that
    )


# Log new attentions and new ends of print jobs, whatever brought them: it listens to the hub.

log = structlog.get_logger("posd.printing")

#: The terminal contradicts itself: an error. All other attentions are warnings.
ERRORS = frozenset({PrintAttentionCode.CONFLICTING_FINAL})


def _tell(change: Moved) -> None:
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


#: Listens to the hub.
hear = listener(Moved, _tell)
