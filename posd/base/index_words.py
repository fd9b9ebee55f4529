"""Index words of a JSON object's members: name and decoded value.

A word is the JSON of `[name, value]`: numbers by value, however written, members of an object in the order of their
names. Exactly the equal members have the same word. A too long word is cut and ends in a hash of the whole; one that
ends in a bracket is complete.
"""

import hashlib
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import msgspec

from posd.base.json_types import decode

#: Most characters of a word.
LENGTH = 100
#: Bytes of the hash at the end of a longer word.
_HASH_BYTES = 16

_ENCODER = msgspec.json.Encoder(decimal_format="number", order="sorted")
#: Rounds no number of a text, and expands no exponent.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def words(text: bytes) -> list[str]:
    """Return one word for each member of a JSON object, else none. Of a repeated name the last member counts."""
    try:
        members = decode(text)
    except ValueError:
        return []
    return [_word(name, value) for name, value in members.items()] if isinstance(members, dict) else []


def asked(name: str, text: str) -> tuple[str, ...]:
    """Return the words that a text can mean: the text itself, and its value as JSON.

    So 7.0 means the text "7.0" and the number 7.
    """
    try:
        value = decode(text.encode())
    except ValueError:
        value = text
    return tuple(dict.fromkeys([_word(name, text), *([] if isinstance(value, str) else [_word(name, value)])]))


def _word(name: str, value: Any) -> str:
    word = _ENCODER.encode([name, _canonical(value)]).decode()
    if len(word) <= LENGTH:
        return word
    digest = hashlib.blake2b(word.encode(), digest_size=_HASH_BYTES).hexdigest()
    return word[: LENGTH - len(digest)] + digest


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
