"""The documents of print jobs, made from jobs and rows (local API, Print jobs; names are exact)."""

import sqlite3
from typing import Any

import msgspec

from posd.core.print_entries import Called, Created, Entry, Polled
from posd.core.print_events import Answered, judge, read_webhook
from posd.core.print_replies import NAMES
from posd.core.printing import PrintJob
from posd.core.starts import Replied
from posd.store import print_jobs


def job_document(db: sqlite3.Connection | None, job: PrintJob) -> dict[str, Any]:
    """Return a job as the local API shows it; the document is not shown again. Without `db` no reprints are known."""
    return {
        "print_job_id": job.print_job_id,
        "terminal": job.terminal,
        "external_reference": job.external_reference,
        "reprint_of": job.reprint_of,
        "reprints": [] if db is None else print_jobs.reprints(db, job.print_job_id),
        "status": job.status,
        "phase": job.phase,
        "error_code": job.error_code,
        "error_message": job.error_message,
        "reason": job.reason,
        "terminal_job_id": job.terminal_job_id,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "decided_by": job.decided_by,
        "attention": job.attention,
    }


def history_document(db: sqlite3.Connection, job: PrintJob) -> list[dict[str, Any]]:
    """Return all that happened to a job, in order: its start and the entries of its journal."""
    lines: list[dict[str, Any]] = []
    if not job.orphan:
        lines.append({"at": job.created_at, "kind": "intent", "terminal": job.terminal})
    lines += [{"at": item.at, **_entry(item.entry)} for item in print_jobs.journal(db, job.print_job_id)]
    return lines


def _entry(entry: Entry) -> dict[str, Any]:
    kind = str(entry.__struct_config__.tag)
    match entry:
        case Called(body=body):
            report = read_webhook(body)
            facts = {"status": report.status, "error_code": report.error_code, "error_message": report.error_message}
            return {"kind": kind, **facts, "body": msgspec.Raw(body)}
        case Created(attempt=attempt):
            replied = isinstance(attempt, Replied)
            return {
                "kind": kind,
                "judgement": NAMES[type(judge(attempt))],
                "http_status": attempt.status if isinstance(attempt, Replied) else None,
                "reason": None if replied else getattr(attempt, "reason", None),
            }
        case Polled(answer=Answered(report=report)):
            return {
                "kind": kind,
                "status": report.status,
                "error_code": report.error_code,
                "error_message": report.error_message,
            }
        case _:
            return dict(msgspec.to_builtins(entry))
