"""Events as they came: raw bytes, order of arrival, verdict."""

import sqlite3
from collections.abc import Iterator

import msgspec

from posd.payments.events import TransactionEvent
from posd.payments.lifecycle import Verdict
from posd.storage.batch import Unit


class StoredEvent(msgspec.Struct, frozen=True):
    """One recorded event; `body` is what the terminal sent."""

    seq: int
    received_at: str
    verdict: str
    status: str
    body: bytes


def bodies(db: sqlite3.Connection, client_transaction_id: str, event_id: str) -> list[bytes]:
    """Return the bodies that were recorded under an event_id of a transaction."""
    rows = db.execute(
        "SELECT body FROM events WHERE client_transaction_id = ? AND event_id = ?", (client_transaction_id, event_id)
    )
    return [row[0] for row in rows]


def append(
    unit: Unit, client_transaction_id: str, event: TransactionEvent, verdict: Verdict, received_at: str, body: bytes
) -> int:
    """Record an event and return its seq."""
    cursor = unit.db.execute(
        "INSERT INTO events (client_transaction_id, event_id, received_at, verdict, status, body) VALUES (?,?,?,?,?,?)",
        (client_transaction_id, event.event_id, received_at, verdict, event.status, body),
    )
    assert cursor.lastrowid is not None  # noqa: S101 - an INSERT into a rowid table has one
    return cursor.lastrowid


def set_final(unit: Unit, client_transaction_id: str, seq: int) -> None:
    """Name the event that the outcome rests on; the first one stays."""
    unit.db.execute(
        "UPDATE transactions SET final_event = ? WHERE client_transaction_id = ? AND final_event IS NULL",
        (seq, client_transaction_id),
    )


def final_body(db: sqlite3.Connection, client_transaction_id: str) -> bytes | None:
    """Return the event that the outcome rests on, verbatim, None where there is none."""
    row = db.execute(
        "SELECT body FROM events WHERE seq = (SELECT final_event FROM transactions WHERE client_transaction_id = ?)",
        (client_transaction_id,),
    ).fetchone()
    return row[0] if row else None


def of_transaction(db: sqlite3.Connection, client_transaction_id: str, after: int = 0) -> list[StoredEvent]:
    """Return the recorded events of a transaction after a seq, in the order of arrival."""
    return list(each_of_transaction(db, client_transaction_id, after))


def each_of_transaction(db: sqlite3.Connection, client_transaction_id: str, after: int = 0) -> Iterator[StoredEvent]:
    """Yield them one by one, as they are read."""
    rows = db.execute(
        "SELECT seq, received_at, verdict, status, body FROM events"
        " WHERE client_transaction_id = ? AND seq > ? ORDER BY seq",
        (client_transaction_id, after),
    )
    for row in rows:
        yield StoredEvent(*row)


def holds(db: sqlite3.Connection, client_transaction_id: str, seq: int) -> bool:
    """Whether a transaction has an event of that number."""
    query = "SELECT 1 FROM events WHERE seq = ? AND client_transaction_id = ?"
    return db.execute(query, (seq, client_transaction_id)).fetchone() is not None


def set_verdict(unit: Unit, seq: int, verdict: Verdict) -> None:
    """Correct what became of a recorded event."""
    unit.db.execute("UPDATE events SET verdict = ? WHERE seq = ?", (verdict, seq))
