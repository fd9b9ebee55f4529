"""The quarantine: bodies of authentic callbacks that could not be used, kept for a person and for reprocessing."""

import sqlite3

import msgspec

from posd.storage.batch import Unit

#: Refused bodies kept for one subject; a terminal that repeats one fault for ever must not fill the disk.
MAX_KEPT = 100


class QuarantinedBody(msgspec.Struct, frozen=True):
    """One refused body of an authentic callback; `subject` is the id of the callback address."""

    id: int
    received_at: str
    channel: str
    subject: str
    reason: str
    peer: str
    body: bytes


def put(unit: Unit, channel: str, subject: str, reason: str, peer: str, received_at: str, body: bytes) -> bool:
    """Keep a refused body of an authentic callback, the same bytes once; tell whether it is kept: there is a limit."""
    kept, there = unit.db.execute(
        "SELECT count(*), coalesce(max(body = ?), 0) FROM quarantine WHERE channel = ? AND subject = ?",
        (body, channel, subject),
    ).fetchone()
    if there or kept >= MAX_KEPT:
        return bool(there)
    unit.db.execute(
        "INSERT INTO quarantine (received_at, channel, subject, reason, peer, body) VALUES (?,?,?,?,?,?)",
        (received_at, channel, subject, reason, peer, body),
    )
    return True


_QUARANTINED = "SELECT id, received_at, channel, subject, reason, peer, body FROM quarantine"


def page(db: sqlite3.Connection, after: int, limit: int) -> list[QuarantinedBody]:
    """Return refused bodies after an id, ascending, at most `limit`."""
    rows = db.execute(f"{_QUARANTINED} WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [QuarantinedBody(*row) for row in rows]


def one(db: sqlite3.Connection, identity: int) -> QuarantinedBody | None:
    """Return one refused body."""
    row = db.execute(f"{_QUARANTINED} WHERE id = ?", (identity,)).fetchone()
    return QuarantinedBody(*row) if row else None


def count(db: sqlite3.Connection) -> int:
    """Return how many refused bodies there are."""
    row = db.execute("SELECT count(*) FROM quarantine").fetchone()
    return int(row[0])


def take_out(unit: Unit, item: QuarantinedBody) -> int:
    """Take a body out of the quarantine, because it was recorded as an event; return how many its subject still has."""
    unit.db.execute("DELETE FROM quarantine WHERE id = ?", (item.id,))
    row = unit.db.execute(
        "SELECT count(*) FROM quarantine WHERE channel = ? AND subject = ?", (item.channel, item.subject)
    ).fetchone()
    return int(row[0])
