"""Rows of print jobs and their journal. What changes a job is `posd.printing.record`."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from posd.base.json_types import encode
from posd.printing.entries import Called, Entry
from posd.printing.model import DecidedBy, PrintAttention, PrintJob, PrintStatus
from posd.records import pages
from posd.records.model import Phase
from posd.storage.errors import StaleState
from posd.storage.writer import Unit

#: Columns in the order of `_values`; `_job` reads them back.
COLUMNS = (
    "print_job_id",
    "terminal",
    "phase",
    "external_reference",
    "document",
    "reprint_of",
    "sent_to",
    "queued",
    "acknowledged",
    "heard",
    "terminal_job_id",
    "accepted_at",
    "status",
    "error_code",
    "error_message",
    "reason",
    "decided_by",
    "attention",
    "created_at",
    "updated_at",
    "revision",
)
#: What the insert writes once and for all.
FIXED = ("print_job_id", "terminal", "external_reference", "document", "reprint_of", "created_at")
CHANGING = tuple(name for name in COLUMNS if name not in FIXED)

SELECT = f"SELECT {', '.join(COLUMNS)} FROM print_jobs"  # noqa: S608 - constants of this file
#: The same with an empty document: lists of jobs do not show theirs.
_SELECT_MANY = SELECT.replace(" document,", " '{}',")
_SELECT_BY_ROWID = f"SELECT rowid, {', '.join(COLUMNS)} FROM print_jobs WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608
_INSERT = f"INSERT INTO print_jobs ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_UPDATE = (
    f"UPDATE print_jobs SET {', '.join(f'{name} = :{name}' for name in CHANGING)}"  # noqa: S608
    " WHERE print_job_id = :print_job_id AND phase = :expected_phase AND revision = :expected_revision"
)

_ATTENTION = msgspec.json.Decoder(tuple[PrintAttention, ...])
_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


class Journaled(msgspec.Struct, frozen=True):
    """An entry of the journal in its place."""

    seq: int
    at: str
    entry: Entry


def _values(job: PrintJob) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in COLUMNS}
    return values | {"document": job.document.decode(), "attention": encode(job.attention).decode()}


def _job(row: tuple[Any, ...]) -> PrintJob:
    values = dict(zip(COLUMNS, row, strict=True))
    return PrintJob(
        **values
        | {
            "phase": Phase(values["phase"]),
            "document": values["document"].encode(),
            "queued": bool(values["queued"]),
            "acknowledged": bool(values["acknowledged"]),
            "heard": bool(values["heard"]),
            "status": values["status"] and PrintStatus(values["status"]),
            "decided_by": values["decided_by"] and DecidedBy(values["decided_by"]),
            "attention": _ATTENTION.decode(values["attention"]),
        }
    )


def get(db: sqlite3.Connection, print_job_id: str) -> PrintJob | None:
    """Return the job of that id, None where it is not known."""
    row = db.execute(f"{SELECT} WHERE print_job_id = ?", (print_job_id,)).fetchone()
    return _job(row) if row else None


def find(db: sqlite3.Connection, print_job_id: str) -> PrintJob | None:
    """Return the job of an id that is written in any case, None where it is not known.

    Of two that an earlier version took, it is the one that is written so.
    """
    if (found := get(db, print_job_id)) is not None:
        return found
    row = db.execute(f"{SELECT} WHERE print_job_id = ? COLLATE NOCASE", (print_job_id,)).fetchone()
    return _job(row) if row else None


def insert(unit: Unit, job: PrintJob) -> None:
    """Insert a new job."""
    values = _values(job)
    unit.db.execute(_INSERT, [values[name] for name in COLUMNS])


def update(unit: Unit, before: PrintJob, after: PrintJob) -> PrintJob:
    """Change a job from what it was; return it as it is now, `before` itself where they are equal. Raise StaleState."""
    if before == after:
        return before
    changed = msgspec.structs.replace(after, revision=before.revision + 1)
    values = _values(changed)
    parameters = {name: values[name] for name in CHANGING} | {
        "print_job_id": before.print_job_id,
        "expected_phase": before.phase,
        "expected_revision": before.revision,
    }
    if unit.db.execute(_UPDATE, parameters).rowcount != 1:
        raise StaleState(f"{before.print_job_id} is no longer {before.phase} at revision {before.revision}")
    return changed


def append(unit: Unit, print_job_id: str, entry: Entry, at: str) -> None:
    """Write an entry down; the bytes of a webhook stand beside it, as they came."""
    body = entry.body if isinstance(entry, Called) else None
    kept = Called() if isinstance(entry, Called) else entry
    unit.db.execute(
        "INSERT INTO print_journal (print_job_id, at, kind, entry, body) VALUES (?,?,?,?,?)",
        (print_job_id, at, str(entry.__struct_config__.tag), encode(kept).decode(), body),
    )


def journal(db: sqlite3.Connection, print_job_id: str) -> Iterator[Journaled]:
    """Yield the entries of a job in order."""
    rows = db.execute(
        "SELECT seq, at, entry, body FROM print_journal WHERE print_job_id = ? ORDER BY seq", (print_job_id,)
    )
    for seq, at, entry, body in rows:
        yield Journaled(seq, at, Called(body) if body is not None else _ENTRY.decode(entry))


def callbacks(db: sqlite3.Connection, print_job_id: str) -> list[bytes]:
    """Return the bodies of the webhooks that were taken for a job, in the order in which they came."""
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


def by_rowid(db: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, PrintJob]]:
    """Return the next jobs after a rowid, in the order in which they were recorded."""
    return [(row[0], _job(row[1:])) for row in db.execute(_SELECT_BY_ROWID, (after, limit))]


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
