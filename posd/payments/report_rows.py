"""A row of the report: where an operation stands, with which amount, and how sure that is (local API, GET /report).

Nothing here guesses: what is not known stands apart. `posd.payments.counting` has the effect of an operation.
"""

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET

from posd.base.json_types import AMOUNT, encode, exact
from posd.base.money import ZERO, read_money, total
from posd.base.text import shown
from posd.base.times import iso, parse_iso
from posd.payments import chains, rows
from posd.payments.counting import RESERVING, REVERSING, Basis, Effect, Of, Original, Section, effect, operation_of
from posd.payments.counting import CountedOperation as Facts
from posd.payments.feed_outcomes import read_final_event
from posd.payments.model import (
    AttentionCode,
    NextStep,
    OperationType,
    Result,
    Transaction,
    approved,
    next_step,
)
from posd.payments.report_documents import Certainty, ReportPayment, TimeSource
from posd.payments.wire import TransactionEvent
from posd.records.model import Phase

#: The clock of a terminal counts within these bounds: it says that a payment ended after posd asked for it (but
#: for what two clocks differ), before posd knew it, and not days after it began. Else the time of the request counts.
CLOCKS_DIFFER = timedelta(hours=1)
LONGEST_PAYMENT = timedelta(days=2)
#: Kind of the row that sets right what an earlier shift has counted.
CORRECTION = "correction"


#: Attentions that speak against an outcome.
QUESTIONING = frozenset(
    {
        AttentionCode.CONFLICTING_FINAL,
        AttentionCode.OUTCOME_CORRECTED,
        AttentionCode.APPROVAL_UNLIKELY,
        AttentionCode.SERIAL_MISMATCH,
    }
)


class RowContext(msgspec.Struct, frozen=True):
    """Context for reading rows. `grace`: see `model.next_step`; `metadata` names the member to show, None for none."""

    now: datetime
    grace: timedelta
    metadata: str | None = None


def read_row(db: sqlite3.Connection, transaction: Transaction, context: RowContext) -> ReportPayment:
    """Return the row of a transaction in its present state."""
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
    unsure = moved.section is Section.COUNTED and (by_person or not stated or was is not None)
    failure = outcome.failure_reason if outcome else None
    receipt = outcome.receipt if outcome else None
    inherited = original.outcome.receipt if original and original.outcome else None
    return ReportPayment(
        client_transaction_id=transaction.client_transaction_id,
        at=iso(said if believed and said is not None else created),
        at_by=TimeSource.TERMINAL if believed else TimeSource.POSD,
        terminal=(final.terminal.serial_number if final else "") or transaction.terminal,
        type=transaction.type,
        kind=moved.kind,
        of=moved.of,
        section=moved.section,
        phase=transaction.phase,
        status=transaction.status,
        next_step=step,
        result=facts.result,
        counted=moved.counted,
        amount=moved.amount,
        amount_by=moved.basis,
        requested=facts.requested or None,
        authorized=facts.authorized,
        parts=_parts_of(transaction, original),
        currency=(outcome.currency if outcome else None) or (final.currency if final else None),
        brand=(receipt.franchise if receipt else None) or (inherited.franchise if inherited else None),
        transaction_reference=outcome.transaction_reference if outcome else None,
        ticket_number=outcome.ticket_number if outcome else None,
        authorization_code=receipt.authorization_code if receipt else None,
        failure=": ".join(filter(None, (failure.code, failure.message))) or None if failure else None,
        sale=transaction.sale,
        original=chains.original_of(db, transaction),
        became=_became(db, transaction) if moved.section is Section.RESERVED else None,
        created_at=transaction.created_at,
        decided_at=outcome.decided_at if outcome else None,
        seconds=_seconds(created, decided) if stated and decided is not None else None,
        standing=_certainty(transaction, moved, in_question=in_question, unsure=unsure, by_person=by_person),
        in_question=in_question,
        differs=facts.result is Result.APPROVED and _differs(facts, final, original_facts, moved.basis),
        by_person=by_person,
        unsure=unsure,
        was=was,
        clock_wrong=said is not None and not believed,
        abortable=transaction.abortable,
        attention=tuple(msgspec.structs.replace(item, detail=shown(item.detail)) for item in transaction.attention),
        metadata=UNSET if context.metadata is None else _member(transaction.metadata, context.metadata),
    )


def as_counted(row: ReportPayment, amount: Decimal, currency: str | None) -> ReportPayment:
    """Return a row that is counted with this amount and currency, whichever state its payment has."""
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
    """Return the parts of an amount; of what gives back they are negative, without an amount its original's."""
    parts = _parts(AMOUNT.decode(transaction.amount))
    if transaction.type not in REVERSING:
        return parts
    whole = parts if transaction.total or original is None else _parts(AMOUNT.decode(original.amount))
    return {name: -value for name, value in whole.items()}


def _parts(amount: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the numbers of an amount by name, those of nested objects (extra_taxes) too."""
    found: dict[str, Decimal] = {}
    for name, value in amount.items():
        inner = _parts(value) if isinstance(value, Mapping) else {name: read_money(value)}
        for key, number in inner.items():
            if number is not None:
                found[key] = total((found.get(key, ZERO), number))
    return found


def _differs(facts: Facts, final: TransactionEvent | None, original: Original | None, basis: Basis) -> bool:
    """Whether the terminal named another amount than was asked for; a tip that the customer added is none."""
    if facts.authorized is None or basis is Basis.NEW_TOTAL:
        return False
    if facts.type in REVERSING:
        came_to = original.came_to if original else None
        if facts.type is OperationType.REFUND and facts.requested:
            return abs(facts.authorized) != facts.requested
        with_tips = total((came_to or ZERO, original.tips if original else ZERO))
        return came_to is not None and abs(facts.authorized) not in (came_to, with_tips)
    added = facts.added_tip if facts.added_tip is not None else final.tip if final else None
    with_tip = total((facts.requested, added or ZERO))
    return bool(facts.requested) and facts.authorized not in (facts.requested, with_tip)


def _certainty(
    transaction: Transaction, moved: Effect, *, in_question: bool, unsure: bool, by_person: bool
) -> Certainty | None:
    questioned = in_question or any(item.code in QUESTIONING for item in transaction.attention)
    match moved.section:
        case Section.OPEN if transaction.type in RESERVING or moved.of is Of.RESERVATION:
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
    """Return what has become of a pre-authorization by now."""
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
    """Return how long it took; None if a clock was set back."""
    took = (decided - created) // timedelta(milliseconds=1)
    return Decimal(took).scaleb(-3) if took >= 0 else None


def _moment(text: str) -> datetime | None:
    try:
        return parse_iso(text).astimezone(UTC)
    except (ValueError, OverflowError):  # no time at all, or one outside the calendar
        return None


def _member(metadata: bytes, key: str) -> str:
    """Return a member of the till's metadata as text, empty if there is none."""
    value = exact(metadata.decode()).get(key)
    return value if isinstance(value, str) else "" if value is None else encode(value).decode()
