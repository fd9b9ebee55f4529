"""The acquirer's record of the truth: requests that reached a terminal, charged customers, and final results."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final

#: Operation -> types of originals from which it can derive.
ORIGINALS: Final[Mapping[str, frozenset[str]]] = {
    "re-auth": frozenset({"pre-auth"}),
    "capture": frozenset({"pre-auth"}),
    "post-tip": frozenset({"charge", "capture"}),
    "void": frozenset({"charge", "pre-auth", "capture"}),
    "refund": frozenset({"charge", "capture"}),
}

#: Pairs (requested, already approved) for one original. The approved operation ended the chain, so posd refuses the
#: requested operation.
NEVER: Final = frozenset({(kind, "void") for kind in ORIGINALS} | {("void", "capture"), ("void", "refund")})


@dataclass
class Truth:
    """The true state of one payment."""

    identity: str
    amount: Decimal = Decimal()
    #: Type and reference of the request to the terminal.
    kind: str = "charge"
    sent_under: str | None = None
    #: The original that the acquirer finds by the reference.
    original: "Truth | None" = None
    #: True time at which the start reached a terminal.
    began: datetime | None = None
    #: True time of the payment's end at the terminal. None if no event reported the end.
    at: datetime | None = None
    #: Time of the payment's end at the terminal, in seconds of the loop.
    ended: float | None = None
    #: Serials of the terminals that received the start.
    starts: list[str] = field(default_factory=list)
    #: Outcome at the terminal. None while the payment runs, or if the payment never ran.
    end: str | None = None
    #: Final results that a terminal has sent to posd, in events and in replies to searches. posd may have acknowledged
    #: the events or not.
    said: list[str] = field(default_factory=list)
    #: Results that an operator has stated.
    words: list[str] = field(default_factory=list)
    #: posd has proof that the payment did not start. The terminal refused the payment, or the connection failed.
    refused: bool = False
    #: The terminal has reported something untrue.
    lied: bool = False
    #: An operator has released the payment's terminal.
    released: bool = False
    #: A till has requested an abort of the payment.
    abort_wanted: bool = False
    #: Time at which posd acknowledged the first final event, in seconds of the loop.
    told_at: float | None = None
    #: Bodies that posd has acknowledged with a 2xx.
    acknowledged: list[bytes] = field(default_factory=list)

    #: Bodies that posd has refused for good, and must have kept in quarantine.
    kept: list[bytes] = field(default_factory=list)

    #: The database with this payment, or with the payment's end, was replaced.
    lost: bool = False

    @property
    def charged(self) -> bool:
        """Whether the customer was charged."""
        return self.end == "APPROVAL"

    @property
    def base(self) -> "Truth | None":
        """The parent in the chain. If the request names a re-authorization, its parent is the pre-authorization."""
        original = self.original
        return original.base if original is not None and original.kind == "re-auth" else original


@dataclass
class Bank:
    """The true states, by id, and the references in approvals."""

    truths: dict[str, Truth] = field(default_factory=dict)
    references: dict[str, Truth] = field(default_factory=dict)
    #: Pairs (parent, derived operation), in the order in which the terminals received the operations.
    derived: list[tuple[Truth, Truth]] = field(default_factory=list)

    def of(self, identity: str) -> Truth:
        """Return the truth of an id."""
        return self.truths.setdefault(identity, Truth(identity))

    def under(self, base: Truth) -> Iterator[Truth]:
        """Yield the operations derived from a payment, oldest first."""
        return (truth for above, truth in self.derived if above is base)

    def approved(self, base: Truth, kind: str) -> list[Truth]:
        """Return the approved operations of one type that were derived from a payment."""
        return [truth for truth in self.under(base) if truth.kind == kind and truth.charged]

    def standing(self, base: Truth) -> Decimal:
        """Return the reserved amount, or the charged amount without tips."""
        return (self.approved(base, "re-auth") or [base])[-1].amount

    def charged(self, base: Truth) -> Decimal:
        """Return the charged amount, with the tips that were added later."""
        return self.standing(base) + sum((tip.amount for tip in self.approved(base, "post-tip")), Decimal())

    def wrong(self, base: Truth, asked: Truth) -> str | None:
        """Return why an operation exceeds the limits of its original, or None.

        The rules are in the local API (Amounts, Chains).
        """
        if base.kind not in ORIGINALS[asked.kind] or not base.charged:
            return f"{base.identity} is a {base.kind} that ended as {base.end}"
        for other in self.under(base):
            if other is not asked and other.end is None and other.starts:
                return f"{other.kind} {other.identity} is open"
            if other is not asked and other.charged and (asked.kind, other.kind) in NEVER:
                return f"{other.kind} {other.identity} has ended the chain"

        def total(kind: str) -> Decimal:
            return sum((other.amount for other in self.approved(base, kind) if other is not asked), Decimal())

        allowed = {
            "capture": self.standing(base) - total("capture"),
            "refund": self.charged(base) - total("refund"),
            "void": self.charged(base),
        }.get(asked.kind)
        if allowed is not None and asked.amount > allowed:
            return f"the amount is {asked.amount}, and {allowed} is allowed"
        return None
