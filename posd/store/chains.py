"""Which transactions derive from which."""

import sqlite3
from collections.abc import Iterator

from posd.core.transactions import OperationType, Transaction
from posd.store import transactions


def with_reference(db: sqlite3.Connection, reference: str) -> Transaction | None:
    """Return the oldest transaction whose outcome gave that reference, None where no one here did."""
    return next(transactions.where(db, "given_reference = upper(?) ORDER BY rowid LIMIT 1", (reference,)), None)


def derived_ids(db: sqlite3.Connection, client_transaction_id: str, given_reference: str | None = None) -> list[str]:
    """Return the ids of what derives from a transaction, oldest first.

    With the reference that it gave, what was sent under it before it was known here counts too.
    """
    query = (
        "SELECT client_transaction_id FROM transactions WHERE derives_from = ?"
        " OR (derives_from IS NULL AND upper(transaction_reference) = ?) ORDER BY rowid"
    )
    return [identity for (identity,) in db.execute(query, (client_transaction_id, given_reference))]


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
    identity = original and original.client_transaction_id
    known = [reference]
    if original is not None:
        known.append(original.given_reference)
        # A re-authorization of what is not known here: what it was sent for is all that is left of that.
        known.append(original.transaction_reference if original.type is OperationType.RE_AUTH else None)
    references = {item.upper() for item in known if item}
    while True:
        either = f"derives_from = ? OR upper(transaction_reference) IN ({', '.join('?' * len(references))})"
        found = list(transactions.where(db, f"{either} ORDER BY rowid", (identity, *references)))
        given = {item.given_reference for item in found if item.type is OperationType.RE_AUTH and item.given_reference}
        if given <= references:
            return found
        references |= given


def root(db: sqlite3.Connection, transaction: Transaction) -> str:
    """Return the id of the transaction with which the chain begins, as far as this database knows it."""
    seen = {transaction.client_transaction_id}
    while transaction.derives_from is not None and transaction.derives_from not in seen:
        above = transactions.get(db, transaction.derives_from)
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
