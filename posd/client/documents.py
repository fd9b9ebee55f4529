"""Typed fields of posd's documents. What a document has beyond them is left alone; what it lacks is a ValueError."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
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
