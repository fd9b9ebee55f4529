"""JSON as it comes from outside: strict (RFC 8259, UTF-8), every number exact, repeated names noticed.

How deep it may be nested is a fixed number, not what the stack has left: what could be read once can be read again,
wherever that is done.
"""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

#: Levels of arrays and objects in a text. What a terminal sends has about five, and those of the metadata that it
#: echoes, which are at most `requests.MAX_FREE_FORM_DEPTH`.
MAX_DEPTH = 128

#: Checks what the standard library lets pass: NaN, lone surrogates.
_STRICT = msgspec.json.Decoder(float_hook=str)

_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class TooDeep(ValueError):
    """It is nested deeper than posd reads."""


class Object(dict[str, Any]):
    """A JSON object that remembers which of its names came more than once with different values."""

    repeated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> "Object":
        """Make an object of the pairs in it; the last one of a name counts."""
        members = cls(pairs)
        if len(members) != len(pairs):
            members.repeated = frozenset(name for name, value in pairs if members[name] != value)
        return members


def decode(body: bytes) -> Any:
    """Decode JSON; objects are `Object`, numbers Decimal.

    Raise ValueError with the reason, TooDeep where the text is nested deeper than MAX_DEPTH.
    """
    if deeper_than(body, MAX_DEPTH):  # first: how deep the decoders go depends on what the stack has left
        raise TooDeep(f"it is nested too deeply: more than {MAX_DEPTH} levels")
    try:
        _STRICT.decode(body)
        return _EXACT.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def deeper_than(text: bytes, levels: int) -> bool:
    """Tell whether arrays and objects of a text stand in each other deeper than so many levels.

    Of a text that is no JSON it tells it of the beginning, as far as that could be one.
    """
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    outside_strings = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    level = 0
    for bracket in b"".join(outside_strings).translate(None, _ALL_BUT_BRACKETS):
        level += 1 if bracket in b"[{" else -1
        if level > levels:
            return True
    return False


def number(literal: str) -> Decimal | str:
    """Keep a number exact; one that even Decimal cannot hold stays text: it is nothing that posd reads."""
    try:
        return Decimal(literal)
    except InvalidOperation:
        return literal


_EXACT = json.JSONDecoder(object_pairs_hook=Object.of, parse_float=number, parse_int=number)


#: One encoder for what is stored and sent: decimals stay numbers with the digits they have.
ENCODER = msgspec.json.Encoder(decimal_format="number")


def encode(value: Any) -> bytes:
    """Encode to JSON with exact decimals."""
    return ENCODER.encode(value)
