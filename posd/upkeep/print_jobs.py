"""The print jobs of two databases side by side: rows of the replaced one (`old`) into the one that replaces it.

As `posd.upkeep.merge` has it for payments; a print job has one journal, and holds no terminal.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from posd.base.times import iso
from posd.printing import record, reprocess, rows
from posd.printing import rows as print_jobs
from posd.printing.entries import Called, Entry, TakenOver
from posd.printing.model import FINALS, NOT_ACCEPTED, PrintJob
from posd.printing.wire import read_webhook
from posd.records.model import Phase
from posd.storage.batch import Unit
from posd.upkeep import merge
from posd.upkeep.merge import UNREADABLE, Row, Rows

# ruff: noqa: S608 - what is put into SQL here are names of tables and columns, constants of the code


_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def _read(row: Row) -> None:
    _ENTRY.decode(row["entry"])
    if row["body"] is not None:
        read_webhook(row["body"])


JOURNAL = Rows(
    "print_journal",
    "print_job_id",
    ("print_job_id", "at", "kind", "entry", "body"),
    ("print_job_id", "at", "kind", "entry", "body"),
    _read,
)
CHANGES = msgspec.structs.replace(merge.CHANGES, kind=record.KIND)


def newer_jobs(db: sqlite3.Connection) -> list[str]:
    """Return the ids of the jobs that `old` alone has, or has more of, in its order."""
    rows = db.execute(
        "SELECT o.print_job_id FROM old.print_jobs o"
        " LEFT JOIN main.print_jobs n ON n.print_job_id = o.print_job_id"
        " WHERE (n.revision IS NULL OR o.revision > n.revision OR (o.revision = n.revision AND"
        " (SELECT count(*) FROM old.print_journal x WHERE x.print_job_id = o.print_job_id)"
        " > (SELECT count(*) FROM main.print_journal x WHERE x.print_job_id = o.print_job_id)))"
        " AND o.print_job_id NOT IN (SELECT print_job_id FROM main.pruned_print_jobs) ORDER BY o.rowid"
    )
    return [identity for (identity,) in rows]


def without_row(db: sqlite3.Connection) -> set[str]:
    """Return the ids that `old` names somewhere without having a row of them."""
    names = "SELECT print_job_id FROM old.print_journal UNION SELECT id FROM old.changes WHERE kind = ?"
    query = (
        f"{names} EXCEPT SELECT print_job_id FROM old.print_jobs EXCEPT SELECT print_job_id FROM main.pruned_print_jobs"
    )
    return {row[0] for row in db.execute(query, (record.KIND,))}


def is_removed(db: sqlite3.Connection, identity: str) -> bool:
    """Whether retention has removed that job."""
    query = "SELECT 1 FROM main.pruned_print_jobs WHERE print_job_id = ?"
    return db.execute(query, (identity,)).fetchone() is not None


def in_old(db: sqlite3.Connection, identity: str) -> bool:
    """Whether `old` has a row of that job."""
    return db.execute("SELECT 1 FROM old.print_jobs WHERE print_job_id = ?", (identity,)).fetchone() is not None


def rowid(db: sqlite3.Connection, identity: str) -> int | None:
    """Return the rowid of a job here."""
    row = db.execute("SELECT rowid FROM main.print_jobs WHERE print_job_id = ?", (identity,)).fetchone()
    return row[0] if row else None


def old_rowid(db: sqlite3.Connection, identity: str) -> int:
    """Return the rowid of a job that `old` has."""
    row = db.execute("SELECT rowid FROM old.print_jobs WHERE print_job_id = ?", (identity,)).fetchone()
    return int(row[0])


def copy_rows(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Put the rows of `old` in place of those here, or add them."""
    columns = ", ".join(print_jobs.COLUMNS)
    for identity in ids:
        source = f"SELECT {columns} FROM old.print_jobs WHERE print_job_id = :id"
        if rowid(db, identity) is None:
            db.execute(f"INSERT INTO main.print_jobs ({columns}) {source}", {"id": identity})
        else:
            db.execute(
                f"UPDATE main.print_jobs SET ({columns}) = ({source}) WHERE print_job_id = :id", {"id": identity}
            )


def number_below(db: sqlite3.Connection, identity: str) -> None:
    """Note that the record of a job is not all that there was, so that it cannot be derived again: a rowid below 1."""
    db.execute(
        "UPDATE print_jobs SET rowid = (SELECT min(0, min(rowid)) - 1 FROM print_jobs)"
        " WHERE print_job_id = ? AND rowid > 0",
        (identity,),
    )


def history_behind(db: sqlite3.Connection) -> list[tuple[str, str, str | None, str | None, str | None]]:
    """Return the jobs whose newest change says otherwise: id, phase and status, and those of the change."""
    return db.execute(
        "SELECT j.print_job_id, j.phase, j.status, c.phase, c.status FROM main.print_jobs j"
        " LEFT JOIN (SELECT id, phase, status, max(seq) FROM main.changes WHERE kind = ? GROUP BY id) c"
        " ON c.id = j.print_job_id WHERE (j.phase, j.status) IS NOT (c.phase, c.status)",
        (record.KIND,),
    ).fetchall()


# Taking over the print jobs of the database that a restore replaces: an id that was sent is never sent again.
#
# The rules are those for payments (`posd.upkeep.takeover`): newer states are copied in full; where a row cannot be
# read, the job is derived from its journal; where nothing is there but the id, it is recorded in doubt.


class TakenJobs(msgspec.Struct, frozen=True):
    """What was taken over: print jobs that were missing or older, and how many of them by no more than their id."""

    jobs: int = 0
    by_id: int = 0


def take_over(
    db: sqlite3.Connection, old: sqlite3.Connection, ids: Iterable[str], *, sound: bool, now: datetime
) -> TakenJobs:
    """Take over from the attached `old` into `db`, inside its transaction; see `posd.upkeep.takeover.take_over`."""
    return _TakeOver(db, old, now, sound=sound).run(ids)


class _TakeOver:
    def __init__(self, db: sqlite3.Connection, old: sqlite3.Connection, now: datetime, *, sound: bool) -> None:
        self._db = db
        self._old = old
        self._unit = Unit(db)
        self._now = now
        self._sound = sound

    def run(self, ids: Iterable[str]) -> TakenJobs:
        newer = newer_jobs(self._db)
        unreadable = {identity for identity in newer if not self._readable(identity)}
        if not self._sound:
            named = {identity for identity in ids if not (in_old(self._db, identity) or is_removed(self._db, identity))}
            unreadable |= named | without_row(self._db)
        newer = [identity for identity in newer if identity not in unreadable]
        doubtful = [identity for identity in sorted(unreadable) if self._may_derive(identity)]
        missing = {identity for identity in doubtful if rowid(self._db, identity) is None}

        merge.append(self._db, CHANGES, (*newer, *doubtful))
        copy_rows(self._db, newer)
        histories = merge.histories(self._db, missing, CHANGES)
        for identity in sorted(missing):
            self._insert_by_id(identity, histories.get(identity, []))
        grown = merge.append(self._db, JOURNAL, (*newer, *doubtful)).grown
        for identity in newer:
            if old_rowid(self._db, identity) <= 0 or not (self._sound or self._follows(identity)):
                number_below(self._db, identity)
        derived = {identity for identity in doubtful if identity in grown and self._derive_again(identity)}
        for identity, *_ in history_behind(self._db):
            self._note(identity)  # the newest change of it could not be read
        return TakenJobs(len(newer) + len(derived | missing), len(missing - derived))

    def _readable(self, identity: str) -> bool:
        try:
            return rows.get(self._old, identity) is not None
        except UNREADABLE:
            return False

    def _may_derive(self, identity: str) -> bool:
        """Whether its state may come from its journal: not where a part of that was lost before."""
        place = rowid(self._db, identity)
        return place is None or place > 0

    def _follows(self, identity: str) -> bool:
        """Whether a job is as it follows from its record: nothing of that is missing."""
        stored = self._get(identity)
        derived = self._derived(stored)
        return derived is not None and not reprocess.difference(stored, derived)

    def _get(self, identity: str) -> PrintJob:
        stored = rows.get(self._db, identity)
        assert stored is not None  # noqa: S101 - it was there, or was just written
        return stored

    def _derived(self, stored: PrintJob) -> PrintJob | None:
        try:
            return reprocess.derive(self._db, stored)
        except UNREADABLE:
            return None

    def _insert_by_id(self, identity: str, history: Sequence[Row]) -> None:
        """Record a job of which no row could be read: in doubt, until its journal or the terminal says more."""
        reason = "a restore found its id in the replaced database, and could not read its record"
        if history:
            last = history[-1]
            reason += f" (the last known of it: {last['phase']}, {last['status'] or 'no state'}, {last['at']})"
        created_at = history[0]["at"] if history else iso(self._now)
        found = PrintJob(
            print_job_id=identity,
            terminal=next((change["terminal"] for change in history if change["terminal"]), None),
            created_at=created_at,
            updated_at=created_at,
            phase=Phase.STARTING,
        )
        record.begin(self._unit, found, "taken_over")
        record.record(self._unit, found, TakenOver(reason), self._now)

    def _note(self, identity: str) -> None:
        record.note(self._unit, self._get(identity), "taken_over", iso(self._now))

    def _derive_again(self, identity: str) -> bool:
        """Derive a job from what is now recorded of it; tell whether that changed it."""
        stored = self._get(identity)
        derived = self._derived(stored)
        if derived is None or not reprocess.difference(stored, derived):
            return False
        record.move(self._unit, stored, msgspec.structs.replace(derived, revision=stored.revision), "taken_over")
        return True


# Checking the print jobs of a database: each can be read, is consistent, and follows from its record.

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
        for name, (stored, derived) in reprocess.difference(job, reprocess.derive(db, job)).items():
            yield "print_job", subject, f"{name} is {stored}, and {derived} by its record"


def history(db: sqlite3.Connection) -> Iterator[Found]:
    """Yield the jobs of which the newest row of the history does not say what the job says."""
    for identity, phase, status, last_phase, last_status in history_behind(db):
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
