"""Generators with knowledge of the structure. The generators change a valid document in a few places, write the
document in an encoding, and damage bytes.

A document is a tree of `Members` (an object, as pairs), lists, texts, true, false, None, and `Literal` (text that is
written unchanged). A tree can have repeated names, and literals that no library would write.
"""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy


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

    def like(self, value: Any) -> Any:
        """Return an item of the container with another value."""
        return (self.holder[self.at][0], value) if isinstance(self.holder, Members) else value


def tree(value: Any) -> Any:
    """Return a copy of a tree, or of Python's value of a JSON document, as a tree."""
    match value:
        case Members() | dict():
            pairs = value.items() if isinstance(value, dict) else value
            return Members((name, tree(member)) for name, member in pairs)
        case Literal() | bool() | None | str():
            return value
        case int() | float() | Decimal():
            return Literal(str(value))
        case _:
            return [tree(item) for item in value]


def places(holder: Any) -> Iterator[Place]:
    """Yield every value below a container."""
    for index in range(len(holder)):
        yield (place := Place(holder, index))
        if isinstance(place.value, (Members, list)):
            yield from places(place.value)


def write(value: Any, *, ascii_only: bool = False, space: str = "") -> str:
    """Write a tree as JSON text, with `space` wherever JSON allows white space."""

    def text(value: Any) -> str:
        return write(value, ascii_only=ascii_only, space=space)

    match value:
        case Literal(text=literal):
            return literal
        case Members():
            pairs = (f"{space}{text(name)}{space}:{space}{text(member)}" for name, member in value)
            return f"{{{','.join(pairs)}{space}}}"
        case list():
            return f"[{','.join(space + text(item) for item in value)}{space}]"
        case _:
            return json.dumps(value, ensure_ascii=ascii_only)


#: Levels of nesting: just below and above the limits of posd (64 and 256), of msgspec and of the interpreter (1000),
#: and far above all limits.
LEVELS = (1, 2, 63, 64, 65, 255, 256, 257, 990, 1000, 5000)
NESTINGS = (("[", "]"), ('{"a":', "}"))

#: Literals and values that a reader can easily take for another value.
LITERALS = (
    *("0", "-0", "-0.00", "0e5", "1", "-1", "10.10", "11.2", "0.00001", "999999999999.9999", "1e3", "1E-7", "1e400"),
    *("1e999999999", "1e99999999999999999999", "9" * 30, "9" * 5000, "0." + "3" * 60, "NaN", "Infinity", "01", "1_000"),
    *('"\\ud800"', '"\\u0000"', "'x'", ""),
)
TEXTS = ("", " ", "0", "null", "\x00", "a\x00b", "‮é\U0001f4b3", "x" * 256, "x" * 257, "x" * 600, "..")
STRANGE: tuple[Any, ...] = (None, True, False, *TEXTS, [], Members(), [Members()], *map(Literal, LITERALS))

#: Escapes of a text in JSON. Most escapes follow the recommendation of the standard.
ENCODINGS = ("utf-8",) * 8 + ("utf-8-sig", "utf-16", "utf-32", "latin-1")
SPACES = ("",) * 4 + (" ", "\n\t\r ")
CHANGES = ("drop", "repeat", "rename", "swap", "nest", "add", "replace", "replace")


@st.composite
def documents(draw: DrawFn, seeds: Sequence[Any], words: Sequence[Any] = ()) -> Any:
    """Draw a tree, which is a seed with up to four changes. `words` can replace a text."""
    texts = [word for word in words if isinstance(word, str)]
    names = st.sampled_from(("", "a", "a/b", "a~b", *texts)) | st.text(max_size=8)
    # Each value is a copy, because an object that is inserted twice would change in both places.
    parts = [place.value for seed in seeds for place in places([tree(seed)])]
    values = st.sampled_from((*STRANGE, *words)).map(tree) | st.sampled_from(parts).map(tree) | st.text(max_size=12)
    root = [tree(draw(st.sampled_from(seeds)))]
    for _ in range(draw(st.integers(0, 4))):
        holder, at = place = draw(st.sampled_from([*places(root)]))
        anywhere = st.integers(0, len(holder) - 1)
        match draw(st.sampled_from(CHANGES)):
            case "drop" if len(holder) > 1:
                del holder[at]
            case "repeat":
                repeated = draw(st.just(holder[at]) | values.map(place.like))
                holder.insert(draw(st.integers(0, len(holder))), repeated)
            case "swap":
                other = draw(anywhere)
                holder[at], holder[other] = holder[other], holder[at]
            case "rename" if isinstance(holder, Members):
                name, value = holder[at]
                changed = st.sampled_from((name.upper(), name.replace("_", ""), f"{name} "))
                holder[at] = (draw(changed | names), value)
            case "nest":
                (opening, closing), levels = draw(st.sampled_from(NESTINGS)), draw(st.sampled_from(LEVELS))
                holder[at] = place.like(Literal(opening * levels + write(place.value) + closing * levels))
            case "add" if isinstance(place.value, Members):
                place.value.append((draw(names), draw(values)))
            case "replace":
                holder[at] = place.like(draw(values))
    return root[0] if len(root) == 1 else root


@st.composite
def contradicted(draw: DrawFn, seeds: Sequence[Any], words: Sequence[Any] = ()) -> Any:
    """Draw a tree, which is a seed with one name that appears twice with two values."""
    root = [tree(draw(st.sampled_from(seeds)))]
    if found := [place for place in places(root) if isinstance(place.holder, Members)]:
        place = draw(st.sampled_from(found))
        others = [word for word in (*words, None, "x", Literal("1.5"), Members()) if word != place.value]
        other = place.like(tree(draw(st.sampled_from(others))))
        place.holder.insert(place.at + draw(st.integers(0, 1)), other)
    return root[0]


@st.composite
def damaged(draw: DrawFn, whole: SearchStrategy[bytes]) -> bytes:
    """Draw bytes. Most are unchanged. Some bodies are cut or joined with another body, and some have a byte inserted,
    removed or changed.
    """
    data: bytes = draw(whole)
    how = draw(st.sampled_from(("",) * 5 + ("cut", "insert", "remove", "change", "splice")))
    if not how or not data:
        return data
    at = draw(st.integers(0, len(data) - 1))
    head, tail = data[:at], data[at:]
    if how == "splice":
        other = draw(whole)
        return head + other[draw(st.integers(0, len(other))) :]
    ends = {
        "cut": b"",
        "insert": draw(st.binary(min_size=1, max_size=4)) + tail,
        "remove": tail[draw(st.integers(1, 16)) :],
        "change": bytes([draw(st.integers(0, 255))]) + tail[1:],
    }
    return head + ends[how]


@st.composite
def written(draw: DrawFn, trees: SearchStrategy[Any]) -> bytes:
    """Draw a tree, and write the tree in an encoding."""
    space = draw(st.sampled_from(SPACES))
    text: str = space + write(draw(trees), ascii_only=draw(st.booleans()), space=space) + space
    return text.encode(draw(st.sampled_from(ENCODINGS)), "replace")


def bodies(seeds: Sequence[Any], words: Sequence[Any] = ()) -> SearchStrategy[bytes]:
    """Return bodies of requests and replies."""
    changed = damaged(written(documents(seeds, words)))
    return st.one_of(changed, changed, written(contradicted(seeds, words)), st.binary(max_size=64))
