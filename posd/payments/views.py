"""The documents of the local API, made from transactions and rows (local API; names are exact)."""

import sqlite3
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from posd.payments import chain_rows, documents, entries, event_rows, final_event, journal
from posd.payments.abort_replies import judge_abort
from posd.payments.entries import AbortAnswered, Attempted, Entry, NothingHeard, Searched
from posd.payments.event_rows import StoredEvent
from posd.payments.history import (
    AbortAnsweredLine,
    AbortRequestedLine,
    AcknowledgeLine,
    AddressLine,
    BrokeOffLine,
    EventLine,
    History,
    HistoryLine,
    InterruptedLine,
    ProofLine,
    ReleaseLine,
    ResolveLine,
    SearchLine,
    SilentLine,
)
from posd.payments.model import AttentionCode, Outcome, Transaction, next_step
from posd.payments.search_replies import RESULTS, NoAnswer
from posd.payments.start_replies import NAMES, judge
from posd.records.history import AttemptLine, IntentLine, QuarantinedLine, ReappliedLine, TakenOverLine
from posd.terminals.attempt import Attempt, Replied


def outcome_document(db: sqlite3.Connection | None, transaction: Transaction) -> documents.Outcome | None:
    """Return the outcome with its final event verbatim, None while there is none (`db` is not needed then)."""
    if transaction.outcome is None:
        return None
    final = final_event.final_event(db, transaction) if db is not None else None
    return _outcome(transaction.outcome, final)


def _outcome(outcome: Outcome, final_event: bytes | None) -> documents.Outcome:
    fields = msgspec.structs.asdict(outcome)
    fields["supersedes"] = _outcome(outcome.supersedes, None) if outcome.supersedes else None
    return documents.Outcome(**fields, final_event=msgspec.Raw(final_event) if final_event else None)


def transaction_document(
    db: sqlite3.Connection | None, transaction: Transaction, now: datetime, grace: timedelta, *, abortable: bool
) -> documents.Transaction:
    """Return a transaction as the local API shows it."""
    identity = transaction.client_transaction_id
    return documents.Transaction(
        client_transaction_id=identity,
        terminal=transaction.terminal,
        type=transaction.type,
        sale=transaction.sale,
        phase=transaction.phase,
        status=transaction.status,
        reading_type=transaction.reading_type,
        next_step=next_step(transaction, now, grace),
        abortable=abortable,
        released=transaction.released,
        amount=msgspec.Raw(transaction.amount),
        metadata=msgspec.Raw(transaction.metadata),
        options=msgspec.Raw(transaction.options),
        transaction_reference=transaction.transaction_reference,
        original=transaction.original or transaction.derives_from
        if db is None
        else chain_rows.original_of(db, transaction),
        derived=[] if db is None else chain_rows.derived_ids(db, identity, transaction.given_reference),
        created_at=transaction.created_at,
        updated_at=transaction.updated_at,
        last_search=transaction.last_search,
        outcome=outcome_document(db, transaction),
        attention=transaction.attention,
    )


def event_document(item: StoredEvent) -> documents.Event:
    """Return a recorded event, verbatim, with its place and what became of it."""
    return documents.Event(
        seq=item.seq, received_at=item.received_at, verdict=item.verdict, event=msgspec.Raw(item.body)
    )


def history_document(db: sqlite3.Connection, transaction: Transaction) -> History:
    """Return all that happened to a transaction, in order: its start, its events, and the entries of its journal."""
    lines: list[tuple[int, HistoryLine]] = [
        (2 * item.events_before, line(item.at, item.entry, transaction))
        for item in journal.of_transaction(db, transaction.client_transaction_id)
    ]
    for count, event in enumerate(event_rows.of_transaction(db, transaction.client_transaction_id)):
        came = EventLine(at=event.received_at, seq=event.seq, status=event.status, verdict=event.verdict)
        lines.append((2 * count + 1, came))
    lines.sort(key=lambda item: item[0])
    first = IntentLine(at=transaction.created_at, terminal=transaction.terminal)
    return History([*([] if transaction.orphan else [first]), *(item for _, item in lines)])


#: Lines that have the fields of their entry.
LINES: Mapping[type[Entry], Callable[..., HistoryLine]] = {
    entries.Interrupted: InterruptedLine,
    entries.AbortRequested: AbortRequestedLine,
    entries.Quarantined: QuarantinedLine,
    entries.ProvedNotStarted: ProofLine,
    entries.Released: ReleaseLine,
    entries.Resolved: ResolveLine,
    entries.Dismissed: AcknowledgeLine,
    entries.CallbackBrokeOff: BrokeOffLine,
    entries.TakenOver: TakenOverLine,
    entries.Reapplied: ReappliedLine,
    entries.AddressLost: partial(AddressLine, kind="address_changed"),
    entries.AddressBack: partial(AddressLine, kind="address_back"),
}


def line(at: str, entry: Entry, transaction: Transaction) -> HistoryLine:
    """Return the line of the history for an entry of the journal."""
    match entry:
        case Attempted(attempt=attempt):
            judgement = judge(attempt, transaction.client_transaction_id)
            return AttemptLine(at=at, judgement=NAMES[type(judgement)], **_attempt(attempt))
        case AbortAnswered(attempt=attempt):
            return AbortAnsweredLine(at=at, answer=judge_abort(attempt), **_attempt(attempt))
        case Searched(answer=answer):
            reason, status = (answer.reason, answer.status) if isinstance(answer, NoAnswer) else (None, None)
            return SearchLine(at=at, result=RESULTS[type(answer)], http_status=status, reason=reason)
        case NothingHeard(code=AttentionCode.NO_CALLBACK, seconds=seconds):
            return SilentLine(at=at, kind="no_callback", seconds=seconds)
        case NothingHeard(seconds=seconds):
            return SilentLine(at=at, kind="stalled", seconds=seconds)
        case _:
            return LINES[type(entry)](at=at, **msgspec.structs.asdict(entry))


def _attempt(attempt: Attempt) -> dict[str, Any]:
    if isinstance(attempt, Replied):
        return {"http_status": attempt.status, "reason": None}
    return {"http_status": None, "reason": attempt.reason}
