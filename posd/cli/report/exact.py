"""Sums that are exact or fail: never a float, never a rounded digit."""

from collections.abc import Iterable
from decimal import Context, Decimal, Inexact

ZERO = Decimal(0)
#: Decimal places that people expect of an amount.
PLACES = 2

#: A number of the wire has at most 24 digits on each side of the point (`posd.base.money`); this holds sums of more of
#: them than any shop has. What would be rounded all the same raises.
_EXACT = Context(prec=120, traps=[Inexact])


def add(*numbers: Decimal) -> Decimal:
    """Add a few."""
    return total(numbers)


def total(numbers: Iterable[Decimal]) -> Decimal:
    """Add them all."""
    found = ZERO
    for number in numbers:
        found = _EXACT.add(found, number)
    return found


def money(value: Decimal) -> str:
    """Write an amount with every digit that it has, at least two of them behind the point, and never an exponent."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent > -PLACES:
        value = value.quantize(Decimal(1).scaleb(-PLACES), context=_EXACT)
    return f"{value:f}"
