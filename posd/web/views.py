"""The documents of the local API, made from transactions and rows (local API; names are exact)."""

import sqlite3
from datetime import datetime, timedelta
from typing import Any

import msgspec

from posd.core.transactions import Outcome, Transaction, next_step
from posd.store import events
from posd.store.events import StoredEvent
from posd.store.writer import Change


def outcome_document(db: sqlite3.Connection | None, transaction: Transaction) -> dict[str, Any] | None:
    """Return the outcome with its final event verbatim, None while there is none (`db` is not needed then)."""
    if transaction.outcome is None:
        return None
    final = None
    if db is not None and transaction.outcome.stated_by_terminal:
        final = events.final_body(db, transaction.client_transaction_id)
    return _outcome(transaction.outcome, final)


def _outcome(outcome: Outcome, final_event: bytes | None) -> dict[str, Any]:
    document = msgspec.structs.asdict(outcome)
    document["supersedes"] = _outcome(outcome.supersedes, None) if outcome.supersedes else None
    document["final_event"] = msgspec.Raw(final_event) if final_event else None
    return document


def transaction_document(
    db: sqlite3.Connection | None, transaction: Transaction, now: datetime, grace: timedelta
) -> dict[str, Any]:
    """Return a transaction as the local API shows it."""
    return {
        "client_transaction_id": transaction.client_transaction_id,
        "terminal": transaction.terminal,
        "type": transaction.type,
        "sale": transaction.sale,
        "phase": transaction.phase,
        "status": transaction.status,
        "reading_type": transaction.reading_type,
        "next_step": next_step(transaction, now, grace),
        "abortable": transaction.abortable,
        "released": False,
        "amount": msgspec.Raw(transaction.amount),
        "metadata": msgspec.Raw(transaction.metadata),
        "options": msgspec.Raw(transaction.options),
        "transaction_reference": transaction.transaction_reference,
        "original": transaction.original,
        "derived": [],
        "created_at": transaction.created_at,
        "updated_at": transaction.updated_at,
        "last_search": None,
        "outcome": outcome_document(db, transaction),
        "attention": transaction.attention,
    }


def event_document(item: StoredEvent) -> dict[str, Any]:
    """Return a recorded event, verbatim, with its place and what became of it."""
    return {
        "seq": item.seq,
        "received_at": item.received_at,
        "verdict": item.verdict,
        "event": msgspec.Raw(item.body),
    }


def change_document(change: Change) -> dict[str, Any]:
    """Return a line of the feed."""
    return msgspec.structs.asdict(change)
