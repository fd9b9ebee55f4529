"""Two canonical forms of JSON: the text that JavaScript writes, and index words of an object's members.

The first form is the text that a terminal has after it parses JSON and serialises it again, by
`JSON.stringify(JSON.parse(text))`. The form has no spaces, members in their order, every number as the shortest text of
its binary double, and only necessary escapes. posd refuses a text that JavaScript would change: one with a number
without an exact double, or with a name that JavaScript would move to the front.

Source: terminal API, Authentication; ECMAScript, Number::toString and OrdinaryOwnPropertyKeys.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import msgspec

from posd.base.json_types import Place, check, decode, encode, number_or_nan, parts, pointer

#: JavaScript writes an exponent for numbers from the first limit on, and for numbers below the second limit.
_LARGE, _SMALL = Decimal("1e21"), Decimal("1e-6")
_INTEGER = re.compile(r"0|[1-9][0-9]{0,9}")
#: Largest array index. JavaScript puts names that are array indexes first, in ascending order.
_LAST_INDEX = 2**32 - 2


class NotCanonical(ValueError):
    """Error for JSON with a value that JavaScript would change. The message has the place and the reason."""


def canonical(text: bytes) -> bytes:
    """Return a JSON text as JavaScript writes it. Raise NotCanonical, or ValueError for a text that is not JSON."""
    document = _DECODER.decode(check(text))
    for place, words in _faults(document):
        raise NotCanonical(f"{pointer(place)} {words}")
    return _written(document).encode()


def faults(text: bytes) -> list[tuple[Place, str]]:
    """Return place and reason of each value that JavaScript would change.

    Raise ValueError for a text that is not JSON.
    """
    return list(_faults(_DECODER.decode(check(text))))


def _faults(document: Any) -> Iterator[tuple[Place, str]]:
    for place, value in parts(document):
        match place:
            case (*_, str(name)) if _INTEGER.fullmatch(name) and int(name) <= _LAST_INDEX:
                yield place, "has a whole number as its name: a terminal would move this member to the front"
        if isinstance(value, Decimal) and not _exact(value):
            yield place, f"has more digits than a terminal reads exactly: it would be {_nearest(value)} there"


#: As in JavaScript, the last value of a repeated name counts, at the place of the first.
_DECODER = json.JSONDecoder(object_pairs_hook=dict, parse_float=number_or_nan, parse_int=number_or_nan)


def _shortest(value: Decimal) -> Decimal:
    """Return the number as JavaScript writes it: the shortest digits of the nearest double."""
    return Decimal(repr(float(value)))


def _exact(value: Decimal) -> bool:
    return _shortest(value) == value


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


# Index words of a JSON object's members: name and decoded value.
#
# A word is the JSON of `[name, value]`. Numbers are compared by value, and members of an object are sorted by name. So
# equal members have the same word, and different members have different words. A long word is cut and ends in a hash of
# the whole word. Only a word that was not cut ends in a bracket.

#: Maximum number of characters of a word.
WORD_LENGTH = 100
#: Number of bytes of the hash at the end of a cut word.
_HASH_BYTES = 16

_ENCODER = msgspec.json.Encoder(decimal_format="number", order="sorted")
#: Context that neither rounds numbers nor limits exponents.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def index_words(text: bytes) -> list[str]:
    """Return a word for each name of a JSON object, or no words for another type.

    The last value of a repeated name counts.
    """
    try:
        members = decode(text)
    except ValueError:
        return []
    return [_word(name, value) for name, value in members.items()] if isinstance(members, dict) else []


def asked_words(name: str, text: str) -> tuple[str, ...]:
    """Return the words that a searched text can match: the text itself, and the text decoded as JSON.

    For example, 7.0 matches the text "7.0" and the number 7.
    """
    try:
        value = decode(text.encode())
    except ValueError:
        value = text
    return tuple(dict.fromkeys([_word(name, text), *([] if isinstance(value, str) else [_word(name, value)])]))


def _word(name: str, value: Any) -> str:
    word = _ENCODER.encode([name, _canonical(value)]).decode()
    if len(word) <= WORD_LENGTH:
        return word
    digest = hashlib.blake2b(word.encode(), digest_size=_HASH_BYTES).hexdigest()
    return word[: WORD_LENGTH - len(digest)] + digest


def _canonical(value: Any) -> Any:
    match value:
        case Decimal():
            return _EXACT.normalize(value) if value else 0
        case dict():
            return {name: _canonical(member) for name, member in value.items()}
        case list():
            return [_canonical(item) for item in value]
        case _:
            return value
