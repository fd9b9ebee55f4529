"""A second reader of JSON, with the standard library alone. Tests compare the codec's result with this reader."""

import json
from decimal import Decimal
from typing import Any


class Pairs(list[tuple[str, Any]]):
    """A JSON object as the pairs in its text."""

    def all(self, name: str) -> list[Any]:
        """Return every value of a name, in order."""
        return [value for other, value in self if other == name]


def pairs(body: bytes) -> Any:
    """Read a body that the codec has also read. Objects become pairs. Numbers become Decimal. A number that does not
    fit becomes text.
    """
    return json.loads(body, object_pairs_hook=Pairs, parse_float=_number, parse_int=_number)


def _number(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:
        return text


def values(document: Any, *names: str) -> list[Any]:
    """Return every value at a path of names. An object with repeated names gives several values."""
    found = [document]
    for name in names:
        found = [value for item in found if isinstance(item, Pairs) for value in item.all(name)]
    return found


def one_thing(document: Any, *names: str) -> bool:
    """Return whether a path of names has at most one value. Numbers are compared by value, and true differs from 1."""
    found = values(document, *names)
    return all(type(value) is type(found[0]) and value == found[0] for value in found)
