"""JSON in JavaScript's form: `JSON.stringify(JSON.parse(text))`.

A verifier that has only the parsed object serialises it again. So a number is a double in the shortest form, the last
of several members of one name counts, and names that are array indices come first.
"""

import json
import math
import re
from typing import Any

#: Array indices end before this (2³² - 1).
_INDEX_LIMIT = 2**32 - 1
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
#: Places of a number's first digit before the point without an exponent.
_PLAIN = range(-5, 22)


def parse(text: str) -> Any:
    """Parse a JSON document; each number is a float, as in JavaScript. Raise ValueError, RecursionError."""
    return json.loads(text, parse_int=float, parse_constant=_refuse)


def stringify(value: Any) -> str:
    """Serialise a value from `parse`. Raise RecursionError if it is nested too deeply."""
    match value:
        case bool() | None:
            return json.dumps(value)
        case float():
            return number(value)
        case str():
            return _text(value)
        case list():
            return f"[{','.join(map(stringify, value))}]"
        case dict():
            names = sorted(filter(_is_index, value), key=int) + [name for name in value if not _is_index(name)]
            return "{" + ",".join(f"{_text(name)}:{stringify(value[name])}" for name in names) + "}"
        case _:
            raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def number(value: float) -> str:
    """Return a number as JavaScript writes it: 10, 1.2, 1e+21, 1.5e-7; null if JSON has none."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, power = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(power or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if point not in _PLAIN:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits.ljust(point, '0')}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _text(text: str) -> str:
    return _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(text, ensure_ascii=False))


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name[:11])) == name and int(name) < _INDEX_LIMIT


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no JSON")
