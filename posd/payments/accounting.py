"""Accounting of one payment: its row in the report, and its outcome in the feed."""

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import replace

from posd.base.json_types import AMOUNT, Amount, Exact, Moment, Uuid, WireFormat, encode, exact
from posd.base.money import ZERO, read_money, total
from posd.base.operations import REVERSING, OperationType
from posd.base.times import iso, parse_iso
from posd.payments import chains, journal, rows
from posd.payments.counting import Basis, Effect, Of, Original, Section, effect, operation_of
from posd.payments.counting import CountedOperation as Facts
from posd.payments.lifecycle import Status
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Outcome, Result, Transaction, approved, next_step
from posd.payments.report_documents import Certainty, ReportPayment, TimeSource
from posd.payments.wire import NotAnEvent, TransactionEvent, read_element
from posd.records.model import Phase, same_fields
from posd.storage.batch import RecordedChange

# Row of the report: the section of an operation, its amount, and the certainty of the amount (local API, GET /report).
#
# Unknown values are shown separately and never guessed. `posd.payments.counting` computes the effect of an operation.

#: A time in a final event is plausible if it is between the till's request and the outcome, with the tolerance
#: `CLOCKS_DIFFER` at both ends. It must also be at most `LONGEST_PAYMENT` after the request. Otherwise the report uses
#: the time of the request.
CLOCKS_DIFFER = timedelta(hours=1)
LONGEST_PAYMENT = timedelta(days=2)
#: Value of `kind` for a row that corrects an earlier shift.
CORRECTION = "correction"


#: Attentions that cast doubt on an outcome.
QUESTIONING = frozenset(
    {
        AttentionCode.CONFLICTING_FINAL,
        AttentionCode.OUTCOME_CORRECTED,
        AttentionCode.APPROVAL_UNLIKELY,
        AttentionCode.SERIAL_MISMATCH,
    }
)


class RowContext(msgspec.Struct, frozen=True):
    """Parameters for reading rows of the report.

    `grace`: see `model.next_step`. `metadata`: name of the metadata member to show, or None.
    """

    now: datetime
    grace: timedelta
    metadata: str | None = None


def read_row(db: sqlite3.Connection, transaction: Transaction, context: RowContext) -> ReportPayment:
    """Return the row of a transaction in the report, from its present state."""
    outcome, facts = transaction.outcome, operation_of(transaction)
    final = read_final_event(db, transaction)
    original = chains.read_original(db, transaction)
    original_facts = chains.original_facts(db, transaction, original)
    moved = effect(facts, original_facts)
    created = parse_iso(transaction.created_at)
    decided = parse_iso(outcome.decided_at) if outcome else None
    said = _moment(final.occurred_at) if final else None
    believed = said is not None and decided is not None and _can_be(said, created, decided)
    by_person = outcome is not None and outcome.by_operator
    stated = outcome is not None and outcome.stated_by_terminal
    was = outcome.supersedes.result if outcome and outcome.supersedes else None
    was = None if outcome and was is outcome.result else was
    step = next_step(transaction, context.now, context.grace)
    in_question = step is NextStep.ASK_PERSON or moved.section in (Section.OPEN, Section.UNCLEAR)
    unsure = moved.section is Section.COUNTED and (not stated or was is not None)
    failure = outcome.failure_reason if outcome else None
    receipt = outcome.receipt if outcome else None
    inherited = original.outcome.receipt if original and original.outcome else None
    return ReportPayment(
        **same_fields(ReportPayment, transaction, facts, moved)
        | {
            "at": iso(said if believed and said is not None else created),
            "at_by": TimeSource.TERMINAL if believed else TimeSource.POSD,
            "terminal": (final.serial_number if final else "") or transaction.terminal,
            "next_step": step,
            "amount_by": moved.basis,
            "requested": facts.requested or None,
            "parts": _parts_of(transaction, original),
            "currency": (outcome.currency if outcome else None) or (final.currency if final else None),
            "brand": (receipt.franchise if receipt else None) or (inherited.franchise if inherited else None),
            "transaction_reference": outcome.transaction_reference if outcome else None,
            "ticket_number": outcome.ticket_number if outcome else None,
            "authorization_code": receipt.authorization_code if receipt else None,
            "failure": ": ".join(filter(None, (failure.code, failure.message))) or None if failure else None,
            "original": chains.original_of(db, transaction),
            "became": _became(db, transaction) if moved.section is Section.RESERVED else None,
            "decided_at": outcome.decided_at if outcome else None,
            "seconds": _seconds(created, decided) if stated and decided is not None else None,
            "standing": _certainty(transaction, moved, in_question=in_question, unsure=unsure, by_person=by_person),
            "in_question": in_question,
            "differs": facts.result is Result.APPROVED and _differs(facts, final, original_facts, moved.basis),
            "by_person": by_person,
            "unsure": unsure,
            "was": was,
            "clock_wrong": said is not None and not believed,
            "attention": transaction.shown_attention,
            "metadata": UNSET if context.metadata is None else _member(transaction.metadata, context.metadata),
        }
    )


def as_counted(row: ReportPayment, amount: Decimal, currency: str | None) -> ReportPayment:
    """Return the row with this amount and currency, as a row in the totals.

    The report of a shift needs this for corrections, and for payments that have changed since the close of the shift.
    """
    questioned = row.in_question or any(item.code in QUESTIONING for item in row.attention)
    unsure = row.by_person or row.was is not None or row.section is Section.OPEN
    return msgspec.structs.replace(
        row,
        section=Section.COUNTED,
        amount=amount,
        counted=amount,
        currency=currency,
        parts={},
        unsure=unsure,
        standing=Certainty.QUESTIONED if questioned else Certainty.BY_PERSON if unsure else Certainty.CERTAIN,
    )


def _parts_of(transaction: Transaction, original: Transaction | None) -> dict[str, Decimal]:
    """Return the parts of a transaction's amount, such as `iva` and `tip`, by name.

    The parts of a reversal are negative. A reversal without an amount has the parts of its original.
    """
    parts = _parts(AMOUNT.decode(transaction.amount))
    if transaction.type not in REVERSING:
        return parts
    whole = parts if transaction.total or original is None else _parts(AMOUNT.decode(original.amount))
    return {name: -value for name, value in whole.items()}


def _parts(amount: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the numbers of an amount by name, including those in nested objects (extra_taxes)."""
    found: dict[str, Decimal] = {}
    for name, value in amount.items():
        inner = _parts(value) if isinstance(value, Mapping) else {name: read_money(value)}
        for key, number in inner.items():
            if number is not None:
                found[key] = total((found.get(key, ZERO), number))
    return found


def _differs(facts: Facts, final: TransactionEvent | None, original: Original | None, basis: Basis) -> bool:
    """Whether the terminal reported another amount than the till requested.

    A tip that the cardholder added does not count as a difference.
    """
    if facts.authorized is None or basis is Basis.NEW_TOTAL:
        return False
    if facts.type in REVERSING:
        came_to = original.came_to if original else None
        whole = came_to, total((came_to or ZERO, original.tips if original else ZERO))
        if facts.requested and (facts.type is OperationType.REFUND or facts.requested not in whole):
            return abs(facts.authorized) != facts.requested
        return came_to is not None and abs(facts.authorized) not in whole
    added = facts.added_tip if facts.added_tip is not None else final.tip if final else None
    with_tip = total((facts.requested, added or ZERO))
    return bool(facts.requested) and facts.authorized not in (facts.requested, with_tip)


def _certainty(
    transaction: Transaction, moved: Effect, *, in_question: bool, unsure: bool, by_person: bool
) -> Certainty | None:
    questioned = in_question or any(item.code in QUESTIONING for item in transaction.attention)
    match moved.section:
        case Section.OPEN if moved.of is Of.RESERVATION:
            return None
        case Section.OPEN:
            return Certainty.IN_DOUBT if transaction.phase is Phase.IN_DOUBT else Certainty.OPEN
        case Section.COUNTED if questioned:
            return Certainty.QUESTIONED
        case Section.COUNTED:
            return Certainty.BY_PERSON if unsure else Certainty.CERTAIN
        case Section.UNCLEAR:
            return Certainty.NOT_COUNTED
        case Section.NOT_CHARGED if questioned:
            return Certainty.NOT_COUNTED
        case Section.NOT_CHARGED if by_person:
            return Certainty.DENIED
        case _:
            return None


def _became(db: sqlite3.Connection, transaction: Transaction) -> str | None:
    """Return the present state of a pre-authorization, such as `captured`, or None for another operation type."""
    if transaction.type is not OperationType.PRE_AUTH:
        return None
    found = [rows.get(db, identity) for identity in chains.derived_ids(db, transaction)]
    done = [item for item in found if item is not None]
    for kind, word in ((OperationType.CAPTURE, "captured"), (OperationType.VOID, "released")):
        if any(item.type is kind and approved(item) for item in done):
            return word
    return "in question" if any(item.outcome is None for item in done) else "held"


def _can_be(said: datetime, created: datetime, decided: datetime) -> bool:
    return created - CLOCKS_DIFFER <= said <= min(decided + CLOCKS_DIFFER, created + LONGEST_PAYMENT)


def _seconds(created: datetime, decided: datetime) -> Decimal | None:
    """Return the duration in seconds, or None if the clock was set back."""
    took = (decided - created) // timedelta(milliseconds=1)
    return Decimal(took).scaleb(-3) if took >= 0 else None


def _moment(text: str) -> datetime | None:
    try:
        return parse_iso(text).astimezone(UTC)
    except (ValueError, OverflowError):  # the text is not a time, or its date is outside the calendar
        return None


def _member(metadata: bytes, key: str) -> str:
    """Return a member of the till's metadata as text, or an empty text if it is missing."""
    value = exact(metadata.decode()).get(key)
    return value if isinstance(value, str) else "" if value is None else encode(value).decode()


# Outcome in the feed, for head office (local API, feed).


class FeedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a payment in a line of the feed, and its counted amount."""

    result: Annotated[Result, Meta(description="`approved`: the operation was done")]
    status: Annotated[Status | None, Meta(description="the terminal's final state, null if the outcome has none")]
    decided_by: Annotated[EvidenceKind | None, Meta(description="the basis of the outcome, null if not recorded")]
    corrected: Annotated[bool, Meta(description="whether another outcome was published before it")]
    type: Annotated[OperationType | None, Meta(description="null if only events without a type are known")]
    sale: Annotated[str | None, Meta(description="the till's key of the sale")]
    original: Annotated[Uuid | None, Meta(description="its original, if known here")]
    amount: Annotated[
        Mapping[str, Decimal | Mapping[str, Decimal]], WireFormat(Amount), Meta(description="the requested amount")
    ]
    authorized_amount: Annotated[Exact | None, Meta(description="what the acquirer authorized")]
    tip: Annotated[Exact | None, Meta(description="tip that the cardholder added at the terminal")]
    currency: Annotated[str | None, Meta(description="as in the terminal's final event")]
    of: Annotated[Of | None, Meta(description="what it moves: money or a reservation; null: not known")]
    counted: Annotated[
        Exact | None,
        Meta(description="its amount in totals: negative if money was given back, null if no money moved"),
    ]
    transaction_reference: Annotated[str | None, Meta(description="the acquirer's reference")]
    ticket_number: Annotated[str | None, Meta(description="the acquirer's ticket number")]
    reversal: Annotated[str | None, Meta(description="of an approved void or refund, as in the outcome")]
    created_at: Annotated[Moment, Meta(description="time of the till's request")]
    occurred_at: Annotated[
        str | None, Meta(description="time by the terminal's clock, from its final event; it may be wrong")
    ]
    decided_at: Annotated[Moment, Meta(description="time at which posd knew the outcome")]
    metadata: Annotated[
        Annotated[Raw, WireFormat(dict[str, object])] | UnsetType,
        Meta(description="the till's own metadata, if requested"),
    ] = UNSET


def feed_outcome(db: sqlite3.Connection, change: RecordedChange, *, metadata: bool) -> FeedOutcome | None:
    """Return the outcome that a change of the feed reports.

    Return None if the change has no outcome, or if retention removed the payment. If a later change corrected the
    outcome, return the earlier one. `metadata`: whether to include the till's metadata.
    """
    if change.kind != "transaction" or change.result is None:
        return None
    transaction = rows.get(db, change.id)
    outcome = _by_then(transaction, change) if transaction is not None else None
    if transaction is None or outcome is None:
        return None
    final = read_final_event(db, transaction) if outcome is transaction.outcome else None
    stands = effect(
        operation_of(replace(transaction, outcome=outcome)),
        chains.original_facts(db, transaction, chains.read_original(db, transaction)),
    )
    return FeedOutcome(
        **same_fields(FeedOutcome, transaction, outcome, stands)
        | {
            "decided_by": outcome.evidence[-1].kind if outcome.evidence else None,
            "corrected": outcome.supersedes is not None,
            "original": chains.original_of(db, transaction),
            "amount": AMOUNT.decode(transaction.amount),
            "currency": outcome.currency or (final.currency if final else None),
            "occurred_at": (final.occurred_at or None) if final else None,
            "metadata": Raw(transaction.metadata) if metadata else UNSET,
        }
    )


def read_final_event(db: sqlite3.Connection, transaction: Transaction) -> TransactionEvent | None:
    """Return the final event of a transaction, or None if it has none, or the event cannot be parsed."""
    body = journal.final_event(db, transaction)
    try:
        return read_element(body) if body is not None else None
    except NotAnEvent:  # an element of a search's page can have its state in another member than an event
        return None


def currency_of(db: sqlite3.Connection, transaction: Transaction) -> str | None:
    """Return the currency of an outcome. Earlier versions did not store it, so it may be only in the final event."""
    outcome = transaction.outcome
    if outcome is None or outcome.currency is not None:
        return outcome.currency if outcome else None
    final = read_final_event(db, transaction)
    return final.currency if final else None


def _by_then(transaction: Transaction, change: RecordedChange) -> Outcome | None:
    """Return the outcome that a payment had after a change: the newest with the change's result up to its time.

    If the clock was set back, there may be none up to its time. Then return the newest outcome with the same result.
    """
    newest = transaction.outcome or transaction.withdrawn  # after a reopening, only `withdrawn` is set
    of_result = [outcome for outcome in _newest_first(newest) if outcome.result == change.result]
    return next((outcome for outcome in of_result if outcome.decided_at <= change.at), next(iter(of_result), None))


def _newest_first(outcome: Outcome | None) -> Iterator[Outcome]:
    while outcome is not None:
        yield outcome
        outcome = outcome.supersedes
