"""The documents of transactions (local API, Transactions)."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta, Raw

from posd.base.json_types import AMOUNT, Amount, Moment, Uuid, WireFormat, presentable
from posd.base.operations import OperationType
from posd.base.text import Language
from posd.payments import chains, entries, journal, model
from posd.payments.answers import NAMES, RESULTS, AbortAnswer, SearchFailed
from posd.payments.display import Display, display
from posd.payments.entries import AbortAnswered, Attempted, Entry, JudgedStart, NothingHeard, Searched
from posd.payments.journal import StoredEvent
from posd.payments.lifecycle import Status, Verdict
from posd.payments.missing_proof import MissingProof
from posd.payments.model import Attention, LastSearch, NextStep, SearchResult
from posd.records.model import (
    QUARANTINED_LINE,
    REAPPLIED_LINE,
    TAKEN_OVER_LINE,
    AttemptLine,
    IntentLine,
    Line,
    Phase,
    facts_of,
    line_of,
    own_line,
    same_fields,
)

# Fields that several documents share.

Id = Annotated[Uuid, Meta(description="the id that the till chose")]
Serial = Annotated[str, Meta(description="serial number of its terminal")]
Operation = Annotated[OperationType | None, Meta(description="null if only events without a type are known")]
Sale = Annotated[str | None, Meta(description="the till's key of the sale")]
AmountAsked = Annotated[
    Mapping[str, Decimal | Mapping[str, Decimal]], WireFormat(Amount), Meta(description="the requested amount")
]
PhaseNow = Annotated[
    Phase,
    Meta(description="posd's own view. `in_doubt`: not known whether the terminal has it. `final`: has an outcome"),
]
NextStepNow = Annotated[
    NextStep,
    Meta(
        description="the till's next step. `wait`: ask again. `done`: it is approved. `new_id_ok`: it charged "
        "nothing, and a new payment needs a new id. `ask_person`: an operator has to check it. Never pay "
        "again before the end"
    ),
]
DisplayNow = Annotated[Display, Meta(description="what the till may show to its cashier")]
MissingNow = Annotated[
    tuple[MissingProof, ...],
    Meta(description="in doubt: the missing conditions of `not_started`, and how to meet them; else empty"),
]
AttentionNow = Annotated[tuple[Attention, ...], Meta(description="what an operator should check")]


class Outcome(model.Outcome, frozen=True, kw_only=True):
    """How a transaction ended, and the evidence for it."""

    next_step: NextStepNow
    display: DisplayNow
    supersedes: Annotated[
        Outcome | None,
        Meta(
            description="the earlier outcome, which this outcome corrected; its `next_step` and `display` are the "
            "present ones of the transaction"
        ),
    ] = None
    final_event: Annotated[
        Annotated[Raw, WireFormat(dict[str, object])] | None,
        Meta(
            description="the terminal's final event as received, with `[redacted]` for a callback token; null "
            "without one. In a damaged event, unreadable parts are U+FFFD or null"
        ),
    ] = None


class TransactionOutcome(Outcome, frozen=True, kw_only=True):
    """How a transaction ended, and the till's request."""

    client_transaction_id: Id
    terminal: Serial
    type: Operation
    sale: Sale
    amount: AmountAsked


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one operation on one terminal."""

    client_transaction_id: Id
    terminal: Serial
    type: Operation
    sale: Sale
    phase: PhaseNow
    status: Annotated[Status | None, Meta(description="the terminal's newest known state")]
    reading_type: Annotated[str | None, Meta(description="how the card was read, as the terminal writes it")]
    next_step: NextStepNow
    display: DisplayNow
    abortable: Annotated[bool, Meta(description="whether an abort is possible now")]
    released: Annotated[bool, Meta(description="whether an operator or a till has freed the terminal")]
    missing_proof: MissingNow
    amount: AmountAsked
    metadata: Annotated[Raw, WireFormat(dict[str, object]), Meta(description="from the till's request, unchanged")]
    options: Annotated[Raw, WireFormat(dict[str, object]), Meta(description="from the till's request, unchanged")]
    transaction_reference: Annotated[str | None, Meta(description="the acquirer's reference of its original")]
    original: Annotated[Uuid | None, Meta(description="its original, if known here")]
    derived: Annotated[list[Uuid], Meta(description="ids of the operations on it")]
    created_at: Annotated[Moment, Meta(description="time of the till's request")]
    updated_at: Annotated[Moment, Meta(description="when it changed last")]
    last_search: Annotated[LastSearch | None, Meta(description="the last search for it, and its result")]
    outcome: Annotated[Outcome | None, Meta(description="null until it is final")]
    attention: AttentionNow


class State(msgspec.Struct, frozen=True):
    """The state of a transaction, as far as a till shows it."""

    phase: PhaseNow
    next_step: NextStepNow
    display: DisplayNow
    missing_proof: MissingNow
    attention: AttentionNow


class Event(msgspec.Struct, frozen=True):
    """A recorded event of the terminal."""

    seq: Annotated[int, Meta(description="its number within the payment, in the order of arrival")]
    received_at: Annotated[Moment, Meta(description="when it arrived")]
    verdict: Annotated[str, WireFormat(Verdict), Meta(description="its effect; `applied` changed the transaction")]
    event: Annotated[Raw, WireFormat(dict[str, object]), Meta(description="as received; see `Outcome.final_event`")]


class Events(msgspec.Struct, frozen=True):
    """The events of one transaction; exact repeats are not listed."""

    events: Annotated[list[Event], Meta(description="in the order of arrival")]


# Lines of a transaction's history: its events, and its journal entries with the user of each (local API, history).
#
# `kind` must follow `at` in the JSON, so it is a field and not msgspec's tag.


class EventLine(Line, frozen=True, kw_only=True):
    """An event of the terminal arrived."""

    kind: Literal["event"] = "event"
    seq: Annotated[int, Meta(description="`seq` of the event")]
    status: Annotated[str, Meta(description="the state in the event, known or not")]
    verdict: Annotated[str, WireFormat(Verdict), Meta(description="its effect")]


class SearchLine(Line, frozen=True, kw_only=True):
    """posd searched for the transaction on the terminal."""

    kind: Literal["search"] = "search"
    result: Annotated[SearchResult, Meta(description="the result")]
    http_status: Annotated[int | None, Meta(description="the terminal's HTTP status, if the reply was unusable")]
    reason: Annotated[str | None, Meta(description="why there was no usable reply")]


class AbortAnsweredLine(Line, frozen=True, kw_only=True):
    """The abort has ended."""

    kind: Literal["abort_answered"] = "abort_answered"
    answer: Annotated[AbortAnswer, Meta(description="the meaning of the terminal's reply")]
    http_status: Annotated[int | None, Meta(description="the terminal's HTTP status, null without a complete reply")]
    reason: Annotated[str | None, Meta(description="why there was no reply")]


class SilentLine(Line, frozen=True, kw_only=True):
    """The terminal sent nothing."""

    kind: Literal["no_callback", "stalled"]
    seconds: Annotated[float, Meta(description="duration of the silence")]


#: Types of the lines, in the order of the API's description. `line_of` makes most of them from the journal entries.
HISTORY_LINES: tuple[type[Line], ...] = (
    IntentLine,
    EventLine,
    AttemptLine,
    line_of(
        "InterruptedLine",
        "posd started, and found that its earlier process had ended while it sent the request.",
        entries.Interrupted,
    ),
    SearchLine,
    line_of("AbortRequestedLine", "An abort is about to be sent.", entries.AbortRequested),
    AbortAnsweredLine,
    QUARANTINED_LINE,
    SilentLine,
    line_of("ProofLine", "posd proved that the payment never started.", entries.ProvedNotStarted),
    line_of("ReleaseLine", "An operator or a till freed the terminal.", entries.Released),
    line_of("ResolveLine", "An operator recorded how the payment ended.", entries.Resolved),
    line_of("AcknowledgeLine", "An operator closed an attention.", entries.Dismissed),
    line_of("UnlikelyLine", "The approval contradicts the request.", entries.Unlikely),
    line_of(
        "BrokeOffLine",
        "The connection of an authentic callback broke before its body was complete.",
        entries.CallbackBrokeOff,
    ),
    line_of("EventLimitLine", "The terminal sent more events than posd keeps, so one was refused.", entries.Overrun),
    TAKEN_OVER_LINE,
    REAPPLIED_LINE,
    line_of(
        "AddressLine",
        "This machine lost the address in the payment's callback URL, or got it back.",
        entries.AddressLost,
        entries.AddressBack,
    ),
    line_of(
        "DisputedLine",
        "Several devices claim to be the terminal: nothing is sent for this payment.",
        entries.Disputed,
    ),
    line_of("UndisputedLine", "posd knows again which device is the terminal.", entries.Undisputed),
    line_of(
        "ReadLine",
        "No program read the approval within ten minutes; or a program read it later.",
        entries.OutcomeUnread,
        entries.OutcomeRead,
    ),
)
HISTORY_LINE: Any = Union[HISTORY_LINES]  # noqa: UP007 - of a tuple


class History(msgspec.Struct, frozen=True):
    """All that happened to a transaction, in order."""

    history: Annotated[
        list[Annotated[Line, WireFormat(HISTORY_LINE), Meta(extra={"later": "LaterLine"})]],
        Meta(description="in the order in which posd received them"),
    ]


# Conversion of transactions and rows into documents of the local API. The fields have the names of the API.


def outcome_document(
    db: sqlite3.Connection | None, transaction: model.Transaction, step: NextStep, language: Language
) -> Outcome | None:
    """Return the outcome with its final event, or None without an outcome. With `db` None, omit the final event."""
    if transaction.outcome is None:
        return None
    final = journal.final_event(db, transaction) if db is not None else None
    return _outcome(transaction.outcome, step, display(transaction, step, language), final)


def transaction_outcome(
    db: sqlite3.Connection, transaction: model.Transaction, step: NextStep, language: Language
) -> TransactionOutcome | None:
    """Return the outcome with the till's request, or None without an outcome."""
    outcome = outcome_document(db, transaction, step, language)
    if outcome is None:
        return None
    fields = same_fields(TransactionOutcome, transaction) | msgspec.structs.asdict(outcome)
    return TransactionOutcome(**fields | {"amount": AMOUNT.decode(transaction.amount)})


def _outcome(outcome: model.Outcome, step: NextStep, said: Display, final_event: bytes | None = None) -> Outcome:
    fields = msgspec.structs.asdict(outcome)
    fields["supersedes"] = _outcome(outcome.supersedes, step, said) if outcome.supersedes else None
    final = msgspec.Raw(presentable(final_event)) if final_event else None
    return Outcome(**fields, next_step=step, display=said, final_event=final)


def transaction_document(
    db: sqlite3.Connection | None,
    transaction: model.Transaction,
    step: NextStep,
    language: Language,
    *,
    abortable: bool,
    missing_proof: tuple[MissingProof, ...] = (),
) -> Transaction:
    """Return the local API's document of a transaction. `step`: the till's next step for it."""
    original = transaction.original or transaction.derives_from
    values = same_fields(Transaction, transaction) | {
        "next_step": step,
        "display": display(transaction, step, language),
        "abortable": abortable,
        "missing_proof": missing_proof,
        "amount": AMOUNT.decode(transaction.amount),
        "metadata": msgspec.Raw(transaction.metadata),
        "options": msgspec.Raw(transaction.options),
        "original": original if db is None else chains.original_of(db, transaction),
        "derived": [] if db is None else chains.derived_ids(db, transaction),
        "outcome": outcome_document(db, transaction, step, language),
        "attention": transaction.shown_attention,
    }
    return Transaction(**values)


def state_document(
    transaction: model.Transaction, step: NextStep, language: Language, missing_proof: tuple[MissingProof, ...]
) -> State:
    """Return the state of a transaction as a document. `step`: the till's next step for it."""
    said = display(transaction, step, language)
    return State(transaction.phase, step, said, missing_proof, transaction.shown_attention)


def event_document(item: StoredEvent) -> Event:
    """Return a recorded event with its number and verdict. The event is verbatim except for damaged parts."""
    return Event(item.seq, item.received_at, item.verdict, msgspec.Raw(presentable(item.body)))


def history_document(db: sqlite3.Connection, transaction: model.Transaction) -> History:
    """Return the history of a transaction: its start, then its events and journal entries in the order of arrival."""
    lines: list[tuple[int, Line]] = [
        (2 * item.events_before, line(item.at, item.entry, transaction))
        for item in journal.entries(db, transaction.client_transaction_id)
    ]
    for count, event in enumerate(journal.each_event(db, transaction.client_transaction_id, 0)):
        lines.append((2 * count + 1, EventLine(at=event.received_at, **same_fields(EventLine, event))))
    lines.sort(key=lambda item: item[0])
    first = IntentLine(at=transaction.created_at, terminal=transaction.terminal)
    return History([*([] if transaction.orphan else [first]), *(item for _, item in lines)])


def line(at: str, entry: Entry, transaction: model.Transaction) -> Line:
    """Return the line of the history for an entry of the journal."""
    match entry:
        case Attempted(attempt=attempt):
            judgement = JudgedStart.of(entry, transaction.client_transaction_id).judgement
            return AttemptLine(at=at, judgement=NAMES[type(judgement)], **facts_of(attempt))
        case AbortAnswered(attempt=attempt):
            return AbortAnsweredLine(at=at, answer=entry.answer, **facts_of(attempt))
        case Searched(answer=answer):
            reason, status = (answer.reason, answer.status) if isinstance(answer, SearchFailed) else (None, None)
            return SearchLine(at=at, result=RESULTS[type(answer)], http_status=status, reason=reason)
        case NothingHeard(code=code, seconds=seconds):
            kind: Any = str(code)  # `no_callback` or `stalled`
            return SilentLine(at=at, kind=kind, seconds=seconds)
        case _:
            return own_line(HISTORY_LINES, at, entry)
