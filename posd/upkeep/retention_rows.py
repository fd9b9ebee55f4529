"""SQL of retention: candidates, one chain at a time, lines of the feed, refused bodies.

A search reads an index from the oldest record. A removal checks again inside its commit, because a till may have
derived another payment since the search. A removal takes few records at a time, because it runs between payments. The
commit that removes a payment records its id. The feed has no index by subject, so its lines are removed afterwards.
After a power cut between both removals, the next run removes the lines.
"""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any

import msgspec

from posd.base.ids import Channel
from posd.payments import chains, journal
from posd.payments import rows as transactions
from posd.payments.model import Transaction
from posd.printing import rows as print_jobs
from posd.printing.model import PrintJob
from posd.records import pages
from posd.records.model import Pruned, PrunedJob
from posd.storage import changes, marks
from posd.storage.batch import WriteTransaction
from posd.upkeep.retention_rules import RetentionReason, guards_sale, keeps_together

#: Longest chain that is removed. A longer chain would delay payments.
MAX_CHAIN = 50
#: Maximum number of payments of a sale that are checked, newest first. A till may use the same sale for all payments.
MAX_OF_SALE = 20

#: The largest rowid.
MAX_ROWID = 2**63 - 1

#: (created_at, id): the position of a scan.
Place = tuple[str, str]
BEGINNING: Place = ("", "")


class LinkedRecords(msgspec.Struct, frozen=True):
    """Payments or print jobs that belong together, and the reason why they are kept, or None."""

    members: tuple[Any, ...] = ()
    kept: RetentionReason | None = None


class PrunedTable(msgspec.Struct, frozen=True):
    """Table that is scanned from the oldest record by time and id, with the removal of one chain.

    `chain_of`: called with the moment before which records are old, and the check for an open call of an id.
    """

    noun: str
    name: str
    key: str
    index: str
    chain_of: Callable[[sqlite3.Connection, str, str, Callable[[str], bool]], LinkedRecords]
    remove: Callable[[sqlite3.Connection, Any], None]


def candidates(db: sqlite3.Connection, table: PrunedTable, after: Place, before: str, limit: int) -> list[Place]:
    """Return the next records created before a moment, the oldest first."""
    return db.execute(
        f"SELECT created_at, {table.key} FROM {table.name} INDEXED BY {table.index}"  # noqa: S608 - of this file
        f" WHERE (created_at, {table.key}) > (?, ?) AND created_at < ? ORDER BY created_at, {table.key} LIMIT ?",
        (*after, before, limit),
    ).fetchall()


def first_recent(db: sqlite3.Connection, name: str, column: str, before: str, until: str) -> int:
    """Return the number of the first row recorded between two moments.

    Later rows are not old, even if their time is old, because the clock was behind. A time after `until` is ignored,
    because the clock was ahead.
    """
    row = db.execute(
        f"SELECT rowid FROM {name} NOT INDEXED WHERE {column} >= ? AND {column} <= ?"  # noqa: S608 - of this file
        " ORDER BY rowid LIMIT 1",  # old rows are removed, so there are few rows before it
        (before, until),
    ).fetchone()
    return MAX_ROWID if row is None else int(row[0])


def first_uncounted(db: sqlite3.Connection) -> str | None:
    """Return the time of the first change after the last closed shift; None without one, or without shifts."""
    if (shift := marks.newest_detail(db, marks.SHIFT)) is None:
        return None
    return next((change.at for change in changes.after(db, msgspec.json.decode(shift)["up_to"], 1)), None)


def chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> LinkedRecords:
    """Return the payments in the chain of one payment, or none if it was removed.

    `busy`: whether the chain has an open call.
    """
    found = transactions.get(db, identity)
    if found is None:
        return LinkedRecords()
    try:
        members = tuple(chains.ChainLinks(db, MAX_CHAIN).whole(found))
    except chains.ChainTooLong:
        return LinkedRecords((found,), RetentionReason.CHAIN)
    return LinkedRecords(members, _kept(db, members, before, busy))


def _kept(
    db: sqlite3.Connection, members: Sequence[Transaction], before: str, busy: Callable[[str], bool]
) -> RetentionReason | None:
    if (kept := keeps_together(members, before)) is not None:
        return kept
    ids = {item.client_transaction_id for item in members}
    if any(busy(identity) for identity in ids) or _is_last_numbered(db, ids):
        return RetentionReason.OPEN
    for item in members:
        if item.sale is not None:
            others = islice(transactions.of_sale(db, item.sale), MAX_OF_SALE)
            if guards_sale(item, (other for other in others if other.client_transaction_id not in ids), before):
                return RetentionReason.SALE
    return None


def _is_last_numbered(db: sqlite3.Connection, ids: Collection[str]) -> bool:
    """Return whether the next payment would have a number from before the journal."""
    if not journal.last_incomplete_rowid(db):
        return False
    row = db.execute("SELECT client_transaction_id FROM transactions ORDER BY rowid DESC LIMIT 1").fetchone()
    return row[0] in ids


def remove(db: sqlite3.Connection, item: Transaction) -> None:
    """Remove a final payment, except its id and its lines of the feed."""
    assert item.outcome is not None  # noqa: S101 - a final record has an end
    identity = item.client_transaction_id
    result, day = item.outcome.result, item.outcome.decided_at[:10]
    transactions.PAYMENT.keep_pruned(db, Pruned(identity, item.terminal, item.type, result, day))
    transactions.drop_words(db, identity, item.created_at, item.metadata)
    _delete_payment(db, identity)


def forget(db: sqlite3.Connection, identity: str) -> None:
    """Remove a payment in any state from the new database of a restore.

    Retention had removed it in the replaced database.
    """
    row = db.execute(
        "SELECT created_at, metadata FROM main.transactions WHERE client_transaction_id = ?", (identity,)
    ).fetchone()
    transactions.drop_words(db, identity, row[0], str(row[1]).encode())
    _delete_payment(db, identity)


def _delete_payment(db: sqlite3.Connection, identity: str) -> None:
    journal.remove_events(db, identity)
    _delete(db, identity, TRANSACTIONS, "journal", "leases", "unread_approvals")


def print_chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> LinkedRecords:
    """Return a print job with its reprints and its originals, or none if it was removed."""
    found: dict[str, PrintJob] = {}
    waiting = [identity]
    while waiting and len(found) <= MAX_CHAIN:
        job = print_jobs.get(db, waiting.pop())
        if job is None or job.print_job_id in found:
            continue
        found[job.print_job_id] = job
        waiting += print_jobs.reprints(db, job.print_job_id)
        waiting += [job.reprint_of] if job.reprint_of else []
    kept = RetentionReason.CHAIN if len(found) > MAX_CHAIN else keeps_together(found.values(), before)
    if kept is None and any(busy(name) for name in found):
        kept = RetentionReason.OPEN
    return LinkedRecords(tuple(found.values()), kept)


def remove_job(db: sqlite3.Connection, job: PrintJob) -> None:
    """Remove a final print job, except its id and its lines of the feed."""
    identity = job.print_job_id
    print_jobs.PRINT_JOB.keep_pruned(db, PrunedJob(identity, job.terminal, job.status, job.updated_at[:10]))
    forget_job(db, identity)


def forget_job(db: sqlite3.Connection, identity: str) -> None:
    """Remove a print job in any state from the new database of a restore."""
    _delete(db, identity, PRINT_JOBS, "print_journal")


def _delete(db: sqlite3.Connection, identity: str, table: PrunedTable, *others: str) -> None:
    """Delete the rows of one id from other tables, and then from its own."""
    for name in (*others, table.name):
        db.execute(f"DELETE FROM {name} WHERE {table.key} = ?", (identity,)).close()  # noqa: S608 - of this file


TRANSACTIONS = PrunedTable("payments", "transactions", "client_transaction_id", "transactions_newest", chain_of, remove)
PRINT_JOBS = PrunedTable("print jobs", "print_jobs", "print_job_id", "print_jobs_newest", print_chain_of, remove_job)


class AgeLimit(msgspec.Struct, frozen=True):
    """Limit of old records: created before a moment, and recorded before the first recent row (see `first_recent`).

    `doubtful`: periods of an untrusted clock. A record with a time in such a period may be new.
    """

    before: str
    first_recent: int
    doubtful: tuple[tuple[str, str], ...] = ()

    def may_be_new(self, *times: str) -> bool:
        """Return whether one of these times may be from a clock that was behind."""
        return any(first <= time <= last for first, last in self.doubtful for time in times)


def old_chain(
    db: sqlite3.Connection, table: PrunedTable, identity: str, age: AgeLimit, busy: Callable[[str], bool]
) -> LinkedRecords:
    """Return the chain of one id, with the reason why it is kept."""
    chain = table.chain_of(db, identity, age.before, busy)
    if chain.kept is None and any(
        age.may_be_new(item.created_at, item.updated_at) or _number(db, table, item) > age.first_recent
        for item in chain.members
    ):
        return LinkedRecords(chain.members, RetentionReason.RECENT)
    return chain


def _number(db: sqlite3.Connection, table: PrunedTable, item: Any) -> int:
    row = db.execute(
        f"SELECT rowid FROM {table.name} WHERE {table.key} = ?",  # noqa: S608 - of this file
        (getattr(item, table.key),),
    ).fetchone()
    return int(row[0])


def remove_chain(
    unit: WriteTransaction, table: PrunedTable, identity: str, age: AgeLimit, busy: Callable[[str], bool]
) -> LinkedRecords:
    """Remove the whole chain of one id, or nothing. Return the chain, with the reason if it was kept."""
    chain = old_chain(unit.db, table, identity, age, busy)
    if chain.kept is None:
        for item in chain.members:
            table.remove(unit.db, item)
    return chain


class FeedSpan(msgspec.Struct, frozen=True):
    """Part of the feed: number of its last line (None without lines), removable lines, and number of recent lines."""

    last: int | None
    numbers: list[int]
    new: int


_FEED = """
SELECT c.seq, c.at, t.rowid IS NULL AND j.rowid IS NULL
  FROM changes c
  LEFT JOIN transactions t ON t.client_transaction_id = c.id
  LEFT JOIN print_jobs j ON j.print_job_id = c.id
 WHERE c.seq > ? ORDER BY c.seq LIMIT ?
"""


def lines(db: sqlite3.Connection, after: int, before: str, limit: int) -> FeedSpan:
    """Return the lines of the feed after a number whose record was removed."""
    rows = db.execute(_FEED, (after, limit)).fetchall()
    gone = [seq for seq, _, removed in rows if removed]
    return FeedSpan(rows[-1][0] if rows else None, gone, sum(at >= before for _, at, _ in rows))


def remove_lines(unit: WriteTransaction, numbers: Sequence[int]) -> None:
    """Remove lines of the feed, and record the highest removed number."""
    if numbers:
        pages.note_removed(unit, max(numbers))
    unit.db.executemany("DELETE FROM changes WHERE seq = ?", ((number,) for number in numbers)).close()


_QUARANTINED = f"""
SELECT q.id, q.received_at,
       EXISTS (SELECT 1 FROM transactions t WHERE q.channel = '{Channel.TRANSACTION}'
                  AND t.client_transaction_id = q.subject AND (t.phase <> 'final' OR t.attention <> '[]'))
    OR EXISTS (SELECT 1 FROM print_jobs j WHERE q.channel = '{Channel.PRINT}'
                  AND j.print_job_id = q.subject AND (j.phase <> 'final' OR j.attention <> '[]'))
  FROM quarantine q
 WHERE q.id > ? ORDER BY q.id LIMIT ?
"""  # noqa: S608 - constants


def quarantined(db: sqlite3.Connection, after: int, age: AgeLimit, limit: int) -> FeedSpan:
    """Return the old refused bodies after an id.

    Bodies of open records, and of records with an attention, are omitted.
    """
    rows = db.execute(_QUARANTINED, (after, limit)).fetchall()
    gone = [
        identity
        for identity, at, looked_at in rows
        if at < age.before and identity < age.first_recent and not age.may_be_new(at) and not looked_at
    ]
    return FeedSpan(rows[-1][0] if rows else None, gone, sum(at >= age.before for _, at, _ in rows))
