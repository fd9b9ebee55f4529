"""The journal: every input of a transaction beside its events (see `payments.entries`)."""

import sqlite3
from collections.abc import Iterator

import msgspec

from posd.payments.entries import Entry, Resolved
from posd.storage.batch import Unit

_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_ENCODE = msgspec.json.Encoder().encode


class Journaled(msgspec.Struct, frozen=True):
    """An entry in its place: `events_before` is how many events of the transaction had come."""

    seq: int
    at: str
    events_before: int
    entry: Entry


def append(unit: Unit, client_transaction_id: str, entry: Entry, at: str) -> None:
    """Write an entry down."""
    unit.db.execute(
        "INSERT INTO journal (client_transaction_id, at, events_before, entry)"
        " VALUES (:id, :at, (SELECT count(*) FROM events WHERE client_transaction_id = :id), :entry)",
        {"id": client_transaction_id, "at": at, "entry": _ENCODE(entry).decode()},
    )


def of_transaction(db: sqlite3.Connection, client_transaction_id: str) -> Iterator[Journaled]:
    """Yield the entries of a transaction in order."""
    rows = db.execute(
        "SELECT seq, at, events_before, entry FROM journal WHERE client_transaction_id = ? ORDER BY seq",
        (client_transaction_id,),
    )
    for seq, at, events_before, entry in rows:
        yield Journaled(seq, at, events_before, _ENTRY.decode(entry))


def closed_by_person(db: sqlite3.Connection, since: str) -> list[str]:
    """Return the ids of what people closed since a moment, newest first; only what is newer is read."""
    found = []
    for identity, at, entry in db.execute("SELECT client_transaction_id, at, entry FROM journal ORDER BY seq DESC"):
        if at < since:
            break
        if isinstance(_ENTRY.decode(entry), Resolved):
            found.append(identity)
    return found


def begins_after(db: sqlite3.Connection) -> int:
    """Return the rowid of the last transaction that was recorded before there was a journal."""
    row = db.execute("SELECT detail FROM marks WHERE kind = 'journal_begins'").fetchone()
    return int(row[0])
