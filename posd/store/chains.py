"""Which transactions derive from which."""

import sqlite3
from collections.abc import Iterator

from posd.core.transactions import Transaction
from posd.store import transactions

#: As the index has it. The wire may write a UUID in any case.
_SENT = "upper(transaction_reference) = upper(?)"


def with_reference(db: sqlite3.Connection, reference: str) -> Transaction | None:
    """Return the oldest transaction whose outcome gave that reference, None where no one here did."""
    return next(transactions.where(db, "given_reference = upper(?) ORDER BY rowid LIMIT 1", (reference,)), None)


def derived(db: sqlite3.Connection, client_transaction_id: str) -> list[Transaction]:
    """Return what derives from a transaction, oldest first."""
    return list(transactions.where(db, "derives_from = ? ORDER BY rowid", (client_transaction_id,)))


def derived_ids(db: sqlite3.Connection, client_transaction_id: str) -> list[str]:
    """Return the ids of what derives from a transaction, oldest first."""
    query = "SELECT client_transaction_id FROM transactions WHERE derives_from = ? ORDER BY rowid"
    return [identity for (identity,) in db.execute(query, (client_transaction_id,))]


def siblings(db: sqlite3.Connection, transaction: Transaction) -> list[Transaction]:
    """Return the others that derive from the same original, known here or not, oldest first."""
    either = f"(derives_from = ? OR {_SENT}) ORDER BY rowid"
    return list(transactions.where(db, either, (transaction.derives_from, transaction.transaction_reference)))


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
