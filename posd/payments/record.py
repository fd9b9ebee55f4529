"""Storage of changes of payments: row, lease, final event and line in the feed. No other code stores them.

Each function except `recover` runs inside a commit. After the COMMIT, each listener of the hub receives a
`TransactionChanged` with the payment before and after, and the cause. `tell` is the listener that writes the log.
"""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
import structlog

from posd.base.times import iso
from posd.payments import journal, rows
from posd.payments.answers import SearchFailed, SearchHit, StartAccepted
from posd.payments.entries import (
    AbortAnswered,
    AbortRequested,
    Attempted,
    Dismissed,
    Entry,
    Interrupted,
    JudgedStart,
    Released,
    Resolved,
    Searched,
    apply,
    feed_word,
)
from posd.payments.journal import StoredEvent
from posd.payments.lifecycle import Status, Verdict
from posd.payments.model import AttentionCode, Transaction, approved
from posd.payments.schedule import CLOSED_SECONDS
from posd.payments.wire import TransactionEvent, read_event
from posd.records import terminals
from posd.records.model import Phase, Quarantined
from posd.records.service import CallsInFlight, take_over
from posd.storage import changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.store import Store
from posd.terminals.fleet import Fleet

#: `kind` of a payment's lines in the feed.
KIND = rows.PAYMENT.name

#: Entries that are stored even if they do not change the payment: calls, their results, and decisions of operators.
ALWAYS = (Attempted, AbortRequested, AbortAnswered, Released, Resolved, Dismissed)


class Received(msgspec.Struct, frozen=True):
    """An event of the terminal, and the `seq` under which it is stored."""

    event: TransactionEvent
    seq: int


class Recorded(msgspec.Struct, frozen=True):
    """Cause of a change, if it is neither an event nor an entry.

    `word`: `intent`, `orphan`, `taken_over` or `reprocessed`. `events` and `verdicts`: the stored events and their new
    verdicts, if the payment was derived again.
    """

    word: str
    events: Sequence[StoredEvent] = ()
    verdicts: Sequence[Verdict] = ()


Cause = Recorded | Received | JudgedStart | Entry


class TransactionChanged(RecordedChange, frozen=True, kw_only=True):
    """Change of a payment for listeners. `before`: None if the payment was inserted."""

    before: Transaction | None
    after: Transaction
    cause: Cause
    status: Status | None
    approval_came: bool  # this change approved the payment; false for an approval that a restore takes over


def begin(unit: WriteTransaction, transaction: Transaction, word: str) -> None:
    """Insert a payment. `word`: see `Recorded`."""
    rows.insert(unit, transaction)
    _publish(unit, None, transaction, Recorded(word), transaction.updated_at, approval_came=approved(transaction))


def with_unit(unit: WriteTransaction, transaction: Transaction, fleet: Fleet, serial: str) -> Transaction:
    """If `answer_unit` is unknown, set it to the unit of terminal `serial`. Return the payment."""
    if transaction.answer_unit is not None:
        return transaction
    return rows.update(unit, transaction, msgspec.structs.replace(transaction, answer_unit=fleet.answer_unit(serial)))


def record(
    unit: WriteTransaction, before: Transaction, entry: Entry | JudgedStart, now: datetime, outstanding: CallsInFlight
) -> Transaction:
    """Apply an entry, and store it in the journal. Return the changed payment. Raise StaleState.

    An entry that does not change the payment is stored only if it is one of `ALWAYS`.
    """
    cause = JudgedStart.of(entry, before.client_transaction_id) if isinstance(entry, Attempted) else entry
    entry = cause.attempted if isinstance(cause, JudgedStart) else cause
    after = apply(before, cause, now)
    if isinstance(entry, Searched) and _repeats(before, after):
        rows.keep_search(unit, after)
    elif after != before:
        journal.append(unit, before.client_transaction_id, entry, iso(now))
        return move(unit, before, after, cause, outstanding)
    elif isinstance(entry, ALWAYS):
        journal.append(unit, before.client_transaction_id, entry, iso(now))
        _publish(unit, before, before, cause, iso(now))
    free_if_ended(unit, after, outstanding)  # the transaction may have ended while a call kept the lease
    return after


def move(
    unit: WriteTransaction, before: Transaction, after: Transaction, cause: Cause, outstanding: CallsInFlight
) -> Transaction:
    """Change a payment from `before` to `after`, with all dependent rows. Raise StaleState."""
    changed = rows.update(unit, before, after)
    other = _serial(before, cause) if changed.mismatched and not before.mismatched else None
    if other is not None and changed.sent_to is not None:
        terminals.record_other_identity(unit, changed.terminal, changed.sent_to, other)
    _note_events(unit, changed, cause)
    free_if_ended(unit, changed, outstanding)
    _hold_if_reopened(unit, before, changed)
    approval = _approval_came(before, changed, cause)
    if approval:
        rows.add_unread(unit, changed.client_transaction_id)
    elif before.attention_of(AttentionCode.OUTCOME_UNREAD) and not changed.attention_of(AttentionCode.OUTCOME_UNREAD):
        rows.remove_unread(unit, [changed.client_transaction_id])
    if changed is not before:
        _publish(unit, before, changed, cause, changed.updated_at, approval_came=approval)
    return changed


def _approval_came(before: Transaction, after: Transaction, cause: Cause) -> bool:
    """Whether the change approves the payment. An approval that a restore takes over does not count."""
    if after.outcome is before.outcome or (isinstance(cause, Recorded) and cause.word == "taken_over"):
        return False
    return approved(after) and not approved(before)


def note(unit: WriteTransaction, transaction: Transaction, word: str, at: str) -> None:
    """Write a feed line about a payment that a restore has copied. `word`: see `Recorded`."""
    _publish(unit, transaction, transaction, Recorded(word), at)


def free_if_ended(unit: WriteTransaction, transaction: Transaction, outstanding: CallsInFlight) -> None:
    """Free the terminal of a final transaction, unless the transaction has an open call."""
    if transaction.phase is Phase.FINAL and not outstanding.of(transaction.client_transaction_id):
        rows.give_up_lease(unit, transaction.terminal, transaction.client_transaction_id)


def _note_events(unit: WriteTransaction, after: Transaction, cause: Cause) -> None:
    """Set the final event of a payment. If the payment was derived again, also correct the verdicts."""
    match cause:
        case Received(event=event, seq=seq):
            _note_final(unit, after, event, seq)
        case Recorded(events=events, verdicts=verdicts):
            for stored, verdict in zip(events, verdicts, strict=True):
                journal.set_verdict(unit, stored.seq, verdict)
                _note_final(unit, after, read_event(stored.body), stored.seq)
        case _:
            pass


def _note_final(unit: WriteTransaction, after: Transaction, event: TransactionEvent, seq: int) -> None:
    if after.outcome is not None and after.outcome.rests_on(event.event_id):
        journal.set_final(unit, after.client_transaction_id, seq)


def _hold_if_reopened(unit: WriteTransaction, before: Transaction, after: Transaction) -> None:
    """Assign the terminal to a reopened transaction, unless another transaction holds it."""
    reopened = before.phase is Phase.FINAL and after.phase is not Phase.FINAL
    if reopened and not after.released and not after.orphan and rows.lease_holder(unit.db, after.terminal) is None:
        rows.take_lease(unit, after.terminal, after.client_transaction_id)


def said_it_is(change: TransactionChanged) -> str | None:
    """Return the serial that a device reported, if its message caused this change, or None."""
    return None if change.before is None else _serial(change.before, change.cause)


def _serial(before: Transaction, cause: Cause) -> str | None:
    if isinstance(cause, Received | Quarantined) and not before.updates_terminal:
        return None  # a callback of an ended payment must not update data of terminals
    match cause:
        case Received(event=event):
            return event.serial_number
        case JudgedStart(judgement=StartAccepted(serial_number=serial)):
            return serial
        case Quarantined(serial_number=serial) | Searched(answer=SearchFailed(serial_number=serial)):
            return serial
        case Searched(answer=SearchHit() as answer):
            said = [item.serial_number for item in answer.events if isinstance(item, TransactionEvent)]
            return said[-1] if said else None
        case _:
            return None


def _publish(
    unit: WriteTransaction,
    before: Transaction | None,
    after: Transaction,
    cause: Cause,
    at: str,
    *,
    approval_came: bool = False,
) -> None:
    change = TransactionChanged(
        seq=0,
        at=at,
        kind=KIND,
        id=after.client_transaction_id,
        reason=_word(cause),
        phase=after.phase,
        status=after.status,
        result=after.outcome.result if after.outcome else None,
        attention=tuple(item.code for item in after.attention),
        terminal=after.terminal,
        before=before,
        after=after,
        cause=cause,
        approval_came=approval_came,
    )
    changes.record(unit, change)


def _word(cause: Cause) -> str:
    """Return the feed's word for a cause. posd itself never parses this word."""
    match cause:
        case Recorded(word=word):
            return word
        case Received(event=event):
            return f"event:{event.status}"
        case _:
            return feed_word(cause)


def _repeats(before: Transaction, after: Transaction) -> bool:
    """Whether a search had the same result as the search before it, and changed nothing else."""
    old, new = before.last_search, after.last_search
    return (
        old is not None
        and new is not None
        and old.result is new.result
        and msgspec.structs.replace(after, last_search=old) == before
    )


# Log of new attentions and outcomes. The log is a listener of the hub, so changes of every cause are logged.

log = structlog.get_logger("posd.payments")

#: Attentions that are logged as errors, because the till may have booked a wrong amount. All others are warnings.
ERRORS = frozenset({AttentionCode.CONFLICTING_FINAL, AttentionCode.OUTCOME_CORRECTED})


def tell(change: TransactionChanged) -> None:
    """Log the new attentions and the new outcome of a change."""
    before, after = change.before, change.after
    identity, terminal = after.client_transaction_id, after.terminal
    known = {item.code for item in before.attention} if before and after.attention else set()
    for item in after.attention:
        if item.code not in known:
            (log.error if item.code in ERRORS else log.warning)(
                "payment.attention", transaction=identity, terminal=terminal, code=item.code, detail=item.detail
            )
    old, new = before.outcome if before else None, after.outcome
    if new is not None and (old is None or (old.result, old.status) != (new.result, new.status)):
        log.info(
            "payment.outcome",
            transaction=identity,
            terminal=terminal,
            result=new.result,
            evidence=new.evidence[0].kind,
        )


# Recovery from an earlier daemon (architecture, Steps of a payment): nothing is sent again.


async def recover(store: Store, now: Callable[[], datetime]) -> list[Transaction]:
    """Put `starting` transactions in doubt, and free the terminals of ended ones.

    Return the transactions for the reconciler: the open ones, those that an operator resolved recently, and those of
    `rows.to_ask_once`.
    """

    def work(unit: WriteTransaction) -> list[Transaction]:
        taken_over = []
        for found in rows.open_ones(unit.db):
            starting = found.phase is Phase.STARTING
            taken_over.append(record(unit, found, Interrupted(), now(), CallsInFlight()) if starting else found)
        rows.give_up_ended_leases(unit)
        return taken_over

    taken_over = await take_over(rows.PAYMENT, store, "recovery", work)
    to_ask_once = await store.read(rows.to_ask_once)
    since = iso(now() - timedelta(seconds=CLOSED_SECONDS))
    closed = await store.read(partial(_closed, since=since))
    return [*taken_over, *to_ask_once, *closed]


def _closed(db: sqlite3.Connection, since: str) -> list[Transaction]:
    found = (rows.get(db, identity) for identity in journal.closed_by_person(db, since))
    return [item for item in found if item and item.outcome and not item.outcome.stated_by_terminal]
