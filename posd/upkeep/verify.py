"""Check of a database by SQLite's own tests, and by posd's promises for its rows. Nothing is changed."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from posd.base.ids import canonical_uuid, is_print_job_id
from posd.payments import journal
from posd.payments.model import EvidenceKind, Outcome, Result, Transaction
from posd.printing import rows as print_jobs
from posd.printing.entries import Called
from posd.printing.model import FINALS, NOT_ACCEPTED, PrintJob
from posd.printing.wire import read_webhook
from posd.records.model import Phase
from posd.storage import UnusableFile, connection, database_files
from posd.storage.backup import unpacked
from posd.storage.connection import (
    KEY_TABLE,
    OPERATIONS_AT_A_TIME,
    FileFault,
    connect_reader,
    identify_known,
    is_damage,
    schema_version,
)
from posd.upkeep.merge import (
    EVENTS,
    JOURNAL,
    MEANINGLESS,
    PAYMENTS,
    PRINT_JOBS,
    MergedKind,
    MergedRows,
    history_behind,
    text,
)

#: Maximum number of listed findings of one kind. Further findings are only counted.
MAX_SHOWN = 20
#: Number of rows between two reports of the progress.
CHUNK = 500

Row = TypeVar("Row")

#: Reports the progress: the present step, the completed amount, and the total (0 and 0 if unknown).
Look = Callable[[str, int, int], None]

#: One fault: (kind of `KINDS`, subject, finding).
Fault = FileFault
#: Yields the faults of a part of the file.
Test = Callable[[sqlite3.Connection], Iterator[Fault]]
#: Yields the faults of one payment or print job. Arguments: its rowid, its subject and its row.
Faults = Callable[[sqlite3.Connection, int, str, Any], Iterator[Fault]]

#: The final event of a payment, and the payment of that event.
_FINAL_EVENT = """
SELECT t.final_event, e.client_transaction_id FROM transactions t LEFT JOIN events e ON e.seq = t.final_event
 WHERE t.rowid = ? AND t.final_event IS NOT NULL
"""

#: Leases of a terminal that is not the terminal of the payment.
_LEASES = """
SELECT l.terminal, l.client_transaction_id, t.terminal FROM leases l JOIN transactions t USING (client_transaction_id)
 WHERE t.terminal IS NOT l.terminal
"""

_RESULTS = frozenset(Result)
_STILL_THERE = """
SELECT 'payment ' || client_transaction_id FROM transactions JOIN pruned_transactions USING (client_transaction_id)
UNION ALL SELECT 'print job ' || print_job_id FROM print_jobs JOIN pruned_print_jobs USING (print_job_id)
"""


class DatabaseFinding(msgspec.Struct, frozen=True):
    """Fault: kind of `KINDS`, subject, finding, meaning, and what to do."""

    kind: str
    subject: str
    detail: str
    means: str
    cure: str


_RESTORE = "stop posd, then: posd restore BACKUP (the readable part of this file is taken over)"
_ANOTHER = "make another backup (posd backup), and restore from another one"
_EITHER = f"if it is a backup, {_ANOTHER}; if it is posd's own database, {_RESTORE}"
_DERIVE = "derive it again from the terminals' events: posd quarantine --apply"

#: kind -> (meaning, what to do if the file is the database)
KINDS = {
    "damaged": ("the file is damaged; the damaged pages cannot be read", _RESTORE),
    "unreadable": ("a row is unreadable: it was damaged on the disk", _RESTORE),
    "dangling": ("a row belongs to a missing payment or print job", _RESTORE),
    "outcome": ("a payment is final without an outcome, or has one without being final", _DERIVE),
    "evidence": ("the event of an outcome is not recorded", _RESTORE),
    "final_event": ("the final event of a payment is not one of its events", _DERIVE),
    "print_job": ("a print job does not match its record, or contradicts itself", _DERIVE),
    "history": ("the newest row of the history differs from the payment or print job", _DERIVE),
    "lease": ("a terminal is held by a payment of another terminal", "free it: posd release {id}"),
    "pruned": (
        "the remaining entry of a removed payment or print job is unreadable, or its record still exists",
        "remove it again: posd prune. If that does not help: " + _RESTORE,
    ),
    "key": ("the backup has no callback key: if the key file is lost too, callbacks under way are refused", _ANOTHER),
    "interrupted": ("a restore was interrupted in its last step", "start posd, or restore again: it is finished then"),
}


class VerifyReport(msgspec.Struct):
    """Checked file and findings. There are at most `MAX_SHOWN` findings of a kind. `counts` has the number of all."""

    file: str
    schema: int
    backup: bool
    transactions: int = 0
    events: int = 0
    print_jobs: int = 0
    findings: list[DatabaseFinding] = []
    counts: dict[str, int] = {}

    def add(self, kind: str, subject: str, detail: str) -> None:
        """Add a fault. An empty subject is the file."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= MAX_SHOWN:
            means, cure = KINDS[kind]
            cure = _ANOTHER if self.backup else cure.format(id=subject.rpartition(" ")[2])
            self.findings.append(DatabaseFinding(kind, subject or Path(self.file).name, detail, means, cure))


def verify(path: Path, look: Look) -> VerifyReport:
    """Check a database or a backup, even one in use.

    For an older schema, only SQLite's tests are made. Raise UnusableFile.
    """
    try:
        with unpacked(path) as plain, closing(connect_reader(plain)) as db:
            db.text_factory = text
            db.set_progress_handler(lambda: 0, OPERATIONS_AT_A_TIME)  # Ctrl-C works between two steps
            db.execute("BEGIN")
            report = VerifyReport(str(path), *identify_known(db, path))
            for name, test in _tests(report, look).items():
                _run(report, name, test, db)
            for left in database_files.waiting(path):
                report.add("interrupted", left.name, "it waits to be put in place")
            report.transactions, report.events = _count(db, "transactions"), _count(db, "events")
            report.print_jobs = _count(db, "print_jobs")
            return report
    except sqlite3.Error as error:
        hint = f"What to do: {_EITHER}" if is_damage(error) else "The user of posd may read it, and root"
        raise UnusableFile(f"{path} cannot be read as a database ({error}). {hint}") from error


def _tests(report: VerifyReport, look: Look) -> Mapping[str, Test]:
    """Return the tests for a file: part of the file -> its test."""
    look("checking the file", 0, 0)
    tests = dict(connection.FILE_TESTS)
    if report.backup:
        tests["the key"] = _key
    if report.schema == schema_version():
        tests |= {
            "payments": partial(_each, look, "checking payments", PAYMENTS, _payment_faults),
            "events": partial(_rows, look, "checking events", EVENTS, "event"),
            "the journal": partial(_rows, look, "checking the journal", JOURNAL, "journal entry"),
            "print jobs": partial(_each, look, "checking print jobs", PRINT_JOBS, _print_job_faults),
            "the history": partial(_history, look),
            "leases": _leases,
            "what was removed": partial(_pruned_faults, look),
        }
    return tests


def _run(report: VerifyReport, name: str, test: Test, db: sqlite3.Connection) -> None:
    try:
        for fault in test(db):
            report.add(*fault)
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error
        report.add("damaged", name, f"cannot be read to the end ({error})")


def _count(db: sqlite3.Connection, table: str) -> int:
    try:
        count: int = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - a constant
    except sqlite3.Error:
        return 0
    return count


def _each(look: Look, what: str, kind: MergedKind, faults: Faults, db: sqlite3.Connection) -> Iterator[Fault]:
    rows = db.execute(f"SELECT rowid, {kind.key} FROM {kind.table} ORDER BY rowid")  # noqa: S608 - constants
    for rowid, identity in _counted(look, what, _count(db, kind.table), rows):
        subject = f"{kind.rows.noun} {identity}"
        try:
            found = kind.rows.get(db, identity)
        except MEANINGLESS as error:
            yield "unreadable", subject, str(error)
            continue
        if found is None or kind.rows.id_of(found) != identity:
            yield "unreadable", subject, "it is not found by its index"
            continue
        yield from faults(db, rowid, subject, found)


def _rows(look: Look, what: str, rows: MergedRows, noun: str, db: sqlite3.Connection) -> Iterator[Fault]:
    names = ("seq", *rows.columns)
    found = db.execute(f"SELECT {', '.join(names)} FROM {rows.table} ORDER BY seq")  # noqa: S608 - constants
    for values in _counted(look, what, _count(db, rows.table), found):
        row = dict(zip(names, values, strict=True))
        try:
            rows.read(row)
        except MEANINGLESS as error:
            yield "unreadable", f"{noun} {row['seq']} of payment {row[rows.owner]}", str(error)


def _history(look: Look, db: sqlite3.Connection) -> Iterator[Fault]:
    look("checking the history", 0, 0)
    for kind in (PRINT_JOBS, PAYMENTS):
        for identity, phase, end, last_phase, last_end in history_behind(db, kind):
            said = f"{last_phase}, {last_end or kind.unended}" if last_phase else "nothing"
            detail = f"it is {phase}, {end or kind.unended}; the history says {said}"
            yield "history", f"{kind.rows.noun} {identity}", detail


def _leases(db: sqlite3.Connection) -> Iterator[Fault]:
    # Between the end of a payment and the end of its last call, the payment keeps its terminal. A start of posd frees
    # it.
    for terminal, identity, place in db.execute(_LEASES):
        yield "lease", f"payment {identity}", f"it holds {terminal}, and is on {place}"


def _key(db: sqlite3.Connection) -> Iterator[Fault]:
    if not _count(db, KEY_TABLE):
        yield "key", "", "no key is in it"


def _counted(look: Look, what: str, total: int, rows: Iterable[Row]) -> Iterator[Row]:
    for done, row in enumerate(rows):
        if done % CHUNK == 0:
            look(what, done, total)
        yield row


def _payment_faults(db: sqlite3.Connection, rowid: int, subject: str, found: Transaction) -> Iterator[Fault]:
    """Yield the faults of a payment.

    A payment must be consistent, and have the evidence of its outcome.
    """
    identity = found.client_transaction_id
    if canonical_uuid(identity) != identity:
        yield "unreadable", subject, "its id is invalid"
        return
    if (found.phase is Phase.FINAL) != (found.outcome is not None):
        yield "outcome", subject, f"{found.phase}, {found.outcome.result if found.outcome else 'no outcome'}"
    # Rows with a number below 1 lack a part of their record, which a restore has reported.
    if rowid > 0:
        for outcome in _outcomes(found):
            for item in outcome.evidence:
                event_id = item.event_id or ""
                if item.kind is EvidenceKind.EVENT and not journal.event_bodies(db, identity, event_id):
                    yield "evidence", subject, f"event {item.event_id}"
    final = db.execute(_FINAL_EVENT, (rowid,)).fetchone()
    if final is not None and final[1] != identity:
        yield "final_event", subject, f"event {final[0]} is {'not there' if final[1] is None else f'of {final[1]}'}"


def _outcomes(found: Transaction) -> Iterator[Outcome]:
    """Yield the outcome, and all earlier outcomes that it corrected."""
    for outcome in (found.outcome, found.withdrawn):
        while outcome is not None:
            yield outcome
            outcome = outcome.supersedes


def _print_job_faults(db: sqlite3.Connection, rowid: int, subject: str, job: PrintJob) -> Iterator[Fault]:
    """Yield the faults of a print job. A job must be consistent, and derivable from its record."""
    decided = job.decided_by is not None
    stated = decided and job.decided_by not in NOT_ACCEPTED
    final, ended = job.phase is Phase.FINAL, job.status in FINALS
    # A refused job has no status. An open job may have a status, but no final one.
    if final is not decided or ended is not stated or (final and not stated and job.status is not None):
        detail = f"{job.phase}, {job.status or 'no state'}, decided by {job.decided_by or 'nothing'}"
        yield "print_job", subject, detail
    try:
        for _, entry in print_jobs.journal(db, job.print_job_id):
            if isinstance(entry, Called):
                read_webhook(entry.body)
    except MEANINGLESS as error:
        yield "unreadable", f"the journal of {subject}", str(error)
        return
    # Rows with a number below 1 lack a part of their record, which a restore has reported.
    if rowid > 0:
        for name, (stored, derived) in print_jobs.difference(job, print_jobs.derive(db, job)).items():
            yield "print_job", subject, f"{name} is {stored}, and {derived} by its record"


def _pruned_faults(look: Look, db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield the faults of the tombstones of retention."""
    look("checking what was removed", 0, 0)
    for identity, result in db.execute("SELECT client_transaction_id, result FROM pruned_transactions"):
        if not isinstance(identity, str) or canonical_uuid(identity) != identity or result not in _RESULTS:
            yield "pruned", f"payment {identity}", f"its id is invalid, or it ended {result}"
    for (identity,) in db.execute("SELECT print_job_id FROM pruned_print_jobs"):
        if not isinstance(identity, str) or not is_print_job_id(identity):
            yield "pruned", f"print job {identity}", "its id is invalid"
    for (subject,) in db.execute(_STILL_THERE):
        yield "pruned", subject, "it was removed, but its record still exists"
