"""The journal: every input of a transaction beside its events, in the commit of its effect (see `payments.entries`)."""

import sqlite3
from collections.abc import Iterator
from datetime import datetime

import msgspec

from posd.base.times import iso
from posd.payments import rows as transactions
from posd.payments.entries import (
    AbortAnswered,
    AbortRequested,
    Attempted,
    Dismissed,
    Entry,
    Released,
    Resolved,
    Searched,
    follow,
    reason,
)
from posd.payments.model import Transaction
from posd.storage.batch import Unit

_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_ENCODE = msgspec.json.Encoder().encode

#: Kept even where they change nothing: what was sent, what came of it, and what people did.
ALWAYS = (Attempted, AbortRequested, AbortAnswered, Released, Resolved, Dismissed)


class Journaled(msgspec.Struct, frozen=True):
    """An entry in its place: `events_before` is how many events of the transaction had come."""

    seq: int
    at: str
    events_before: int
    entry: Entry


def record(unit: Unit, before: Transaction, entry: Entry, now: datetime) -> Transaction:
    """Apply an entry to a transaction, with its journal and history rows; return what it is now.

    Nothing is written of an entry that changes nothing, unless it tells what was done. Raise StaleState.
    """
    after = follow(before, entry, now)
    if isinstance(entry, Searched) and _repeats(before, after):
        transactions.keep_search(unit, after)
        return after
    if after == before and not isinstance(entry, ALWAYS):
        return before
    append(unit, before.client_transaction_id, entry, iso(now))
    word = reason(entry, before.client_transaction_id)
    if after == before:
        transactions.note(unit, before, word, iso(now))
        return before
    return transactions.move(unit, before, after, word)


def append(unit: Unit, client_transaction_id: str, entry: Entry, at: str) -> None:
    """Write an entry down."""
    unit.db.execute(
        "INSERT INTO journal (client_transaction_id, at, events_before, entry)"
        " VALUES (?1, ?2, (SELECT count(*) FROM events WHERE client_transaction_id = ?1), ?3)",
        (client_transaction_id, at, _ENCODE(entry).decode()),
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


def _repeats(before: Transaction, after: Transaction) -> bool:
    """Whether a search brought what the one before it had brought already."""
    old, new = before.last_search, after.last_search
    return (
        old is not None
        and new is not None
        and old.result is new.result
        and msgspec.structs.replace(after, last_search=old) == before
    )
