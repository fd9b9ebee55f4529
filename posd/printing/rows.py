"""Rows of print jobs and their journal. What changes a job is `posd.printing.record`."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from posd.base.ids import Channel
from posd.base.json_types import encode
from posd.printing.entries import Called, Entry
from posd.printing.model import DecidedBy, PrintAttention, PrintJob, PrintStatus
from posd.records import pages
from posd.records.model import Phase, tag
from posd.records.table import PRUNED_PRINT_JOBS, RecordColumn, RecordKind, RecordTable, as_json, raw_json
from posd.storage.writer import WriteTransaction

PRINT_JOBS = RecordTable(
    "print_jobs",
    PrintJob,
    (
        RecordColumn("print_job_id", fixed=True),
        RecordColumn("terminal", fixed=True),
        RecordColumn("phase", load=Phase),
        RecordColumn("external_reference", fixed=True),
        raw_json("document"),
        RecordColumn("reprint_of", fixed=True),
        RecordColumn("sent_to"),
        RecordColumn("queued", load=bool),
        RecordColumn("acknowledged", load=bool),
        RecordColumn("heard", load=bool),
        RecordColumn("terminal_job_id"),
        RecordColumn("accepted_at"),
        RecordColumn("status", load=PrintStatus),
        RecordColumn("error_code"),
        RecordColumn("error_message"),
        RecordColumn("reason"),
        RecordColumn("decided_by", load=DecidedBy),
        as_json("attention", tuple[PrintAttention, ...]),
        RecordColumn("created_at", fixed=True),
        RecordColumn("updated_at"),
        RecordColumn("revision"),
    ),
)
COLUMNS = PRINT_JOBS.columns
PRINT_JOB = RecordKind(Channel.PRINT, PRINT_JOBS, PRUNED_PRINT_JOBS, "print", "print_job", "print job")
get, by_rowid, insert, update = PRINT_JOBS.get, PRINT_JOBS.by_rowid, PRINT_JOBS.insert, PRINT_JOBS.update
_job = PRINT_JOBS.read

#: The same with an empty document: lists of jobs do not show theirs.
_SELECT_MANY = PRINT_JOBS.select.replace(" document,", " '{}',")
_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def find(db: sqlite3.Connection, print_job_id: str) -> PrintJob | None:
    """Return the job of an id, in upper or lower case; None if not known.

    Earlier versions accepted two ids that differ only in case: then the exact one counts.
    """
    if (found := get(db, print_job_id)) is not None:
        return found
    row = db.execute(f"{PRINT_JOBS.select} WHERE print_job_id = ? COLLATE NOCASE", (print_job_id,)).fetchone()
    return _job(row) if row else None


def append(unit: WriteTransaction, print_job_id: str, entry: Entry, at: str) -> None:
    """Write an entry down; the bytes of a webhook stand beside it, as received."""
    body = entry.body if isinstance(entry, Called) else None
    kept = Called() if isinstance(entry, Called) else entry
    unit.db.execute(
        "INSERT INTO print_journal (print_job_id, at, kind, entry, body) VALUES (?,?,?,?,?)",
        (print_job_id, at, tag(entry), encode(kept).decode(), body),
    )


def journal(db: sqlite3.Connection, print_job_id: str) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of a job in order, each with its time."""
    rows = db.execute("SELECT at, entry, body FROM print_journal WHERE print_job_id = ? ORDER BY seq", (print_job_id,))
    for at, entry, body in rows:
        yield at, Called(body) if body is not None else _ENTRY.decode(entry)


def callbacks(db: sqlite3.Connection, print_job_id: str) -> list[bytes]:
    """Return the bodies of the webhooks that were taken for a job, in order of arrival."""
    rows = db.execute(
        "SELECT body FROM print_journal WHERE print_job_id = ? AND body IS NOT NULL ORDER BY seq", (print_job_id,)
    )
    return [row[0] for row in rows]


def open_ones(db: sqlite3.Connection) -> list[PrintJob]:
    """Return every job that is not final, the oldest first, without their documents."""
    query = f"{_SELECT_MANY} INDEXED BY print_jobs_open WHERE phase <> 'final' ORDER BY rowid"
    return [_job(row) for row in db.execute(query)]


def reprints(db: sqlite3.Connection, print_job_id: str) -> list[str]:
    """Return the ids of the jobs that print this one again, the oldest first."""
    rows = db.execute("SELECT print_job_id FROM print_jobs WHERE reprint_of = ? ORDER BY rowid", (print_job_id,))
    return [row[0] for row in rows]


def beginning(db: sqlite3.Connection, prefix: str, limit: int) -> list[PrintJob]:
    """Return the first jobs whose id begins so, by id, without their documents."""
    where, parameters = pages.beginning("print_job_id COLLATE NOCASE", prefix)
    query = f"{_SELECT_MANY} WHERE {where} ORDER BY print_job_id COLLATE NOCASE LIMIT ?"
    return [_job(row) for row in db.execute(query, (*parameters, limit))]


def select(db: sqlite3.Connection, index: str, where: str, parameters: tuple[Any, ...], limit: int) -> list[PrintJob]:
    """Return jobs by index and condition of `posd.printing.documents`, newest first, without their documents."""
    query = f"{_SELECT_MANY} INDEXED BY print_jobs_{index} WHERE {where}"
    order = "ORDER BY created_at DESC, print_job_id DESC LIMIT ?"
    return [_job(row) for row in db.execute(f"{query} {order}", (*parameters, limit))]
