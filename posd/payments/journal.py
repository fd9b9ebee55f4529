"""Journal: every input of a transaction besides its events (see `payments.entries`)."""

import sqlite3
from collections.abc import Iterator

import msgspec

from posd.payments.answers import final_element
from posd.payments.entries import Entry, Resolved, Searched
from posd.payments.lifecycle import Verdict
from posd.payments.model import Transaction
from posd.payments.wire import TransactionEvent
from posd.storage import StaleState, changes
from posd.storage.batch import WriteTransaction

_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_ENCODE = msgspec.json.Encoder().encode


class Journaled(msgspec.Struct, frozen=True):
    """Stored entry with its position. `events_before`: the number of events received before the entry."""

    seq: int
    at: str
    events_before: int
    entry: Entry


_APPEND = (
    "INSERT INTO journal (seq, client_transaction_id, at, events_before, entry)"  # noqa: S608 - SQL of this file
    f" VALUES ({changes.next_number('journal')}, :id, :at,"
    " (SELECT count(*) FROM payment_events WHERE client_transaction_id = :id), :entry)"
)


def append(unit: WriteTransaction, client_transaction_id: str, entry: Entry, at: str) -> None:
    """Store an entry."""
    unit.db.execute(_APPEND, {"id": client_transaction_id, "at": at, "entry": _ENCODE(entry).decode()})


def entries(db: sqlite3.Connection, client_transaction_id: str) -> Iterator[Journaled]:
    """Yield the entries of a transaction in order."""
    rows = db.execute(
        "SELECT seq, at, events_before, entry FROM journal WHERE client_transaction_id = ? ORDER BY seq",
        (client_transaction_id,),
    )
    for seq, at, events_before, entry in rows:
        yield Journaled(seq, at, events_before, _ENTRY.decode(entry))


def closed_by_person(db: sqlite3.Connection, since: str) -> list[str]:
    """Return the ids of payments that operators resolved at `since` or later, newest first."""
    found = []
    for identity, at, entry in db.execute("SELECT client_transaction_id, at, entry FROM journal ORDER BY seq DESC"):
        if at < since:
            break
        if isinstance(_ENTRY.decode(entry), Resolved):
            found.append(identity)
    return found


def last_incomplete_rowid(db: sqlite3.Connection) -> int:
    """Return the rowid of the last payment from a version without journals. Journals up to it are incomplete."""
    row = db.execute("SELECT detail FROM marks WHERE kind = 'journal_begins'").fetchone()
    return int(row[0])


# Events as received: raw bytes, order of arrival, verdict.
#
# Events of a payment have consecutive numbers, so that they are on the same database pages. The first event begins a
# block of numbers, and the payment's row has the first number. An event in a block has no index entry. Events of a
# payment are scattered if they do not fit into one block, or come from an earlier version or another database. An index
# finds scattered events. The view `payment_events` has events of both kinds.

#: Size of a block. Nearly all payments have four or five events. To find a repeated event, all events of the block are
#: read.
BLOCK = 64
#: Value of `NEWEST` for a block without a free number: it is full, or other events may have its next numbers.
CLOSED = -1
#: SQL: the newest number in the block of a transaction `t`, `CLOSED`, or NULL if the transaction has no block.
NEWEST = (
    f"(SELECT CASE WHEN max(seq) < {changes.used_outside('events')}"  # noqa: S608
    f" OR max(seq) % {BLOCK} = {BLOCK - 1} THEN {CLOSED}"
    f" ELSE max(seq) END FROM events WHERE seq >= t.first_event AND seq < t.first_event + {BLOCK})"
)


class StoredEvent(msgspec.Struct, frozen=True):
    """One recorded event. `body`: the terminal's bytes."""

    seq: int
    received_at: str
    verdict: str
    status: str
    body: bytes


def event_bodies(db: sqlite3.Connection, client_transaction_id: str, event_id: str) -> list[bytes]:
    """Return the bodies of a transaction's events with an event_id."""
    rows = db.execute(
        "SELECT body FROM payment_events WHERE client_transaction_id = ? AND event_id = ?",
        (client_transaction_id, event_id),
    )
    return [row[0] for row in rows]


def scattered_bodies(db: sqlite3.Connection, client_transaction_id: str, event_id: str) -> list[bytes]:
    """Return the bodies of a transaction's scattered events with an event_id."""
    query = "SELECT body FROM events WHERE together IS NULL AND client_transaction_id = ? AND event_id = ? ORDER BY seq"
    return [row[0] for row in db.execute(query, (client_transaction_id, event_id))]


def count_events(db: sqlite3.Connection, client_transaction_id: str) -> int:
    """Return the number of recorded events of a transaction."""
    query = "SELECT count(*) FROM payment_events WHERE client_transaction_id = ?"
    return int(db.execute(query, (client_transaction_id,)).fetchone()[0])


_ANY_SCATTERED = "SELECT 1 FROM events WHERE together IS NULL AND client_transaction_id = ? LIMIT 1"
_NAME_FIRST = "UPDATE transactions SET first_event = ? WHERE client_transaction_id = ?"
_OF_ONE = "seq IN (SELECT seq FROM payment_events WHERE client_transaction_id = ?)"
_APPEND_EVENT = (
    "INSERT INTO events (seq, client_transaction_id, event_id, received_at, verdict, status, body, together)"
    " VALUES (?,?,?,?,?,?,?,?)"
)


def append_event(
    unit: WriteTransaction,
    client_transaction_id: str,
    event: TransactionEvent,
    verdict: Verdict,
    received_at: str,
    body: bytes,
    newest: int | None,
) -> int:
    """Store an event of a stored transaction. Return its seq. `newest`: the result of `NEWEST`."""
    seq, together = _next(unit.db, client_transaction_id, newest)
    row = (seq, client_transaction_id, event.event_id, received_at, verdict, event.status, body, together)
    unit.db.execute(_APPEND_EVENT, row)
    return seq


def _next(db: sqlite3.Connection, client_transaction_id: str, newest: int | None) -> tuple[int, int | None]:
    """Return the number for the next event of a transaction, and 1 if the number is in its block, else None."""
    if newest == CLOSED:
        scatter(db, client_transaction_id)
    elif newest is not None:
        return newest + 1, 1
    elif db.execute(_ANY_SCATTERED, (client_transaction_id,)).fetchone() is None:
        seq = next_block(db)
        if db.execute(_NAME_FIRST, (seq, client_transaction_id)).rowcount != 1:
            raise StaleState(f"{client_transaction_id} is not recorded")
        return seq, 1
    return next_block(db), None


def next_block(db: sqlite3.Connection) -> int:
    """Return the first number of the next free block."""
    return (changes.newest_number(db, "events") // BLOCK + 1) * BLOCK


def remove_events(db: sqlite3.Connection, client_transaction_id: str) -> None:
    """Delete the events of a transaction that is being deleted."""
    db.execute(f"DELETE FROM events WHERE {_OF_ONE}", (client_transaction_id,)).close()  # noqa: S608 - SQL of this file


def scatter(db: sqlite3.Connection, client_transaction_id: str) -> None:
    """Store each event of a transaction as a scattered event, with an index entry. The numbers of the events stay."""
    db.execute(f"UPDATE events SET together = NULL WHERE {_OF_ONE}", (client_transaction_id,))  # noqa: S608 - SQL of this file
    db.execute(_NAME_FIRST, (None, client_transaction_id))


def scatter_all(db: sqlite3.Connection) -> None:
    """Store all events as scattered events, with index entries, in a database that was read from damaged pages."""
    db.execute("UPDATE events SET together = NULL WHERE together IS NOT NULL")
    db.execute("UPDATE transactions SET first_event = NULL WHERE first_event IS NOT NULL")


def set_final(unit: WriteTransaction, client_transaction_id: str, seq: int) -> None:
    """Set the number of the final event of a transaction, unless one is set."""
    unit.db.execute(
        "UPDATE transactions SET final_event = ? WHERE client_transaction_id = ? AND final_event IS NULL",
        (seq, client_transaction_id),
    )


def final_body(db: sqlite3.Connection, client_transaction_id: str) -> bytes | None:
    """Return the final event of a transaction, verbatim, or None."""
    row = db.execute(
        "SELECT body FROM events WHERE seq = (SELECT final_event FROM transactions WHERE client_transaction_id = ?)",
        (client_transaction_id,),
    ).fetchone()
    return row[0] if row else None


def events(db: sqlite3.Connection, client_transaction_id: str) -> list[StoredEvent]:
    """Return the recorded events of a transaction, in the order of arrival."""
    return list(each_event(db, client_transaction_id, 0))


def each_event(db: sqlite3.Connection, client_transaction_id: str, after: int) -> Iterator[StoredEvent]:
    """Yield the events after a seq one by one.

    The query sorts only the numbers. With the bodies in the query, SQLite would sort all scattered bodies first.
    """
    query = "SELECT seq FROM payment_events WHERE client_transaction_id = ? AND seq > ? ORDER BY seq"
    for number in db.execute(query, (client_transaction_id, after)).fetchall():
        row = db.execute("SELECT seq, received_at, verdict, status, body FROM events WHERE seq = ?", number).fetchone()
        yield StoredEvent(*row)


def holds_event(db: sqlite3.Connection, client_transaction_id: str, seq: int) -> bool:
    """Whether a transaction has an event with that number."""
    query = "SELECT 1 FROM events WHERE seq = ? AND client_transaction_id = ?"
    return db.execute(query, (seq, client_transaction_id)).fetchone() is not None


def set_verdict(unit: WriteTransaction, seq: int, verdict: Verdict) -> None:
    """Correct the verdict of a recorded event."""
    unit.db.execute("UPDATE events SET verdict = ? WHERE seq = ?", (verdict, seq))


# Source of an outcome, verbatim.


def final_event(db: sqlite3.Connection, transaction: Transaction) -> bytes | None:
    """Return the terminal's final event, else the element of a search with the final state.

    Return None if there is neither.
    """
    identity, outcome = transaction.client_transaction_id, transaction.outcome
    if outcome is None or not outcome.stated_by_terminal:
        return None
    body = final_body(db, identity)
    if body is not None:
        return body
    answers = [item.entry.answer for item in entries(db, identity) if isinstance(item.entry, Searched)]
    element = final_element(answers, outcome.evidence[0].event_id or "")
    return element.encode() if element else None
