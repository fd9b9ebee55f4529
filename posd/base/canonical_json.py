"""JSON in the form that JavaScript writes: what a terminal that reads and serialises it again would get.

`JSON.stringify(JSON.parse(text))`: no spaces, members in their order, every number as the shortest text of the binary
double that it is, nothing escaped but what has to be. What does not survive that is a fault: a number that no double
holds exactly, and a name that JavaScript would move to the front.

Source: terminal API, Authentication; ECMAScript, Number::toString and OrdinaryOwnPropertyKeys.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from posd.base.json_types import check, encode

#: At this size, and below that one, JavaScript writes an exponent.
_LARGE, _SMALL = Decimal("1e21"), Decimal("1e-6")
_INTEGER = re.compile(r"0|[1-9][0-9]{0,9}")
#: The largest array index: such names come first, in ascending order.
_LAST_INDEX = 2**32 - 2


class NotCanonical(ValueError):
    """JavaScript would not write the same again; the message says where and why."""


class Fault(NamedTuple):
    """What does not survive: the names and positions that lead to it, and why in words."""

    place: tuple[str, ...]
    words: str


def canonical(text: bytes) -> bytes:
    """Return a JSON text in that form. Raise NotCanonical, and ValueError where it is no JSON."""
    document = _DECODER.decode(check(text))
    for fault in _faults(document, ()):
        raise NotCanonical(f"{'/'.join(('', *fault.place))} {fault.words}")
    return _written(document).encode()


def faults(text: bytes) -> list[Fault]:
    """Return all that would not survive. Raise ValueError where it is no JSON."""
    return list(_faults(_DECODER.decode(check(text)), ()))


def _faults(value: Any, place: tuple[str, ...]) -> Iterator[Fault]:
    match value:
        case dict():
            for name, member in value.items():
                if _INTEGER.fullmatch(name) and int(name) <= _LAST_INDEX:
                    yield Fault((*place, name), "has a whole number as its name, which would be moved to the front")
                yield from _faults(member, (*place, name))
        case list():
            for index, item in enumerate(value):
                yield from _faults(item, (*place, str(index)))
        case Decimal() if not _exact(value):
            yield Fault(place, f"has more digits than a terminal reads exactly: it would be {_nearest(value)} there")


def _literal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # even Decimal cannot hold it
        return Decimal("NaN")


#: Of a name that stands twice the last value counts, in the place of the first: as in JavaScript.
_DECODER = json.JSONDecoder(object_pairs_hook=dict, parse_float=_literal, parse_int=_literal)


def _shortest(value: Decimal) -> Decimal:
    """Return the number that JavaScript writes for the nearest double: its shortest digits that lead back to it."""
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
