"""Reader of partly damaged JSON, which returns the intact parts.

The structure must be complete: all brackets, quotes, colons, commas and the end are present. So no member is mistaken
for another one, and no part of a text for a member. The parts between may be damaged:

| damage                                                                  | read in its place                      |
| ----------------------------------------------------------------------- | -------------------------------------- |
| in a text: bytes that are no UTF-8, half of a surrogate pair, a control | U+FFFD for each                        |
| character, an escape that JSON does not have                            |                                        |
| a value that is no JSON: NaN, Infinity, 01, 1.2.3, none at all          | null                                   |
| a number of more than 4300 characters                                   | null                                   |
| arrays and objects nested too deeply                                    | null                                   |
| a byte order mark before it                                             | nothing                                |
| other characters after it, without a quote or an opening bracket        | nothing                                |

Each place is reported, so that a reader can refuse a damaged member that it needs.
"""

import json
import re
from collections.abc import Collection
from typing import Any

import msgspec

from posd.base.json_types import MAX_DEPTH, check, decode

#: Longest damaged text that is read, in bytes: several times an event that echoes 16 KiB of metadata. The parser is
#: slow, and one terminal must not delay the others.
MAX_DAMAGED_BYTES = 131_072

#: Longest number, in characters. Decoders read no longer integers.
MAX_NUMBER = 4300

#: Levels left for a nested value. A response adds some around it and must stay readable.
LEVELS = MAX_DEPTH - 8

#: Replacement of an unreadable part.
UNREADABLE = "\ufffd"

#: Path of names and indexes to a member; empty for the whole document.
Place = tuple[str | int, ...]

_SPACES = " \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*+")
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_VALUE = re.compile(r'[^"{}\[\],:]*+')
_LITERAL = re.compile(r"(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)\Z")
_NO_CHARACTER = re.compile(r"[\x00-\x1f\ud800-\udfff]")
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]|(.))', re.DOTALL)
_OPENS = re.compile(r'["{\[]')
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)

_CLOSES = {"{": "}", "[": "]"}


class BrokenStructure(ValueError):
    """Text with a broken structure. The message has the place of the break."""


class RepairedText(msgspec.Struct, frozen=True):
    """Mended text, which is valid JSON, and the places of the damaged parts."""

    body: bytes
    damaged: frozenset[Place]


def mend(body: bytes) -> RepairedText:
    """Return the text with its damaged parts replaced. Raise BrokenStructure."""
    if len(body) > MAX_DAMAGED_BYTES:
        raise BrokenStructure(f"it is damaged, and of what is damaged no more than {MAX_DAMAGED_BYTES} bytes are read")
    return _Repairer(body.decode("utf-8", "surrogateescape")).read()


class _Repairer:
    """Parser that reads a text once and builds the mended text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kept: list[str] = []
        self._damaged: set[Place] = set()

    def read(self) -> RepairedText:
        if self._text.startswith("\ufeff"):
            self._at = 1
            self._damaged.add(())
        self._value((), LEVELS)
        rest = self._text[self._at :].strip(_SPACES)
        if _OPENS.search(rest):
            raise BrokenStructure(f"it ends at character {self._at}, and more follows")
        if rest:
            self._damaged.add(())
        return RepairedText("".join(self._kept).encode(), frozenset(self._damaged))

    def _value(self, place: Place, levels: int) -> None:
        """Read a value with at most `levels` levels of arrays and objects."""
        match self._next():
            case '"':
                _, whole = self._read_text()
                if not whole:
                    self._damaged.add(place)
            case "{" | "[" if not levels:
                self._skip()
                self._replace("null", place)
            case "{" | "[" as bracket:
                self._members(bracket, place, levels - 1)
            case _:
                self._literal(place)

    def _members(self, bracket: str, place: Place, levels: int) -> None:
        closes, count = _CLOSES[bracket], 0
        self._take(bracket)
        while count or self._next() != closes:
            here: Place = (*place, count)
            if bracket == "{":
                if self._next() != '"':
                    raise self._broken()
                name, whole = self._read_text()
                here = (*place, name)
                if not whole:
                    self._damaged.add(here)
                self._take(":")
            self._value(here, levels)
            count += 1
            if self._next() == closes:
                break
            self._take(",")
        self._take(closes)

    def _read_text(self) -> tuple[str, bool]:
        """Read a text; return it in displayable form, and whether it is intact."""
        found = _TEXT.match(self._text, self._at)
        if found is None:
            raise BrokenStructure("it breaks off inside a text")
        self._at = found.end()
        raw = found[0]
        whole = _NO_CHARACTER.sub(UNREADABLE, raw)
        whole = _ESCAPE.sub(lambda escape: UNREADABLE if escape[1] else escape[0], whole)
        text: str = json.loads(whole)
        shown = _HALF_PAIR.sub(UNREADABLE, text)
        if shown == text and whole == raw:
            self._kept.append(raw)
            return text, True
        self._kept.append(json.dumps(shown, ensure_ascii=False))
        return shown, False

    def _literal(self, place: Place) -> None:
        """Read a value without quotes and brackets. If a comma or a closing bracket follows directly, the value is
        missing.
        """
        found = _VALUE.match(self._text, self._at)
        assert found is not None  # noqa: S101 - it matches nothing at all, too
        self._at = found.end()
        literal = found[0].strip(_SPACES)
        if _LITERAL.match(literal) and len(literal) <= MAX_NUMBER:
            self._kept.append(literal)
        elif place:
            self._replace("null", place)
        else:
            raise BrokenStructure("it is neither an object nor any other value")

    def _skip(self) -> None:
        """Skip an array or object without its members."""
        expected: list[str] = []
        for found in _BRACKET.finditer(self._text, self._at):
            bracket = found[0]
            if bracket in _CLOSES:
                expected.append(_CLOSES[bracket])
            elif len(bracket) == 1 and bracket != expected.pop():
                break
            if not expected:
                self._at = found.end()
                return
        raise BrokenStructure("it breaks off inside what is nested too deeply")

    def _replace(self, piece: str, place: Place) -> None:
        self._kept.append(piece)
        self._damaged.add(place)

    def _next(self) -> str:
        """Return the next character that is no space, without consuming it; empty at the end."""
        found = _SPACE.match(self._text, self._at)
        assert found is not None  # noqa: S101 - it matches nothing at all, too
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            raise self._broken()
        self._at += 1
        self._kept.append(expected)

    def _broken(self) -> BrokenStructure:
        if self._at >= len(self._text):
            return BrokenStructure("it breaks off before its end")
        return BrokenStructure(f"its structure is broken at character {self._at}")


# Functions for readers: valid JSON unchanged, damaged JSON mended.


def readable(body: bytes) -> RepairedText:
    """Return valid JSON unchanged, other text mended. Raise ValueError with the reason."""
    try:
        check(body)
    except ValueError as error:
        try:
            return mend(body)
        except BrokenStructure as broken:
            raise ValueError(f"{error}; {broken}") from error
    return RepairedText(body, frozenset())


def decoded(body: bytes) -> tuple[Any, frozenset[Place]]:
    """Return the decoded text (see `json_types.decode`) and the places of damaged parts.

    Valid JSON is checked once, because each event passes here. Raise ValueError as `readable`.
    """
    try:
        return decode(body), frozenset()
    except ValueError:
        mended = readable(body)
        return decode(mended.body), mended.damaged


def presentable(body: bytes) -> bytes:
    """Return a stored readable text as JSON for a response; an empty object for an unreadable one."""
    try:
        return readable(body).body
    except ValueError:
        return b"{}"


#: Most places that the text names, and most characters of a name.
_MAX_NAMED, _MAX_NAME = 5, 40


def named(places: Collection[Place]) -> tuple[str, ...]:
    """Return places as text, escaped to ASCII: the first ones, and the number of the others."""
    if not places:
        return ()
    words = sorted({_named(place) for place in places})
    more = len(words) - _MAX_NAMED
    return (*words[:_MAX_NAMED], f"{more} more") if more > 0 else tuple(words)


def _named(place: Place) -> str:
    steps = (ascii(step)[1:-1] if isinstance(step, str) else str(step) for step in place[:_MAX_NAMED])
    return ".".join(step[:_MAX_NAME] for step in steps) or "what stands around it"
