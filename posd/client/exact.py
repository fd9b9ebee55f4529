"""JSON with exact numbers, by the standard library: a fraction is read as Decimal, a Decimal is written as a number.

A binary float is neither read nor written: 10.10 has no exact one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

#: Digits before or after the point up to which a Decimal is written out; a longer one keeps its exponent.
MAX_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Verbatim:
    """JSON that is written as it stands."""

    text: str


def decode(raw: bytes | str) -> Any:
    """Decode JSON. Raise ValueError where it is not JSON."""
    text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            encode(value)  # half of a character (a lone surrogate) is no text that could be shown or sent
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def encode(value: object) -> bytes:
    """Encode to JSON. Raise TypeError for a float or what JSON does not have, ValueError for NaN."""
    return _text(value).encode("utf-8")


def _number(literal: str) -> Decimal | str:
    """Keep a number exact; one that even Decimal cannot hold stays text."""
    try:
        return Decimal(literal)
    except InvalidOperation:
        return literal


def _whole(literal: str) -> int | Decimal | str:
    return int(literal) if len(literal) <= MAX_DIGITS else _number(literal)


def _constant(literal: str) -> Any:
    raise ValueError(f"{literal} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_number, parse_int=_whole, parse_constant=_constant)


def _text(value: object) -> str:
    match value:
        case str() | bool() | None:
            return json.dumps(value, ensure_ascii=False)
        case int():
            return int.__repr__(value)
        case Verbatim():
            return value.text
        case Decimal():
            return _decimal(value)
        case float():
            raise TypeError(
                f'{value!r} is a float, which is not exact: write Decimal("{value!r}"), or read JSON with '
                "json.loads(text, parse_float=Decimal)"
            )
        case Mapping():
            return "{" + ",".join(f"{_name(name)}:{_text(item)}" for name, item in value.items()) + "}"
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return "[" + ",".join(map(_text, value)) + "]"
        case _:
            raise TypeError(f"{value!r} ({type(value).__name__}) cannot stand in JSON")


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} cannot be a name in JSON: it is no text")
    return json.dumps(name, ensure_ascii=False)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} is not a number that JSON has")
    return format(value, "f") if abs(value.adjusted()) <= MAX_DIGITS else str(value)
