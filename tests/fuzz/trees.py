"""JSON documents as trees. A tree can have repeated names, and literals that no library would write.

A tree is made of `Members` (an object, as pairs), lists, texts, true, false, None, and `Literal` (text that is written
unchanged).
"""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple


class Members(list[tuple[str, Any]]):
    """A JSON object as pairs. A name can appear more than once."""


class Literal(NamedTuple):
    """JSON text that is written unchanged, such as a number with its digits, or a text that is not JSON."""

    text: str


class Place(NamedTuple):
    """One value in a tree, with its container and its place."""

    holder: Any
    at: int

    @property
    def value(self) -> Any:
        item = self.holder[self.at]
        return item[1] if isinstance(self.holder, Members) else item

    def put(self, value: Any) -> None:
        """Replace the value."""
        if isinstance(self.holder, Members):
            self.holder[self.at] = (self.holder[self.at][0], value)
        else:
            self.holder[self.at] = value


def tree(value: Any) -> Any:
    """Return Python's value of a JSON document as a tree."""
    match value:
        case Members():
            return Members((name, tree(member)) for name, member in value)
        case Literal():
            return value
        case dict():
            return Members((name, tree(member)) for name, member in value.items())
        case list() | tuple():
            return [tree(item) for item in value]
        case bool() | None | str():
            return value
        case int() | float() | Decimal():
            return Literal(str(value))
        case _:
            raise TypeError(value)


def places(root: list[Any]) -> list[Place]:
    """Return every value below the root. The root is a list with the document."""
    return list(_places(root))


def _places(holder: Any) -> Iterator[Place]:
    for index in range(len(holder)):
        place = Place(holder, index)
        yield place
        if isinstance(place.value, (Members, list)):
            yield from _places(place.value)


def write(value: Any, *, ascii_only: bool = False, space: str = "") -> str:
    """Write a tree as JSON text, with `space` wherever JSON allows white space."""
    match value:
        case Literal(text=text):
            return text
        case Members():
            pairs = (
                f"{space}{json.dumps(name, ensure_ascii=ascii_only)}{space}:{space}"
                f"{write(member, ascii_only=ascii_only, space=space)}"
                for name, member in value
            )
            return f"{{{','.join(pairs)}{space}}}"
        case list():
            items = (space + write(item, ascii_only=ascii_only, space=space) for item in value)
            return f"[{','.join(items)}{space}]"
        case _:
            return json.dumps(value, ensure_ascii=ascii_only)


def nested(value: Any, levels: int, *, in_objects: bool) -> Literal:
    """Return a value inside this many lists or objects."""
    opening, closing = ('{"a":', "}") if in_objects else ("[", "]")
    return Literal(opening * levels + write(value) + closing * levels)
