"""The documents of transactions (local API, Transactions)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from posd.base.json_types import Amount, Moment, Uuid, Wire
from posd.payments import model
from posd.payments.lifecycle import Status, Verdict
from posd.payments.model import Attention, LastSearch, NextStep, OperationType
from posd.records.model import Phase


class Outcome(model.Outcome, frozen=True):
    """How a transaction ended, and the evidence for it."""

    supersedes: Annotated[Outcome | None, Meta(description="the outcome that this one corrected")] = None
    final_event: Annotated[
        Annotated[Raw, Wire(dict[str, object])] | None,
        Meta(description="the terminal's final event as it came, null where there is none"),
    ] = None


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on one terminal, as it stands."""

    client_transaction_id: Annotated[Uuid, Meta(description="the id that the till chose")]
    terminal: Annotated[str, Meta(description="serial number of the terminal that was asked")]
    type: Annotated[
        OperationType | None, Meta(description="null for one that was rebuilt from events that do not say it")
    ]
    sale: Annotated[str | None, Meta(description="the till's key for what is being paid")]
    phase: Annotated[
        Phase,
        Meta(description="posd's own view; `in_doubt`: it is not known whether it runs or ran. `final` has an outcome"),
    ]
    status: Annotated[Status | None, Meta(description="the newest state of the terminal that is known")]
    reading_type: Annotated[str | None, Meta(description="how the card was read, as the terminal writes it")]
    next_step: Annotated[
        NextStep,
        Meta(
            description="what the till does now: `wait`; `done`: it is approved; `new_id_ok`: it ended and was not "
            "charged, pay again under a new id; `ask_person`: a person has to look. Before the end never pay again"
        ),
    ]
    abortable: Annotated[bool, Meta(description="whether an abort may be asked for now")]
    released: Annotated[bool, Meta(description="a person has freed its terminal")]
    amount: Annotated[Raw, Wire(Amount), Meta(description="what was asked for")]
    metadata: Annotated[Raw, Wire(dict[str, object]), Meta(description="the till's own, as it wrote it")]
    options: Annotated[Raw, Wire(dict[str, object]), Meta(description="the till's own, as it wrote it")]
    transaction_reference: Annotated[str | None, Meta(description="the acquirer's, of what it is derived from")]
    original: Annotated[Uuid | None, Meta(description="what it is derived from, where that is known here")]
    derived: Annotated[list[Uuid], Meta(description="what is derived from it")]
    created_at: Annotated[Moment, Meta(description="when the till asked for it")]
    updated_at: Annotated[Moment, Meta(description="when it changed last")]
    last_search: Annotated[LastSearch | None, Meta(description="when the terminal was asked last what became of it")]
    outcome: Annotated[Outcome | None, Meta(description="null until it is final")]
    attention: Annotated[tuple[Attention, ...], Meta(description="what a person should look at")]


class TransactionPage(msgspec.Struct, frozen=True):
    """Transactions, newest first."""

    transactions: Annotated[list[Transaction], Meta(description="newest first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page, null on the last one")]


class Event(msgspec.Struct, frozen=True):
    """A recorded event of the terminal."""

    seq: Annotated[int, Meta(description="its place in the order of arrival, over all transactions")]
    received_at: Annotated[Moment, Meta(description="when it came")]
    verdict: Annotated[str, Wire(Verdict), Meta(description="what became of it; `applied` moved the transaction")]
    event: Annotated[Raw, Wire(dict[str, object]), Meta(description="the event as it came")]


class Events(msgspec.Struct, frozen=True):
    """The events of one transaction; exact repeats are not listed."""

    events: Annotated[list[Event], Meta(description="in the order of arrival")]
