"""Posd's documents: their JSON with exact numbers, and their members as typed fields."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

Document = Mapping[str, Any]

# Typed fields. Further members of a document are ignored; a missing one raises ValueError.


class FromDocument:
    """Dataclass that is read from a document (see `build`)."""

    __slots__ = ()

    @classmethod
    def read(cls, source: Document) -> Self:
        """Read the document. Raise ValueError."""
        return build(cls, source)


def build(kind: type[T], source: Document, **known: Any) -> T:
    """Return a dataclass with each field read from the member of its name, by its type. Raise ValueError.

    A field's metadata may name another `member`. The field `document` is the source itself. A field with a default
    keeps it. `known`: values of fields that are not read.
    """
    read = {
        name: source if name == "document" else _value(hint, source.get(member), member)
        for name, member, hint in _members(kind)  # type: ignore[arg-type]  # a class is hashable
        if name not in known
    }
    return kind(**read, **known)


@functools.cache
def _members(kind: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    """Return the read fields of a dataclass: field, member of the document, type."""
    hints = get_type_hints(kind)
    return tuple(
        (each.name, each.metadata.get("member", each.name), hints[each.name])
        for each in fields(kind)
        if each.default is MISSING
    )


def _value(kind: Any, given: object, name: str) -> Any:
    """Return the value of a member as that type. Raise ValueError."""
    origin, inner = get_origin(kind), get_args(kind)
    if NoneType in inner:
        return None if given is None else _value(inner[0], given, name)
    if origin is Mapping:
        return document(given)
    if origin is dict:
        return {key: _value(inner[1], item, key) for key, item in document(given).items()}
    if origin is tuple:
        found = [] if given is None else _of(list, given, name)
        return tuple(str(item) if inner[0] is str else _value(inner[0], item, name) for item in found)
    if is_dataclass(kind):
        return build(kind, document(given))  # type: ignore[arg-type]  # it is a class
    if kind is datetime:
        return datetime.fromisoformat(_of(str, given, name))
    if kind is Decimal:
        return _amount(given, name)
    return _of(kind, given, name)


def document(value: object) -> Document:
    """Return an object. Raise ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError(f"an object was expected, not {value!r:.80}")  # noqa: TRY004 - one kind of error
    return value


def text(source: Document, name: str) -> str:
    """Return a text. Raise ValueError."""
    return _of(str, source.get(name), name)


def maybe(source: Document, name: str) -> str | None:
    """Return a text, or None if it is missing. Raise ValueError."""
    return None if source.get(name) is None else text(source, name)


def maybe_document(source: Document, name: str) -> Document | None:
    """Return an object, or None if it is missing. Raise ValueError."""
    return None if source.get(name) is None else document(source[name])


def items(source: Document, name: str) -> list[Any]:
    """Return a list, empty if it is missing. Raise ValueError."""
    return [] if source.get(name) is None else _of(list, source[name], name)


def _amount(value: object, name: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"{name}: an amount was expected, not {value!r:.80}")  # noqa: TRY004
    return Decimal(value)


def _of(kind: type[T], value: object, name: str) -> T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name}: {kind.__name__} was expected, not {value!r:.80}")
    return value


# JSON with exact numbers, by the standard library: a fraction is read as Decimal, a Decimal is written as a number.
#
# A binary float is neither read nor written: 10.10 has no exact one.

#: Most digits before or after the point of a Decimal that is written out; a longer one keeps its exponent.
MAX_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Verbatim:
    """JSON that is written unchanged."""

    text: str


def decode(raw: bytes | str) -> Any:
    """Decode JSON. Raise ValueError if it is invalid."""
    text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            encode(value)  # rejects a lone surrogate, which cannot be shown or sent
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def encode(value: object) -> bytes:
    """Encode to JSON. Raise TypeError for a float or a type without JSON, ValueError for NaN."""
    return _text(value).encode("utf-8")


def _number(literal: str) -> Decimal | str:
    """Return an exact number; one beyond Decimal stays text."""
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
