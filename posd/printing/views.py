"""The documents of print jobs, made from jobs and rows (local API, Print jobs; names are exact)."""

import sqlite3
from collections.abc import Callable, Mapping

import msgspec

from posd.printing import documents, entries, rows
from posd.printing.documents import (
    PollLine,
    PrintAcknowledgeLine,
    PrintHistory,
    PrintHistoryLine,
    PrintInterruptedLine,
    PrintResolveLine,
    StuckLine,
    TurnLine,
    UnansweredPollLine,
    WebhookLine,
)
from posd.printing.entries import Called, Created, Entry, Polled, Turn
from posd.printing.events import Answered, judge, read_webhook
from posd.printing.model import PrintJob
from posd.printing.replies import NAMES
from posd.records.history import AttemptLine, IntentLine, QuarantinedLine, ReappliedLine, TakenOverLine
from posd.terminals.attempt import Replied


def job_document(db: sqlite3.Connection | None, job: PrintJob) -> documents.PrintJob:
    """Return a job as the local API shows it; the document is not shown again. Without `db` no reprints are known."""
    return documents.PrintJob(
        print_job_id=job.print_job_id,
        terminal=job.terminal,
        external_reference=job.external_reference,
        reprint_of=job.reprint_of,
        reprints=[] if db is None else rows.reprints(db, job.print_job_id),
        status=job.status,
        phase=job.phase,
        error_code=job.error_code,
        error_message=job.error_message,
        reason=job.reason,
        terminal_job_id=job.terminal_job_id,
        created_at=job.created_at,
        updated_at=job.updated_at,
        decided_by=job.decided_by,
        attention=job.attention,
    )


def history_document(db: sqlite3.Connection, job: PrintJob) -> PrintHistory:
    """Return all that happened to a job, in order: its start and the entries of its journal."""
    first = IntentLine(at=job.created_at, terminal=job.terminal)
    lines = [line(item.at, item.entry) for item in rows.journal(db, job.print_job_id)]
    return PrintHistory(lines if job.orphan else [first, *lines])


#: Lines that have the fields of their entry.
LINES: Mapping[type[Entry], Callable[..., PrintHistoryLine]] = {
    Polled: UnansweredPollLine,
    entries.Interrupted: PrintInterruptedLine,
    entries.Stuck: StuckLine,
    entries.Quarantined: QuarantinedLine,
    entries.Reapplied: ReappliedLine,
    entries.Resolved: PrintResolveLine,
    entries.Dismissed: PrintAcknowledgeLine,
    entries.TakenOver: TakenOverLine,
}


def line(at: str, entry: Entry) -> PrintHistoryLine:
    """Return the line of the history for an entry of the journal."""
    match entry:
        case Turn(sent_to=sent_to):
            return TurnLine(at=at, sent_to=sent_to or msgspec.UNSET)
        case Called(body=body):
            said = read_webhook(body)
            return WebhookLine(
                at=at,
                status=said.status,
                error_code=said.error_code,
                error_message=said.error_message,
                body=msgspec.Raw(body),
            )
        case Created(attempt=attempt):
            return AttemptLine(
                at=at,
                judgement=NAMES[type(judge(attempt))],
                http_status=attempt.status if isinstance(attempt, Replied) else None,
                reason=None if isinstance(attempt, Replied) else attempt.reason,
            )
        case Polled(answer=Answered(report=said)):
            return PollLine(at=at, status=said.status, error_code=said.error_code, error_message=said.error_message)
        case _:
            return LINES[type(entry)](at=at, **msgspec.structs.asdict(entry))
