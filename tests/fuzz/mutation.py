"""Generators with knowledge of the structure. The generators change a valid document in a few places, write the
document in an encoding, and damage bytes.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.fuzz.trees import Literal, Members, nested, places, tree, write

#: Levels of nesting: just below and above the limits of posd (64 and 256), of msgspec and of the interpreter (1000),
#: and far above all limits.
LEVELS = (1, 2, 63, 64, 65, 255, 256, 257, 990, 1000, 5000)

#: Values that a reader can easily take for another value.
STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    " ",
    "0",
    "null",
    "\x00",
    "a\x00b",
    "‮é\U0001f4b3",
    "x" * 256,
    "x" * 257,
    "x" * 600,
    "..",
    [],
    Members(),
    [Members()],
    *map(
        Literal,
        (
            "0",
            "-0",
            "-0.00",
            "0e5",
            "1",
            "-1",
            "10.10",
            "11.2",
            "0.00001",
            "999999999999.9999",
            "1e3",
            "1E-7",
            "1e400",
            "1e999999999",
            "1e99999999999999999999",
            "9" * 30,
            "9" * 5000,
            "0." + "3" * 60,
            "NaN",
            "Infinity",
            "01",
            "1_000",
            '"\\ud800"',
            '"\\u0000"',
            "'x'",
            "",
        ),
    ),
)

#: Escapes of a text in JSON. Most escapes follow the recommendation of the standard.
ENCODINGS = ("utf-8",) * 8 + ("utf-8-sig", "utf-16", "utf-32", "latin-1")

SPACES = ("",) * 4 + (" ", "\n\t\r ")


@st.composite
def documents(draw: DrawFn, seeds: Sequence[Any], words: Sequence[Any] = ()) -> Any:
    """Draw a tree, which is a seed with up to four changes. `words` can replace a text."""
    root = [tree(draw(st.sampled_from(seeds)))]
    for _ in range(draw(st.integers(0, 4))):
        found = places(root)
        place = found[draw(st.integers(0, len(found) - 1))]
        change = draw(st.sampled_from(CHANGES))
        if change in ("drop", "repeat", "rename", "swap"):
            _change_holder(draw, place.holder, place.at, change, seeds, words)
        elif change == "nest":
            levels = draw(st.sampled_from(LEVELS))
            place.put(nested(place.value, levels, in_objects=draw(st.booleans())))
        elif change == "add":
            if isinstance(place.value, Members):
                place.value.append((draw(_names(words)), draw(_values(seeds, words))))
        else:
            place.put(draw(_values(seeds, words)))
    return root[0] if len(root) == 1 else root


CHANGES = ("drop", "repeat", "rename", "swap", "nest", "add", "replace", "replace")


def _change_holder(
    draw: DrawFn, holder: Any, index: int, change: str, seeds: Sequence[Any], words: Sequence[Any]
) -> None:
    """Change an object or a list by one of its members."""
    item = holder[index]
    if change == "drop" and len(holder) > 1:
        del holder[index]
    elif change == "repeat":
        value = draw(st.just(item) | _values(seeds, words).map(lambda other: _like(holder, item, other)))
        holder.insert(draw(st.integers(0, len(holder))), value)
    elif change == "swap":
        other = draw(st.integers(0, len(holder) - 1))
        holder[index], holder[other] = holder[other], holder[index]
    elif change == "rename" and isinstance(holder, Members):
        name = draw(st.sampled_from((item[0].upper(), item[0].replace("_", ""), item[0] + " ")) | _names(words))
        holder[index] = (name, item[1])


def _like(holder: Any, item: Any, value: Any) -> Any:
    return (item[0], value) if isinstance(holder, Members) else value


def _names(words: Sequence[Any]) -> SearchStrategy[str]:
    texts = [word for word in words if isinstance(word, str)]
    return st.sampled_from(("", "a", "a/b", "a~b", *texts)) | st.text(max_size=8)


def _values(seeds: Sequence[Any], words: Sequence[Any]) -> SearchStrategy[Any]:
    """Return values to put into a tree: strange values, words, and parts of the seeds."""
    parts = [place.value for seed in seeds for place in places([tree(seed)])]
    # Copy each value, because an object that is inserted twice would change in both places.
    strange = st.sampled_from((*STRANGE, *words)).map(tree)
    return strange | st.sampled_from(parts).map(tree) | st.text(max_size=12)


@st.composite
def contradicted(draw: DrawFn, seeds: Sequence[Any], words: Sequence[Any] = ()) -> Any:
    """Draw a tree, which is a seed with one name that appears twice with two values."""
    root = [tree(draw(st.sampled_from(seeds)))]
    found = [place for place in places(root) if isinstance(place.holder, Members)]
    if found:
        place = draw(st.sampled_from(found))
        name, value = place.holder[place.at]
        others = [word for word in (*words, None, "x", Literal("1.5"), Members()) if word != value]
        place.holder.insert(place.at + draw(st.integers(0, 1)), (name, tree(draw(st.sampled_from(others)))))
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
    match how:
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at:]
        case "remove":
            return data[:at] + data[at + draw(st.integers(1, 16)) :]
        case "change":
            return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        case _:
            other = draw(whole)
            return data[:at] + other[draw(st.integers(0, len(other))) :]


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
