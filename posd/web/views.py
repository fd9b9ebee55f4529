"""The documents of the local API, made from transactions and rows (local API; names are exact)."""

import base64
import sqlite3
from datetime import datetime, timedelta
from typing import Any

import msgspec

from posd.core.aborts import judge_abort
from posd.core.callbacks import Channel
from posd.core.entries import AbortAnswered, Attempted, Entry, Searched, Silent
from posd.core.searches import RESULTS, NoAnswer
from posd.core.starts import NAMES, Attempt, Replied, judge
from posd.core.transactions import Outcome, Transaction, next_step
from posd.store import chains, events, finals, journal
from posd.store.batch import Change
from posd.store.events import QuarantinedBody, StoredEvent


def outcome_document(db: sqlite3.Connection | None, transaction: Transaction) -> dict[str, Any] | None:
    """Return the outcome with its final event verbatim, None while there is none (`db` is not needed then)."""
    if transaction.outcome is None:
        return None
    final = finals.final_event(db, transaction) if db is not None else None
    return _outcome(transaction.outcome, final)


def _outcome(outcome: Outcome, final_event: bytes | None) -> dict[str, Any]:
    document = msgspec.structs.asdict(outcome)
    document["supersedes"] = _outcome(outcome.supersedes, None) if outcome.supersedes else None
    document["final_event"] = msgspec.Raw(final_event) if final_event else None
    return document


def transaction_document(
    db: sqlite3.Connection | None, transaction: Transaction, now: datetime, grace: timedelta, *, abortable: bool
) -> dict[str, Any]:
    """Return a transaction as the local API shows it."""
    identity = transaction.client_transaction_id
    return {
        "client_transaction_id": identity,
        "terminal": transaction.terminal,
        "type": transaction.type,
        "sale": transaction.sale,
        "phase": transaction.phase,
        "status": transaction.status,
        "reading_type": transaction.reading_type,
        "next_step": next_step(transaction, now, grace),
        "abortable": abortable,
        "released": transaction.released,
        "amount": msgspec.Raw(transaction.amount),
        "metadata": msgspec.Raw(transaction.metadata),
        "options": msgspec.Raw(transaction.options),
        "transaction_reference": transaction.transaction_reference,
        "original": transaction.original or transaction.derives_from
        if db is None
        else chains.original_of(db, transaction),
        "derived": [] if db is None else chains.derived_ids(db, identity, transaction.given_reference),
        "created_at": transaction.created_at,
        "updated_at": transaction.updated_at,
        "last_search": transaction.last_search,
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
    document = msgspec.structs.asdict(change)
    del document["type"]
    return document


def history_document(db: sqlite3.Connection, transaction: Transaction) -> list[dict[str, Any]]:
    """Return all that happened to a transaction, in order: its start, its events, and the entries of its journal."""
    lines = [
        (2 * item.events_before, {"at": item.at, **_entry(item.entry, transaction)})
        for item in journal.of_transaction(db, transaction.client_transaction_id)
    ]
    for count, event in enumerate(events.of_transaction(db, transaction.client_transaction_id)):
        facts = {"seq": event.seq, "status": event.status, "verdict": event.verdict}
        lines.append((2 * count + 1, {"at": event.received_at, "kind": "event", **facts}))
    lines.sort(key=lambda line: line[0])
    first = {"at": transaction.created_at, "kind": "intent", "terminal": transaction.terminal}
    return [*([] if transaction.orphan else [first]), *(line for _, line in lines)]


def _entry(entry: Entry, transaction: Transaction) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(entry)
    match entry:
        case Attempted(attempt=attempt):
            judgement = judge(attempt, transaction.client_transaction_id)
            return {"kind": facts["kind"], "judgement": NAMES[type(judgement)], **_attempt(attempt)}
        case AbortAnswered(attempt=attempt):
            return {"kind": facts["kind"], "answer": judge_abort(attempt), **_attempt(attempt)}
        case Searched(answer=answer):
            reason, status = (answer.reason, answer.status) if isinstance(answer, NoAnswer) else (None, None)
            return {"kind": facts["kind"], "result": RESULTS[type(answer)], "http_status": status, "reason": reason}
        case Silent(code=code, seconds=seconds):
            return {"kind": code, "seconds": seconds}
        case _:
            return facts


def _attempt(attempt: Attempt) -> dict[str, Any]:
    if isinstance(attempt, Replied):
        return {"http_status": attempt.status, "reason": None}
    return {"http_status": None, "reason": attempt.reason}


def quarantine_document(item: QuarantinedBody) -> dict[str, Any]:
    """Return one refused body, its bytes in base64, and the id of what its callback address was given out for."""
    printed = item.channel == Channel.PRINT
    return {
        "id": item.id,
        "received_at": item.received_at,
        "channel": item.channel,
        "client_transaction_id": None if printed else item.subject,
        "print_job_id": item.subject if printed else None,
        "reason": item.reason,
        "peer": item.peer,
        "body": base64.b64encode(item.body).decode("ascii"),
    }
