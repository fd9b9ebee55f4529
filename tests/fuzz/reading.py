"""A second way to read JSON, with the standard library alone; the codec's result is compared with it."""

import json
from decimal import Decimal
from typing import Any


class Pairs(list[tuple[str, Any]]):
    """An object as the pairs in its text."""

    def all(self, name: str) -> list[Any]:
        """Return every value of a name, in order."""
        return [value for other, value in self if other == name]


def pairs(body: bytes) -> Any:
    """Read what the codec has read once more: objects as pairs, numbers as Decimal, or as text if they do not fit."""
    return json.loads(body, object_pairs_hook=Pairs, parse_float=_number, parse_int=_number)


def _number(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:
        return text


def values(document: Any, *names: str) -> list[Any]:
    """Return every value at a path of names, one for each reading of an object with repeated names."""
    found = [document]
    for name in names:
        found = [value for item in found if isinstance(item, Pairs) for value in item.all(name)]
    return found


def one_thing(document: Any, *names: str) -> bool:
    """Return whether a path of names has at most one value. Numbers are compared by value, and true differs from 1."""
    found = values(document, *names)
    return all(type(value) is type(found[0]) and value == found[0] for value in found)
