"""The report: payments of some days by section, and the totals; each total is the sum of the rows under it."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from posd.cli.report.days import Span
from posd.cli.report.exact import ZERO, add, total
from posd.cli.report.facts import Facts
from posd.cli.report.sections import Payment, Section, count, unsplit

#: What stands for a name that was not said.
UNNAMED = "not said"
#: The part that no till sent: tips and taxes that the terminal added, and amounts that are known as a whole alone.
ADDED = "not split by the till"

#: Kinds in the order in which people read them; others follow by name.
KINDS: Sequence[str] = (
    "charge",
    "capture",
    "post-tip",
    "cancellation",
    "refund",
    "void",
    "pre-auth",
    "re-auth",
    "release",
)


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
class Part:
    """What one part of the amounts comes to."""

    name: str
    total: Decimal


@dataclass(frozen=True)
class Report:
    """All payments of some days. `payments` is in the order of time; `elsewhere` are ids of other days in attention."""

    span: Span
    terminal: str | None
    made_at: datetime
    payments: Sequence[Payment]
    sections: Mapping[Section, Sequence[Payment]]
    elsewhere: int

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
        return sorted({item.facts.currency for item in self.counted if item.facts.currency})

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
        """The terminals whose clock said what cannot be."""
        return sorted({item.facts.terminal for item in self.payments if item.facts.clock_wrong})

    def by(self, *keys: Callable[[Payment], str]) -> Sequence[Sum]:
        """Return the totals by what `keys` say of a payment, in the order of their names."""
        return by(self.counted, *keys)

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

    What is open belongs to every day since it began. `others` are the payments that `sections.related` named.
    """
    known = {item.id: item for item in facts}
    lookup = ChainMap(known, dict(others))
    payments = [
        count(item, lookup) for item in known.values() if terminal in (None, item.terminal) and belongs(item, span)
    ]
    payments.sort(key=lambda payment: (payment.facts.at, payment.facts.id))
    sections: dict[Section, list[Payment]] = {section: [] for section in Section}
    for payment in payments:
        sections[payment.section].append(payment)
    return Report(span, terminal, made_at, payments, sections, elsewhere)


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
    amounts = [(payment.facts.type == "void", payment.amount or ZERO) for payment in payments]
    charged = [amount for void, amount in amounts if not void]
    returned = [amount for void, amount in amounts if void]
    return Sum(name, len(charged), total(charged), len(returned), total(returned))


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
