"""Where a payment stands in the report, and with which amount.

Nothing here guesses: what is not known stands apart. Each payment is in exactly one section. `in_question` marks
payments, in any section, of which it is not known whether money moved: those that are open or unclear, and those of
which the terminal said two things.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from posd.base.money import ZERO, total
from posd.cli.report.facts import Facts, add

#: Types that charge the customer, and those that reserve.
CHARGES = frozenset({"charge", "capture", "post-tip"})
RESERVES = frozenset({"pre-auth", "re-auth"})


class Section(StrEnum):
    """Where a payment stands. Only what is counted is in the totals."""

    COUNTED = "counted"  # approved charges, captures and tips; approved voids and refunds of them, negative
    RESERVED = "reserved"  # approved pre-authorizations, re-authorizations, and voids of them
    NOT_CHARGED = "not_charged"  # declined, rejected, canceled, not started
    UNCLEAR = "unclear"  # approved, but of what type or amount is not known
    OPEN = "open"  # no outcome yet


class Basis(StrEnum):
    """What an amount rests on."""

    AUTHORIZED = "authorized"  # the terminal said it
    REQUESTED = "requested"  # the till asked for it, and the terminal named none
    ORIGINAL = "original"  # of a void: what its original came to
    NEW_TOTAL = "new_total"  # of a tip: the terminal named what the payment came to with it
    UNKNOWN = "unknown"


class Standing(StrEnum):
    """How sure it is that the money of a payment moved. The first three are in the totals, and add up to them."""

    CERTAIN = "certain"  # the terminal says so, and nothing speaks against it
    BY_PERSON = "by_person"  # a person says so, or posd infers it
    QUESTIONED = "questioned"  # counted, but corrected, contradicted, unlikely, or for a person to settle
    OPEN = "open"  # no outcome yet
    IN_DOUBT = "in_doubt"  # no outcome yet, and not known whether the terminal has the payment
    NOT_COUNTED = "not_counted"  # not in the totals, but for a person to settle: contradicted, or of unknown amount
    DENIED = "not_charged_by_person"  # a person says that nothing was charged


#: Standings whose payments are in the totals.
COUNTED_STANDINGS = frozenset({Standing.CERTAIN, Standing.BY_PERSON, Standing.QUESTIONED})
#: Attentions that speak against an outcome.
QUESTIONING = frozenset({"conflicting_final", "outcome_corrected", "approval_unlikely", "serial_mismatch"})

#: Types that give back what was charged.
REVERSING = ("void", "refund")
#: Kind of the row that sets right what an earlier shift has counted.
CORRECTION = "correction"


@dataclass(frozen=True, slots=True)
class Correction:
    """What an earlier shift has counted of a payment, and what is counted now: None where it is open again."""

    shift: int
    was: Decimal
    now: Decimal | None


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment in the report. `amount` is what it moves or would move, negative of a void and a refund; None where not
    known.

    `kind` is the type, or what a void is: `cancellation`, `refund`, `void` (not known which), `release` (of what was
    reserved); or `correction`: then `amount` is the difference to what an earlier shift has counted. `parts` are those
    of `amount` by name, as sent; `became` is what has become of a reservation. `open_at` is the number of the shift at
    whose close it was open. `changed_since`: it stands here as a closed shift has counted it, and is otherwise by now.
    """

    facts: Facts
    section: Section
    kind: str
    amount: Decimal | None
    basis: Basis
    parts: Mapping[str, Decimal]
    brand: str | None
    in_question: bool
    differs: bool
    became: str | None = None
    correction: Correction | None = None
    open_at: int | None = None
    changed_since: bool = False

    @property
    def counted(self) -> Decimal | None:
        """What of it is in the totals."""
        return self.amount if self.section is Section.COUNTED else None

    @property
    def standing(self) -> Standing | None:
        """How sure its money is; None where it is settled that it moved none: not charged, or a reservation."""
        codes = {code for code, _ in self.facts.attention}
        questioned = self.in_question or bool(codes & QUESTIONING)
        match self.section:
            case Section.OPEN if self.facts.type in RESERVES or self.kind == "release":
                return None
            case Section.OPEN:
                return Standing.IN_DOUBT if self.facts.in_doubt else Standing.OPEN
            case Section.COUNTED if questioned:
                return Standing.QUESTIONED
            case Section.COUNTED:
                return Standing.BY_PERSON if self.unsure or self.facts.corrects else Standing.CERTAIN
            case Section.UNCLEAR:
                return Standing.NOT_COUNTED
            case Section.NOT_CHARGED if questioned:
                return Standing.NOT_COUNTED
            case Section.NOT_CHARGED if self.facts.by_person:
                return Standing.DENIED
            case _:
                return None

    @property
    def unsure(self) -> bool:
        """Whether it is counted by another word than the terminal's."""
        return self.section is Section.COUNTED and (self.facts.by_person or not self.facts.stated)


def related(facts: Iterable[Facts]) -> set[str]:
    """Return the ids of what these payments were done to, and of what was done to reservations among them."""
    found: set[str] = set()
    known: set[str] = set()
    for item in facts:
        known.add(item.id)
        if item.type in (*REVERSING, "post-tip") and item.original:
            found.add(item.original)
        if item.type == "pre-auth" and item.result == "approved":
            found.update(item.derived)
    return found - known


def count(facts: Facts, others: Mapping[str, Facts]) -> Payment:
    """Say where a payment stands; `others` are the payments that `related` named, by id."""
    original = others.get(facts.original) if facts.original else None
    kind = _kind(facts, original)
    amount, basis = _amount(facts, original)
    if facts.type in REVERSING:
        whole = original.parts if original else {}
        parts = {name: -value for name, value in (facts.parts if facts.requested else whole).items()}
    else:
        parts = dict(facts.parts)
    section = _section(facts, kind, amount)
    return Payment(
        facts=facts,
        section=section,
        kind=kind,
        amount=amount,
        basis=basis,
        parts=parts,
        brand=facts.brand or (original.brand if original and facts.type in (*REVERSING, "post-tip") else None),
        in_question=section in (Section.OPEN, Section.UNCLEAR) or facts.asks_person,
        differs=facts.result == "approved" and _differs(facts, original, basis),
        became=_became(facts, others) if section is Section.RESERVED and facts.type == "pre-auth" else None,
    )


def _section(facts: Facts, kind: str, amount: Decimal | None) -> Section:
    if facts.result is None:
        return Section.OPEN
    if facts.result != "approved":
        return Section.NOT_CHARGED
    if amount is None:
        return Section.UNCLEAR
    if facts.type in RESERVES or kind == "release":
        return Section.RESERVED
    # A void of something that is not known may have given back money, or only a reservation.
    return Section.COUNTED if facts.type in CHARGES or kind in ("cancellation", "refund", "void") else Section.UNCLEAR


def _kind(facts: Facts, original: Facts | None) -> str:
    if facts.type != "void":
        return facts.type or "unknown"
    if original is None or original.type is None:
        return "void of unknown"
    return "release" if original.type in RESERVES else facts.reversal or "void"


def _amount(facts: Facts, original: Facts | None) -> tuple[Decimal | None, Basis]:
    if facts.type in REVERSING:
        if facts.authorized is not None:
            return -abs(facts.authorized), Basis.AUTHORIZED
        if facts.type == "refund" and facts.requested:
            return -facts.requested, Basis.REQUESTED
        came_to = _came_to(original)
        return (None, Basis.UNKNOWN) if came_to is None else (-came_to, Basis.ORIGINAL)
    if facts.authorized is None:
        return (facts.requested, Basis.REQUESTED) if facts.requested else (None, Basis.UNKNOWN)
    if _new_total(facts, original):
        return facts.requested, Basis.NEW_TOTAL
    return (facts.authorized, Basis.AUTHORIZED) if facts.authorized >= ZERO else (None, Basis.UNKNOWN)


def _new_total(facts: Facts, original: Facts | None) -> bool:
    """Whether a terminal that was asked to add a tip named what the payment came to with it, not the tip."""
    came_to = _came_to(original)
    return (
        facts.type == "post-tip"
        and bool(facts.requested)
        and bool(came_to)
        and facts.authorized == add(facts.requested or ZERO, came_to or ZERO)
    )


def _came_to(original: Facts | None) -> Decimal | None:
    """Return what an original charged, None where it is not known or was not approved."""
    if original is None or original.result != "approved":
        return None
    return original.authorized if original.authorized is not None else original.requested


def _differs(facts: Facts, original: Facts | None, basis: Basis) -> bool:
    """Whether the terminal named another amount than was asked for; a tip that the customer added is none."""
    if facts.authorized is None:
        return False
    if facts.type in REVERSING:
        came_to = facts.requested if facts.type == "refund" and facts.requested else _came_to(original)
        return came_to is not None and abs(facts.authorized) != came_to
    if not facts.requested or basis is Basis.NEW_TOTAL:
        return False
    return facts.authorized not in (facts.requested, add(facts.requested, facts.tip))


def _became(facts: Facts, others: Mapping[str, Facts]) -> str:
    """Return what has become of a reservation by now."""
    done = [others[identity] for identity in facts.derived if identity in others]
    for kind, word in (("capture", "captured"), ("void", "released")):
        if any(item.type == kind and item.result == "approved" for item in done):
            return word
    return "in question" if any(item.result is None for item in done) else "held"


def unsplit(payment: Payment) -> Decimal:
    """Return what of its amount is in no part: what the terminal added, or all of it where the parts are not known."""
    return add(payment.amount or ZERO, -total(payment.parts.values()))
