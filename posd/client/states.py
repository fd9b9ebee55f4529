"""Posd's documents as types. Words are posd's own texts: a newer posd may have more of them than are named here.

Each keeps the document that it was read from (`document`), with what this client does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

from posd.client import documents
from posd.client.documents import Document

# How a transaction ended: five types, one for each result, made to be looked at with `match` and `assert_never`.

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


@dataclass(frozen=True, slots=True)
class Attention:
    """A condition that a person should look at; it changes no outcome by itself."""

    code: str
    since: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """How a transaction stands.

    `phase`: starting, in_doubt, active, final. `status`: the terminal's newest state known, or None.
    `next_step`: wait, done, new_id_ok, ask_person. While it is not final, never pay again under a new id.
    """

    id: str
    terminal: str
    type: str | None
    sale: str | None
    phase: str
    status: str | None
    reading_type: str | None
    next_step: str
    abortable: bool
    released: bool
    amount: Document
    metadata: Document
    options: Document
    transaction_reference: str | None
    original: str | None
    derived: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    attention: tuple[Attention, ...]
    document: Document = field(repr=False)

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.phase == "final"

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it has not. Raise UnknownResult."""
        return read_outcome(self.document)

    @classmethod
    def read(cls, source: Document) -> "Transaction":
        """Read the document. Raise ValueError."""
        return cls(
            id=documents.text(source, "client_transaction_id"),
            terminal=documents.text(source, "terminal"),
            type=documents.maybe(source, "type"),
            sale=documents.maybe(source, "sale"),
            phase=documents.text(source, "phase"),
            status=documents.maybe(source, "status"),
            reading_type=documents.maybe(source, "reading_type"),
            next_step=documents.text(source, "next_step"),
            abortable=documents.flag(source, "abortable"),
            released=documents.flag(source, "released"),
            amount=documents.document(source.get("amount")),
            metadata=documents.document(source.get("metadata")),
            options=documents.document(source.get("options")),
            transaction_reference=documents.maybe(source, "transaction_reference"),
            original=documents.maybe(source, "original"),
            derived=tuple(map(str, documents.items(source, "derived"))),
            created_at=documents.moment(source, "created_at"),
            updated_at=documents.moment(source, "updated_at"),
            attention=read_attention(source),
            document=source,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """An event of the terminal: its place, its state (`status`), what posd made of it (`verdict`), and itself."""

    seq: int
    received_at: datetime
    status: str | None
    verdict: str
    event: Document = field(repr=False)
    document: Document = field(repr=False)

    @classmethod
    def read(cls, source: Document) -> "Change":
        """Read an item of the event stream. Raise ValueError."""
        event = documents.document(source.get("event"))
        return cls(
            seq=documents.whole(source, "seq"),
            received_at=documents.moment(source, "received_at"),
            status=status if isinstance(status := event.get("status"), str) else None,
            verdict=documents.text(source, "verdict"),
            event=event,
            document=source,
        )


@dataclass(frozen=True, slots=True)
class FeedChange:
    """A recorded change of any transaction or print job (`kind`, `id`): why it was made, and how it then stood."""

    seq: int
    at: datetime
    kind: str
    id: str
    reason: str
    phase: str
    status: str | None
    result: str | None
    attention: tuple[str, ...]
    terminal: str | None
    document: Document = field(repr=False)
    #: Where the feed goes on behind it: `Posd.feed(after=place)`.
    place: str = ""

    @classmethod
    def read(cls, source: Document) -> "FeedChange":
        """Read an item of the feed. Raise ValueError."""
        return cls(
            seq=documents.whole(source, "seq"),
            at=documents.moment(source, "at"),
            kind=documents.text(source, "kind"),
            id=documents.text(source, "id"),
            reason=documents.text(source, "reason"),
            phase=documents.text(source, "phase"),
            status=documents.maybe(source, "status"),
            result=documents.maybe(source, "result"),
            attention=tuple(map(str, documents.items(source, "attention"))),
            terminal=documents.maybe(source, "terminal"),
            document=source,
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """What a reader of the feed may have missed, and what to do about it (`detail`).

    `code`: `changes_removed` (by retention, up to `seq`) or `place_unknown` (a backup or an older copy of the database
    was put in place; the feed goes on after `seq`).
    """

    code: str
    detail: str
    seq: int

    @classmethod
    def read(cls, source: Document) -> "Notice":
        """Read a notice of the feed. Raise ValueError."""
        return cls(
            code=documents.text(source, "code"),
            detail=documents.text(source, "detail"),
            seq=documents.whole(source, "seq"),
        )


@dataclass(frozen=True, slots=True)
class PrintJob:
    """How a print job stands. `status`: PENDING, IN_PROGRESS, COMPLETED, FAILED, or None while not accepted.

    Final with `status` None: it was provably not accepted (`reason`).
    """

    id: str
    terminal: str
    external_reference: str
    reprint_of: str | None
    status: str | None
    phase: str
    error_code: str | None
    error_message: str | None
    reason: str | None
    created_at: datetime
    updated_at: datetime
    decided_by: str | None
    attention: tuple[Attention, ...]
    document: Document = field(repr=False)

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.phase == "final"

    @property
    def printed(self) -> bool:
        """Whether it was printed."""
        return self.final and self.status == "COMPLETED"

    @classmethod
    def read(cls, source: Document) -> "PrintJob":
        """Read the document. Raise ValueError."""
        return cls(
            id=documents.text(source, "print_job_id"),
            terminal=documents.text(source, "terminal"),
            external_reference=documents.text(source, "external_reference"),
            reprint_of=documents.maybe(source, "reprint_of"),
            status=documents.maybe(source, "status"),
            phase=documents.text(source, "phase"),
            error_code=documents.maybe(source, "error_code"),
            error_message=documents.maybe(source, "error_message"),
            reason=documents.maybe(source, "reason"),
            created_at=documents.moment(source, "created_at"),
            updated_at=documents.moment(source, "updated_at"),
            decided_by=documents.maybe(source, "decided_by"),
            attention=read_attention(source),
            document=source,
        )


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal: where it is, whether it can be reached (None: not known), and the transaction that holds it."""

    serial: str
    brand: str | None
    model: str | None
    base_url: str | None
    source: str | None
    reachable: bool | None
    last_seen: datetime | None
    transaction: str | None
    in_fleet: bool
    document: Document = field(repr=False)

    @classmethod
    def read(cls, source: Document) -> "Terminal":
        """Read the document. Raise ValueError."""
        return cls(
            serial=documents.text(source, "serial"),
            brand=documents.maybe(source, "brand"),
            model=documents.maybe(source, "model"),
            base_url=documents.maybe(source, "base_url"),
            source=documents.maybe(source, "source"),
            reachable=documents.maybe_flag(source, "reachable"),
            last_seen=documents.maybe_moment(source, "last_seen"),
            transaction=documents.maybe(source, "transaction"),
            in_fleet=source.get("in_fleet") is not False,
            document=source,
        )


@dataclass(frozen=True, slots=True)
class Check:
    """One check of posd's health: ok, degraded or failing, and what to do."""

    status: str
    detail: str


@dataclass(frozen=True, slots=True)
class Health:
    """How posd is: ok, degraded or failing, by its checks."""

    status: str
    checks: dict[str, Check]
    document: Document = field(repr=False)

    @classmethod
    def read(cls, source: Document) -> "Health":
        """Read the document. Raise ValueError."""
        checks = {name: documents.document(check) for name, check in documents.document(source.get("checks")).items()}
        return cls(
            status=documents.text(source, "status"),
            checks={
                name: Check(documents.text(check, "status"), documents.text(check, "detail"))
                for name, check in checks.items()
            },
            document=source,
        )


@dataclass(frozen=True, slots=True)
class Version:
    """Which posd this is: its release, the API's, and the database's."""

    version: str
    api: str
    schema: int
    document: Document = field(repr=False)

    @classmethod
    def read(cls, source: Document) -> "Version":
        """Read the document. Raise ValueError."""
        return cls(
            documents.text(source, "version"), documents.text(source, "api"), documents.whole(source, "schema"), source
        )


def read_attention(source: Document) -> tuple[Attention, ...]:
    """Read the `attention` of a document. Raise ValueError."""
    found = map(documents.document, documents.items(source, "attention"))
    return tuple(
        Attention(documents.text(item, "code"), documents.moment(item, "since"), documents.text(item, "detail"))
        for item in found
    )
