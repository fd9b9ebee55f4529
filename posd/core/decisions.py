"""How a transaction follows from another: by an event, by the answer to its start, by a crash (design 4 and 5).

Pure functions from a transaction to a transaction; the store saves the difference in the commit of what caused it.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from typing import Literal, assert_never

import msgspec

from posd.core import lifecycle
from posd.core.events import RawResponse, TransactionEvent
from posd.core.lifecycle import Status, Step, Trail, Verdict
from posd.core.money import ZERO
from posd.core.starts import Acknowledged, Doubtful, Judgement, Refused, Unsent
from posd.core.times import iso
from posd.core.transactions import (
    RESULTS,
    Attention,
    AttentionCode,
    Evidence,
    EvidenceKind,
    Failure,
    OperationType,
    Outcome,
    Phase,
    Receipt,
    Result,
    Transaction,
)

_set = msgspec.structs.replace

#: Wire names of operation types in a final event (spec 2.1, operation); only orphans need them.
WIRE_TYPES = {
    "CHARGE": OperationType.CHARGE,
    "PREAUTH": OperationType.PRE_AUTH,
    "REAUTHORIZATION": OperationType.RE_AUTH,
    "CAPTURE": OperationType.CAPTURE,
}


class Seen(Enum):
    """Whether the `event_id` of an event was recorded before."""

    NEW = auto()
    REPEATED = auto()  # the same bytes: a retry or a replay of the terminal's queue (spec 6.2)
    REUSED = auto()  # the same event_id with other bytes


def recognise(body: bytes, recorded: Sequence[bytes]) -> Seen:
    """Compare an event's bytes with those that were recorded under its `event_id` in its transaction (spec 6.3)."""
    if not recorded:
        return Seen.NEW
    return Seen.REPEATED if body in recorded else Seen.REUSED


def attend(transaction: Transaction, code: AttentionCode, now: datetime, detail: str) -> Transaction:
    """Raise an attention; one that is open keeps its beginning and takes the newer detail."""
    old = transaction.attention_of(code)
    item = Attention(code=code, since=old.since if old else iso(now), detail=detail)
    others = tuple(other for other in transaction.attention if other.code is not code)
    return _set(transaction, attention=(*others, item))


def clear(transaction: Transaction, code: AttentionCode) -> Transaction:
    """Close an attention, open or not."""
    return _set(transaction, attention=tuple(item for item in transaction.attention if item.code is not code))


def advance(
    transaction: Transaction, event: TransactionEvent, *, seen: Literal[Seen.NEW, Seen.REUSED], now: datetime
) -> tuple[Transaction, Verdict]:
    """Apply an authentic event of this transaction; an exact repeat (Seen.REPEATED) changes nothing and comes not here.

    Returns the transaction as it then stands and what became of the event.
    """
    before = transaction
    if event.terminal.serial_number != transaction.terminal:
        transaction = attend(
            transaction,
            AttentionCode.SERIAL_MISMATCH,
            now,
            f"terminal {transaction.terminal} was asked, an event came from {event.terminal.serial_number}",
        )
    if seen is Seen.REUSED:
        transaction = attend(
            transaction,
            AttentionCode.EVENT_ID_REUSED,
            now,
            f"event_id {event.event_id} came again with other content ({event.status}); both are kept",
        )
        return _touch(_compare_finals(transaction, event, now), before, now), Verdict.DUPLICATE

    step = lifecycle.step(transaction.trail, event.status, event.previous_status)
    transaction = _note(_set(transaction, trail=step.trail), event, step, now)
    match step.verdict:
        case Verdict.APPLIED:
            transaction = _apply(transaction, event, now)
        case Verdict.AFTER_FINAL:
            transaction = _compare_finals(transaction, event, now)
        case _:
            transaction = _disprove(transaction, event.status, now)
    return _touch(transaction, before, now), step.verdict


def rebuild(event: TransactionEvent, client_transaction_id: str, now: datetime) -> Transaction:
    """Make the transaction of an authentic event that the database does not know (design 5, orphan)."""
    orphan = Transaction(
        client_transaction_id=client_transaction_id,
        terminal=event.terminal.serial_number,
        type=WIRE_TYPES.get(event.operation_type or ""),
        created_at=iso(now),
        updated_at=iso(now),
        phase=Phase.ACTIVE,
    )
    return attend(
        orphan,
        AttentionCode.ORPHAN,
        now,
        "an authentic event came for a transaction that is not in this database (restored from a backup?); "
        "what the till had asked for is not known here",
    )


def conclude_start(transaction: Transaction, judgement: Judgement, now: datetime) -> Transaction:
    """Apply what the answer to the one start request proves (design 4, step 5).

    An event can be faster than the answer and beats it: a refusal is final only where no authentic event exists, and
    an acknowledgement never reopens a final.
    """
    before = transaction
    heard = (
        transaction.acknowledged
        or bool(transaction.trail.edges)
        or transaction.attention_of(AttentionCode.QUARANTINED_EVENT) is not None
    )
    match judgement:
        case Acknowledged(serial_number=serial):
            transaction = _set(transaction, acknowledged=True)
            if transaction.phase in (Phase.STARTING, Phase.IN_DOUBT):
                transaction = clear(_set(transaction, phase=Phase.ACTIVE), AttentionCode.IN_DOUBT)
            if serial is not None and serial != transaction.terminal:
                transaction = attend(
                    transaction,
                    AttentionCode.SERIAL_MISMATCH,
                    now,
                    f"terminal {transaction.terminal} was asked, {serial} acknowledged: the wrong device answered",
                )
        case Refused() | Unsent() if not heard and transaction.outcome is None:
            transaction = _finish(transaction, not_started(judgement, now), now)
        case Refused() | Unsent():
            # A callback was faster that posd could not use, or that told of a state which it does not know.
            if transaction.phase is Phase.STARTING:
                transaction = doubt(transaction, "it was refused or not sent, and yet a callback of it came", now)
        case Doubtful(reason=reason):
            if transaction.phase is Phase.STARTING:
                transaction = doubt(transaction, reason, now)
        case _:
            assert_never(judgement)
    return _touch(transaction, before, now)


def doubt(transaction: Transaction, reason: str, now: datetime) -> Transaction:
    """Put a transaction in doubt: its request may have reached the terminal, and nothing says what became of it."""
    transaction = _set(transaction, phase=Phase.IN_DOUBT)
    return attend(
        transaction,
        AttentionCode.IN_DOUBT,
        now,
        f"it is not known whether terminal {transaction.terminal} runs this payment: {reason}",
    )


def interrupted(transaction: Transaction, now: datetime) -> Transaction:
    """Take up a transaction that a daemon left in `starting`: it cannot be known whether the request went out."""
    return _touch(doubt(transaction, "posd was interrupted while it sent the request", now), transaction, now)


def quarantined(transaction: Transaction, reason: str, now: datetime) -> Transaction:
    """Note that an authentic callback of this transaction was refused and kept in quarantine.

    Its token shows that the request had reached a terminal, whatever posd had inferred.
    """
    noted = attend(
        transaction, AttentionCode.QUARANTINED_EVENT, now, f"a callback of this payment could not be used: {reason}"
    )
    return _touch(_disprove(noted, "a callback that could not be used", now), transaction, now)


def not_started(judgement: Refused | Unsent, now: datetime) -> Outcome:
    """Return the outcome of a request that was provably refused or provably never sent."""
    match judgement:
        case Refused(status=status, body=body):
            evidence = Evidence(kind=EvidenceKind.REFUSAL, at=iso(now), status=status, body=body)
            failure = Failure(type="posd", code="refused", message=f"the terminal refused the request (HTTP {status})")
        case Unsent(reason=reason):
            evidence = Evidence(kind=EvidenceKind.UNSENT, at=iso(now), reason=reason)
            failure = Failure(type="posd", code="unsent", message=f"the request was never sent: {reason}")
        case _:
            assert_never(judgement)
    return Outcome(
        result=Result.NOT_STARTED,
        status=None,
        transaction_reference=None,
        ticket_number=None,
        failure_reason=failure,
        reached_acquirer=False,
        reading_type=None,
        authorized_amount=None,
        receipt=None,
        reversal=None,
        decided_at=iso(now),
        evidence=(evidence,),
    )


def _touch(transaction: Transaction, before: Transaction, now: datetime) -> Transaction:
    return transaction if transaction == before else _set(transaction, updated_at=iso(now))


def _note(transaction: Transaction, event: TransactionEvent, step: Step, now: datetime) -> Transaction:
    """Raise and close the attentions that a step on the trail asks for."""
    if step.verdict is Verdict.UNKNOWN_STATUS:
        transaction = attend(
            transaction, AttentionCode.UNKNOWN_STATUS, now, f"the terminal reports a state unknown here: {event.status}"
        )
    if step.illegal:
        transaction = attend(
            transaction,
            AttentionCode.ILLEGAL_TRANSITION,
            now,
            f"{event.status} (previous {event.previous_status}) is a step that the terminal's lifecycle does not have",
        )
    if step.gap:
        return attend(transaction, AttentionCode.GAP, now, _hole(event, step.trail))
    if transaction.attention_of(AttentionCode.GAP) and step.trail.connected and step.verdict is not Verdict.APPLIED:
        return clear(transaction, AttentionCode.GAP)
    return transaction


def _hole(event: TransactionEvent, trail: Trail) -> str:
    seen = ", ".join(status for _, status in trail.edges)
    return (
        f"an event is missing before {event.status}: it names {event.previous_status} as the state before it; "
        f"seen so far: {seen}"
    )


def _apply(transaction: Transaction, event: TransactionEvent, now: datetime) -> Transaction:
    """Move forward by an applied event."""
    if event.reading_type is not None:
        transaction = _set(transaction, reading_type=event.reading_type)
    if transaction.type is None:
        transaction = _set(transaction, type=WIRE_TYPES.get(event.operation_type or ""))
    status = Status(event.status)
    if status in lifecycle.FINALS:
        return _finish(_final_attention(transaction, event, now), _outcome(transaction, event, now), now)
    if transaction.phase is Phase.FINAL:
        return _disprove(transaction, event.status, now)
    return clear(_set(transaction, phase=Phase.ACTIVE), AttentionCode.IN_DOUBT)


def _disprove(transaction: Transaction, news: str, now: datetime) -> Transaction:
    """Withdraw a `not_started` that was inferred: an authentic callback shows that a terminal did get the request."""
    outcome = transaction.outcome
    if outcome is None or outcome.result is not Result.NOT_STARTED or outcome.stated_by_terminal:
        return transaction
    running = transaction.trail.position is not None
    transaction = _set(transaction, phase=Phase.ACTIVE, outcome=None, withdrawn=outcome)
    transaction = attend(
        transaction,
        AttentionCode.OUTCOME_CORRECTED,
        now,
        f"posd had concluded not_started, but the terminal sent {news}: the payment is running or did run",
    )
    return transaction if running else doubt(transaction, f"it sent {news} after posd had concluded not_started", now)


def _finish(transaction: Transaction, outcome: Outcome, now: datetime) -> Transaction:
    """Set the outcome; one that posd or a person had inferred before is kept under `supersedes`."""
    old = transaction.outcome or transaction.withdrawn
    if old is not None:
        outcome = _set(outcome, supersedes=old)
        if old.result is not outcome.result:
            transaction = attend(
                transaction,
                AttentionCode.OUTCOME_CORRECTED,
                now,
                f"the outcome was {old.result} by inference; the terminal says {outcome.result}",
            )
    transaction = _set(transaction, phase=Phase.FINAL, outcome=outcome, withdrawn=None)
    return clear(transaction, AttentionCode.IN_DOUBT)


def _outcome(transaction: Transaction, event: TransactionEvent, now: datetime) -> Outcome:
    """Return the outcome that a final event states (local API, the outcome)."""
    status = Status(event.status)
    response = event.raw_response if status is Status.APPROVAL else None
    reason = event.failure_reason
    return Outcome(
        result=RESULTS[status],
        status=status,
        transaction_reference=response.transaction_reference if response else None,
        ticket_number=response.ticket_number if response else None,
        failure_reason=Failure(type=reason.type, code=reason.code, message=reason.message) if reason else None,
        reached_acquirer=_reached_acquirer(status, response, transaction.trail),
        reading_type=event.reading_type or transaction.reading_type,
        authorized_amount=response.authorized_amount if response else None,
        receipt=Receipt(
            authorization_code=response.authorization_code,
            franchise=response.franchise,
            card_type=response.card_type,
            cvm_type=response.cvm_type,
        )
        if response
        else None,
        reversal=None,
        decided_at=iso(now),
        evidence=(Evidence(kind=EvidenceKind.EVENT, at=iso(now), event_id=event.event_id),),
    )


def _reached_acquirer(status: Status, response: RawResponse | None, trail: Trail) -> bool | None:
    match status:
        case Status.APPROVAL:
            return True if response else None
        case Status.DECLINED:
            return True
        case _:  # a cancellation or a local rejection
            return None if trail.approval_requested else False


def _final_attention(transaction: Transaction, event: TransactionEvent, now: datetime) -> Transaction:
    """Raise what a person should know about an approval."""
    if event.status != Status.APPROVAL:
        return transaction
    response = event.raw_response
    if response is None or response.transaction_reference is None:
        transaction = attend(
            transaction,
            AttentionCode.MISSING_REFERENCE,
            now,
            "approved, but without a transaction_reference: it cannot be voided or captured by reference",
        )
    asked = transaction.total
    if asked and response is not None and response.authorized_amount is not None:
        expected: set[Decimal] = {asked, asked + (event.tip or ZERO)}
        if response.authorized_amount not in expected:
            transaction = attend(
                transaction,
                AttentionCode.AMOUNT_DIFFERS,
                now,
                f"asked for {asked}, authorized {response.authorized_amount}",
            )
    return transaction


def _compare_finals(transaction: Transaction, event: TransactionEvent, now: datetime) -> Transaction:
    """Hold an event that came after the terminal's final against it: the first final stands."""
    outcome = transaction.outcome
    if outcome is None or outcome.status is None:
        return transaction
    if transaction.trail.approval_requested and outcome.status in (lifecycle.CANCELED, lifecycle.REJECTED):
        transaction = _set(transaction, outcome=_set(outcome, reached_acquirer=None))
    status = Status.known(event.status)
    if status not in lifecycle.FINALS:
        return transaction
    reference = event.raw_response.transaction_reference if status is Status.APPROVAL and event.raw_response else None
    if (status, reference) == (outcome.status, outcome.transaction_reference):
        return transaction
    return attend(
        transaction,
        AttentionCode.CONFLICTING_FINAL,
        now,
        f"two finals: {_final(outcome.status, outcome.transaction_reference)} stands, {_final(status, reference)} came "
        "after it; check with the acquirer what the customer paid, and void what was taken twice",
    )


def _final(status: Status | None, reference: str | None) -> str:
    return f"{status} (reference {reference})" if reference else f"{status}"
