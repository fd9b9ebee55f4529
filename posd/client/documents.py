"""Typed fields of posd's documents. What a document has beyond them is left alone; what it lacks is a ValueError."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

T = TypeVar("T")

Document = Mapping[str, Any]


def document(value: object) -> Document:
    """Return an object. Raise ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError(f"an object was expected, not {value!r:.80}")  # noqa: TRY004 - one kind of error
    return value


def text(source: Document, name: str) -> str:
    """Return a text. Raise ValueError."""
    return _of(str, source, name)


def flag(source: Document, name: str) -> bool:
    """Return a truth value. Raise ValueError."""
    return _of(bool, source, name)


def whole(source: Document, name: str) -> int:
    """Return a whole number. Raise ValueError."""
    return _of(int, source, name)


def moment(source: Document, name: str) -> datetime:
    """Return a time, aware (UTC). Raise ValueError."""
    return datetime.fromisoformat(text(source, name))


def amount(source: Document, name: str) -> Decimal | None:
    """Return an amount, None where there is none. Raise ValueError."""
    value = source.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"{name}: an amount was expected, not {value!r:.80}")  # noqa: TRY004
    return Decimal(value)


def maybe(source: Document, name: str) -> str | None:
    """Return a text, None where there is none. Raise ValueError."""
    return None if source.get(name) is None else text(source, name)


def maybe_flag(source: Document, name: str) -> bool | None:
    """Return a truth value, None where it is not known. Raise ValueError."""
    return None if source.get(name) is None else flag(source, name)


def maybe_moment(source: Document, name: str) -> datetime | None:
    """Return a time, None where there is none. Raise ValueError."""
    return None if source.get(name) is None else moment(source, name)


def maybe_document(source: Document, name: str) -> Document | None:
    """Return an object, None where there is none. Raise ValueError."""
    return None if source.get(name) is None else document(source[name])


def items(source: Document, name: str) -> list[Any]:
    """Return a list, empty where there is none. Raise ValueError."""
    return [] if source.get(name) is None else _of(list, source, name)


def _of(kind: type[T], source: Document, name: str) -> T:
    value = source.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name}: {kind.__name__} was expected, not {value!r:.80}")
    return value


# JSON with exact numbers, by the standard library: a fraction is read as Decimal, a Decimal is written as a number.
#
# A binary float is neither read nor written: 10.10 has no exact one.

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
