"""Outcomes: how evidence ends a transaction, and the comparison of two outcomes.

A report of the terminal (event, search) supersedes an inference of posd and an operator's decision. Of two final
reports of the terminal the first counts.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, assert_never

import msgspec

from posd.base.money import ZERO
from posd.base.operations import OPERATIONS, OperationType
from posd.base.times import iso, parse_iso
from posd.payments import lifecycle
from posd.payments.amounts import added_tip, authorized
from posd.payments.answers import Canceled, refusal_words
from posd.payments.lifecycle import STATUSES, Status, Trail
from posd.payments.model import (
    RESULTS,
    AttentionCode,
    Evidence,
    EvidenceKind,
    Failure,
    Outcome,
    Result,
    TerminalFailure,
    Transaction,
    attend,
)
from posd.payments.operations import Reversal, reversal
from posd.payments.wire import RawResponse, TransactionEvent
from posd.records.model import Phase, Pruned, clear
from posd.terminals.attempt import ErrorEnvelope, NotSent, StartRefused

_set = msgspec.structs.replace

#: Source of the terminal's report.
Source = Literal[EvidenceKind.EVENT, EvidenceKind.SEARCH]

#: Attentions that an outcome closes, because no operator has to check them any more.
SETTLED = (
    AttentionCode.IN_DOUBT,
    AttentionCode.STALLED,
    AttentionCode.ADDRESS_CHANGED,
    AttentionCode.IDENTITY_CONFLICT,
    AttentionCode.RELEASED,
)


def not_started(judgement: StartRefused | NotSent, now: datetime) -> Outcome:
    """Return the outcome of a start that was certainly refused or never sent."""
    match judgement:
        case StartRefused(error=error):
            evidence, failure = (
                _refusal(judgement, now),
                Failure("posd", "refused", refusal_words(judgement), _own(error)),
            )
        case NotSent(reason=reason):
            evidence = Evidence(kind=EvidenceKind.UNSENT, at=iso(now), reason=reason)
            failure = Failure(type="posd", code="unsent", message=f"the request was never sent: {reason}")
        case _:
            assert_never(judgement)
    return inferred(Result.NOT_STARTED, (evidence,), now, failure=failure)


def canceled(judgement: Canceled, now: datetime) -> Outcome:
    """Return the outcome of a start to which the terminal replied with a cancellation."""
    message = f"the terminal answered that the payment was canceled there ({judgement.error.name})"
    failure = Failure("posd", "canceled", message, _own(judgement.error))
    return inferred(Result.CANCELED, (_refusal(judgement, now),), now, failure=failure)


def _refusal(judgement: StartRefused | Canceled, now: datetime) -> Evidence:
    return Evidence(kind=EvidenceKind.REFUSAL, at=iso(now), status=judgement.status, body=judgement.body)


def _own(error: ErrorEnvelope | None) -> TerminalFailure | None:
    return TerminalFailure(error.type, error.code, error.message) if error else None


def inferred(
    result: Result,
    evidence: Sequence[Evidence],
    now: datetime,
    *,
    failure: Failure | None = None,
    transaction_reference: str | None = None,
) -> Outcome:
    """Return an outcome that posd inferred or an operator decided, without a state from the terminal."""
    return Outcome(
        result=result,
        status=None,
        transaction_reference=transaction_reference,
        ticket_number=None,
        failure_reason=failure,
        reached_acquirer=False if result is Result.NOT_STARTED else None,
        reading_type=None,
        authorized_amount=None,
        receipt=None,
        reversal=None,
        decided_at=iso(now),
        evidence=tuple(evidence),
    )


def stated(transaction: Transaction, event: TransactionEvent, source: Source, now: datetime) -> Outcome:
    """Return the outcome from a final event, or from an element of a search (local API, the outcome)."""
    status = STATUSES[event.status]
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
        authorized_amount=authorized(transaction, event) if response else None,
        tip=added_tip(transaction, event),
        currency=event.currency,
        receipt=response.receipt if response else None,
        reversal=_reversal(transaction, RESULTS[status], event.occurred_at, now),
        decided_at=iso(now),
        evidence=(Evidence(kind=source, at=iso(now), event_id=event.event_id),),
    )


def finish(transaction: Transaction, outcome: Outcome, now: datetime) -> Transaction:
    """Set the outcome. The new outcome keeps an earlier one in `supersedes`."""
    old = transaction.outcome or transaction.withdrawn
    if old is not None:
        outcome = _set(outcome, supersedes=old)
        if old.result is not outcome.result:
            said = "an operator's decision" if old.by_operator else "a conclusion of posd"
            says = "an operator says" if outcome.by_operator else "the terminal says"
            transaction = attend(
                transaction,
                AttentionCode.OUTCOME_CORRECTED,
                now,
                f"the earlier outcome {old.result} was {said}; {says} {outcome.result}",
            )
    trail = _set(transaction.trail, aborting=False)
    transaction = _set(transaction, phase=Phase.FINAL, outcome=outcome, withdrawn=None, trail=trail)
    stale = () if outcome.result is Result.APPROVED else (AttentionCode.OUTCOME_UNREAD,)
    return clear(transaction, *SETTLED, *stale)


def note_approval(transaction: Transaction, outcome: Outcome, now: datetime) -> Transaction:
    """Raise the attentions for an approval that the terminal reported."""
    if outcome.result is not Result.APPROVED:
        return transaction
    if outcome.transaction_reference is None:
        transaction = attend(
            transaction,
            AttentionCode.MISSING_REFERENCE,
            now,
            "approved, but without a transaction_reference: it cannot be voided or captured by reference",
        )
    comparable = transaction.type is None or OPERATIONS[transaction.type].compares
    asked, taken = transaction.total, outcome.authorized_amount
    if asked and comparable and taken is not None and taken not in (asked, asked + (outcome.tip or ZERO)):
        words = f"asked for {asked}, authorized {taken}"
        transaction = attend(transaction, AttentionCode.AMOUNT_DIFFERS, now, words)
    return transaction


def compare(transaction: Transaction, event: TransactionEvent, source: Source, now: datetime) -> Transaction:
    """Compare a later event with the outcome that the terminal reported first.

    The first outcome stays. A second report of the same outcome is added as evidence.
    """
    outcome = transaction.outcome
    if outcome is None or outcome.status is None:
        return transaction
    status = STATUSES.get(event.status)
    # A decision of the acquirer proves that the terminal asked it, even without an event APPROVAL_REQUESTED.
    asked = transaction.trail.approval_requested or status in (lifecycle.DECLINED, lifecycle.APPROVAL)
    if asked and outcome.status in (lifecycle.CANCELED, lifecycle.REJECTED):
        outcome = _set(outcome, reached_acquirer=None)
        transaction = _set(transaction, outcome=outcome)
    if status not in lifecycle.FINALS:
        return transaction
    reference = event.raw_response.transaction_reference if status is Status.APPROVAL and event.raw_response else None
    same = (status, reference) == (outcome.status, outcome.transaction_reference)
    # The result of a search may lack the reference. Then both reports are of one outcome, and their data is joined.
    partly = (
        status is outcome.status
        and None in (reference, outcome.transaction_reference)
        and EvidenceKind.SEARCH in {source, *(item.kind for item in outcome.evidence)}
    )
    if same or partly:
        return _confirm(transaction, outcome, event, source, now)
    return attend(
        transaction,
        AttentionCode.CONFLICTING_FINAL,
        now,
        f"two final events: {_final(outcome.status, outcome.transaction_reference)} counts, "
        f"{_final(status, reference)} arrived after it; ask the acquirer what was paid, and void a second charge",
    )


def _confirm(
    transaction: Transaction, outcome: Outcome, event: TransactionEvent, source: Source, now: datetime
) -> Transaction:
    """Add a second report of the same outcome as evidence.

    An event replaces the data of a search, unless the event lacks the reference.
    """
    kinds = {item.kind for item in outcome.evidence}
    fresh = stated(transaction, event, source, now)
    evidence = outcome.evidence if source in kinds else (*outcome.evidence, *fresh.evidence)
    old, new = outcome.transaction_reference, fresh.transaction_reference
    completes = old is None and new is not None
    if completes or (source is EvidenceKind.EVENT and source not in kinds and old == new):
        outcome = _set(fresh, decided_at=outcome.decided_at, supersedes=outcome.supersedes)
        transaction = note_approval(clear(transaction, AttentionCode.MISSING_REFERENCE), outcome, now)
    return _set(transaction, outcome=_set(outcome, evidence=evidence))


def _reversal(transaction: Transaction, result: Result, occurred_at: str, now: datetime) -> Reversal | None:
    if result is not Result.APPROVED:
        return None
    match transaction.type:
        case OperationType.VOID:
            return reversal(transaction.same_day_until, occurred_at, now)
        case OperationType.REFUND:
            return "refund"
        case _:
            return None


def _reached_acquirer(status: Status, response: RawResponse | None, trail: Trail) -> bool | None:
    match status:
        case Status.APPROVAL:
            return True if response else None
        case Status.DECLINED:
            return True
        case _:  # a cancellation or a local rejection
            return None if trail.approval_requested else False


def _final(status: Status | None, reference: str | None) -> str:
    return f"{status} (reference {reference})" if reference else f"{status}"


def contradicts(pruned: Pruned, status: str) -> bool:
    """Return whether an event contradicts the outcome of a payment that retention removed."""
    stated = {str(final): result for final, result in RESULTS.items()}.get(status)
    return stated is not None and stated != pruned.result


# Check whether an approval contradicts its request.
#
# Such an approval still counts, because the terminal reported it. The attention `approval_unlikely` lists the
# contradictions. Some facts for the comparison (earlier currencies, trust in the clock) are known only when the
# approval arrives. So its commit also stores the contradictions in the journal, as `entries.Unlikely`, and a replay
# reads them there.

#: An approval's date is plausible from this time before the request until this time after the arrival.
FAR = timedelta(days=1)


def _letters(word: str) -> str:
    return "".join(filter(str.isalpha, word)).upper()


#: Word for an operation, reduced to capital letters -> the operation. Events and the local API use these words.
_TYPES = {_letters(word): kind for kind, row in OPERATIONS.items() for word in (kind, row.wire or kind)}


def unlikely(
    transaction: Transaction,
    event: TransactionEvent,
    currencies: frozenset[str],
    received_at: datetime | None,
    same_reference: str | None = None,
) -> tuple[tuple[str, ...], bool] | None:
    """Return how an approval contradicts its request, and whether the amount is wrong. Return None if nothing is wrong.

    `currencies`: the expected currencies; empty: any. `received_at`: time of arrival, or None if the clock was not
    trusted. `same_reference`: the id of another payment approved with the same reference, or None.
    """
    reasons = [*_sum(transaction, event)]
    by_sum = bool(reasons)
    currency = event.currency
    if currency is not None and currencies and currency.upper() not in currencies:
        reasons.append(f"it is in {ascii(currency)[1:-1]}, and not in {' or '.join(sorted(currencies))}")
    reasons += _type(transaction, event)
    if received_at is not None:
        reasons += _date(transaction, event, received_at)
    if same_reference is not None:
        reasons.append(f"its reference is that of {same_reference} too: name it by `original`, never by the reference")
    return (tuple(reasons), by_sum) if reasons else None


def _sum(transaction: Transaction, event: TransactionEvent) -> list[str]:
    comparable = transaction.type is None or OPERATIONS[transaction.type].compares
    asked, taken = transaction.total, authorized(transaction, event)
    if not asked or not comparable or taken is None or asked <= 2 * taken <= 4 * asked:
        return []
    return [f"asked for {asked}, authorized {taken}"]


def _type(transaction: Transaction, event: TransactionEvent) -> list[str]:
    """Compare the reported operation with the requested one, if the reported word is known."""
    asked, said = transaction.type, _TYPES.get(_letters(event.operation_type or ""))
    if asked is None or said is None or asked is said or OPERATIONS[asked].wire is None:
        return []
    return [f"asked for a {asked}, approved as {said}"]


def _date(transaction: Transaction, event: TransactionEvent, received_at: datetime) -> list[str]:
    """Return a contradiction if the approval's date is far before the request, or far after the arrival.

    An event can stay in a terminal's queue for more than a day.
    """
    try:
        at = parse_iso(event.occurred_at)
        early = at < min(parse_iso(transaction.created_at), received_at) - FAR
        late = at > received_at + FAR
    except (ValueError, OverflowError):
        return []  # the date cannot be parsed
    return [f"it is dated {ascii(event.occurred_at)[1:-1]}, and arrived {iso(received_at)}"] if early or late else []
