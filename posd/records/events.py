"""Events as they came: raw bytes, order of arrival, verdict. And the quarantine of what was refused."""

import sqlite3
from collections.abc import Iterator

import msgspec

from posd.payments.events import TransactionEvent
from posd.payments.lifecycle import Verdict
from posd.storage.batch import Unit

#: Refused bodies kept for one subject; a terminal that repeats one fault for ever must not fill the disk.
MAX_QUARANTINED = 100


class StoredEvent(msgspec.Struct, frozen=True):
    """One recorded event; `body` is what the terminal sent."""

    seq: int
    received_at: str
    verdict: str
    status: str
    body: bytes


class QuarantinedBody(msgspec.Struct, frozen=True):
    """One refused body of an authentic callback; `subject` is the id of the callback address."""

    id: int
    received_at: str
    channel: str
    subject: str
    reason: str
    peer: str
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


def quarantine(unit: Unit, channel: str, subject: str, reason: str, peer: str, received_at: str, body: bytes) -> bool:
    """Keep a refused body of an authentic callback, the same bytes once; tell whether it is kept: there is a limit."""
    kept, there = unit.db.execute(
        "SELECT count(*), coalesce(max(body = ?), 0) FROM quarantine WHERE channel = ? AND subject = ?",
        (body, channel, subject),
    ).fetchone()
    if there or kept >= MAX_QUARANTINED:
        return bool(there)
    unit.db.execute(
        "INSERT INTO quarantine (received_at, channel, subject, reason, peer, body) VALUES (?,?,?,?,?,?)",
        (received_at, channel, subject, reason, peer, body),
    )
    return True


_QUARANTINED = "SELECT id, received_at, channel, subject, reason, peer, body FROM quarantine"


def quarantined(db: sqlite3.Connection, after: int, limit: int) -> list[QuarantinedBody]:
    """Return refused bodies after an id, ascending, at most `limit`."""
    rows = db.execute(f"{_QUARANTINED} WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [QuarantinedBody(*row) for row in rows]


def quarantined_one(db: sqlite3.Connection, identity: int) -> QuarantinedBody | None:
    """Return one refused body."""
    row = db.execute(f"{_QUARANTINED} WHERE id = ?", (identity,)).fetchone()
    return QuarantinedBody(*row) if row else None


def count_quarantined(db: sqlite3.Connection) -> int:
    """Return how many refused bodies there are."""
    row = db.execute("SELECT count(*) FROM quarantine").fetchone()
    return int(row[0])


def unquarantine(unit: Unit, item: QuarantinedBody) -> int:
    """Take a body out of the quarantine, because it was recorded as an event; return how many its subject still has."""
    unit.db.execute("DELETE FROM quarantine WHERE id = ?", (item.id,))
    row = unit.db.execute(
        "SELECT count(*) FROM quarantine WHERE channel = ? AND subject = ?", (item.channel, item.subject)
    ).fetchone()
    return int(row[0])


def set_verdict(unit: Unit, seq: int, verdict: Verdict) -> None:
    """Correct what became of a recorded event."""
    unit.db.execute("UPDATE events SET verdict = ? WHERE seq = ?", (verdict, seq))
