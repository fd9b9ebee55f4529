"""The acquirer's record of the truth: requests that reached a terminal, charged customers, and final results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

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

#: Pairs (requested, already approved) for one original. The requested operation needs `additional` (`repeat`).
REPEATED: Final = frozenset({(kind, kind) for kind in ("capture", "post-tip", "refund")} | {("re-auth", "capture")})


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
    def doubtful(self) -> bool:
        """Whether the terminal or an operator may have said something untrue, or the payment was lost."""
        return self.lied or bool(self.words) or self.lost

    @property
    def state(self) -> str:
        """Whether the payment is `approved`, `open` or `not` approved."""
        return "approved" if self.charged else "open" if self.starts and self.end is None else "not"

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
    #: Whether the acquirer reports captures and reversals as negative amounts, and a tip as the new total.
    signed: bool = False

    def of(self, identity: str) -> Truth:
        """Return the truth of an id."""
        return self.truths.setdefault(identity, Truth(identity))

    def under(self, base: Truth) -> Iterator[Truth]:
        """Yield the operations derived from a payment, oldest first."""
        return (truth for above, truth in self.derived if above is base)

    def charged(self, base: Truth) -> Decimal:
        """Return the charged amount, with the tips that were added later."""
        own, tips = standing(base, [*self.under(base)])
        return Decimal(own + tips)

    def reported(self, truth: Truth) -> Decimal:
        """Return the authorized amount in the approval of an operation."""
        base = truth.base
        if not self.signed or base is None or truth.kind == "re-auth":
            return truth.amount
        own, tips = standing(base, [other for other in self.under(base) if other is not truth])
        return own + tips + truth.amount if truth.kind == "post-tip" else -truth.amount

    def moved(self, truth: Truth) -> Decimal | None:
        """Return the amount that an operation charged, negative if it gave money back. None: posd cannot know."""
        base = truth.base
        family = [truth] if base is None else [truth, base, *self.under(base)]
        unclear = self.signed and any(other.kind == "capture" for other in family)
        if unclear or any(other.doubtful for other in family):
            return None
        held = base if truth.kind == "void" and base is not None else truth
        if not truth.charged or held.kind in ("pre-auth", "re-auth"):
            return Decimal()
        return -truth.amount if truth.kind in ("void", "refund") else truth.amount

    def wrong(self, base: Truth, asked: Truth) -> frozenset[str]:
        """Return the codes with which posd should have refused an operation."""
        return refusals(asked, [other for other in self.under(base) if other is not asked], repeat=True)


def standing(base: Any, others: Iterable[Any]) -> tuple[Any, Any]:
    """Return the reserved amount, or the charged amount without tips. Return also the sum of the tips."""
    done = [other for other in others if other.state == "approved" and other.base is base]
    again = [other for other in done if other.kind == "re-auth"]
    return (again or [base])[-1].amount or 0, sum(other.amount for other in done if other.kind == "post-tip")


def refusals(asked: Any, others: Sequence[Any], *, repeat: bool) -> frozenset[str]:
    """Return the codes with which posd may refuse an operation. If the result is empty, posd must accept it.

    `asked` and `others` (the other operations of the chain, oldest first): as the acquirer or as a till knows them. The
    rules are in the local API (Amounts, Chains).
    """
    base = asked.base
    if asked.original.state != "approved" or base.kind not in ORIGINALS[asked.kind]:
        return frozenset({"unknown_original"})
    done = [other for other in others if other.state == "approved" and other.base is base]
    beside = {(asked.kind, other.kind) for other in done}
    if any(other.state == "open" for other in others) or NEVER & beside or (REPEATED & beside and not repeat):
        return frozenset({"already_derived", "chain_conflict"})
    own, tips = standing(base, done)
    whole = own + tips
    used = sum(whole if other.amount is None else other.amount for other in done if other.kind == asked.kind)
    exceeds = {
        "capture": (asked.amount or 0) > own - used,
        "void": asked.amount not in (None, own, whole),
        "refund": (whole if asked.amount is None else asked.amount) > whole - used,
    }
    return frozenset({"amount_exceeds"} if exceeds.get(asked.kind) else ())
