"""SQL for the rows of transactions, leases, unread approvals, successful searches, and words of the metadata.

Only `payments.record` inserts and updates rows of transactions.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from posd.base.canonical_json import index_words
from posd.base.ids import Channel
from posd.base.money import AmountUnit
from posd.base.operations import OperationType
from posd.payments import journal
from posd.payments.lifecycle import Trail
from posd.payments.model import Attention, AttentionCode, LastSearch, Outcome, Transaction
from posd.records import pages
from posd.records.model import Phase, Pruned
from posd.records.pages import Condition, joined
from posd.records.table import RecordColumn, RecordKind, as_json, raw_json
from posd.storage.batch import WriteTransaction

PAYMENT = RecordKind(
    Channel.TRANSACTION,
    "transactions",
    Transaction,
    (
        RecordColumn("client_transaction_id", fixed=True),
        RecordColumn("terminal", fixed=True),
        RecordColumn("type", load=OperationType),
        RecordColumn("sale", fixed=True),
        RecordColumn("phase", load=Phase),
        raw_json("amount"),
        raw_json("metadata"),
        raw_json("options"),
        RecordColumn("transaction_reference", fixed=True),
        RecordColumn("original", fixed=True),
        RecordColumn("derives_from", fixed=True),
        RecordColumn("same_day_until", fixed=True),
        RecordColumn("repeat", load=bool, fixed=True),
        RecordColumn("sent_to", fixed=True),
        RecordColumn("answer_unit"),
        RecordColumn("callback_host", fixed=True),
        RecordColumn("callback_lost", load=bool),
        RecordColumn("acknowledged", load=bool),
        RecordColumn("heard", load=bool),
        RecordColumn("mismatched", load=bool),
        RecordColumn("released", load=bool),
        as_json("last_search", LastSearch),
        as_json("trail", Trail),
        RecordColumn("reading_type"),
        as_json("outcome", Outcome),
        RecordColumn("given_reference", attrgetter("given_reference"), source="outcome"),
        RecordColumn("unapproved", attrgetter("unapproved"), source="outcome"),
        as_json("withdrawn", Outcome),
        as_json("attention", tuple[Attention, ...]),
        RecordColumn("created_at", fixed=True),
        RecordColumn("updated_at"),
        RecordColumn("revision"),
    ),
    Pruned,
    word="payment",
    id_name="transaction",
    noun="payment",
)
COLUMNS, SELECT = PAYMENT.columns, PAYMENT.select
get, by_rowid, update = PAYMENT.get, PAYMENT.by_rowid, PAYMENT.update
_transaction = PAYMENT.read

#: SQL condition for open transactions. Every final transaction has an outcome. The index has the same condition.
OPEN = "outcome IS NULL"
#: The query names the index, because SQLite might otherwise scan all transactions of a terminal.
_SELECT_OPEN = f"{SELECT} INDEXED BY transactions_open WHERE {OPEN}"
_SELECT_ENDED = (
    f"{SELECT} INDEXED BY transactions_newest WHERE created_at >= ? AND created_at < ? AND phase = 'final'"
    " ORDER BY created_at, client_transaction_id"
)
#: The newest payments of a terminal. Without the limit, SQLite would read all if none meets the outer condition.
_NEWEST_OF = (
    "SELECT client_transaction_id AS id, phase, answer_unit, outcome, attention, final_event FROM transactions"
    " INDEXED BY transactions_terminal WHERE terminal = ? ORDER BY created_at DESC LIMIT 1000"
)
_SELECT_WITH_BODIES = (
    f"SELECT {', '.join(f't.{name}' for name in COLUMNS)}, {journal.NEWEST}, e.body"  # noqa: S608
    f" FROM transactions t LEFT JOIN events e ON e.seq >= t.first_event AND e.seq < t.first_event + {journal.BLOCK}"
    " AND e.client_transaction_id = t.client_transaction_id AND e.event_id = ? WHERE t.client_transaction_id = ?"
)


def beginning(db: sqlite3.Connection, prefix: str, limit: int) -> list[Transaction]:
    """Return the first transactions whose id begins with `prefix`, sorted by id."""
    where, parameters = pages.beginning("client_transaction_id", prefix)
    query = f"{SELECT} WHERE {where} ORDER BY client_transaction_id LIMIT ?"
    return [_transaction(row) for row in db.execute(query, (*parameters, limit))]


def number(db: sqlite3.Connection, client_transaction_id: str) -> int | None:
    """Return the rowid of a transaction, or None."""
    row = db.execute(
        "SELECT rowid FROM transactions WHERE client_transaction_id = ?", (client_transaction_id,)
    ).fetchone()
    return row[0] if row else None


def latest_start(db: sqlite3.Connection) -> str | None:
    """Return the time of the latest start of a payment, or None."""
    latest: str | None = db.execute("SELECT max(created_at) FROM transactions").fetchone()[0]
    return latest


def newest_answer_unit(db: sqlite3.Connection, terminal: str) -> AmountUnit | None:
    """Return the unit of a terminal's amounts, from its newest payment with a known unit, or None."""
    query = f"SELECT answer_unit FROM ({_NEWEST_OF}) WHERE answer_unit IS NOT NULL LIMIT 1"  # noqa: S608 - SQL of this file
    row = db.execute(query, (terminal,)).fetchone()
    return row[0] if row else None


def get_with_bodies(
    db: sqlite3.Connection, client_transaction_id: str, event_id: str
) -> tuple[Transaction | None, int | None, list[bytes]]:
    """Return a transaction, its `journal.NEWEST`, and the bodies of its events with this `event_id`.

    This is one query, unless the events are scattered.
    """
    rows = db.execute(_SELECT_WITH_BODIES, (event_id, client_transaction_id)).fetchall()
    if not rows:
        return None, None, []
    *row, newest, _ = rows[0]
    bodies = (
        [found[-1] for found in rows if found[-1] is not None]
        if newest is not None
        else journal.scattered_bodies(db, client_transaction_id, event_id)
    )
    return _transaction(row), newest, bodies


def insert(unit: WriteTransaction, transaction: Transaction) -> None:
    """Insert a new transaction and the words of its metadata."""
    PAYMENT.insert(unit, transaction)
    keep_words(unit.db, transaction.client_transaction_id, transaction.created_at, transaction.metadata)


def keep_search(unit: WriteTransaction, transaction: Transaction) -> None:
    """Store the time of a search, without a journal entry. The search before had the same result."""
    unit.db.execute(
        "UPDATE transactions SET last_search = ? WHERE client_transaction_id = ?",
        (*PAYMENT.stored(transaction, "last_search"), transaction.client_transaction_id),
    )


def open_ones(db: sqlite3.Connection) -> list[Transaction]:
    """Return every transaction that is not final."""
    return [_transaction(row) for row in db.execute(_SELECT_OPEN)]


def ended(db: sqlite3.Connection, since: str, until: str) -> Iterator[Transaction]:
    """Yield the final transactions created from `since` on and before `until`, oldest first."""
    return map(_transaction, db.execute(_SELECT_ENDED, (since, until)))


def called_back(db: sqlite3.Connection) -> list[Transaction]:
    """Return the transactions that are not final and have an address of this machine in their callback URL."""
    return [_transaction(row) for row in db.execute(f"{_SELECT_OPEN} AND callback_host IS NOT NULL")]


def open_on(db: sqlite3.Connection, terminal: str) -> Iterator[Transaction]:
    """Yield the open transactions of a terminal."""
    return map(_transaction, db.execute(f"{_SELECT_OPEN} AND terminal = ?", (terminal,)))


def of_sale(db: sqlite3.Connection, sale: str) -> Iterator[Transaction]:
    """Yield the transactions of a sale, newest first. There may be many: a till can send one key with every payment."""
    return where(db, "sale = ? ORDER BY created_at DESC, client_transaction_id DESC", (sale,))


def where(db: sqlite3.Connection, condition: str, parameters: tuple[Any, ...]) -> Iterator[Transaction]:
    """Yield the transactions that meet an SQL condition. `condition` may end with ORDER BY and LIMIT."""
    return map(_transaction, db.execute(f"{SELECT} WHERE {condition}", parameters))


def to_ask_once(db: sqlite3.Connection) -> list[Transaction]:
    """Return the ended transactions with the attention `illegal_transition` that posd has not searched for."""
    where = "phase = 'final' AND last_search IS NULL AND instr(attention, '\"illegal_transition\"') > 0"
    query = f"{SELECT} INDEXED BY transactions_to_ask_once WHERE {where}"
    return [_transaction(row) for row in db.execute(query)]


# Lists. Each is a scan of one index, newest first.


class IndexScan(msgspec.Struct, frozen=True):
    """Scan of one index. `entries`: table and index. `own`: condition on its entries. `join`: join to `transactions`.

    `at` and `identity`: the columns by which the scan is sorted.
    """

    entries: str
    own: Condition
    join: str = ""
    at: str = "created_at"
    identity: str = "client_transaction_id"


def by_index(index: str, own: Condition) -> IndexScan:
    """Return the scan of an index of transactions, for entries that meet a condition."""
    return IndexScan(f"transactions INDEXED BY transactions_{index}", own)


def by_word(word: str) -> IndexScan:
    """Return the scan of transactions with a word of their metadata."""
    join = "CROSS JOIN transactions ON client_transaction_id = w.id"
    return IndexScan("transaction_words w", ("w.word = ?", (word,)), join, "w.at", "w.id")


def has_word(walk: IndexScan, words: Sequence[str]) -> Condition:
    """Return the condition that a transaction of the scan has one of these words."""
    same = f"o.word IN ({', '.join('?' * len(words))}) AND o.at = {walk.at} AND o.id = {walk.identity}"
    return f"EXISTS (SELECT 1 FROM transaction_words o WHERE {same})", tuple(words)  # noqa: S608 - names of this file


def count(db: sqlite3.Connection, walk: IndexScan, most: int) -> int:
    """Return the number of entries of a scan, at most `most`."""
    where, parameters = walk.own
    query = f"SELECT count(*) FROM (SELECT 1 FROM {walk.entries} WHERE {where} LIMIT ?)"  # noqa: S608 - SQL of this file
    found: int = db.execute(query, (*parameters, most)).fetchone()[0]
    return found


def select(db: sqlite3.Connection, walk: IndexScan, also: Condition, limit: int) -> Iterator[Transaction]:
    """Yield the transactions of a scan that also meet `also`, newest first."""
    source, parameters = _source(walk, also)
    query = f"SELECT {', '.join(COLUMNS)} {source} ORDER BY {walk.at} DESC, {walk.identity} DESC LIMIT ?"
    return map(_transaction, db.execute(query, (*parameters, limit)))


#: The id of a payment, and the columns that decide its effect on money (`counting.facts_of`).
COUNTED = ("client_transaction_id", "type", "amount", "outcome")
_counted = PAYMENT.reader(*COUNTED)


def counted(db: sqlite3.Connection, walk: IndexScan, also: Condition) -> Iterator[list[Any]]:
    """Yield the values of `COUNTED` of all transactions of a scan that also meet `also`."""
    source, parameters = _source(walk, also)
    return map(_counted, db.execute(f"SELECT {', '.join(COUNTED)} {source}", parameters))


def _source(walk: IndexScan, also: Condition) -> Condition:
    where, parameters = joined([walk.own, also])
    return f"FROM {walk.entries} {walk.join} WHERE {where}", parameters


# Leases: the claim of one open transaction on its terminal (architecture, Steps of a payment).


def lease_holder(db: sqlite3.Connection, terminal: str) -> str | None:
    """Return the id of the transaction that holds the terminal, or None."""
    row = db.execute("SELECT client_transaction_id FROM leases WHERE terminal = ?", (terminal,)).fetchone()
    return row[0] if row else None


def take_lease(unit: WriteTransaction, terminal: str, client_transaction_id: str) -> None:
    """Assign the terminal to a transaction. The caller has checked that no other transaction needs the terminal."""
    unit.db.execute(
        "INSERT INTO leases (terminal, client_transaction_id) VALUES (?, ?)"
        " ON CONFLICT (terminal) DO UPDATE SET client_transaction_id = excluded.client_transaction_id",
        (terminal, client_transaction_id),
    )


def give_up_lease(unit: WriteTransaction, terminal: str, client_transaction_id: str) -> None:
    """Free the terminal if the transaction holds it."""
    unit.db.execute(
        "DELETE FROM leases WHERE terminal = ? AND client_transaction_id = ?", (terminal, client_transaction_id)
    )


def give_up_leases(unit: WriteTransaction, client_transaction_id: str) -> None:
    """Free every terminal that the transaction holds, even if it is not the transaction's own terminal."""
    unit.db.execute("DELETE FROM leases WHERE client_transaction_id = ?", (client_transaction_id,))


def leases(db: sqlite3.Connection) -> dict[str, str]:
    """Return terminal -> id of the transaction that holds it."""
    return dict(db.execute("SELECT terminal, client_transaction_id FROM leases").fetchall())


def give_up_ended_leases(unit: WriteTransaction) -> None:
    """Free the terminals whose holder is final."""
    unit.db.execute(
        "DELETE FROM leases WHERE client_transaction_id IN"
        " (SELECT l.client_transaction_id FROM leases l JOIN transactions t USING (client_transaction_id)"
        " WHERE t.phase = 'final')"
    )


# Approvals that no client has read.


def add_unread(unit: WriteTransaction, client_transaction_id: str) -> None:
    """Record that no client has read the approval of a payment."""
    unit.db.execute("INSERT OR IGNORE INTO unread_approvals VALUES (?)", (client_transaction_id,))


def remove_unread(unit: WriteTransaction, client_transaction_ids: Iterable[str]) -> None:
    """Record that these approvals were read."""
    for identity in client_transaction_ids:
        unit.db.execute("DELETE FROM unread_approvals WHERE client_transaction_id = ?", (identity,))


def unread(db: sqlite3.Connection) -> dict[str, bool]:
    """Return the payments with an unread approval: id -> whether it has the attention `outcome_unread`."""
    query = (
        "SELECT client_transaction_id, instr(attention, ?) > 0 FROM unread_approvals"
        " JOIN transactions USING (client_transaction_id)"
    )
    found = db.execute(query, (f'"{AttentionCode.OUTCOME_UNREAD}"',))
    return {identity: bool(told) for identity, told in found}


# Searches that have found a transaction, so they are known to work (`payments.missing_proof`, condition 6).

#: Number of found transactions that are stored for each search. With two, at least one differs from the transaction in
#: doubt.
REMEMBERED = 2


def remember_search(unit: WriteTransaction, terminal: str, search: str, client_transaction_id: str, at: str) -> None:
    """Record that a search (method, path, pointer) found a transaction of a terminal."""
    unit.db.execute(
        "INSERT OR IGNORE INTO proven_searches (terminal, search, client_transaction_id, at)"
        " SELECT :terminal, :search, :id, :at"
        " WHERE (SELECT count(*) FROM proven_searches WHERE terminal = :terminal AND search = :search) < :most",
        {"terminal": terminal, "search": search, "id": client_transaction_id, "at": at, "most": REMEMBERED},
    )


def search_found_another(db: sqlite3.Connection, terminal: str, search: str, client_transaction_id: str) -> bool:
    """Return whether that search has found another transaction of that terminal."""
    row = db.execute(
        "SELECT 1 FROM proven_searches WHERE terminal = ? AND search = ? AND client_transaction_id <> ?",
        (terminal, search, client_transaction_id),
    ).fetchone()
    return row is not None


def search_control(db: sqlite3.Connection, terminal: str) -> str | None:
    """Return the id of a terminal's newest transaction that the acquirer decided, to try the search on it, or None."""
    row = db.execute(
        f"SELECT id FROM ({_NEWEST_OF}) WHERE phase = 'final'"  # noqa: S608 - SQL of this file
        " AND outcome ->> 'status' IN ('APPROVAL', 'DECLINED') LIMIT 1",
        (terminal,),
    ).fetchone()
    return row[0] if row else None


#: Largest number of a terminal's approvals that are read for the check of an approval.
RECENT_APPROVALS = 20


def approvals(db: sqlite3.Connection, terminal: str, *, but: str) -> list[bytes]:
    """Return the final events of a terminal's newest approvals. `but`: id of a payment to omit.

    Omit approvals with the attention `approval_unlikely`, and approvals that superseded another outcome.
    """
    found = db.execute(
        f"SELECT body FROM ({_NEWEST_OF}) JOIN events ON seq = final_event"  # noqa: S608 - SQL of this file
        " WHERE status = 'APPROVAL' AND id <> ?"
        " AND instr(attention, '\"approval_unlikely\"') = 0 AND json_extract(outcome, '$.supersedes') IS NULL"
        " LIMIT ?",
        (terminal, but, RECENT_APPROVALS),
    )
    return [row[0] for row in found]


# Words of the till's metadata (`posd.base.canonical_json`). A list finds transactions by these words.

_KEEP = "INSERT OR IGNORE INTO transaction_words (word, at, id) VALUES (?, ?, ?)"
_DROP = "DELETE FROM transaction_words WHERE word = ? AND at = ? AND id = ?"


def keep_words(db: sqlite3.Connection, identity: str, created_at: str, metadata: bytes) -> None:
    """Store the metadata words of a new transaction."""
    if metadata != b"{}":
        db.executemany(_KEEP, _words(identity, created_at, metadata))


def drop_words(db: sqlite3.Connection, identity: str, created_at: str, metadata: bytes) -> None:
    """Delete the metadata words of a transaction."""
    db.executemany(_DROP, _words(identity, created_at, metadata))


def _words(identity: str, created_at: str, metadata: bytes) -> list[tuple[str, str, str]]:
    return [(word, created_at, identity) for word in sorted(index_words(metadata))]
