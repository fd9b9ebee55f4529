"""Leases: the claim of one open transaction on its terminal (architecture, The way of a payment)."""

import sqlite3

from posd.storage.batch import Unit


def holder(db: sqlite3.Connection, terminal: str) -> str | None:
    """Return the id of the transaction that holds the terminal."""
    row = db.execute("SELECT client_transaction_id FROM leases WHERE terminal = ?", (terminal,)).fetchone()
    return row[0] if row else None


def take(unit: Unit, terminal: str, client_transaction_id: str) -> None:
    """Give the terminal to a transaction; the caller has made sure that the holder, if any, is done with it."""
    unit.db.execute(
        "INSERT INTO leases (terminal, client_transaction_id) VALUES (?, ?)"
        " ON CONFLICT (terminal) DO UPDATE SET client_transaction_id = excluded.client_transaction_id",
        (terminal, client_transaction_id),
    )


def give_up(unit: Unit, terminal: str, client_transaction_id: str) -> None:
    """Free the terminal where the transaction holds it."""
    unit.db.execute(
        "DELETE FROM leases WHERE terminal = ? AND client_transaction_id = ?", (terminal, client_transaction_id)
    )


def give_up_all(unit: Unit, client_transaction_id: str) -> None:
    """Free whatever terminal the transaction holds: it should be its own alone."""
    unit.db.execute("DELETE FROM leases WHERE client_transaction_id = ?", (client_transaction_id,))


def all_held(db: sqlite3.Connection) -> dict[str, str]:
    """Return terminal -> id of the transaction that holds it."""
    return dict(db.execute("SELECT terminal, client_transaction_id FROM leases").fetchall())


def give_up_ended(unit: Unit) -> None:
    """Free the terminals whose holder is final."""
    unit.db.execute(
        "DELETE FROM leases WHERE client_transaction_id IN"
        " (SELECT l.client_transaction_id FROM leases l JOIN transactions t USING (client_transaction_id)"
        " WHERE t.phase = 'final')"
    )
