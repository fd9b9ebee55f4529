"""Stored print jobs: their rows, their journal, and the code that changes them. No other code changes print jobs.

Each change has an entry in the journal, and a line in the feed.
"""

import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import structlog

from posd.base.ids import Channel
from posd.base.json_types import encode
from posd.base.times import iso, parse_iso
from posd.printing.entries import Called, Created, Dismissed, Entry, Interrupted, Resolved, apply, feed_word, replay
from posd.printing.model import DecidedBy, PrintAttention, PrintAttentionCode, PrintJob, PrintStatus, rebuild
from posd.printing.wire import read_webhook
from posd.records import pages
from posd.records.model import Phase, PrunedJob, tag
from posd.records.service import take_over
from posd.records.table import RecordColumn, RecordKind, as_json, raw_json
from posd.storage import changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.store import Store

PRINT_JOB = RecordKind(
    Channel.PRINT,
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
    PrunedJob,
    word="print",
    id_name="print_job",
    noun="print job",
    ids_in_any_case=True,
)
COLUMNS = PRINT_JOB.columns
get, by_rowid, insert, update = PRINT_JOB.get, PRINT_JOB.by_rowid, PRINT_JOB.insert, PRINT_JOB.update
_job = PRINT_JOB.read

#: Query for lists. Its rows have an empty document, because lists do not show documents.
_SELECT_MANY = PRINT_JOB.select.replace(" document,", " '{}',")
_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def find(db: sqlite3.Connection, print_job_id: str) -> PrintJob | None:
    """Return the job with an id, or None. Upper and lower case count as equal.

    Earlier versions accepted two ids that differ only in case. If both exist, return the job with exactly this id.
    """
    if (found := get(db, print_job_id)) is not None:
        return found
    row = db.execute(f"{PRINT_JOB.select} WHERE print_job_id = ? COLLATE NOCASE", (print_job_id,)).fetchone()
    return _job(row) if row else None


def append(unit: WriteTransaction, print_job_id: str, entry: Entry, at: str) -> None:
    """Store an entry. The bytes of a webhook are stored beside the entry, as received."""
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
    """Return the bodies of a job's accepted webhooks, in order of arrival."""
    rows = db.execute(
        "SELECT body FROM print_journal WHERE print_job_id = ? AND body IS NOT NULL ORDER BY seq", (print_job_id,)
    )
    return [row[0] for row in rows]


def open_ones(db: sqlite3.Connection) -> list[PrintJob]:
    """Return every job that is not final, oldest first, without documents."""
    query = f"{_SELECT_MANY} INDEXED BY print_jobs_open WHERE phase <> 'final' ORDER BY rowid"
    return [_job(row) for row in db.execute(query)]


def reprints(db: sqlite3.Connection, print_job_id: str) -> list[str]:
    """Return the ids of the reprints of a job, oldest first."""
    rows = db.execute("SELECT print_job_id FROM print_jobs WHERE reprint_of = ? ORDER BY rowid", (print_job_id,))
    return [row[0] for row in rows]


def beginning(db: sqlite3.Connection, prefix: str, limit: int) -> list[PrintJob]:
    """Return the first jobs whose id begins with `prefix`, sorted by id, without documents."""
    where, parameters = pages.beginning("print_job_id COLLATE NOCASE", prefix)
    query = f"{_SELECT_MANY} WHERE {where} ORDER BY print_job_id COLLATE NOCASE LIMIT ?"
    return [_job(row) for row in db.execute(query, (*parameters, limit))]


def select(db: sqlite3.Connection, index: str, where: str, parameters: tuple[Any, ...], limit: int) -> list[PrintJob]:
    """Return the jobs that meet an SQL condition, newest first, without documents. `index`: the index to read."""
    query = f"{_SELECT_MANY} INDEXED BY print_jobs_{index} WHERE {where}"
    order = "ORDER BY created_at DESC, print_job_id DESC LIMIT ?"
    return [_job(row) for row in db.execute(f"{query} {order}", (*parameters, limit))]


# Changes of a job.

#: `kind` of a print job's lines in the feed.
KIND = PRINT_JOB.name

#: Entries that are stored even if they do not change the job: results of requests, webhooks, decisions of operators.
ALWAYS = (Created, Called, Resolved, Dismissed)


class PrintJobChanged(RecordedChange, frozen=True, kw_only=True):
    """Change of a print job for listeners. `before`: None if the job was inserted."""

    before: PrintJob | None
    after: PrintJob


def record(unit: WriteTransaction, before: PrintJob, entry: Entry, now: datetime) -> PrintJob:
    """Apply an entry to a job, and store it in the journal. Return the changed job. Raise StaleState.

    An entry that does not change the job is stored only if it is one of `ALWAYS`.
    """
    after = apply(before, entry, now)
    if after == before and not isinstance(entry, ALWAYS):
        return before
    append(unit, before.print_job_id, entry, iso(now))
    if after == before:
        note(unit, before, feed_word(entry), iso(now))
    return move(unit, before, after, feed_word(entry))


def begin(unit: WriteTransaction, job: PrintJob, word: str) -> None:
    """Insert a job. `word`: `intent`, `orphan` or `taken_over`."""
    insert(unit, job)
    _publish(unit, None, job, word, job.updated_at)


def move(unit: WriteTransaction, before: PrintJob, after: PrintJob, word: str) -> PrintJob:
    """Change a job from `before` to `after`, with its line of the feed. Raise StaleState."""
    changed = update(unit, before, after)
    if changed is not before:
        _publish(unit, before, changed, word, changed.updated_at)
    return changed


def note(unit: WriteTransaction, job: PrintJob, word: str, at: str) -> None:
    """Write a feed line about a job that has not changed."""
    _publish(unit, job, job, word, at)


def _publish(unit: WriteTransaction, before: PrintJob | None, after: PrintJob, word: str, at: str) -> None:
    change = PrintJobChanged(
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
    )
    changes.record(unit, change)


# Log of new attentions and ends. The log is a listener of the hub, so changes of every cause are logged.

log = structlog.get_logger("posd.printing")

#: Attention that is logged as an error, because the terminal contradicts itself. Other attentions are warnings.
ERRORS = frozenset({PrintAttentionCode.CONFLICTING_FINAL})


def tell(change: PrintJobChanged) -> None:
    """Log the new attentions and the new end of a change."""
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


# Recovery of print jobs from an earlier daemon. Nothing is sent again.


async def recover(store: Store, now: Callable[[], datetime]) -> list[PrintJob]:
    """Put `starting` jobs in doubt. End those that still waited in the queue, because they were not sent.

    Return the open jobs, for the poller.
    """

    def work(unit: WriteTransaction) -> list[PrintJob]:
        taken_over = []
        for found in open_ones(unit.db):
            starting = found.phase is Phase.STARTING
            taken_over.append(record(unit, found, Interrupted(found.queued), now()) if starting else found)
        return taken_over

    taken_over = await take_over(PRINT_JOB, store, "print_recovery", work)
    return [item for item in taken_over if item.phase is not Phase.FINAL]


# Derivation of a job again from its journal.

#: Fields that are derived again and compared.
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


def differing(
    db: sqlite3.Connection, stored: PrintJob, word: str
) -> tuple[dict[str, tuple[Any, Any]], Callable[[WriteTransaction], object]]:
    """Return the differences between the stored and the derived job, and a function that stores the derived job.

    `word`: reason of the change in the feed.
    """
    derived = derive(db, stored)
    after = msgspec.structs.replace(derived, revision=stored.revision)
    return difference(stored, derived), partial(move, before=stored, after=after, word=word)


def derive(db: sqlite3.Connection, stored: PrintJob) -> PrintJob:
    """Derive a job again from its first state and its journal."""
    entries = [(parse_iso(at), entry) for at, entry in journal(db, stored.print_job_id)]
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
    """Return the job as it was inserted. `first`: the first entry of its journal."""
    if stored.orphan and isinstance(first, Called):
        return rebuild(read_webhook(first.body), stored.print_job_id, parse_iso(stored.created_at))
    # The stored `sent_to` and `queued` can be used, because the entries of the journal set the same values again.
    return PRINT_JOB.as_inserted(stored, sent_to=stored.sent_to, queued=stored.queued)
