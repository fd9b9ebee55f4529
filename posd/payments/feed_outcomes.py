"""What the feed tells of an outcome, for head office (local API, feed)."""

import sqlite3
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import replace

from posd.base.json_types import AMOUNT, Amount, Exact, Moment, Uuid, WireFormat
from posd.payments import chains, journal, rows
from posd.payments.counting import Of, effect, operation_of
from posd.payments.lifecycle import Status
from posd.payments.model import EvidenceKind, OperationType, Outcome, Result, Transaction
from posd.payments.wire import NotAnEvent, TransactionEvent, read_element
from posd.storage.writer import RecordedChange


class FeedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a payment had ended by that change, and what it comes to."""

    result: Annotated[Result, Meta(description="`approved` was charged")]
    status: Annotated[Status | None, Meta(description="the terminal's final state, null if none stands behind it")]
    decided_by: Annotated[EvidenceKind | None, Meta(description="what it rests on, null if that is not recorded")]
    corrected: Annotated[bool, Meta(description="whether another outcome was published before it")]
    type: Annotated[OperationType | None, Meta(description="null if only its events are known, and do not say it")]
    sale: Annotated[str | None, Meta(description="the till's key for what is being paid")]
    original: Annotated[Uuid | None, Meta(description="what it is derived from, if known here")]
    amount: Annotated[
        Mapping[str, Decimal | Mapping[str, Decimal]], WireFormat(Amount), Meta(description="what was asked for")
    ]
    authorized_amount: Annotated[Exact | None, Meta(description="what the acquirer authorized")]
    tip: Annotated[Exact | None, Meta(description="what the cardholder added at the terminal")]
    currency: Annotated[str | None, Meta(description="as the terminal's final event says it")]
    of: Annotated[Of | None, Meta(description="what it moves, null if not known")]
    counted: Annotated[
        Exact | None,
        Meta(description="what of it is in totals: negative where it gave back, null if it moved no money"),
    ]
    transaction_reference: Annotated[str | None, Meta(description="the acquirer's")]
    ticket_number: Annotated[str | None, Meta(description="the acquirer's")]
    reversal: Annotated[str | None, Meta(description="of an approved void or refund, as in the outcome")]
    created_at: Annotated[Moment, Meta(description="when the till asked for it")]
    occurred_at: Annotated[
        str | None, Meta(description="when, by the terminal's clock, as its final event says it; it may be wrong")
    ]
    decided_at: Annotated[Moment, Meta(description="when posd knew it")]
    metadata: Annotated[
        Annotated[Raw, WireFormat(dict[str, object])] | UnsetType,
        Meta(description="the till's own, where it was asked for"),
    ] = UNSET


class FeedOutcomes:
    """Tells which outcome a payment had by a change; what was read for one change serves those that follow it."""

    def __init__(self, db: sqlite3.Connection, *, metadata: bool) -> None:
        """`metadata`: with the till's own words."""
        self._db = db
        self._metadata = metadata
        self._known: dict[str, Transaction | None] = {}
        #: (id, when it was decided, result) -> its document.
        self._told: dict[tuple[str, str, Result], FeedOutcome] = {}

    def of(self, change: RecordedChange) -> FeedOutcome | None:
        """Return the outcome of a change, None if it has none or its payment was removed.

        It is the one that the payment had by then, also where a later one has corrected that.
        """
        if change.kind != "transaction" or change.result is None:
            return None
        if change.id not in self._known:
            self._known[change.id] = rows.get(self._db, change.id)
        transaction = self._known[change.id]
        outcome = _by_then(transaction, change) if transaction is not None else None
        if transaction is None or outcome is None:
            return None
        key = (change.id, outcome.decided_at, outcome.result)
        if key not in self._told:
            self._told[key] = _told(self._db, transaction, outcome, metadata=self._metadata)
        return self._told[key]


def _by_then(transaction: Transaction, change: RecordedChange) -> Outcome | None:
    """Return the outcome that a change speaks of: the newest of that result that was known when it was recorded."""
    newest = transaction.outcome or transaction.withdrawn  # of one that is open again, what it had
    of_result = [outcome for outcome in _newest_first(newest) if outcome.result == change.result]
    return next((outcome for outcome in of_result if outcome.decided_at <= change.at), next(iter(of_result), None))


def _newest_first(outcome: Outcome | None) -> Iterator[Outcome]:
    while outcome is not None:
        yield outcome
        outcome = outcome.supersedes


def _told(db: sqlite3.Connection, transaction: Transaction, outcome: Outcome, *, metadata: bool) -> FeedOutcome:
    final = read_final_event(db, transaction) if outcome is transaction.outcome else None
    stands = effect(
        operation_of(replace(transaction, outcome=outcome)),
        chains.original_facts(db, transaction, chains.read_original(db, transaction)),
    )
    return FeedOutcome(
        result=outcome.result,
        status=outcome.status,
        decided_by=outcome.evidence[-1].kind if outcome.evidence else None,
        corrected=outcome.supersedes is not None,
        type=transaction.type,
        sale=transaction.sale,
        original=chains.original_of(db, transaction),
        amount=AMOUNT.decode(transaction.amount),
        authorized_amount=outcome.authorized_amount,
        tip=outcome.tip,
        currency=outcome.currency or (final.currency if final else None),
        of=stands.of,
        counted=stands.counted,
        transaction_reference=outcome.transaction_reference,
        ticket_number=outcome.ticket_number,
        reversal=outcome.reversal,
        created_at=transaction.created_at,
        occurred_at=(final.occurred_at or None) if final else None,
        decided_at=outcome.decided_at,
        metadata=Raw(transaction.metadata) if metadata else UNSET,
    )


def read_final_event(db: sqlite3.Connection, transaction: Transaction) -> TransactionEvent | None:
    """Return the event that the outcome rests on, None if there is none or it cannot be read."""
    body = journal.final_event(db, transaction)
    try:
        return read_element(body) if body is not None else None
    except NotAnEvent:  # an element of a page, which says less
        return None
