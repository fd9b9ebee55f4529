"""JSON: strict and exact decoding, reading of damaged text, exact encoding, and descriptions of fields.

The description of the local API is generated from the fields of structs, with their types, limits and allowed words
(`msgspec.Meta`). A field that holds JSON as bytes has a `WireFormat`.
"""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from posd.base.ids import NIL_OR_MAX
from posd.base.money import MAX_FRACTION_DIGITS, MAX_INTEGER_DIGITS
from posd.base.text import shown

# External JSON: strict (RFC 8259, UTF-8), every number exact, repeated names detected.
#
# The depth limit is fixed and does not depend on the stack. So a text that was accepted once always stays readable.

#: Maximum depth of arrays and objects in a text. A terminal's data has about five levels, plus the levels of the echoed
#: metadata (at most `records.request.MAX_FREE_FORM_DEPTH`).
MAX_DEPTH = 128

#: Parser that rejects NaN and lone surrogates, which the standard library accepts.
_STRICT = msgspec.json.Decoder(float_hook=str)

_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class TooDeep(ValueError):
    """Error for a text that is nested deeper than posd reads."""


class Object(dict[str, Any]):
    """JSON object that records the names that occur repeatedly with different values."""

    repeated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> "Object":
        """Return an object from pairs. The last value of a repeated name counts."""
        members = cls(pairs)
        if len(members) != len(pairs):
            members.repeated = frozenset(name for name, value in pairs if members[name] != value)
        return members


def decode(body: bytes) -> Any:
    """Decode JSON. Objects become `Object`, and numbers Decimal.

    Raise ValueError with the reason, or TooDeep if the text is nested deeper than MAX_DEPTH.
    """
    return exact(check(body))


def check(body: bytes) -> str:
    """Return the text of JSON. Raise ValueError with the reason, or TooDeep if it is nested deeper than MAX_DEPTH."""
    if not body.strip():
        raise ValueError("it is empty, and has to be JSON")
    if deeper_than(body, MAX_DEPTH):  # checked first, because the decoders' own limit depends on the stack
        raise TooDeep(f"it is nested too deeply: more than {MAX_DEPTH} levels")
    try:
        _STRICT.decode(body)
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(_unreadable_part(body) or f"it is not JSON: {error}") from error


#: Maximum number of digits of a whole number. This is CPython's default, which PYTHONINTMAXSTRDIGITS could change.
_MAX_DIGITS = 4300
sys.set_int_max_str_digits(_MAX_DIGITS)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG = f"has more than {_MAX_DIGITS} digits: write a shorter number"
_HALF = "has half of a surrogate pair (\\ud800 to \\udfff alone), which is not a character: write both halves or none"


def _unreadable_part(body: bytes) -> str:
    """Return the fault in a text with valid JSON grammar, with its place, or "" if there is none."""

    def limited(literal: str) -> object:
        return _LONG if len(literal) > _MAX_DIGITS else None

    try:
        return next(_faults(json.loads(body, parse_int=limited, parse_constant=_refuse)), "")
    except ValueError:
        return ""


def _faults(document: object) -> Iterator[str]:
    for place, value in parts(document):
        path = shown(pointer(place)) or "it"
        if value is _LONG:
            yield f"{path} {_LONG}"
        elif any(isinstance(text, str) and _SURROGATE.search(text) for text in (value, *place[-1:])):
            yield f"{path} {_HALF}"


#: Path of names and indexes to a part of a document; empty for the whole document.
Place = tuple[str | int, ...]


def parts(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield a decoded value and all its parts, each with its path of names and positions.

    An object is a dict, or a tuple of its pairs.
    """
    yield place, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else value
    if isinstance(value, dict | list | tuple):
        for step, member in members:
            yield from parts(member, (*place, step))


def _refuse(literal: str) -> None:
    raise ValueError(f"{literal} is not a JSON number")


def pointer_token(name: str) -> str:
    """Return a name as one part of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def pointer(place: Iterable[str | int]) -> str:
    """Return a place as a JSON Pointer."""
    return "".join(f"/{pointer_token(str(step))}" for step in place)


def deeper_than(text: bytes, levels: int) -> bool:
    """Return whether arrays and objects of a text are nested deeper than `levels`.

    If the text is not JSON, the result covers its valid beginning.
    """
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    outside_strings = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    level = 0
    for bracket in b"".join(outside_strings).translate(None, _ALL_BUT_BRACKETS):
        level += 1 if bracket in b"[{" else -1
        if level > levels:
            return True
    return False


def number(literal: str) -> Decimal | str:
    """Return an exact number. A number that Decimal cannot hold stays text, and posd does not use it."""
    try:
        return Decimal(literal)
    except InvalidOperation:
        return literal


def number_or_nan(literal: str) -> Decimal:
    """Return an exact number, or NaN for a number that Decimal cannot hold."""
    found = number(literal)
    return found if isinstance(found, Decimal) else Decimal("NaN")


#: Maximum number of digits before the point and after the point, without an exponent. Every database and language with
#: decimals supports such numbers. PostgreSQL supports 131,072 before and 16,383 after the point.
MAX_NUMBER_DIGITS = 1000
#: Pattern that matches every number that may have more digits, and few others.
_MAY_BE_LONG = re.compile(rb"[eE][+-]?[0-9]{3,}[\s,}\]]|[0-9]{500}")


def within_digits(value: Decimal, before: int = MAX_NUMBER_DIGITS, after: int = MAX_NUMBER_DIGITS) -> bool:
    """Return whether a number is finite, with at most `before` digits before and `after` digits after its point."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and value.adjusted() < before and -exponent <= after


def long_numbers(text: bytes) -> Iterator[Place]:
    """Yield the places of numbers with more than MAX_NUMBER_DIGITS digits, including each value of a repeated name.

    `text`: JSON that `check` has accepted.
    """
    if _MAY_BE_LONG.search(text):
        for place, value in parts(_PAIRS.decode(text.decode())):
            if isinstance(value, Decimal) and not within_digits(value):
                yield place


#: Maximum number of digits of a whole number that `as_text` writes out: more than any id has.
MAX_WHOLE_DIGITS = 64


def as_text(value: object) -> str | None:
    """Return an id, a code or digits as text, or None for other types.

    Text stays unchanged. A whole number of up to 64 digits becomes its digits: 7, 7.0 and 0.7E1 all become "7".
    Another number becomes Decimal's text.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, Decimal):
        return None
    whole = not value or (value.adjusted() < MAX_WHOLE_DIGITS and value == value.to_integral_value())
    return format(value.to_integral_value(), "f") if whole else str(value)


#: Decodes a text that `check` has returned.
exact: Callable[[str], Any] = json.JSONDecoder(object_pairs_hook=Object.of, parse_float=number, parse_int=number).decode
_PAIRS = json.JSONDecoder(object_pairs_hook=tuple, parse_float=number_or_nan, parse_int=number_or_nan)


# Reader of partly damaged JSON. The reader returns the intact parts.
#
# The structure must be complete: all brackets, quotes, colons, commas and the end must be present. So no member is
# mistaken for another member, and no part of a string for a member. The parts between may be damaged:
#
# | damage                                                                  | replacement                            |
# | ----------------------------------------------------------------------- | -------------------------------------- |
# | in a string: bytes that are not UTF-8, half of a surrogate, a control    | U+FFFD for each                        |
# | character, an escape that JSON does not have                            |                                        |
# | a value that is not JSON: NaN, Infinity, 01, 1.2.3, none at all          | null                                   |
# | a number of more than 4300 characters                                   | null                                   |
# | arrays and objects nested too deeply                                    | null                                   |
# | a byte order mark before the document                                   | nothing                                |
# | characters after the document, without a quote or an opening bracket    | nothing                                |
#
# Each place is reported, so that the caller can refuse a damaged member that it needs.

#: Longest damaged text that is read, in bytes. The limit is several times as long as an event that echoes 16 KiB of
#: metadata. The parser is slow, and one terminal must not delay the others.
MAX_DAMAGED_BYTES = 131_072

#: Maximum depth of a mended text. It leaves room for the levels that a response adds around the text.
LEVELS = MAX_DEPTH - 8

#: Replacement of an unreadable part.
UNREADABLE = "\ufffd"

_SPACES = " \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*+")
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_VALUE = re.compile(r'[^"{}\[\],:]*+')
_LITERAL = re.compile(r"(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)\Z")
_NO_CHARACTER = re.compile(r"[\x00-\x1f\ud800-\udfff]")
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]|(.))', re.DOTALL)
_OPENS = re.compile(r'["{\[]')
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)

_CLOSES = {"{": "}", "[": "]"}


class BrokenStructure(ValueError):
    """Error for a text with a broken structure. The message has the place."""


class RepairedText(msgspec.Struct, frozen=True):
    """Mended text, which is valid JSON, and the places of the damaged parts."""

    body: bytes
    damaged: frozenset[Place]


def mend(body: bytes) -> RepairedText:
    """Return the text with its damaged parts replaced. Raise BrokenStructure."""
    if len(body) > MAX_DAMAGED_BYTES:
        raise BrokenStructure(f"it is damaged, and has more than {MAX_DAMAGED_BYTES} bytes")
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
        """Read a string. Return it with its damaged characters replaced, and whether it was intact."""
        found = _TEXT.match(self._text, self._at)
        if found is None:
            raise BrokenStructure("it breaks off inside a text")
        self._at = found.end()
        raw = found[0]
        whole = _NO_CHARACTER.sub(UNREADABLE, raw)
        whole = _ESCAPE.sub(lambda escape: UNREADABLE if escape[1] else escape[0], whole)
        text: str = json.loads(whole)
        shown = _SURROGATE.sub(UNREADABLE, text)
        if shown == text and whole == raw:
            self._kept.append(raw)
            return text, True
        self._kept.append(json.dumps(shown, ensure_ascii=False))
        return shown, False

    def _literal(self, place: Place) -> None:
        """Read a value without quotes and brackets.

        If a comma or a closing bracket follows at once, the value is missing.
        """
        found = _VALUE.match(self._text, self._at)
        assert found is not None  # noqa: S101 - it matches nothing at all, too
        self._at = found.end()
        literal = found[0].strip(_SPACES)
        if _LITERAL.match(literal) and len(literal) <= _MAX_DIGITS:
            self._kept.append(literal)
        elif place:
            self._replace("null", place)
        else:
            raise BrokenStructure("it is not a JSON value")

    def _skip(self) -> None:
        """Skip an array or object without reading its members."""
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
        raise BrokenStructure("it breaks off inside a value that is nested too deeply")

    def _replace(self, piece: str, place: Place) -> None:
        self._kept.append(piece)
        self._damaged.add(place)

    def _next(self) -> str:
        """Return the next character that is not a space, without consuming it. Return an empty text at the end."""
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


# Functions for callers: valid JSON is returned unchanged, and damaged JSON is mended.


def readable(body: bytes) -> RepairedText:
    """Return valid JSON unchanged, and other text mended. Raise ValueError with the reason."""
    try:
        check(body)
    except ValueError as error:
        try:
            return mend(body)
        except BrokenStructure as broken:
            raise ValueError(f"{error}; {broken}") from error
    return RepairedText(body, frozenset())


def decoded(body: bytes) -> tuple[Any, frozenset[Place]]:
    """Return the decoded text (see `decode`) and the places of damaged parts.

    Valid JSON is parsed only once, because this function runs for each event. Raise ValueError as `readable` does.
    """
    try:
        return decode(body), frozenset()
    except ValueError:
        mended = readable(body)
        return decode(mended.body), mended.damaged


def presentable(body: bytes) -> bytes:
    """Return a stored text as JSON for a response, or an empty object if it is unreadable."""
    try:
        return readable(body).body
    except ValueError:
        return b"{}"


#: Maximum number of places that `named` returns, and of characters of a name in a place.
_MAX_NAMED, _MAX_NAME = 5, 40


def named(places: Collection[Place]) -> tuple[str, ...]:
    """Return the first places as texts, escaped to ASCII, and then the number of the other places."""
    words = sorted({_named(place) for place in places})
    more = len(words) - _MAX_NAMED
    return (*words[:_MAX_NAMED], f"{more} more") if more > 0 else tuple(words)


def _named(place: Place) -> str:
    steps = (ascii(step)[1:-1] if isinstance(step, str) else str(step) for step in place[:_MAX_NAMED])
    return ".".join(step[:_MAX_NAME] for step in steps) or "text around the document"


# Encoding, and the types of fields.

#: Encoder of all stored and sent JSON. Decimals stay numbers with their digits.
ENCODER = msgspec.json.Encoder(decimal_format="number")
#: Encodes to JSON with exact decimals.
encode: Callable[[Any], bytes] = ENCODER.encode


#: Decoder of a stored amount: its members, and those of `extra_taxes`, each with its original digits.
AMOUNT = msgspec.json.Decoder(dict[str, Decimal | dict[str, Decimal]])


class WireFormat(msgspec.Struct, frozen=True):
    """Type that a field has on the wire, if it is stored as another type. `required`: the field must be present.

    `type` can be the name of a type, as text, because this package does not import the API's documents.
    """

    type: Any
    required: bool = False


#: Annotation of an open set of words in a response: a client must accept words of later versions. The kinds of lines of
#: a history are an open set too. For them, the key `later` of `extra` names the schema of unknown lines.
OPEN = Meta(extra={"open": True})

#: A time in posd's format.
Moment = Annotated[str, Meta(description="ISO 8601, UTC, milliseconds", extra_json_schema={"format": "date-time"})]
#: A UUID, which is accepted in upper and lower case, and written in lower case.
Uuid = Annotated[
    str,
    Meta(
        pattern="^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$",
        extra_json_schema={"format": "uuid"},
    ),
]
#: A UUID that a program chose, which is neither nil nor max.
ChosenUuid = Annotated[Uuid, Meta(extra_json_schema={"not": {"type": "string", "pattern": NIL_OR_MAX}})]
#: An amount in a response: a JSON number with its digits.
Exact = Annotated[Decimal, Meta(description="an exact decimal: read it as one, never as a binary float")]
#: An amount in a request.
Money = Annotated[
    Decimal | Annotated[str, Meta(pattern=f"^[0-9]{{1,{MAX_INTEGER_DIGITS}}}(\\.[0-9]{{1,{MAX_FRACTION_DIGITS}}})?$")],
    Meta(
        description=f"an exact decimal, as a number or as a string: not negative, at most {MAX_INTEGER_DIGITS} digits "
        f"before and {MAX_FRACTION_DIGITS} after the point",
        extra_json_schema={"minimum": 0, "exclusiveMaximum": 10**MAX_INTEGER_DIGITS},
        extra={"name": "AskedDecimal"},
    ),
]


class ExtraTaxes(msgspec.Struct, frozen=True):
    """Further taxes.

    Further members are refused, unless `[amounts] extra_taxes` in the configuration of posd allows them.
    """

    MORE: ClassVar[Any] = Money

    airport_tax: Money | None = Decimal(0)
    iac: Money | None = Decimal(0)
    ice: Money | None = Decimal(0)
    travel_agency: Money | None = Decimal(0)


class AskedAmount(msgspec.Struct, frozen=True):
    """Amount to be paid. The sum of all members must be above 0. Further members are refused, unless `[amounts]
    members` in the configuration of posd allows them.
    """

    MORE: ClassVar[Any] = Money

    iva: Annotated[Money | None, Meta(description="the tax on `subtotal_iva`")] = Decimal(0)
    subtotal_iva: Annotated[Money | None, Meta(description="the taxed part, without the tax")] = Decimal(0)
    subtotal_iva0: Annotated[Money | None, Meta(description="the untaxed part")] = Decimal(0)
    tip: Annotated[Money | None, Meta(description="a tip that the customer has given already")] = None
    extra_taxes: Annotated[ExtraTaxes | None, Meta(description="further taxes")] = None


class Amount(msgspec.Struct, frozen=True):
    """Requested amount, as it was sent to the terminal. The amount is empty if it is unknown, and for a void without an
    amount. Further members are from the till.
    """

    MORE: ClassVar[Any] = Exact

    iva: Annotated[Exact | msgspec.UnsetType, Meta(description="the tax on `subtotal_iva`")] = msgspec.UNSET
    subtotal_iva: Annotated[Exact | msgspec.UnsetType, Meta(description="the taxed part")] = msgspec.UNSET
    subtotal_iva0: Annotated[Exact | msgspec.UnsetType, Meta(description="the untaxed part")] = msgspec.UNSET
    extra_taxes: Annotated[dict[str, Exact] | msgspec.UnsetType, Meta(description="further taxes")] = msgspec.UNSET
