"""posd's documents as types. Codes are plain texts, because a newer posd may have codes that are not listed here.

Most types have the original `document`, with the members that this client does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from posd.client import documents
from posd.client.documents import SAME_CALL, Document, PosdError
from posd.client.operations import EFFECTS, Effect, Paid, Reserved, Reversed

# Outcome of a transaction: five types, one for each result, for `match` and `assert_never`.


if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    E = DefaultTypeVar("E", bound=Effect, covariant=True, default=Effect)
else:
    E = TypeVar("E", covariant=True)
#: Type of effect.
K = TypeVar("K", Paid, Reserved, Reversed)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for an outcome: its `kind` (event, search, refusal, unsent, abort, operator) and time."""

    kind: str
    at: datetime
    document: Document = field(repr=False)


@dataclass(frozen=True, slots=True)
class TerminalFailure:
    """Error in the terminal's reply to posd's call."""

    type: str | None
    code: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason of a failure, from the terminal's event.

    Without an event posd sets the reason, with `type` "posd". `terminal`: in that case the error in the terminal's
    reply, or None.
    """

    type: str | None
    code: str | None
    message: str | None
    terminal: TerminalFailure | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Fields of a receipt other than amount and references."""

    authorization_code: str | None
    franchise: str | None
    card_type: str | None
    cvm_type: str | None


@dataclass(frozen=True, slots=True)
class Display:
    """Text for the till's cashier: a `code`, which never changes its meaning, and its `text`."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Generic[E]):
    """Common fields of every outcome.

    `amount`: the requested amount. `next_step`: `done`, `new_id_ok` (not charged; pay again under a new id) or
    `ask_person` (the terminal's data contradict each other). `display`: None from an older posd. `status`: the
    terminal's last state, or None. `reached_acquirer`: whether the terminal sent the operation to the acquirer; None:
    unknown. `document`: the outcome as posd sent it, with members that this client does not know.
    """

    id: str = field(metadata={"member": "client_transaction_id"})
    type: str | None
    terminal: str
    sale: str | None
    amount: Document
    next_step: str
    display: Display | None
    status: str | None
    reached_acquirer: bool | None
    reading_type: str | None
    failure_reason: Failure | None
    decided_at: datetime
    evidence: tuple[Evidence, ...]
    supersedes: "Outcome | None" = field(repr=False)
    final_event: Document | None = field(repr=False)
    document: Document = field(repr=False)

    #: Value of `result` in the API.
    result: ClassVar[str]

    @property
    def effect(self) -> E:
        """Effect on the customer's money. It is `Paid.UNCLEAR` if this client does not know the type of operation."""
        kind: Any = EFFECTS.get(self.type)
        if kind is None:
            return Paid.UNCLEAR  # type: ignore[return-value]  # the client has no type for an unknown operation
        done, undone, unclear = kind
        if self.next_step == "done" and self.result == "approved":
            return done  # type: ignore[no-any-return]
        if self.next_step == "new_id_ok" and self.result != "approved":
            return undone  # type: ignore[no-any-return]
        return unclear  # type: ignore[no-any-return]  # `ask_person`, or a code of a newer posd

    @property
    def paid(self: "Ended[Paid]") -> Paid:
        """Whether a charge, a capture or a tip is paid."""
        return _effect(self, Paid)

    @property
    def reserved(self: "Ended[Reserved]") -> Reserved:
        """Whether a pre-auth or a re-auth has reserved its amount."""
        return _effect(self, Reserved)

    @property
    def reversed(self: "Ended[Reversed]") -> Reversed:
        """Whether a void or a refund has returned or released the money."""
        return _effect(self, Reversed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved(Ended[E]):
    """Approval of the acquirer.

    The references are None if the terminal did not send them. `reversal`: for a void, `cancellation` on the same day as
    the original, else `refund`.
    """

    result: ClassVar[str] = "approved"

    transaction_reference: str | None
    ticket_number: str | None
    authorized_amount: Decimal | None
    receipt: Receipt | None
    reversal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined(Ended[E]):
    """Decline of the acquirer."""

    result: ClassVar[str] = "declined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Ended[E]):
    """Failure of the terminal itself."""

    result: ClassVar[str] = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceled(Ended[E]):
    """Cancellation, at the terminal or by an abort."""

    result: ClassVar[str] = "canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted(Ended[E]):
    """Operation that certainly never ran on the terminal. `failure_reason` has the reason."""

    result: ClassVar[str] = "not_started"


def _effect(outcome: Ended, kind: type[K]) -> K:
    """Return the effect of an outcome as the type `kind`.

    It is unclear if this client does not know the type of operation. Raise AttributeError if the operation has another
    type of effect.
    """
    found: object = outcome.effect if outcome.type in EFFECTS else kind("unclear")
    if isinstance(found, kind):
        return found
    right = type(found).__name__.lower()
    raise AttributeError(
        f"a {outcome.type} is never called {kind.__name__.lower()}: write `match outcome.{right}:`, or `match "
        "outcome.effect:` if the type of the operation is only known at run time"
    )


Outcome: TypeAlias = Approved[E] | Declined[E] | Rejected[E] | Canceled[E] | NotStarted[E]

TYPES: dict[str, type[Outcome]] = {kind.result: kind for kind in (Approved, Declined, Rejected, Canceled, NotStarted)}


def read_outcome(source: Document) -> Outcome | None:
    """Return the outcome of a transaction, from the document of the transaction or of the outcome.

    Return None if there is no outcome. Raise UnknownResult. Raise ValueError for any other document.
    """
    outcome = source if "result" in source else documents.member(source, Document | None, "outcome")
    if outcome is None:
        return None
    # An older posd sends `next_step` only in the transaction.
    return _read(source, outcome, documents.member(outcome if "next_step" in outcome else source, str, "next_step"))


#: Members of the transaction that an outcome repeats.
_OF_TRANSACTION = ("client_transaction_id", "type", "terminal", "sale", "amount")


def _read(source: Document, outcome: Document, next_step: str) -> Outcome:
    identity = documents.member(source, str, "client_transaction_id")
    kind = TYPES.get(result := documents.member(outcome, str, "result"))
    if kind is None:
        raise UnknownResult(identity, result, source)
    older = documents.member(outcome, Document | None, "supersedes")
    whole = {**outcome, **{name: source.get(name) for name in _OF_TRANSACTION}}
    # posd's next step belongs to the present outcome. A superseded outcome gets `ask_person`.
    supersedes = None if older is None else _read(source, older, "ask_person")
    return documents.read(kind, whole, next_step=next_step, supersedes=supersedes, document=outcome)


class UnknownResult(PosdError):
    """Error for a result that this client does not know, because posd is newer. Never treat it as a known result.

    `document`: the transaction from posd, whose `next_step` says what to do.
    """

    def __init__(self, id: str, result: object, document: Mapping[str, Any]) -> None:  # noqa: A002 - the field's name
        super().__init__(
            f"transaction {id} has ended with {result!r}: this client is older than posd and does not know the result. "
            f"posd's own advice (next_step) is {document.get('next_step')!r}; update the client"
        )
        self.id = id
        self.result = result
        self.document = document


@dataclass(frozen=True, slots=True)
class Attention:
    """Condition that an operator should check. An attention changes no outcome."""

    code: str
    since: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class MissingProof:
    """Condition that is missing for the proof that a transaction in doubt never started.

    `detail`: what to do about it.
    """

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """State of a transaction.

    `phase`: starting, in_doubt, active, final. `status`: the terminal's newest known state, or None. `next_step`: wait,
    done, new_id_ok, ask_person. Before `final`, never pay again under a new id.
    """

    id: str = field(metadata={"member": "client_transaction_id"})
    terminal: str
    type: str | None
    sale: str | None
    phase: str
    status: str | None
    reading_type: str | None
    next_step: str
    display: Display | None
    abortable: bool
    released: bool
    missing_proof: tuple[MissingProof, ...]
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
        """Whether the phase is `final`."""
        return self.phase == "final"

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the transaction, or None before its end. Raise UnknownResult."""
        return read_outcome(self.document)


class StillOpen(PosdError):
    """Error after the caller's time-out without an outcome. The transaction continues, or posd is away.

    `state`: the newest known state, or None.
    """

    next_step = SAME_CALL

    def __init__(self, id: str, state: Transaction | None) -> None:  # noqa: A002 - the field's name
        super().__init__(
            f"transaction {id} is not known to have ended: wait for its outcome again, or abort it; "
            "do not pay again under another id"
        )
        self.id = id
        self.state = state


@dataclass(frozen=True, slots=True)
class State:
    """State of a payment.

    posd sends it at each change, even if only time has passed (`in_doubt`, `ask_person`).
    """

    phase: str
    next_step: str
    display: Display
    missing_proof: tuple[MissingProof, ...]
    attention: tuple[Attention, ...]
    document: Document = field(repr=False)


def _status(source: Document) -> str | None:
    """Return the status of the terminal's event, or None if it is not text."""
    status = documents.document(source.get("event")).get("status")
    return status if isinstance(status, str) else None


@dataclass(frozen=True, slots=True)
class Change:
    """Event of the terminal. `status`: the state that it reports. `verdict`: what posd did with it."""

    seq: int
    received_at: datetime
    status: str | None = field(metadata={"read": _status})
    verdict: str
    event: Document = field(repr=False)
    document: Document = field(repr=False)


@dataclass(frozen=True, slots=True)
class FeedChange:
    """A recorded change of a transaction or print job (`kind`, `id`): its reason, and the state after the change."""

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
    #: Place in the feed after this change: `Posd.feed(after=place)`.
    place: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Notice that changes of the feed may be missing. `detail`: what to do.

    `code`: `changes_removed` (retention removed changes up to `seq`) or `place_unknown` (a backup or an older copy has
    replaced the database; the feed continues after `seq`).
    """

    code: str
    detail: str
    seq: int


@dataclass(frozen=True, slots=True)
class PrintJob:
    """State of a print job.

    `status`: PENDING, IN_PROGRESS, COMPLETED, FAILED, or None while the terminal has not accepted the job.

    If a job is final and its `status` is None, the terminal certainly did not accept it. `reason` says why.
    """

    id: str = field(metadata={"member": "print_job_id"})
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
        """Whether the phase is `final`."""
        return self.phase == "final"

    @property
    def printed(self) -> bool:
        """Whether the document was printed."""
        return self.final and self.status == "COMPLETED"


class StillPrinting(PosdError):
    """Error after the caller's time-out. The print job continues. `state`: the newest known state, or None."""

    next_step = SAME_CALL

    def __init__(self, id: str, state: PrintJob | None) -> None:  # noqa: A002 - the field's name
        super().__init__(f"print job {id} is not done yet and continues: wait for its outcome again")
        self.id = id
        self.state = state


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal. `reachable` None: unknown. `transaction`: id of the transaction that the terminal is busy with."""

    serial: str
    brand: str | None
    model: str | None
    base_url: str | None
    source: str | None
    reachable: bool | None
    last_seen: datetime | None
    transaction: str | None
    in_fleet: bool = field(metadata={"read": lambda source: source.get("in_fleet") is not False})
    document: Document = field(repr=False)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of posd's health. `status`: ok, degraded or failing. `detail`: the reason, and what to do."""

    status: str
    detail: str


@dataclass(frozen=True, slots=True)
class Health:
    """Health of posd. `status`: ok, degraded or failing, by its checks."""

    status: str
    checks: dict[str, Check]
    document: Document = field(repr=False)


@dataclass(frozen=True, slots=True)
class Version:
    """Versions of posd, of the API and of the database, and settings of the merchant.

    The last three fields are None from an older posd.
    """

    version: str
    api: str
    schema: int
    timezone: str | None
    currency: str | None
    language: str | None
    document: Document = field(repr=False)
