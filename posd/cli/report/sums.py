"""The report: payments of some days by section, and the totals; each total is the sum of the rows under it."""

from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum

from posd.base.money import ZERO, total
from posd.cli.report.closed import Shift
from posd.cli.report.facts import Facts, Span, add

# Where a payment stands in the report, and with which amount. Nothing here guesses: what is not known stands apart.
# Each payment is in exactly one section. `in_question` marks those of any section of which it is not settled whether
# money moved: all that is open or unclear, and what the terminal said two things about.

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


#: What stands for a name that was not said.
UNNAMED = "not said"
#: The part that no till sent: tips and taxes that the terminal added, and amounts that are known as a whole alone.
ADDED = "not split by the till"

#: Kinds in the order in which people read them; others follow by name.
KINDS = ("charge", "capture", "post-tip", "cancellation", "refund", "void", "pre-auth", "re-auth", "release")


@dataclass(frozen=True, slots=True)
class Sum:
    """What some payments come to. `charged` is not negative, `reversed` not positive; they add up to `total`."""

    name: tuple[str, ...]
    payments: int
    charged: Decimal
    reversals: int
    reversed: Decimal

    @property
    def total(self) -> Decimal:
        """What is left of what was charged."""
        return add(self.charged, self.reversed)


@dataclass(frozen=True, slots=True)
class Sureness:
    """Payments of one standing: how many, what they come to, and how many of them have no known amount."""

    standing: Standing
    number: int
    amount: Decimal
    unknown: int

    @property
    def in_totals(self) -> bool:
        """Whether they are in the totals."""
        return self.standing in COUNTED_STANDINGS


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of the amounts comes to."""

    name: str
    total: Decimal


@dataclass(frozen=True)
class Report:
    """All payments of some days. `payments` is in the order of time; `elsewhere` are ids of other days in attention.

    `clock_doubts` say when the clock of posd's machine was not believed within these days. `shift`: it is of a shift,
    not of days.
    """

    span: Span
    terminal: str | None
    made_at: datetime
    payments: Sequence[Payment]
    sections: Mapping[Section, Sequence[Payment]]
    elsewhere: int
    clock_doubts: Sequence[str] = ()
    shift: Shift | None = None

    @property
    def ended(self) -> Sequence[Payment]:
        """Its payments, but for those that an earlier shift has shown and that are corrected here."""
        return [item for item in self.payments if item.correction is None]

    @property
    def corrections(self) -> Sequence[Payment]:
        """What sets right what earlier shifts have counted."""
        return [item for item in self.payments if item.correction is not None]

    @property
    def counted(self) -> Sequence[Payment]:
        """What the totals are of."""
        return self.sections[Section.COUNTED]

    @property
    def total(self) -> Sum:
        """The grand total."""
        return summed(("all",), self.counted)

    @property
    def currencies(self) -> Sequence[str]:
        """The currencies that the terminals named, of what is counted."""
        named = {item.facts.currency for item in self.counted if item.facts.currency}
        if self.shift is not None and self.shift.closed is not None:
            named.update(self.shift.closed.currencies)
        return sorted(named)

    @property
    def currency(self) -> str:
        """The currency of all that is counted; "" where there is none, or several."""
        return self.currencies[0] if len(self.currencies) == 1 else ""

    @property
    def in_question(self) -> Sequence[Payment]:
        """Of which it is not settled whether money moved."""
        return [item for item in self.payments if item.in_question]

    @property
    def differing(self) -> Sequence[Payment]:
        """Approved with another amount than was asked for."""
        return [item for item in self.payments if item.differs]

    @property
    def unsure(self) -> Sequence[Payment]:
        """Counted by another word than the terminal's, or by another than at first."""
        return [item for item in self.payments if item.unsure or item.facts.corrects]

    @property
    def attention(self) -> Sequence[Payment]:
        """Which a person should look at."""
        return [item for item in self.payments if item.facts.attention]

    @property
    def wrong_clocks(self) -> Sequence[str]:
        """The terminals that named a time which cannot be."""
        return sorted({item.facts.terminal for item in self.payments if item.facts.clock_wrong})

    def by(self, *keys: Callable[[Payment], str]) -> Sequence[Sum]:
        """Return the totals by what `keys` say of a payment, in the order of their names."""
        return by(self.counted, *keys)

    @property
    def sureness(self) -> Sequence[Sureness]:
        """What is certain, and apart from it what is not; those in the totals add up to the total."""
        closed = self.shift.closed if self.shift is not None else None
        if closed is not None and self.terminal is None and (kept := closed.sureness) is not None:
            known = {item.value: item for item in Standing}
            return [
                Sureness(known[item.standing], item.number, item.amount, item.unknown)
                for item in kept
                if item.standing in known
            ]
        found: dict[Standing, list[Payment]] = {Standing.CERTAIN: []}
        for item in self.payments:
            if item.standing is not None:
                found.setdefault(item.standing, []).append(item)
        return [
            Sureness(
                standing,
                len(found[standing]),
                total(item.amount for item in found[standing] if item.amount is not None),
                sum(item.amount is None for item in found[standing]),
            )
            for standing in Standing
            if standing in found
        ]

    @property
    def busy_days(self) -> Sequence[Sum]:
        """The totals of the days on which anything was counted."""
        return [item for _, item in by_day(self) if item.payments or item.reversals]

    @property
    def reserved(self) -> Sequence[Sum]:
        """What was reserved, and released, by what has become of it by now; it is in no total."""
        return by(self.sections[Section.RESERVED], kind_of, lambda item: item.became or "")

    @property
    def parts(self) -> Sequence[Part]:
        """The total by the parts of the amounts, as the tills sent them."""
        found: dict[str, Decimal] = {}
        for payment in self.counted:
            for name, number in payment.parts.items():
                found[name] = add(found.get(name, ZERO), number)
        rest = total(unsplit(payment) for payment in self.counted)
        parts = [Part(name, number) for name, number in sorted(found.items()) if number]
        return [*parts, Part(ADDED, rest)] if rest else parts


def make(
    span: Span,
    facts: Iterable[Facts],
    others: Mapping[str, Facts],
    made_at: datetime,
    *,
    terminal: str | None = None,
    elsewhere: int = 0,
) -> Report:
    """Make the report of some days from payments of more: what is of other days, or of other terminals, is left out.

    What is open belongs to every day since it began. `others` are the payments that `related` named.
    """
    known = {item.id: item for item in facts}
    lookup = ChainMap(known, dict(others))
    payments = [
        count(item, lookup) for item in known.values() if terminal in (None, item.terminal) and belongs(item, span)
    ]
    return sectioned(span, payments, made_at, terminal=terminal, elsewhere=elsewhere)


def sectioned(
    span: Span,
    payments: Iterable[Payment],
    made_at: datetime,
    *,
    terminal: str | None = None,
    elsewhere: int = 0,
    shift: Shift | None = None,
) -> Report:
    """Make the report of some payments."""
    payments = list(payments)
    payments.sort(key=lambda payment: (payment.facts.at, payment.facts.id))
    sections: dict[Section, list[Payment]] = {section: [] for section in Section}
    for payment in payments:
        sections[payment.section].append(payment)
    return Report(span, terminal, made_at, payments, sections, elsewhere, shift=shift)


def belongs(facts: Facts, span: Span) -> bool:
    """Whether a payment is of these days."""
    return facts.created_at < span.end if facts.result is None else span.holds(facts.at)


def by(payments: Iterable[Payment], *keys: Callable[[Payment], str]) -> Sequence[Sum]:
    """Add payments up by what `keys` say of them."""
    found: dict[tuple[str, ...], list[Payment]] = {}
    for payment in payments:
        found.setdefault(tuple(key(payment) for key in keys), []).append(payment)
    return [summed(name, found[name]) for name in sorted(found, key=lambda name: tuple(map(_place, name)))]


def summed(name: tuple[str, ...], payments: Iterable[Payment]) -> Sum:
    """Add payments up."""
    amounts = [(_reverses(payment), payment.amount or ZERO) for payment in payments]
    charged = [amount for reverses, amount in amounts if not reverses]
    returned = [amount for reverses, amount in amounts if reverses]
    return Sum(name, len(charged), total(charged), len(returned), total(returned))


def _reverses(payment: Payment) -> bool:
    if payment.correction is not None or payment.changed_since:  # of any sign, whatever its type
        return (payment.amount or ZERO) < ZERO
    return payment.facts.type in REVERSING or (payment.amount or ZERO) < ZERO


def _place(name: str) -> tuple[int, str]:
    """Return where a name stands among others."""
    return (KINDS.index(name), "") if name in KINDS else (len(KINDS), name)


def terminal_of(payment: Payment) -> str:
    """Return its terminal."""
    return payment.facts.terminal


def kind_of(payment: Payment) -> str:
    """Return what it is."""
    return payment.kind


def brand_of(payment: Payment) -> str:
    """Return the brand of its card."""
    return payment.brand or UNNAMED


def currency_of(payment: Payment) -> str:
    """Return its currency."""
    return payment.facts.currency or UNNAMED


# What the charts show, as numbers.

#: What can have become of a payment, in the order in which it is shown.
RESULTS: Sequence[str] = ("approved", "declined", "rejected", "canceled", "not_started", "open")

#: seconds: where one column of the histogram ends and the next begins; the last one has no end. Narrow where most are.
LIMITS: Sequence[int] = (2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 300)


@dataclass(frozen=True, slots=True)
class Column:
    """How many took so long."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Times:
    """How long it took until the terminal said how a payment ended, in seconds; None without any."""

    count: int
    median: Decimal | None
    p95: Decimal | None
    longest: Decimal | None
    columns: Sequence[Column]


def by_hour(report: Report) -> Sequence[Sum]:
    """Return what was counted in each hour: of one day as they passed, of several by what the clock showed."""
    span = report.span
    if span.first == span.last:
        hours = list(span.hours())
        starts = [hour.start for hour in hours]
        return _spread(report.counted, [hour.label for hour in hours], lambda at: bisect_right(starts, at) - 1)
    return _spread(report.counted, [f"{hour:02}" for hour in range(24)], lambda at: span.local(at).hour)


def by_day(report: Report) -> Sequence[tuple[date, Sum]]:
    """Return what was counted on each day."""
    days = report.span.days
    sums = _spread(
        report.counted, [day.isoformat() for day in days], lambda at: (report.span.local(at).date() - days[0]).days
    )
    return list(zip(days, sums, strict=True))


def _spread(payments: Iterable[Payment], labels: Sequence[str], place: Callable[[datetime], int]) -> Sequence[Sum]:
    found: list[list[Payment]] = [[] for _ in labels]
    for payment in payments:
        found[place(payment.facts.at)].append(payment)
    return [summed((label,), items) for label, items in zip(labels, found, strict=True)]


def results(report: Report) -> Mapping[str, Mapping[str, int]]:
    """Return how the payments of each terminal ended: terminal -> result -> how many."""
    found: dict[str, dict[str, int]] = {}
    for payment in report.ended:
        if (payment.facts.result or "open") not in RESULTS:  # its record was removed
            continue
        counts = found.setdefault(payment.facts.terminal, dict.fromkeys(RESULTS, 0))
        counts[payment.facts.result or "open"] += 1
    return {terminal: found[terminal] for terminal in sorted(found)}


def times(report: Report) -> Times:
    """Return how long payments took."""
    ended = [item.facts.seconds for item in report.ended if item.section is not Section.OPEN]
    taken = sorted(seconds for seconds in ended if seconds is not None)
    counts = [0] * (len(LIMITS) + 1)
    for seconds in taken:
        counts[bisect_right(LIMITS, seconds)] += 1
    labels = [f"{low}-{high}" for low, high in zip((0, *LIMITS), LIMITS, strict=False)]
    columns = [Column(label, number) for label, number in zip((*labels, f"{LIMITS[-1]}+"), counts, strict=True)]
    return Times(len(taken), nearest(taken, 50), nearest(taken, 95), taken[-1] if taken else None, columns)


def nearest(ordered: Sequence[Decimal], percent: int) -> Decimal | None:
    """Return the percentile of ordered numbers (nearest rank), None of none."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
