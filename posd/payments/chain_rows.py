"""Which transactions derive from which."""

import sqlite3
from collections.abc import Iterator

from posd.payments import rows
from posd.payments.model import OperationType, Transaction

#: What was sent under a reference, in upper case; the second half is what lets SQLite use the index.
_SENT_UNDER = "upper(transaction_reference) = ? AND transaction_reference IS NOT NULL"


def with_reference(db: sqlite3.Connection, reference: str) -> Transaction | None:
    """Return the oldest transaction whose outcome gave that reference, None where no one here did."""
    return next(rows.where(db, "given_reference = upper(?) ORDER BY rowid LIMIT 1", (reference,)), None)


def derived_ids(db: sqlite3.Connection, client_transaction_id: str, given_reference: str | None = None) -> list[str]:
    """Return the ids of what derives from a transaction, oldest first.

    With the reference that it gave, what was sent under it before it was known here counts too.
    """
    found = _ids(db, "derives_from = ?", client_transaction_id)
    if given_reference is not None:
        found |= _ids(db, f"{_SENT_UNDER} AND derives_from IS NULL", given_reference)
    return [found[rowid] for rowid in sorted(found)]


def _ids(db: sqlite3.Connection, condition: str, parameter: str) -> dict[int, str]:
    """Return rowid -> id of what meets one condition that an index serves: SQLite would look for two among all."""
    query = f"SELECT rowid, client_transaction_id FROM transactions WHERE {condition}"  # noqa: S608 - of this file
    return dict(db.execute(query, (parameter,)).fetchall())


def original_of(db: sqlite3.Connection, transaction: Transaction) -> str | None:
    """Return the id of what a transaction derives from: as the till named it, else as its reference tells."""
    named = transaction.original or transaction.derives_from
    if named is not None or transaction.transaction_reference is None:
        return named
    found = with_reference(db, transaction.transaction_reference)
    if found is None:
        return None
    above = found.derives_from if found.type is OperationType.RE_AUTH else None
    return above or found.client_transaction_id


def members(db: sqlite3.Connection, original: Transaction | None, reference: str | None = None) -> list[Transaction]:
    """Return what derives from an original, oldest first: by its id, or by a reference that it or a re-authorization
    of it gave, whether or not the original was known here by then. Where it is not known, by the reference alone.
    """
    identity = None if original is None else original.client_transaction_id
    known = [reference]
    if original is not None:
        known.append(original.given_reference)
        # A re-authorization of what is not known here: what it was sent for is all that is left of that.
        known.append(original.transaction_reference if original.type is OperationType.RE_AUTH else None)
    references = {item.upper() for item in known if item}
    while True:
        ids = {} if identity is None else _ids(db, "derives_from = ?", identity)
        for known_as in references:
            ids |= _ids(db, _SENT_UNDER, known_as)
        found = [item for rowid in sorted(ids) if (item := rows.get(db, ids[rowid]))]
        given = {item.given_reference for item in found if item.type is OperationType.RE_AUTH and item.given_reference}
        if given <= references:
            return found
        references |= given


def root(db: sqlite3.Connection, transaction: Transaction) -> str:
    """Return the id of the transaction with which the chain begins, as far as this database knows it."""
    seen = {transaction.client_transaction_id}
    while transaction.derives_from is not None and transaction.derives_from not in seen:
        above = rows.get(db, transaction.derives_from)
        if above is None:
            return transaction.derives_from
        seen.add(above.client_transaction_id)
        transaction = above
    return transaction.client_transaction_id


def family(db: sqlite3.Connection, transaction: Transaction) -> Iterator[str]:
    """Yield the ids of the whole chain that a transaction is to join."""
    waiting, seen = [root(db, transaction)], set[str]()
    while waiting:
        identity = waiting.pop()
        if identity not in seen:
            seen.add(identity)
            yield identity
            waiting += derived_ids(db, identity)


def whole(db: sqlite3.Connection, transaction: Transaction, most: int) -> list[Transaction]:
    """Return all that a transaction is linked with, itself first: by original, or by a reference that one of them gave
    or was sent under. Of more than `most` no more are looked for.
    """
    found, waiting = {transaction.client_transaction_id: transaction}, [transaction]
    while waiting and len(found) <= most:
        item = waiting.pop()
        for identity in _beside(db, item):
            if identity not in found and (other := rows.get(db, identity)) is not None:
                found[identity] = other
                waiting.append(other)
    return list(found.values())


def _beside(db: sqlite3.Connection, item: Transaction) -> Iterator[str]:
    """Yield the ids next to a transaction in its chain."""
    yield from (name for name in (item.original, item.derives_from) if name is not None)
    yield from _ids(db, "derives_from = ?", item.client_transaction_id).values()
    for reference in {name.upper() for name in (item.given_reference, item.transaction_reference) if name}:
        yield from _ids(db, "given_reference = ?", reference).values()
        yield from _ids(db, _SENT_UNDER, reference).values()
