"""Repeated derivation of a payment from its events and its journal. `posd.records.quarantine` runs it."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from posd.base.json_types import Uuid, WireFormat
from posd.base.times import parse_iso
from posd.payments import journal, rows
from posd.payments.entries import Attempted, Entry, Resolved, replay
from posd.payments.inbox import Inbox
from posd.payments.journal import StoredEvent
from posd.payments.lifecycle import Verdict
from posd.payments.model import Outcome, Result, Transaction
from posd.payments.record import Recorded, move
from posd.payments.transitions import RepeatedEvent, rebuild, recognise
from posd.payments.wire import TransactionEvent, read_event
from posd.records.model import TakenOver
from posd.records.quarantine import MAX_SHOWN, Derivable, Differing, ReprocessResult
from posd.records.service import CallsInFlight
from posd.storage.batch import WriteTransaction

#: Fields that are derived again and compared.
DERIVED = (
    "phase",
    "type",
    "acknowledged",
    "heard",
    "mismatched",
    "callback_lost",
    "released",
    "reading_type",
    "trail",
)


class Applied(msgspec.Struct, frozen=True):
    """A body of the quarantine that was applied."""

    id: Annotated[int, Meta(description="its id in the quarantine")]
    client_transaction_id: Annotated[Uuid, Meta(description="the record that it belongs to")]
    verdict: Annotated[
        str | None, WireFormat(Verdict | None), Meta(description="its effect, null if it was recorded already")
    ]


class Difference(msgspec.Struct, frozen=True):
    """A transaction whose stored state differed from the state derived from its events and journal."""

    client_transaction_id: Annotated[Uuid, Meta(description="the corrected payment")]
    fields: Annotated[tuple[str, ...], Meta(description="changed fields of the record; the names are posd's own")]
    before: Annotated[dict[str, Any], Meta(description="the earlier values")]
    after: Annotated[dict[str, Any], Meta(description="the values derived again, now stored")]


class TransactionReport(msgspec.Struct):
    """Result of reprocessing for payments."""

    transactions: Annotated[int, Meta(description="number of records derived again")] = 0
    skipped: Annotated[int, Meta(description="number of records older than the journal, and so not derived")] = 0
    applied: Annotated[list[Applied], Meta(description="the applied bodies of the quarantine")] = []
    differences: Annotated[list[Difference], Meta(description=f"the corrections; the first {MAX_SHOWN}")] = []
    differing: Annotated[int, Meta(description="number of corrected payments")] = 0
    quarantined: Annotated[int, Meta(description="number of bodies left in the quarantine")] = 0


def payment_records(inbox: Inbox, outstanding: CallsInFlight) -> Derivable[Transaction]:
    """Return the functions that derive payments again."""
    differs = partial(differing, word="reprocessed", outstanding=outstanding)
    incomplete = journal.last_incomplete_rowid
    return Derivable(rows.PAYMENT, differs, inbox.reapply, Applied, Difference, incomplete)


def differing(
    db: sqlite3.Connection, stored: Transaction, word: str, outstanding: CallsInFlight
) -> tuple[Differing, Callable[[WriteTransaction], object]]:
    """Return the differences between the stored and the derived payment, and a function that stores the derived one.

    `word`: reason of the change in the feed.
    """
    derived, events, verdicts = derive(db, stored)
    after = msgspec.structs.replace(derived, revision=stored.revision, last_search=stored.last_search)
    cause = Recorded(word, events, verdicts)
    store = partial(move, before=stored, after=after, cause=cause, outstanding=outstanding)
    return difference(stored, derived, events, verdicts), store


def report(done: ReprocessResult, quarantined: int) -> TransactionReport:
    """Return the result for payments as a document of the local API."""
    return TransactionReport(done.derived, done.skipped, done.applied, done.differences, done.differing, quarantined)


def difference(
    stored: Transaction, derived: Transaction, events: Sequence[StoredEvent] = (), verdicts: Sequence[Verdict] = ()
) -> Differing:
    """Return the fields in which the stored and the derived transaction differ: name -> (stored, derived)."""
    here, there = _comparable(stored), _comparable(derived)
    for name in ("outcome", "withdrawn"):
        _without_unasked(here[name], there[name])
    here["events"] = [event.verdict for event in events]
    there["events"] = [str(verdict) for verdict in verdicts]
    return {name: (here[name], there[name]) for name in here if here[name] != there[name]}


def _comparable(transaction: Transaction) -> dict[str, Any]:
    facts: dict[str, Any] = {name: msgspec.to_builtins(getattr(transaction, name)) for name in DERIVED}
    facts["attention"] = sorted(item.code for item in transaction.attention)
    facts["outcome"] = _timeless(transaction.outcome)
    facts["withdrawn"] = _timeless(transaction.withdrawn)
    return facts


def _timeless(outcome: Outcome | None) -> Any:
    if outcome is None:
        return None
    facts = msgspec.to_builtins(outcome)
    facts["evidence"] = [{name: value for name, value in item.items() if name != "at"} for item in facts["evidence"]]
    facts["supersedes"] = _timeless(outcome.supersedes)
    del facts["decided_at"]
    if outcome.result is Result.NOT_STARTED and outcome.failure_reason is not None:
        facts["failure_reason"] = outcome.failure_reason.code  # posd's own texts differ between versions
    return facts


def _without_unasked(stored: Any, derived: Any) -> None:
    """Remove tip and currency from the derived outcome, if an earlier version stored the outcome without them."""
    if stored is not None and derived is not None:
        for name in ("tip", "currency"):
            if stored[name] is None:
                derived[name] = None
        _without_unasked(stored["supersedes"], derived["supersedes"])


def derive(db: sqlite3.Connection, stored: Transaction) -> tuple[Transaction, Sequence[StoredEvent], list[Verdict]]:
    """Derive a transaction again from its events and its journal. Return also the events and their derived verdicts."""
    entries = _start_first(list(journal.entries(db, stored.client_transaction_id)))
    recorded = journal.events(db, stored.client_transaction_id)
    by_id = any(isinstance(item.entry, TakenOver | Resolved) and not item.events_before for item in entries)
    first = None if by_id or not stored.orphan or not recorded else recorded[0]
    derived, verdicts = replay(_beginning(stored, first), _inputs(recorded, entries))
    return derived, recorded, verdicts


def _start_first(entries: list[journal.Journaled]) -> list[journal.Journaled]:
    """Move the attempt to start before a `TakenOver` or `Resolved` entry.

    A restore appends the journal of one database to the journal of another. If the other database had only the id of
    the payment, its `TakenOver` or `Resolved` entry comes first. In that order, the derivation would put the
    transaction in doubt again.
    """
    start = next((at for at, item in enumerate(entries) if isinstance(item.entry, Attempted)), 0)
    taken = next((at for at, item in enumerate(entries) if isinstance(item.entry, TakenOver | Resolved)), start)
    if start <= taken:
        return entries
    return [*entries[:taken], entries[start], *entries[taken:start], *entries[start + 1 :]]


def _beginning(stored: Transaction, rebuilt_from: StoredEvent | None) -> Transaction:
    """Return the transaction as it was inserted. `rebuilt_from`: the first event, if the transaction is an orphan."""
    if rebuilt_from is not None:
        event, at = read_event(rebuilt_from.body), parse_iso(stored.created_at)
        return rebuild(event, stored.client_transaction_id, at, stored.answer_unit)
    return rows.PAYMENT.as_inserted(stored, type=stored.type, answer_unit=stored.answer_unit)


def _inputs(
    recorded: Sequence[StoredEvent], entries: list[journal.Journaled]
) -> Iterator[tuple[datetime, Entry | tuple[TransactionEvent, RepeatedEvent]]]:
    """Yield events and entries in order of arrival."""
    waiting = iter(entries)
    entry = next(waiting, None)
    bodies: dict[str, list[bytes]] = {}
    for count, item in enumerate(recorded):
        while entry is not None and entry.events_before <= count:
            yield parse_iso(entry.at), entry.entry
            entry = next(waiting, None)
        event = read_event(item.body)
        known = bodies.setdefault(event.event_id, [])
        seen = recognise(item.body, known)
        known.append(item.body)
        yield parse_iso(item.received_at), (event, seen)
    while entry is not None:
        yield parse_iso(entry.at), entry.entry
        entry = next(waiting, None)
