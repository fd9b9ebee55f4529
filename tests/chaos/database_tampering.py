"""Databases with one falsification each, and the fault that the comparison must find."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

_REPEATED = """
INSERT INTO events (client_transaction_id, event_id, received_at, verdict, status, body)
SELECT client_transaction_id, event_id, received_at, verdict, status, body FROM events
 WHERE client_transaction_id = :id LIMIT 1
"""
_REFUSED = """
INSERT INTO quarantine (received_at, channel, subject, reason, peer, body)
VALUES ('', 'transactions', :id, 'not an event', '', '')
"""
_CHANGED = """
INSERT INTO changes (at, kind, id, reason, phase, result, attention)
VALUES ('', 'transaction', :id, 'event', 'final', 'declined', '["outcome_corrected"]')
"""
_REMOVED = """
INSERT INTO pruned_transactions (client_transaction_id, terminal, result, ended_on) VALUES (:id, '', 'approved', '')
"""
#: Statements for the payment `:id`, the kind of the finding, and a part of its text.
DATABASE_TAMPERINGS = (
    ("UPDATE transactions SET phase = 'odd' WHERE client_transaction_id = :id", "wrong", "CHECK constraint failed"),
    ("DELETE FROM transactions WHERE client_transaction_id = :id", "wrong", "without its transactions"),
    ("DELETE FROM events WHERE client_transaction_id = :id", "lost", "was answered 2xx and is not there"),
    (_REPEATED, "wrong", "was recorded 2 times"),
    (_REFUSED, "wrong", "an event was refused: not an event"),
    ("INSERT INTO leases VALUES ('SN-9999', :id)", "wrong", "it has ended, and still holds its terminal"),
    (_CHANGED, "wrong", "it was approved, and then declined"),
    (_REMOVED, "lost", "retention has removed it"),
)


def tampered(database: Path, copy: Path, statement: str, identity: str) -> Path:
    """Copy a database and change it, past all its constraints."""
    shutil.copy(database, copy)
    with closing(sqlite3.connect(copy)) as db, db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        assert db.execute(statement, {"id": identity}).rowcount > 0
    return copy
