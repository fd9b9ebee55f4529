"""What states an outcome, verbatim."""

import sqlite3

from posd.payments import event_rows, journal
from posd.payments.entries import Searched
from posd.payments.model import Transaction
from posd.payments.search_replies import final_element


def final_event(db: sqlite3.Connection, transaction: Transaction) -> bytes | None:
    """Return the terminal's final event, or where none has come the element of a search; None where neither is."""
    identity, outcome = transaction.client_transaction_id, transaction.outcome
    if outcome is None or not outcome.stated_by_terminal:
        return None
    body = event_rows.final_body(db, identity)
    if body is not None:
        return body
    answers = [item.entry.answer for item in journal.of_transaction(db, identity) if isinstance(item.entry, Searched)]
    element = final_element(answers, outcome.evidence[0].event_id or "")
    return element.encode() if element else None
