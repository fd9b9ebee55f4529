"""How a transaction ended: five types, one for each result, made to be looked at with `match` and `assert_never`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

from posd.client import documents
from posd.client.documents import Document

#: Types of transaction by which, once approved, the card is charged. Others reserve (pre-auth, re-auth) or give back.
CHARGING = frozenset({"charge", "capture", "post-tip"})
NOT_CHARGING = frozenset({"pre-auth", "re-auth", "void"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """One proof: its `kind` (event, search, refusal, unsent, abort, operator) and when it came."""

    kind: str
    at: datetime
    document: Document = field(repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why it failed: the terminal's own words, or posd's (`type` "posd") where it was not started."""

    type: str | None
    code: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt needs beside amount and references."""

    authorization_code: str | None
    franchise: str | None
    card_type: str | None
    cvm_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What every outcome has.

    `next_step` is posd's advice: `done`; `new_id_ok` (not charged: pay again under a new id); `ask_person` (what the
    terminal said contradicts itself). `status` is the terminal's last state, None where none stands behind it.
    `reached_acquirer` is None where that is not known. `document` is the outcome as posd sent it, with whatever this
    client does not know.
    """

    id: str
    type: str | None
    next_step: str
    status: str | None
    reached_acquirer: bool | None
    reading_type: str | None
    failure_reason: Failure | None
    decided_at: datetime
    evidence: tuple[Evidence, ...]
    supersedes: "Outcome | None" = field(repr=False)
    final_event: Document | None = field(repr=False)
    document: Document = field(repr=False)

    #: The word on the wire.
    result: ClassVar[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved(Ended):
    """The acquirer approved it.

    The references are None where the terminal did not send them. `reversal`, of a void: `cancellation` on the same
    day as the original, else `refund`.
    """

    result: ClassVar[str] = "approved"

    transaction_reference: str | None
    ticket_number: str | None
    authorized_amount: Decimal | None
    receipt: Receipt | None
    reversal: str | None

    @property
    def charged(self) -> bool | None:
        """True: the card was charged. False: this reserved, or gave back. None: a person has to look first."""
        if self.next_step != "done":
            return None
        return True if self.type in CHARGING else False if self.type in NOT_CHARGING else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed(Ended):
    @property
    def charged(self) -> bool | None:
        """False: the card was not charged, and the customer may pay again under a new id. None: ask a person first."""
        return False if self.next_step == "new_id_ok" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined(_Failed):
    """The acquirer declined it."""

    result: ClassVar[str] = "declined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(_Failed):
    """The terminal could not do it."""

    result: ClassVar[str] = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceled(_Failed):
    """It was canceled, at the terminal or by an abort."""

    result: ClassVar[str] = "canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted(_Failed):
    """It provably never ran on the terminal; `failure_reason` says why."""

    result: ClassVar[str] = "not_started"


Outcome: TypeAlias = Approved | Declined | Rejected | Canceled | NotStarted

TYPES: dict[str, type[Outcome]] = {kind.result: kind for kind in (Approved, Declined, Rejected, Canceled, NotStarted)}


def read_outcome(transaction: Document) -> Outcome | None:
    """Return the outcome of a transaction's document, None while there is none.

    Raise UnknownResult, or ValueError where it is no such document.
    """
    outcome = documents.maybe_document(transaction, "outcome")
    return None if outcome is None else _read(transaction, outcome, documents.text(transaction, "next_step"))


def _read(transaction: Document, outcome: Document, next_step: str) -> Outcome:
    identity = documents.text(transaction, "client_transaction_id")
    kind = TYPES.get(result := documents.text(outcome, "result"))
    if kind is None:
        raise UnknownResult(identity, result, transaction)
    older = documents.maybe_document(outcome, "supersedes")
    common: dict[str, Any] = {
        "id": identity,
        "type": documents.maybe(transaction, "type"),
        "next_step": next_step,
        "status": documents.maybe(outcome, "status"),
        "reached_acquirer": documents.maybe_flag(outcome, "reached_acquirer"),
        "reading_type": documents.maybe(outcome, "reading_type"),
        "failure_reason": _failure(documents.maybe_document(outcome, "failure_reason")),
        "decided_at": documents.moment(outcome, "decided_at"),
        "evidence": tuple(map(_evidence, documents.items(outcome, "evidence"))),
        # What was corrected is nothing to act on: posd's advice is about the one that stands.
        "supersedes": None if older is None else _read(transaction, older, "ask_person"),
        "final_event": documents.maybe_document(outcome, "final_event"),
        "document": outcome,
    }
    if kind is not Approved:
        return kind(**common)
    return Approved(
        **common,
        transaction_reference=documents.maybe(outcome, "transaction_reference"),
        ticket_number=documents.maybe(outcome, "ticket_number"),
        authorized_amount=documents.amount(outcome, "authorized_amount"),
        receipt=_receipt(documents.maybe_document(outcome, "receipt")),
        reversal=documents.maybe(outcome, "reversal"),
    )


def _evidence(item: object) -> Evidence:
    source = documents.document(item)
    return Evidence(documents.text(source, "kind"), documents.moment(source, "at"), source)


def _failure(source: Document | None) -> Failure | None:
    return None if source is None else Failure(*(documents.maybe(source, name) for name in ("type", "code", "message")))


def _receipt(source: Document | None) -> Receipt | None:
    names = ("authorization_code", "franchise", "card_type", "cvm_type")
    return None if source is None else Receipt(*(documents.maybe(source, name) for name in names))


class UnknownResult(Exception):
    """The transaction has ended in a way that this client does not know: posd is newer. Never take it for another.

    `document` is the transaction as posd shows it; its `next_step` says what to do.
    """

    def __init__(self, id: str, result: object, document: Mapping[str, Any]) -> None:  # noqa: A002 - the field's name
        super().__init__(
            f"transaction {id} has ended with {result!r}, which this client does not know: it is older than posd. "
            f"posd's own advice (next_step) is {document.get('next_step')!r}; renew the client"
        )
        self.id = id
        self.result = result
        self.document = document
