"""Transitions of a transaction: by an event, by the reply to its start, by a search, by an operator's decision.

Each function returns the changed transaction. The caller stores it in the same commit as the cause of the change.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Literal, assert_never

import msgspec

from posd.base.limits import EVENTS_OF_TRANSACTION, FINALS_OF_TRANSACTION, Limit
from posd.base.money import AmountUnit
from posd.base.operations import WIRE_TYPES
from posd.base.times import iso
from posd.payments import lifecycle, outcomes
from posd.payments.answers import RESULTS, Answer, Canceled, Judgement, SearchFailed, SearchHit, StartAccepted
from posd.payments.lifecycle import STATUSES, Status, Step, Trail, Verdict
from posd.payments.model import (
    AttentionCode,
    Evidence,
    EvidenceKind,
    Failure,
    LastSearch,
    Result,
    Transaction,
    attend,
)
from posd.payments.outcomes import Source
from posd.payments.wire import NotAnEvent, TransactionEvent, read_event
from posd.records.model import Phase, clear
from posd.terminals.attempt import Doubtful, NotSent, StartRefused

_set = msgspec.structs.replace


class RepeatedEvent(Enum):
    """Whether the `event_id` of an event was recorded before, and with which content."""

    NEW = auto()
    REPEATED = auto()  # the same event, sent again by the terminal (terminal API, Delivery)
    REUSED = auto()  # the same event_id with other content


#: Attentions of a payment about which the terminal sends no events. An event closes them.
_SILENCES = (AttentionCode.STALLED, AttentionCode.NO_CALLBACK)

#: Kinds of events that are recorded. A repeated event is not recorded.
New = Literal[RepeatedEvent.NEW, RepeatedEvent.REUSED]


def recognise(
    body: bytes, recorded: Sequence[bytes], read: Callable[[bytes], TransactionEvent] = read_event
) -> RepeatedEvent:
    """Compare an event with those recorded with the same `event_id` in its transaction.

    An event is a repeat if its bytes are equal, or if all parsed members equal those of the first recorded one. (A
    terminal may send an event again with another counter of attempts.) `read` parses the bytes of an event.

    Source: terminal API, Events.
    """
    if not recorded:
        return RepeatedEvent.NEW
    return RepeatedEvent.REPEATED if body in recorded or _agree(body, recorded[0], read) else RepeatedEvent.REUSED


def _agree(body: bytes, other: bytes, read: Callable[[bytes], TransactionEvent]) -> bool:
    try:
        return _set(read(body), damaged=()) == _set(read(other), damaged=())
    except NotAnEvent:  # an earlier version recorded a body that this one refuses
        return False


def limit_of_events(trail: Trail, event: TransactionEvent, *, seen: New, recorded: int) -> Limit | None:
    """Return the limit that an event exceeds, or None. `recorded`: number of recorded events.

    Above the limit of events, final events have a limit of their own. An urgent event has no limit.
    """
    if recorded < EVENTS_OF_TRANSACTION.value or urgent(trail, event, seen=seen):
        return None
    if STATUSES.get(event.status) not in lifecycle.FINALS:
        return EVENTS_OF_TRANSACTION
    room = EVENTS_OF_TRANSACTION.value + FINALS_OF_TRANSACTION.value
    return FINALS_OF_TRANSACTION if recorded >= room else None


def urgent(trail: Trail, event: TransactionEvent, *, seen: New) -> bool:
    """Whether an event is the first one with its state. posd always stores it, because there are only seven states."""
    known = STATUSES.get(event.status) is not None
    return known and seen is RepeatedEvent.NEW and all(status != event.status for _, status in trail.edges)


def advance(
    transaction: Transaction, event: TransactionEvent, *, seen: New, now: datetime
) -> tuple[Transaction, Verdict]:
    """Apply an authentic event of this transaction. Return the changed transaction, and the verdict on the event.

    The caller drops repeated events.
    """
    before = transaction
    transaction = _hear(transaction, event.serial_number, "an event arrived from there", now)
    transaction = clear(transaction, *_SILENCES)
    if seen is RepeatedEvent.REUSED:
        transaction = attend(
            transaction,
            AttentionCode.EVENT_ID_REUSED,
            now,
            f"event_id {event.event_id} arrived again with other content ({event.status}); both are kept",
        )
        return _touch(outcomes.compare(transaction, event, EvidenceKind.EVENT, now), before, now), Verdict.DUPLICATE

    step = lifecycle.step(transaction.trail, event.status, event.previous_status)
    transaction = _note_damage(_set(transaction, trail=step.trail), event.status, event.damaged, now)
    transaction = _note(transaction, event, step, now)
    return _touch(_settle(transaction, event, step.verdict, EvidenceKind.EVENT, now), before, now), step.verdict


def rebuild(
    event: TransactionEvent, client_transaction_id: str, now: datetime, answer_unit: AmountUnit | None = "main"
) -> Transaction:
    """Return a transaction (an orphan) for an authentic event whose id is not in the database."""
    orphan = Transaction(
        client_transaction_id=client_transaction_id,
        terminal=event.serial_number,
        type=WIRE_TYPES.get(event.operation_type),
        created_at=iso(now),
        updated_at=iso(now),
        phase=Phase.ACTIVE,
        answer_unit=answer_unit,
    )
    return attend(
        orphan,
        AttentionCode.ORPHAN,
        now,
        "an authentic event arrived for a transaction that is not in this database (restored from a backup?); "
        "the till's request is not known here",
    )


def conclude_start(transaction: Transaction, judgement: Judgement, now: datetime) -> Transaction:
    """Apply the judgement of the one start request (architecture, Steps of a payment).

    An event can arrive before the reply, and overrides it. So a refusal ends the transaction only if no event has
    arrived, and an acknowledgement never reopens a transaction that the terminal has ended.
    """
    before = transaction
    heard = transaction.heard
    match judgement:
        case StartAccepted(serial_number=serial):
            transaction = _hear(_set(transaction, acknowledged=True), serial, "it acknowledged the payment", now)
            if transaction.phase in (Phase.STARTING, Phase.IN_DOUBT):
                transaction = clear(_set(transaction, phase=Phase.ACTIVE), AttentionCode.IN_DOUBT)
            transaction = _disprove(transaction, "its acknowledgement", now)
        case Canceled() if not heard and transaction.outcome is None:
            transaction = outcomes.finish(transaction, outcomes.canceled(judgement, now), now)
        case StartRefused() | NotSent() if not heard and transaction.outcome is None:
            transaction = outcomes.finish(transaction, outcomes.not_started(judgement, now), now)
        case StartRefused() | NotSent() | Canceled() if transaction.phase is Phase.STARTING:
            # An unusable callback, or an event with an unknown state, arrived before the reply.
            transaction = doubt(transaction, "it was refused or not sent, and yet a callback of it arrived", now)
        case Doubtful(reason=reason) if transaction.phase is Phase.STARTING:
            transaction = doubt(transaction, reason, now)
        case StartRefused() | NotSent() | Canceled() | Doubtful():
            pass  # an event that arrived before the reply has more information
        case _:
            assert_never(judgement)
    return _touch(transaction, before, now)


def doubt(transaction: Transaction, reason: str, now: datetime) -> Transaction:
    """Put a transaction in doubt. `reason`: why its request may have reached the terminal."""
    transaction = _set(transaction, phase=Phase.IN_DOUBT)
    return attend(
        transaction,
        AttentionCode.IN_DOUBT,
        now,
        f"cannot tell whether terminal {transaction.terminal} runs this payment: {reason}",
    )


def interrupted(transaction: Transaction, now: datetime) -> Transaction:
    """Put a transaction in doubt, because an earlier daemon stopped while it sent the request."""
    return _touch(doubt(transaction, "posd was interrupted while it sent the request", now), transaction, now)


def quarantined(transaction: Transaction, reason: str, now: datetime, serial: str | None = None) -> Transaction:
    """Record that an authentic callback of this transaction was refused and is in quarantine.

    The callback's token proves that the request reached a terminal, even if posd had inferred otherwise. `serial`: the
    serial in the callback, if that terminal is outside the fleet.
    """
    after = _hear(transaction, serial, "an event of it arrived from there", now)
    return _touch(_unusable(after, "a callback of this payment could not be used", reason, now), transaction, now)


def searched(transaction: Transaction, answer: Answer, now: datetime) -> Transaction:
    """Apply the result of a search. A state that was found is applied like an event.

    The results "none" and "no answer" change no outcome here. `payments.schedule` counts them.
    """
    after = transaction
    if isinstance(answer, SearchHit):
        after = _note_damage(after, "a search's answer", answer.damaged, now)
        for event in answer.events:
            after = _found(after, event, now)
    if isinstance(answer, SearchFailed) and answer.bears_id:
        after = _bears_id(after, answer, now)
    last = LastSearch(at=iso(now), result=RESULTS[type(answer)])
    return _set(_touch(after, transaction, now), last_search=last)


def silent(transaction: Transaction, code: AttentionCode, seconds: float, now: datetime) -> Transaction:
    """Raise an attention because the terminal has sent nothing for some seconds. `code`: `no_callback` or `stalled`."""
    words = {
        AttentionCode.NO_CALLBACK: "acknowledged the payment, and then sent no usable event",
        AttentionCode.STALLED: f"reported nothing after {transaction.status}",
    }
    detail = f"terminal {transaction.terminal} {words[code]} for {seconds:g} s, so posd asks it for the outcome"
    return _touch(attend(transaction, code, now, detail), transaction, now)


def proved(transaction: Transaction, evidence: Sequence[Evidence], now: datetime) -> Transaction:
    """End a transaction in doubt as `not_started` by the full proof, unless the terminal has sent anything about it."""
    if transaction.phase is not Phase.IN_DOUBT or transaction.heard:
        return transaction
    failure = Failure(
        type="posd",
        code="proved_not_started",
        message="the terminal reported twice that it runs nothing, and no search found the payment; both calls are "
        "known to work",
    )
    outcome = outcomes.inferred(Result.NOT_STARTED, evidence, now, failure=failure)
    return _touch(outcomes.finish(transaction, outcome, now), transaction, now)


def released(transaction: Transaction, now: datetime) -> Transaction:
    """Free the terminal by the decision of an operator or a till. The transaction stays open."""
    detail = f"terminal {transaction.terminal} was freed; it is not known yet whether the customer was charged"
    return _touch(attend(_set(transaction, released=True), AttentionCode.RELEASED, now, detail), transaction, now)


def resolved(
    transaction: Transaction, result: Result, operator: str, note: str, reference: str | None, now: datetime
) -> Transaction:
    """End an open transaction by an operator's decision. A later report of the terminal supersedes the decision."""
    evidence = Evidence(kind=EvidenceKind.OPERATOR, at=iso(now), operator=operator, note=note)
    failure = None
    if result is Result.NOT_STARTED:
        failure = Failure(type="posd", code="resolved", message=f"{operator} says that it did not start: {note}")
    outcome = outcomes.inferred(result, (evidence,), now, failure=failure, transaction_reference=reference)
    return _touch(outcomes.finish(transaction, outcome, now), transaction, now)


def overrun(transaction: Transaction, now: datetime) -> Transaction:
    """Raise an attention because the terminal sends more events than posd stores."""
    detail = (
        f"terminal {transaction.terminal} sent more events than posd keeps of one payment or in one day. Further "
        "ones are refused for now. The end of the payment is still recorded, and posd asks the terminal for it"
    )
    return _touch(attend(transaction, AttentionCode.EVENT_LIMIT, now, detail), transaction, now)


def dismissed(transaction: Transaction, code: AttentionCode, now: datetime) -> Transaction:
    """Close one attention, by an operator's decision or because its cause has ended."""
    return _touch(clear(transaction, code), transaction, now)


def unlikely(transaction: Transaction, reasons: Sequence[str], *, by_sum: bool, now: datetime) -> Transaction:
    """Raise an attention because an approval contradicts its request. The approval counts."""
    detail = (
        f"approved, but {'; '.join(reasons)}. It counts as the terminal says; compare it with the slip before the "
        f"customer leaves. If each approval of terminal {transaction.terminal} shows this, its settings are wrong"
    )
    after = clear(transaction, AttentionCode.AMOUNT_DIFFERS) if by_sum else transaction
    return _touch(attend(after, AttentionCode.APPROVAL_UNLIKELY, now, detail), transaction, now)


def unread(transaction: Transaction, now: datetime) -> Transaction:
    """Raise an attention because no client has read the approval within ten minutes."""
    detail = (
        "approved, but no program has read the outcome within ten minutes: the till may not have booked it. Book it "
        "there before you ask the customer to pay again. The attention closes when a program reads the outcome"
    )
    return _touch(attend(transaction, AttentionCode.OUTCOME_UNREAD, now, detail), transaction, now)


def touched(transaction: Transaction, now: datetime) -> Transaction:
    """Record that a terminal has the transaction: an authentic callback began, or an abort found it running."""
    return _touch(_set(transaction, heard=True), transaction, now)


def aborting(transaction: Transaction, now: datetime, *, may_be: bool) -> Transaction:
    """Record whether the terminal may have accepted a till's abort. The outcome is still open."""
    if transaction.phase is Phase.FINAL:
        return transaction
    return _touch(_set(transaction, trail=_set(transaction.trail, aborting=may_be)), transaction, now)


def address_lost(transaction: Transaction, host: str, now: datetime) -> Transaction:
    """Record that this machine lost the address in the callback URL."""
    detail = (
        f"terminal {transaction.terminal} sends the events of this payment to {host}. This machine has lost that "
        "address, so the events may not arrive. posd asks the terminal by itself. If the terminal does not know the "
        f"payment any more: posd show {transaction.client_transaction_id}"
    )
    lost = _set(transaction, callback_lost=True)
    return _touch(attend(lost, AttentionCode.ADDRESS_CHANGED, now, detail), transaction, now)


def address_back(transaction: Transaction, now: datetime) -> Transaction:
    """Record that this machine has the address in the callback URL again, so events can arrive."""
    back = _set(transaction, callback_lost=False)
    return _touch(clear(back, AttentionCode.ADDRESS_CHANGED), transaction, now)


def disputed(transaction: Transaction, detail: str, now: datetime) -> Transaction:
    """Raise an attention because the terminal has an identity conflict. posd starts nothing on it meanwhile."""
    return _touch(attend(transaction, AttentionCode.IDENTITY_CONFLICT, now, detail), transaction, now)


def taken_over(transaction: Transaction, reason: str, now: datetime) -> Transaction:
    """Put a transaction in doubt, because a restore has little more of it than the id (`TakenOver`)."""
    detail = f"{reason}; how this payment ended is not known here: compare it with the till and the acquirer"
    doubtful = doubt(_set(transaction, heard=True), reason, now)
    return attend(doubtful, AttentionCode.ORPHAN, now, detail)


def _touch(transaction: Transaction, before: Transaction, now: datetime) -> Transaction:
    return transaction if transaction == before else _set(transaction, updated_at=iso(now))


def _note(transaction: Transaction, event: TransactionEvent, step: Step, now: datetime) -> Transaction:
    """Raise and close attentions after an event was added to the trail."""
    transaction = _note_strange(transaction, event, step, now)
    if step.gap:
        return attend(transaction, AttentionCode.GAP, now, _hole(event, step.trail))
    if step.trail.connected and step.verdict is not Verdict.APPLIED:
        return clear(transaction, AttentionCode.GAP)
    return transaction


def _note_strange(transaction: Transaction, event: TransactionEvent, step: Step, now: datetime) -> Transaction:
    """Raise an attention for a state or transition that the terminal API does not define."""
    if step.verdict is Verdict.UNKNOWN_STATUS:
        transaction = attend(
            transaction, AttentionCode.UNKNOWN_STATUS, now, f"the terminal reports the unknown state {event.status}"
        )
    if step.illegal:
        transaction = attend(
            transaction,
            AttentionCode.ILLEGAL_TRANSITION,
            now,
            f"{event.status} (previous {event.previous_status}) is a step outside the terminal's lifecycle",
        )
    return transaction


def _note_damage(transaction: Transaction, what: str, damaged: Sequence[str], now: datetime) -> Transaction:
    """Raise an attention if an event, or an element of a search, has damaged parts. `what`: its name in the text."""
    if not damaged:
        return transaction
    detail = (
        f"{what} is damaged: {', '.join(damaged)} could not be read; the rest counts. Compare the payment with "
        "the terminal's slip"
    )
    return attend(transaction, AttentionCode.DAMAGED_EVENT, now, detail)


def _hole(event: TransactionEvent, trail: Trail) -> str:
    seen = ", ".join(status for _, status in trail.edges)
    return (
        f"an event is missing before {event.status}, which names {event.previous_status or 'no state'} as the state "
        f"before it; received so far: {seen}"
    )


def _hear(transaction: Transaction, serial: str | None, how: str, now: datetime) -> Transaction:
    """Record that a terminal has the transaction, and raise an attention if it is not the terminal that was asked.

    `serial`: the serial that the terminal reported.
    """
    transaction = _set(transaction, heard=True)
    # A reply may have no serial. After a restore, posd may not know which terminal was asked.
    if not serial or transaction.terminal in (serial, ""):
        return transaction
    return attend(
        _set(transaction, mismatched=True),
        AttentionCode.SERIAL_MISMATCH,
        now,
        f"terminal {transaction.terminal} was asked, but {serial}, another device, has the payment ({how})",
    )


def _bears_id(transaction: Transaction, answer: SearchFailed, now: datetime) -> Transaction:
    """Record that a search found an unusable element with the transaction's id (`SearchFailed.bears_id`).

    After that, posd cannot prove that an open transaction never started. Unreadable data never changes an outcome.
    """
    if not answer.unreadable:
        transaction = _hear(transaction, answer.serial_number, "a search found it there", now)
        return _unusable(transaction, "a search found this payment, but posd cannot use the reply", answer.reason, now)
    if transaction.phase is not Phase.FINAL:
        transaction = _set(transaction, heard=True)
    detail = f"a search found this payment in an unusable form: {answer.reason}"
    return attend(transaction, AttentionCode.QUARANTINED_EVENT, now, detail)


def _found(transaction: Transaction, event: TransactionEvent | NotAnEvent, now: datetime) -> Transaction:
    """Apply one element of a search's reply that has the transaction's id."""
    if isinstance(event, NotAnEvent):
        return _unusable(transaction, "a search found this payment in an unusable form", str(event), now)
    transaction = _hear(transaction, event.serial_number, "a search found it there", now)
    transaction = _note_damage(transaction, "a search's answer", event.damaged, now)
    step = lifecycle.apply_search_state(transaction.trail, event.status)
    transaction = _note_strange(_set(transaction, trail=step.trail), event, step, now)
    if step.verdict is Verdict.APPLIED:
        transaction = clear(transaction, AttentionCode.STALLED)
    transaction = _settle(transaction, event, step.verdict, EvidenceKind.SEARCH, now)
    outcome = transaction.outcome
    if outcome is not None and outcome.status == event.status:
        return clear(transaction, AttentionCode.GAP)  # the end is known, so no important event is missing
    return transaction


def _unusable(transaction: Transaction, what: str, reason: str, now: datetime) -> Transaction:
    noted = attend(_set(transaction, heard=True), AttentionCode.QUARANTINED_EVENT, now, f"{what}: {reason}")
    return _disprove(noted, "something that could not be used", now)


def _settle(
    transaction: Transaction, event: TransactionEvent, verdict: Verdict, source: Source, now: datetime
) -> Transaction:
    """Apply an event, or an element of a search, to the transaction, according to the verdict."""
    match verdict:
        case Verdict.APPLIED:
            return _apply(transaction, event, source, now)
        case Verdict.AFTER_FINAL:
            return outcomes.compare(transaction, event, source, now)
        case _:
            return _disprove(transaction, event.status, now)


def _apply(transaction: Transaction, event: TransactionEvent, source: Source, now: datetime) -> Transaction:
    """Move the transaction to the state in an event or in an element of a search."""
    if event.reading_type not in (None, transaction.reading_type):
        transaction = _set(transaction, reading_type=event.reading_type)
    if transaction.type is None:
        transaction = _set(transaction, type=WIRE_TYPES.get(event.operation_type))
    status = STATUSES[event.status]
    if status in lifecycle.FINALS:
        outcome = outcomes.stated(transaction, event, source, now)
        return outcomes.finish(outcomes.note_approval(transaction, outcome, now), outcome, now)
    if transaction.phase is Phase.FINAL:
        return _disprove(transaction, event.status, now, moved=True)
    return clear(_set(transaction, phase=Phase.ACTIVE), AttentionCode.IN_DOUBT)


#: States before a cancellation. Events of these states may arrive after the cancellation and do not contradict it.
_BEFORE_CANCELED = (Status.TERMINAL_ACKNOWLEDGED, Status.CARD_PRESENTED)


def _disprove(transaction: Transaction, news: str, now: datetime, *, moved: bool = False) -> Transaction:
    """Withdraw an inferred outcome, or an operator's, if a report of a terminal contradicts it.

    Any report withdraws `not_started`. A report that the payment went on withdraws a cancellation that was inferred
    from the reply to the start. APPROVAL_REQUESTED withdraws an operator's `canceled` or `rejected`, because the
    acquirer then decides (terminal API, Lifecycle). `news`: the reported state, or words for another report. `moved`:
    whether the state is new to the transaction.
    """
    outcome = transaction.outcome
    if outcome is None:
        return transaction
    by_answer = outcome.result is Result.CANCELED and outcome.evidence[0].kind is EvidenceKind.REFUSAL
    canceled = by_answer and (news not in _BEFORE_CANCELED or transaction.trail.approval_requested)
    by_word = outcome.by_operator and outcome.result in (Result.CANCELED, Result.REJECTED)
    asked = by_word and moved and news == Status.APPROVAL_REQUESTED
    if outcome.result is not Result.NOT_STARTED and not canceled and not asked:
        return transaction
    running = transaction.status is not None
    transaction = _set(transaction, phase=Phase.ACTIVE, outcome=None, withdrawn=outcome)
    transaction = attend(
        transaction,
        AttentionCode.OUTCOME_CORRECTED,
        now,
        f"{outcome.result} was concluded, but the terminal sent {news}: the payment is running or did run",
    )
    return transaction if running else doubt(transaction, f"it sent {news} after {outcome.result} was concluded", now)
