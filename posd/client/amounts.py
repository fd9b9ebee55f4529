"""Amounts, checked before a call by posd's own rules: exact numbers, known members, a sum above 0."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import TypeAlias

#: An amount: its parts, or one sum as `subtotal_iva0`.
Number: TypeAlias = Decimal | int | str
Amount: TypeAlias = Number | Mapping[str, Number | Mapping[str, Number]]

#: Member of a sum without parts, which says nothing about IVA.
SUM = "subtotal_iva0"
#: Members that posd accepts; `[amounts]` of its configuration can add more. Those with a point are inside an object.
MEMBERS = (
    "iva",
    "subtotal_iva",
    "subtotal_iva0",
    "tip",
    "extra_taxes.airport_tax",
    "extra_taxes.iac",
    "extra_taxes.ice",
    "extra_taxes.travel_agency",
)
#: Most digits before and after the point.
MAX_INTEGER_DIGITS = 12
MAX_FRACTION_DIGITS = 4

_TEXT = re.compile(rf"\d{{1,{MAX_INTEGER_DIGITS}}}(\.\d{{1,{MAX_FRACTION_DIGITS}}})?", re.ASCII)
_DIGITS = f"at most {MAX_INTEGER_DIGITS} digits before and {MAX_FRACTION_DIGITS} after the point"


def check_amount(given: Amount | None, further: Collection[str] = ()) -> Mapping[str, object]:
    """Return the parts of an amount. `further`: members beyond `MEMBERS` that posd accepts, such as `extra_taxes.isd`.

    Raise TypeError for None, and for a float: it cannot hold 0.10. Raise ValueError as posd would refuse it: an unknown
    member, a number below 0 or with too many digits, and an amount of 0.
    """
    parts = given if isinstance(given, Mapping) else {SUM: given}
    if sum(_numbers(parts, (*MEMBERS, *further))) == 0:
        raise ValueError(f"{given!r} is an amount of 0: it has to be more")
    return parts


def _numbers(parts: Mapping[str, object], known: Collection[str], inside: str = "") -> Iterator[Decimal]:
    for name, value in parts.items():
        path = f"{inside}{name}"
        if isinstance(value, Mapping) and any(member.startswith(f"{path}.") for member in known):
            yield from _numbers(value, known, f"{path}.")
        elif path in known and "." not in name:
            yield _number(path, value)
        else:
            near = difflib.get_close_matches(path.lower(), known, n=1, cutoff=0.5)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"{path!r} is no part of an amount: {meant}The parts are {', '.join(known)}")


def _number(name: str, value: object) -> Decimal:
    """Return the exact value of a part. Raise TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int | str):
        hint = f': write Decimal("{value!r}") or "{value!r}"' if isinstance(value, float) else ""
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}): an amount is a Decimal, an int or a str{hint}")
    if isinstance(value, str) and not _TEXT.fullmatch(value):
        raise ValueError(f"{name} is {value!r}: as a text it is digits such as '11.20', {_DIGITS}")
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or number < 0:
        raise ValueError(f"{name} is {number}: it is a finite number, not below 0")
    if -exponent > MAX_FRACTION_DIGITS or (number and number.adjusted() >= MAX_INTEGER_DIGITS):
        raise ValueError(f"{name} is {number:g}: it has {_DIGITS}")
    return number
