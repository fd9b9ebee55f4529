"""State of a transaction: phase, outcome, evidence, attention.

All classes are immutable values. `posd.payments.transitions` computes their changes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from posd.base.json_types import Exact, Moment
from posd.base.money import ZERO, AmountUnit, read_money, sum_of, to_decimal
from posd.base.operations import OperationType
from posd.base.times import iso, parse_iso
from posd.payments import lifecycle
from posd.payments.lifecycle import ACKNOWLEDGED, Status, Trail
from posd.records.model import Phase, RecordAttention, RecordState, attended

#: Name of the tip in an amount.
TIP = "tip"
_EXACT = msgspec.json.Decoder(float_hook=to_decimal)


class Result(StrEnum):
    """How a transaction ended."""

    APPROVED = "approved"
    DECLINED = "declined"
    REJECTED = "rejected"
    CANCELED = "canceled"
    NOT_STARTED = "not_started"


RESULTS: Mapping[Status, Result] = {
    Status.APPROVAL: Result.APPROVED,
    Status.DECLINED: Result.DECLINED,
    Status.TERMINAL_REJECTED: Result.REJECTED,
    Status.TERMINAL_CANCELED: Result.CANCELED,
}


class EvidenceKind(StrEnum):
    """Kind of evidence."""

    EVENT = "event"
    SEARCH = "search"
    REFUSAL = "refusal"
    UNSENT = "unsent"
    ABORT = "abort"
    OPERATOR = "operator"


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of evidence: its kind, its time of arrival, and the fields that its kind has."""

    kind: Annotated[EvidenceKind, Meta(description="kind of evidence")]
    at: Annotated[Moment, Meta(description="when it arrived")]
    event_id: Annotated[str | None, Meta(description="`event`, `search`: id of the event with the result")] = None
    status: Annotated[int | None, Meta(description="`refusal`, `abort`: the terminal's HTTP status")] = None
    body: Annotated[str | None, Meta(description="`refusal`: the body of the terminal's reply")] = None
    reason: Annotated[str | None, Meta(description="`unsent`: why it was not sent")] = None
    result: Annotated[str | None, Meta(description="`search`: `none` if the search found nothing")] = None
    operator: Annotated[str | None, Meta(description="`operator`: name of the operator")] = None
    note: Annotated[str | None, Meta(description="`operator`: the reason of the decision")] = None


class TerminalFailure(msgspec.Struct, frozen=True):
    """Error in the terminal's reply to the call."""

    type: Annotated[str | None, Meta(description="its source, such as `TERMINAL`")]
    code: Annotated[str | None, Meta(description="its code, such as `TER-003`")]
    message: Annotated[str | None, Meta(description="in words")]


class Failure(msgspec.Struct, frozen=True):
    """Reason why a transaction was not approved.

    The reason is from the final event. A reason that posd itself gives has the `type` `posd`.
    """

    type: Annotated[str | None, Meta(description="the type in the event, or `posd`")]
    code: Annotated[str | None, Meta(description="the code in the event, or posd's own")]
    message: Annotated[str | None, Meta(description="in words")]
    terminal: Annotated[
        TerminalFailure | None,
        Meta(description="if `type` is `posd`: the terminal's own error, null if it named none; else null"),
    ] = None


class Receipt(msgspec.Struct, frozen=True):
    """Data for a receipt, from the acquirer's answer."""

    authorization_code: Annotated[str | None, Meta(description="authorization code of the issuer")]
    franchise: Annotated[str | None, Meta(description="the card's brand")]
    card_type: Annotated[str | None, Meta(description="credit or debit, as the acquirer writes it")]
    cvm_type: Annotated[str | None, Meta(description="how the cardholder was verified")]


class Outcome(msgspec.Struct, frozen=True):
    """How a transaction ended, and the evidence for it."""

    result: Annotated[Result, Meta(description="`approved`: it was done. `next_step` says what the till does")]
    status: Annotated[Status | None, Meta(description="the terminal's final state, null if the outcome has none")]
    transaction_reference: Annotated[str | None, Meta(description="the acquirer's reference, for a void or a capture")]
    ticket_number: Annotated[str | None, Meta(description="the acquirer's ticket number")]
    failure_reason: Annotated[Failure | None, Meta(description="why it was not approved, if known")]
    reached_acquirer: Annotated[bool | None, Meta(description="whether the acquirer was asked, null if not known")]
    reading_type: Annotated[str | None, Meta(description="how the card was read, as the terminal writes it")]
    authorized_amount: Annotated[Exact | None, Meta(description="what the acquirer authorized")]
    receipt: Annotated[Receipt | None, Meta(description="null if the final event has no acquirer's answer")]
    reversal: Annotated[
        str | None,
        Meta(
            description="of an approved void: `cancellation` on the day of its original, otherwise `refund`; of "
            "an approved refund: `refund`"
        ),
    ]
    decided_at: Annotated[Moment, Meta(description="time at which posd knew the outcome")]
    evidence: Annotated[tuple[Evidence, ...], Meta(description="the basis of the outcome")]
    supersedes: "Outcome | None" = None
    tip: Annotated[
        Exact | None, Meta(description="tip that the cardholder added at the terminal, if the final event gives it")
    ] = None
    currency: Annotated[str | None, Meta(description="as in the terminal's final event")] = None

    @property
    def stated_by_terminal(self) -> bool:
        """Whether the terminal reported the outcome, in an event or a search.

        Such an outcome overrides an inference of posd and an operator's decision.
        """
        return self.status is not None

    def rests_on(self, event_id: str) -> bool:
        """Whether the event with that id is evidence of this outcome."""
        return any(item.kind is EvidenceKind.EVENT and item.event_id == event_id for item in self.evidence)

    @property
    def given_reference(self) -> str | None:
        """The acquirer's reference in upper case. A terminal can send it in upper or lower case.

        Upper case also distinguishes references from ids when a damaged database is read.
        """
        return self.transaction_reference.upper() if self.transaction_reference else None

    @property
    def unapproved(self) -> Result | None:
        """The result, or None for an approval."""
        return None if self.result is Result.APPROVED else self.result

    @property
    def by_operator(self) -> bool:
        """Whether the outcome is an operator's decision."""
        return any(item.kind is EvidenceKind.OPERATOR for item in self.evidence)


class AttentionCode(StrEnum):
    """Code of an attention of a payment (local API, `attention`)."""

    IN_DOUBT = "in_doubt"
    GAP = "gap"
    STALLED = "stalled"
    NO_CALLBACK = "no_callback"
    ORPHAN = "orphan"
    SERIAL_MISMATCH = "serial_mismatch"
    EVENT_ID_REUSED = "event_id_reused"
    UNKNOWN_STATUS = "unknown_status"
    ILLEGAL_TRANSITION = "illegal_transition"
    CONFLICTING_FINAL = "conflicting_final"
    OUTCOME_CORRECTED = "outcome_corrected"
    MISSING_REFERENCE = "missing_reference"
    AMOUNT_DIFFERS = "amount_differs"
    QUARANTINED_EVENT = "quarantined_event"
    ADDRESS_CHANGED = "address_changed"
    IDENTITY_CONFLICT = "identity_conflict"
    RELEASED = "released"
    EVENT_LIMIT = "event_limit"
    DAMAGED_EVENT = "damaged_event"
    APPROVAL_UNLIKELY = "approval_unlikely"
    OUTCOME_UNREAD = "outcome_unread"


class Attention(RecordAttention, frozen=True):
    """Condition that an operator should check. An attention never changes an outcome."""

    code: Annotated[AttentionCode, Meta(description="which condition")]


class SearchResult(StrEnum):
    """Result of a search (local API, `last_search`)."""

    FOUND = "found"
    NONE = "none"
    NO_ANSWER = "no_answer"


class LastSearch(msgspec.Struct, frozen=True):
    """Time of the last search, and its result."""

    at: Annotated[Moment, Meta(description="when")]
    result: Annotated[SearchResult, Meta(description="the result; `no_answer` says nothing about the payment")]


class NextStep(StrEnum):
    """Next action of the till (local API, `next_step`)."""

    WAIT = "wait"
    DONE = "done"
    NEW_ID_OK = "new_id_ok"
    ASK_PERSON = "ask_person"


#: Time after which no customer waits at the terminal, and no terminal repeats an event (terminal API, Delivery).
LONG_WAIT = timedelta(minutes=15)

#: Attentions of an open payment. With one of them, the terminal may never report the end.
SILENCES = frozenset({AttentionCode.STALLED, AttentionCode.NO_CALLBACK, AttentionCode.ADDRESS_CHANGED})

#: Attentions that an operator has to acknowledge before the till may treat the payment as finished.
CONFLICTS = frozenset({AttentionCode.CONFLICTING_FINAL, AttentionCode.OUTCOME_CORRECTED})


class Transaction(RecordState, frozen=True, kw_only=True):
    """One operation on one terminal.

    `amount`, `metadata` and `options` are JSON objects. The last two are verbatim from the till. Numbers in `amount`
    are exact decimals. `type` is None only for an orphan, until an event has its type. `heard`: an acknowledgement, an
    event, a search hit or any other callback has arrived.
    """

    client_transaction_id: str
    terminal: str
    type: OperationType | None
    sale: str | None = None
    amount: bytes = b"{}"
    metadata: bytes = b"{}"
    options: bytes = b"{}"
    transaction_reference: str | None = None
    original: str | None = None
    derives_from: str | None = None  # id of the original, if this database has it
    same_day_until: str | None = None  # for a void: end of the original's day in the merchant's time zone
    repeat: bool = False
    answer_unit: AmountUnit | None = "main"  # unit of the amounts that the terminal sends; None if unknown
    callback_host: str | None = None  # address of this machine in its callback URL; None if configured
    callback_lost: bool = False  # this machine lost that address; stays set if an operator closes the attention
    mismatched: bool = False  # another terminal than the asked one replied; stays set if the attention is closed
    released: bool = False  # an operator or a till has freed its terminal
    last_search: LastSearch | None = None
    trail: Trail = Trail()
    reading_type: str | None = None
    outcome: Outcome | None = None
    withdrawn: Outcome | None = None  # an inferred outcome that an event disproved
    attention: tuple[Attention, ...] = ()

    @property
    def status(self) -> Status | None:
        """The newest known lifecycle state. The terminal's acknowledgement of the start counts as the first state."""
        if self.trail.position is None and self.acknowledged:
            return ACKNOWLEDGED
        return self.trail.position

    @property
    def given_reference(self) -> str | None:
        """The reference of the outcome, in upper case."""
        return self.outcome.given_reference if self.outcome else None

    @property
    def updates_terminal(self) -> bool:
        """Whether callbacks of this transaction may change other data: terminals, addresses, clock, currency.

        True if the transaction is open and never had an outcome. So a sender with the token of an old payment can
        change only that payment. False for an orphan, because only the content of its callbacks says which terminal
        sent them.
        """
        return self.phase is not Phase.FINAL and self.withdrawn is None and not self.orphan

    @property
    def abortable(self) -> bool:
        """Whether the transaction's state allows an abort.

        An abort has no id, so it cancels the payment that runs on the terminal. That can be another payment if this
        payment was released, is an orphan (which holds no terminal), or runs on another device.

        Source: terminal API, Lifecycle.
        """
        return not (
            self.phase is Phase.FINAL
            or self.released
            or self.mismatched
            or self.orphan
            or past_point_of_no_return(self)
        )

    @property
    def total(self) -> Decimal:
        """Sum of all numbers in the till's amount; 0 for an empty amount."""
        return amount_and_tip(self.amount)[0]


@lru_cache(maxsize=64)  # each approval is checked twice, with the same amount
def amount_and_tip(amount: bytes) -> tuple[Decimal, Decimal]:
    """Return the sum of all numbers in a stored amount, and the tip in it."""
    parts = _EXACT.decode(amount)
    return sum_of(parts), read_money(parts.get(TIP)) or ZERO


def past_point_of_no_return(transaction: Transaction) -> bool:
    """Whether the acquirer was asked, so that only the terminal can report the outcome (terminal API, Lifecycle)."""
    return transaction.trail.approval_requested or transaction.status in lifecycle.FINALS


def unsettled(transaction: Transaction) -> bool:
    """Whether posd cannot tell what was paid in a final transaction, until an operator closes its attention."""
    if any(item.code in CONFLICTS for item in transaction.attention):
        return True
    outcome = transaction.outcome
    # The terminal ended the transaction after it had asked the acquirer. The acquirer's decision is unknown.
    return (
        outcome is not None
        and outcome.result is not Result.APPROVED
        and outcome.reached_acquirer is None
        and transaction.attention_of(AttentionCode.ILLEGAL_TRANSITION) is not None
    )


def undecided(transaction: Transaction) -> bool:
    """Whether a transaction may still turn out as paid: it is open, or unsettled."""
    return transaction.outcome is None or unsettled(transaction)


def approved(transaction: Transaction) -> bool:
    """Whether the outcome of a transaction is an approval."""
    return transaction.outcome is not None and transaction.outcome.result is Result.APPROVED


def may_be_paid(transaction: Transaction) -> bool:
    """Whether a transaction prevents another payment of the same sale: it is approved, or undecided."""
    return undecided(transaction) or approved(transaction)


def end_unseen(transaction: Transaction) -> bool:
    """Whether an open transaction may have ended without posd's knowledge.

    It is in doubt. Or posd could not use a message about it, and the last search did not find its state.
    """
    if transaction.phase is not Phase.ACTIVE:
        return transaction.phase is Phase.IN_DOUBT
    searched = transaction.last_search
    unread = transaction.attention_of(AttentionCode.QUARANTINED_EVENT) is not None
    return unread and (searched is None or searched.result is not SearchResult.FOUND)


def grace_left(transaction: Transaction, now: datetime, grace: timedelta) -> timedelta | None:
    """Return the time in which posd may still learn the end by itself, or None if an operator has to check it.

    Only for a transaction whose end is unseen (`end_unseen`).
    """
    in_doubt = transaction.phase is Phase.IN_DOUBT
    doubt = transaction.attention_of(AttentionCode.IN_DOUBT if in_doubt else AttentionCode.QUARANTINED_EVENT)
    if doubt is None:
        return None
    left = grace - (now - parse_iso(doubt.since))
    # After the clock was set back, the duration is unknown.
    return left if timedelta(0) <= left <= grace else None


def unaccounted(transaction: Transaction) -> bool:
    """Whether the terminal accepted a transaction and may never report its end.

    The terminal sends no events, or the last search did not find the transaction.
    """
    searched = transaction.last_search
    return transaction.phase is Phase.ACTIVE and (
        (searched is not None and searched.result is not SearchResult.FOUND)
        or any(item.code in SILENCES for item in transaction.attention)
    )


def wait_left(transaction: Transaction, now: datetime) -> timedelta | None:
    """Return how long a customer may still wait at the terminal. None: the customer has left, or it is unknown."""
    left = LONG_WAIT - (now - parse_iso(transaction.created_at))
    return left if timedelta(0) <= left <= LONG_WAIT else None


def next_step(transaction: Transaction, now: datetime, grace: timedelta) -> NextStep:
    """Return the till's next step. `grace`: time in which a doubt may end by itself before an operator has to check."""
    if unsettled(transaction):
        return NextStep.ASK_PERSON
    outcome = transaction.outcome
    if outcome is not None:
        return NextStep.DONE if outcome.result is Result.APPROVED else NextStep.NEW_ID_OK
    if transaction.released:
        return NextStep.ASK_PERSON  # an operator handles a released transaction
    if end_unseen(transaction) and grace_left(transaction, now, grace) is None:
        return NextStep.ASK_PERSON
    if transaction.attention_of(AttentionCode.EVENT_ID_REUSED):
        return NextStep.ASK_PERSON  # the event with the reused id was not applied, and may be the final one
    if unaccounted(transaction) and wait_left(transaction, now) is None:
        return NextStep.ASK_PERSON  # the customer has left, and the terminal may never report the end
    return NextStep.WAIT


# Attentions.


def attend(transaction: Transaction, code: AttentionCode, now: datetime, detail: str) -> Transaction:
    """Raise an attention. If the attention is already open, keep its start time and set the newer detail."""
    return attended(transaction, Attention(code=code, since=iso(now), detail=detail))
