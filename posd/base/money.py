"""Exact decimal amounts, from the till's JSON to the terminal's wire. Amounts are never binary floats, and never have
exponents.

JSON is decoded so that a number is an int or a Decimal with the till's digits: `10.10` stays `10.10`. The limits are
those of the local API (amount: 12 digits before and 4 after the point).
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final, Literal

MAX_INTEGER_DIGITS = 12
MAX_FRACTION_DIGITS = 4
ZERO = Decimal(0)
#: Maximum number of digits before and after the point of a number on the wire. A longer number is not an amount.
MAX_WIRE_DIGITS = 24
#: Context for sums of more numbers than any shop has. Rounding raises Inexact.
EXACT = Context(prec=120, traps=[Inexact])

_WIRE_NUMBER = re.compile(r"-?\d{1,24}(\.\d{1,24})?", re.ASCII)
_DECIMAL_STRING = re.compile(r"\d{1,12}(\.\d{1,4})?", re.ASCII)


def to_decimal(text: str) -> Decimal:
    """Return the literal of a JSON number as Decimal. Raise ValueError if Decimal cannot hold it."""
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError("the number is too large") from error


def parse_money(value: object) -> Decimal:
    """Return an amount as an exact, finite, non-negative Decimal in fixed notation.

    `value`: an int or Decimal from a JSON decoder, or a decimal string such as `"10.10"`. Raise ValueError with a
    reason for the till's developer.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise ValueError('must be a number, or a decimal string such as "10.10"')  # noqa: TRY004 - one kind of error
    if isinstance(value, str):
        if not _DECIMAL_STRING.fullmatch(value):
            raise ValueError('must be a decimal string such as "10.10": digits, and at most 4 after the point')
        return Decimal(value)
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("must be a finite number")
    if number < ZERO:
        raise ValueError("must not be negative")
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > MAX_FRACTION_DIGITS:
        raise ValueError(f"must have at most {MAX_FRACTION_DIGITS} digits after the point")
    if number and number.adjusted() >= MAX_INTEGER_DIGITS:
        raise ValueError(f"must have at most {MAX_INTEGER_DIGITS} digits before the point")
    return Decimal(format(number.copy_abs(), "f"))  # the till may write -0


_NUMBERS = (int, Decimal)


def read_money(value: object) -> Decimal | None:
    """Return a number of the wire (number or numeric string) as Decimal in fixed notation, or None."""
    if isinstance(value, str):
        value = Decimal(value) if _WIRE_NUMBER.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    number = Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > MAX_WIRE_DIGITS:
        return None
    if len(number.as_tuple().digits) > 2 * MAX_WIRE_DIGITS:
        return None
    return Decimal(format(number, "f"))


def total(numbers: Iterable[Decimal]) -> Decimal:
    """Return the exact sum."""
    found = ZERO
    for number in numbers:
        found = EXACT.add(found, number)
    return found


def sum_of(amount: Mapping[str, object]) -> Decimal:
    """Return the exact sum of every number of an amount object, including nested objects (extra_taxes)."""
    return total(sum_of(part) if isinstance(part, Mapping) else read_money(part) or ZERO for part in amount.values())


# Units of amounts on the wire.

#: Unit of amounts on the wire: the till's unit, the same unit without fractions, or hundredths.
AmountUnit = Literal["main", "whole", "hundredths"]
AMOUNT_UNITS: Final[tuple[AmountUnit, ...]] = ("main", "whole", "hundredths")
#: Unit -> maximum number of digits after the point that the amount of a till may have.
MOST_DIGITS: Final[Mapping[AmountUnit, int]] = {"main": MAX_FRACTION_DIGITS, "whole": 0, "hundredths": 2}


#: Digits after the point of the currencies that do not have two. Source: ISO 4217, list one, as of 2026-01-01
#: (maintenance agency: SIX).
_DIGITS: Final[Mapping[int, str]] = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_USUAL_DIGITS = 2


def digits_of(currencies: Iterable[str]) -> int:
    """Return the largest number of digits after the point of an amount in one of these currencies.

    An unknown currency counts as one with two digits. Only nine currencies have more, and a merchant with one of them
    names it in the configuration.
    """
    return max((_digits(currency) for currency in currencies), default=_USUAL_DIGITS)


def _digits(currency: str) -> int:
    return next((digits for digits, those in _DIGITS.items() if currency in those.split()), _USUAL_DIGITS)


def fits(number: Decimal, digits: int) -> bool:
    """Return whether an amount is exact with that many digits after the point."""
    exponent = number.normalize(EXACT).as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= digits


def to_wire(number: Decimal, unit: AmountUnit) -> Decimal:
    """Convert a till's amount to a unit of the wire. In the till's own unit it keeps its digits."""
    if unit == "main":
        return number
    return number.scaleb(MOST_DIGITS[unit], EXACT).quantize(ZERO, context=EXACT)


def from_wire(number: Decimal, unit: AmountUnit) -> Decimal:
    """Convert an amount of the wire to the till's unit, exactly."""
    return number.scaleb(-2, EXACT) if unit == "hundredths" else number
