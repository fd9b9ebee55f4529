"""JSON in the form that JavaScript writes: the result of a terminal that parses and serialises it again.

`JSON.stringify(JSON.parse(text))`: no spaces, members in their order, every number as the shortest text of its binary
double, only necessary escapes. A value that this would change is a fault: a number without an exact double, and a name
that JavaScript would move to the front.

Source: terminal API, Authentication; ECMAScript, Number::toString and OrdinaryOwnPropertyKeys.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from posd.base.json_types import Place, check, encode, number_or_nan, parts, pointer

#: Limits at which JavaScript writes an exponent: from the first on, and below the second.
_LARGE, _SMALL = Decimal("1e21"), Decimal("1e-6")
_INTEGER = re.compile(r"0|[1-9][0-9]{0,9}")
#: The largest array index: such names come first, in ascending order.
_LAST_INDEX = 2**32 - 2


class NotCanonical(ValueError):
    """JSON that JavaScript would write differently; the message has the place and the reason."""


class RoundTripFault(NamedTuple):
    """Value that JavaScript would change: the names and positions that lead to it, and the reason in words."""

    place: Place
    words: str


def canonical(text: bytes) -> bytes:
    """Return a JSON text in that form. Raise NotCanonical; raise ValueError if it is no JSON."""
    document = _DECODER.decode(check(text))
    for fault in _faults(document):
        raise NotCanonical(f"{pointer(fault.place)} {fault.words}")
    return _written(document).encode()


def faults(text: bytes) -> list[RoundTripFault]:
    """Return every value that JavaScript would change. Raise ValueError if it is no JSON."""
    return list(_faults(_DECODER.decode(check(text))))


def _faults(document: Any) -> Iterator[RoundTripFault]:
    for place, value in parts(document):
        match place:
            case (*_, str(name)) if _INTEGER.fullmatch(name) and int(name) <= _LAST_INDEX:
                yield RoundTripFault(place, "has a whole number as its name, which would be moved to the front")
        if isinstance(value, Decimal) and not _exact(value):
            yield RoundTripFault(
                place, f"has more digits than a terminal reads exactly: it would be {_nearest(value)} there"
            )


#: The last value of a repeated name counts, in the place of the first, as in JavaScript.
_DECODER = json.JSONDecoder(object_pairs_hook=dict, parse_float=number_or_nan, parse_int=number_or_nan)


def _shortest(value: Decimal) -> Decimal:
    """Return the number that JavaScript writes for the nearest double: the shortest digits of that double."""
    return Decimal(repr(float(value)))


def _exact(value: Decimal) -> bool:
    return value.is_finite() and _shortest(value) == value


def _nearest(value: Decimal) -> str:
    return _number(value) if _shortest(value).is_finite() else "no number"


def _number(value: Decimal) -> str:
    shortest = _shortest(value).normalize()
    if shortest == 0:
        return "0"
    if _SMALL <= abs(shortest) < _LARGE:
        return format(shortest, "f")
    sign, digits, _ = shortest.as_tuple()
    mantissa = "".join(map(str, digits))
    point = f"{mantissa[0]}.{mantissa[1:]}" if len(mantissa) > 1 else mantissa
    return f"{'-' if sign else ''}{point}e{shortest.adjusted():+d}"


def _written(value: Any) -> str:
    match value:
        case dict():
            return f"{{{','.join(f'{_text(name)}:{_written(member)}' for name, member in value.items())}}}"
        case list():
            return f"[{','.join(map(_written, value))}]"
        case Decimal():
            return _number(value)
        case str():
            return _text(value)
        case _:
            return {None: "null", True: "true", False: "false"}[value]


def _text(value: str) -> str:
    return encode(value).decode()
