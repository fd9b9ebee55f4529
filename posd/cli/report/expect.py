"""Which payments explain that a terminal's own total is another one than posd's: exact, bounded, and never a proof.

A payment explains a difference where the terminal counts it and posd does not, or the other way round. Sums are
compared as integers of the smallest unit that any amount has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from posd.base.money import EXACT
from posd.cli.report.facts import add
from posd.cli.report.standing import CORRECTION, REVERSING, Payment, Section, Standing

#: Payments of which two or three together are looked at; the most doubtful come first. Of 200 three are 1.3 million
#: sets, found in 20,000 steps.
MOST_TOGETHER = 200
#: Sets that are named.
MOST_SETS = 8


class Reason(StrEnum):
    """Why a terminal may count a payment differently, the likeliest first."""

    DOUBT = "in_doubt"
    OPEN = "open"
    QUESTIONED = "questioned"
    CORRECTED = "corrected"
    BY_PERSON = "by_person"
    AMOUNT = "amount"
    VOIDED = "void"
    NOT_CHARGED = "not_charged"
    COUNTED = "counted"  # posd has no doubt: the terminal may count it to another day or shift


@dataclass(frozen=True, slots=True)
class Candidate:
    """By how much the terminal's total would be another one than posd's where it counts this payment differently."""

    payment: Payment
    reason: Reason
    difference: Decimal

    @property
    def id(self) -> str:
        """The id of the payment."""
        return self.payment.facts.id


@dataclass(frozen=True, slots=True)
class Comparison:
    """`difference` is the terminal's total less posd's. `sets` are the smallest sets that explain it, likeliest first.

    `more`: there are further ones. Of `doubtful` payments two and three together were looked at for `searched`.
    """

    expected: Decimal
    counted: Decimal
    sets: Sequence[tuple[Candidate, ...]] = ()
    more: bool = False
    searched: int = 0
    doubtful: int = 0

    @property
    def difference(self) -> Decimal:
        """The terminal's total less posd's."""
        return add(self.expected, -self.counted)

    @property
    def equal(self) -> bool:
        """Whether they are the same."""
        return not self.difference


def compare(expected: Decimal, counted: Decimal, payments: Iterable[Payment]) -> Comparison:
    """Compare a terminal's total with posd's, and look for the payments that explain a difference."""
    difference = add(expected, -counted)
    if not difference:
        return Comparison(expected, counted)
    return explain(expected, counted, [item for payment in payments for item in candidates(payment)])


def candidates(payment: Payment) -> Iterator[Candidate]:
    """Yield how a terminal may count a payment differently."""
    amount, facts = payment.amount, payment.facts
    if amount is None or payment.section is Section.RESERVED:
        return
    match payment.section, payment.standing:
        case _, None if payment.section is Section.OPEN:  # of a reservation: in no total, whatever comes of it
            return
        case _, Standing.IN_DOUBT:
            yield Candidate(payment, Reason.DOUBT, amount)
        case _, Standing.OPEN:
            yield Candidate(payment, Reason.OPEN, amount)
        case _, Standing.NOT_COUNTED:
            yield Candidate(payment, Reason.QUESTIONED, amount)
        case Section.NOT_CHARGED, _:
            if amount and facts.type not in ("pre-auth", "re-auth") and payment.kind != "release":
                yield Candidate(payment, Reason.NOT_CHARGED, amount)
        case _ if not amount:
            return
        case _ if payment.kind == CORRECTION:
            yield Candidate(payment, Reason.CORRECTED, -amount)
        case _, Standing.QUESTIONED:
            yield Candidate(payment, Reason.QUESTIONED, -amount)
        case _, Standing.BY_PERSON:
            reason = Reason.CORRECTED if facts.corrects else Reason.BY_PERSON
            yield Candidate(payment, reason, -amount)
        case _:
            yield Candidate(payment, Reason.VOIDED if facts.type in REVERSING else Reason.COUNTED, -amount)
    if payment.differs and payment.section is Section.COUNTED and payment.kind != CORRECTION and facts.requested:
        asked = -facts.requested if facts.type in REVERSING else facts.requested
        yield Candidate(payment, Reason.AMOUNT, add(asked, -amount))


def explain(expected: Decimal, counted: Decimal, found: Sequence[Candidate]) -> Comparison:
    """Return the smallest sets of candidates whose differences add up to that between two totals.

    A single payment may be any; two and three together are of those of which posd is not certain. A payment is in a set
    once, and one that makes no difference in none.
    """
    order = list(Reason)
    places = [item for item in found if item.difference]
    places.sort(key=lambda item: order.index(item.reason))
    unit = min([_exponent(value) for value in (expected, counted, *(item.difference for item in places))])
    wanted = _whole(add(expected, -counted), unit)
    values = {id(item): _whole(item.difference, unit) for item in places}
    doubtful = [item for item in places if item.reason is not Reason.COUNTED]
    together = doubtful[:MOST_TOGETHER]
    sets: list[tuple[Candidate, ...]] = [(item,) for item in places if values[id(item)] == wanted]
    if not any(item.reason is not Reason.COUNTED for (item,) in sets):
        for search in (_pairs, _triples):
            several = list(search(together, values, wanted))
            if several:
                sets = [*several, *sets]
                break
    return Comparison(expected, counted, sets[:MOST_SETS], len(sets) > MOST_SETS, len(together), len(doubtful))


def _pairs(found: Sequence[Candidate], values: Mapping[int, int], wanted: int) -> Iterator[tuple[Candidate, ...]]:
    by_value: dict[int, list[Candidate]] = {}
    for second in found:
        for first in by_value.get(wanted - values[id(second)], ()):
            if first.id != second.id:
                yield (first, second)
        by_value.setdefault(values[id(second)], []).append(second)


def _triples(found: Sequence[Candidate], values: Mapping[int, int], wanted: int) -> Iterator[tuple[Candidate, ...]]:
    count = 0
    for place, third in enumerate(found):
        for pair in _pairs(found[:place], values, wanted - values[id(third)]):
            if third.id not in (pair[0].id, pair[1].id):
                yield (*pair, third)
                count += 1
                if count > MOST_SETS:
                    return


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return min(exponent, 0) if isinstance(exponent, int) else 0


def _whole(value: Decimal, unit: int) -> int:
    """Return how many of the smallest unit (a power of ten) an amount is."""
    return int(value.scaleb(-unit, EXACT))
