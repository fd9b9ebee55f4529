"""What retention removes, in SQL: candidates, one chain at a time, lines of the feed, refused bodies.

What looks for something walks an index from its old end. What removes decides again inside its commit, for a till may
have derived something meanwhile, and does as little as it can at a time: it runs between payments. In the commit that
takes a payment away its id is written down. Lines of the feed, which no index finds by their subject, go afterwards; a
power cut in between leaves lines of what is not there any more, which the next run removes.
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
from posd.records import feed_cursor, pruned
from posd.records.retention import Pruned, PrunedJob
from posd.storage.writer import Unit
from posd.upkeep.retention_rules import Kept, guards_sale, keeps_together

#: A chain of more is kept: removing it at once would make payments wait.
MAX_CHAIN = 50
#: Of a sale so many are looked at, the newest first; a till that always says the same has all.
MAX_OF_SALE = 20

#: The largest number of a row.
MAX_ROWID = 2**63 - 1

#: (created_at, id): from where a walk goes on.
Place = tuple[str, str]
BEGINNING: Place = ("", "")


class Chain(msgspec.Struct, frozen=True):
    """What belongs together, and why it is kept, where it is."""

    members: tuple[Any, ...] = ()
    kept: Kept | None = None


class Table(msgspec.Struct, frozen=True):
    """What is walked from its old end, by its index of times and ids, and how one and all that belongs to it go.

    `chain_of` takes a moment before which something is old, and what tells whether a call is under way for an id.
    """

    noun: str
    name: str
    key: str
    index: str
    chain_of: Callable[[sqlite3.Connection, str, str, Callable[[str], bool]], Chain]
    remove: Callable[[sqlite3.Connection, Any], None]


def candidates(db: sqlite3.Connection, table: Table, after: Place, before: str, limit: int) -> list[Place]:
    """Return the next that were created before a moment, the oldest first."""
    return db.execute(
        f"SELECT created_at, {table.key} FROM {table.name} INDEXED BY {table.index}"  # noqa: S608 - of this file
        f" WHERE (created_at, {table.key}) > (?, ?) AND created_at < ? ORDER BY created_at, {table.key} LIMIT ?",
        (*after, before, limit),
    ).fetchall()


def first_recent(db: sqlite3.Connection, name: str, column: str, before: str, until: str) -> int:
    """Return the number of the first row of a table that was recorded between two moments.

    What was recorded after it is not old, though its time is: the clock was behind. A time past `until` tells
    nothing: the clock was ahead.
    """
    row = db.execute(
        f"SELECT rowid FROM {name} NOT INDEXED WHERE {column} >= ? AND {column} <= ?"  # noqa: S608 - of this file
        " ORDER BY rowid LIMIT 1",  # what is old is removed, so that few rows are before it
        (before, until),
    ).fetchone()
    return MAX_ROWID if row is None else int(row[0])


def chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> Chain:
    """Return the payments that stay or go with one; none where it is gone. `busy`: a call of it is under way."""
    found = transactions.get(db, identity)
    if found is None:
        return Chain()
    members = tuple(chains.whole(db, found, MAX_CHAIN))
    return Chain(members, _kept(db, members, before, busy))


def _kept(
    db: sqlite3.Connection, members: Sequence[Transaction], before: str, busy: Callable[[str], bool]
) -> Kept | None:
    if len(members) > MAX_CHAIN:
        return Kept.CHAIN
    if (kept := keeps_together(members, before)) is not None:
        return kept
    ids = {item.client_transaction_id for item in members}
    if any(busy(identity) for identity in ids) or _is_last_numbered(db, ids):
        return Kept.OPEN
    for item in members:
        if item.sale is not None:
            others = islice(transactions.of_sale(db, item.sale), MAX_OF_SALE)
            if guards_sale(item, (other for other in others if other.client_transaction_id not in ids), before):
                return Kept.SALE
    return None


def _is_last_numbered(db: sqlite3.Connection, ids: Collection[str]) -> bool:
    """Whether the next payment would get the number of one of before the journal (see `journal.begins_after`)."""
    begins = journal.begins_after(db)
    if not begins:
        return False
    row = db.execute("SELECT client_transaction_id FROM transactions ORDER BY rowid DESC LIMIT 1").fetchone()
    return row[0] in ids


def remove(db: sqlite3.Connection, item: Transaction) -> None:
    """Remove a payment that is final, but for its id and its lines of the feed."""
    assert item.outcome is not None  # noqa: S101 - what is final has one
    identity = item.client_transaction_id
    result, day = item.outcome.result, item.outcome.decided_at[:10]
    pruned.keep_payment(db, Pruned(identity, item.terminal, item.type, result, day))
    transactions.drop_words(db, identity, item.created_at, item.metadata)
    _delete_payment(db, identity)


def forget(db: sqlite3.Connection, identity: str) -> None:
    """Remove a payment in any state from the main database of a restore: the replaced one had removed it."""
    row = db.execute(
        "SELECT created_at, metadata FROM main.transactions WHERE client_transaction_id = ?", (identity,)
    ).fetchone()
    transactions.drop_words(db, identity, row[0], str(row[1]).encode())
    _delete_payment(db, identity)


def _delete_payment(db: sqlite3.Connection, identity: str) -> None:
    journal.remove_events(db, identity)
    _delete(db, identity, TRANSACTIONS, "journal", "leases")


def print_chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> Chain:
    """Return a print job with those that print it again and what it prints again; none where it is gone."""
    found: dict[str, PrintJob] = {}
    waiting = [identity]
    while waiting and len(found) <= MAX_CHAIN:
        job = print_jobs.get(db, waiting.pop())
        if job is None or job.print_job_id in found:
            continue
        found[job.print_job_id] = job
        waiting += print_jobs.reprints(db, job.print_job_id)
        waiting += [job.reprint_of] if job.reprint_of else []
    kept = Kept.CHAIN if len(found) > MAX_CHAIN else keeps_together(found.values(), before)
    if kept is None and any(busy(name) for name in found):
        kept = Kept.OPEN
    return Chain(tuple(found.values()), kept)


def remove_job(db: sqlite3.Connection, job: PrintJob) -> None:
    """Remove a print job that is final, but for its id and its lines of the feed."""
    identity = job.print_job_id
    pruned.keep_print_job(db, PrunedJob(identity, job.terminal, job.status, job.updated_at[:10]))
    forget_job(db, identity)


def forget_job(db: sqlite3.Connection, identity: str) -> None:
    """Remove a print job in any state from the main database of a restore."""
    _delete(db, identity, PRINT_JOBS, "print_journal")


def _delete(db: sqlite3.Connection, identity: str, table: Table, *others: str) -> None:
    """Delete the rows about one from its table, and before that from others."""
    for name in (*others, table.name):
        db.execute(f"DELETE FROM {name} WHERE {table.key} = ?", (identity,)).close()  # noqa: S608 - of this file


TRANSACTIONS = Table("payments", "transactions", "client_transaction_id", "transactions_newest", chain_of, remove)
PRINT_JOBS = Table("print jobs", "print_jobs", "print_job_id", "print_jobs_newest", print_chain_of, remove_job)


class Age(msgspec.Struct, frozen=True):
    """What is old: created before a moment, and recorded before the first row that is not (see `first_recent`).

    `doubtful` are times that a clock said which was not believed: a record that bears one of them may be new.
    """

    before: str
    first_recent: int
    doubtful: tuple[tuple[str, str], ...] = ()

    def may_be_new(self, *times: str) -> bool:
        """Whether one of these times may be of a clock that was behind."""
        return any(first <= time <= last for first, last in self.doubtful for time in times)


def old_chain(db: sqlite3.Connection, table: Table, identity: str, age: Age, busy: Callable[[str], bool]) -> Chain:
    """Return one and what belongs to it, and why it is kept, where it is."""
    chain = table.chain_of(db, identity, age.before, busy)
    if chain.kept is None and any(
        age.may_be_new(item.created_at, item.updated_at) or _number(db, table, item) > age.first_recent
        for item in chain.members
    ):
        return Chain(chain.members, Kept.RECENT)
    return chain


def _number(db: sqlite3.Connection, table: Table, item: Any) -> int:
    row = db.execute(
        f"SELECT rowid FROM {table.name} WHERE {table.key} = ?",  # noqa: S608 - of this file
        (getattr(item, table.key),),
    ).fetchone()
    return int(row[0])


def remove_chain(unit: Unit, table: Table, identity: str, age: Age, busy: Callable[[str], bool]) -> Chain:
    """Remove one and what belongs to it, all or nothing; return it, and why it was kept, where it was."""
    chain = old_chain(unit.db, table, identity, age, busy)
    if chain.kept is None:
        for item in chain.members:
            table.remove(unit.db, item)
    return chain


class Lines(msgspec.Struct, frozen=True):
    """A stretch of the feed: the number of its last line (None: there is none), what can go, how many are too new."""

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


def lines(db: sqlite3.Connection, after: int, before: str, limit: int) -> Lines:
    """Return the lines of the feed after a number that are about nothing which is still here."""
    rows = db.execute(_FEED, (after, limit)).fetchall()
    gone = [seq for seq, _, removed in rows if removed]
    return Lines(rows[-1][0] if rows else None, gone, sum(at >= before for _, at, _ in rows))


def remove_lines(unit: Unit, numbers: Sequence[int]) -> None:
    """Remove lines of the feed, and keep up to where there were some."""
    if numbers:
        feed_cursor.note_removed(unit, max(numbers))
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


def quarantined(db: sqlite3.Connection, after: int, age: Age, limit: int) -> Lines:
    """Return the refused bodies after an id that are old, of nothing that is open or has an attention."""
    rows = db.execute(_QUARANTINED, (after, limit)).fetchall()
    gone = [
        identity
        for identity, at, looked_at in rows
        if at < age.before and identity < age.first_recent and not age.may_be_new(at) and not looked_at
    ]
    return Lines(rows[-1][0] if rows else None, gone, sum(at >= age.before for _, at, _ in rows))
