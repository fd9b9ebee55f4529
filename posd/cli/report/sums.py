"""The report: payments of some days by section, and the totals; each total is the sum of the rows under it."""

from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from posd.base.money import ZERO, total
from posd.cli.report.closed import Shift
from posd.cli.report.facts import Facts, Span, add
from posd.cli.report.standing import COUNTED_STANDINGS, REVERSING, Payment, Section, Standing, count, unsplit

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
