"""JSON: read strictly and exactly, written exactly, and described beside the fields that hold it.

The description of the local API is made from those fields. One that keeps JSON as bytes says with `Wire` what has to be
in them. Everything else is in the annotations: types, limits, and words (`msgspec.Meta`).
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from posd.base.ids import NIL_OR_MAX
from posd.base.money import MAX_FRACTION_DIGITS, MAX_INTEGER_DIGITS
from posd.base.text import shown

# JSON as it comes from outside: strict (RFC 8259, UTF-8), every number exact, repeated names noticed.
#
# How deep it may be nested is a fixed number, not what the stack has left: what could be read once can be read
# again, wherever that is done.

#: Levels of arrays and objects in a text. What a terminal sends has about five, and those of the metadata that it
#: echoes, which are at most `requests.MAX_FREE_FORM_DEPTH`.
MAX_DEPTH = 128

#: Checks what the standard library lets pass: NaN, lone surrogates.
_STRICT = msgspec.json.Decoder(float_hook=str)

_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class TooDeep(ValueError):
    """It is nested deeper than posd reads."""


class Object(dict[str, Any]):
    """A JSON object that remembers which of its names came more than once with different values."""

    repeated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> "Object":
        """Make an object of the pairs in it; the last one of a name counts."""
        members = cls(pairs)
        if len(members) != len(pairs):
            members.repeated = frozenset(name for name, value in pairs if members[name] != value)
        return members


def decode(body: bytes) -> Any:
    """Decode JSON; objects are `Object`, numbers Decimal.

    Raise ValueError with the reason, TooDeep where the text is nested deeper than MAX_DEPTH.
    """
    return exact(check(body))


def exact(text: str) -> Any:
    """Decode a text that was checked."""
    return _EXACT.decode(text)


def check(body: bytes) -> str:
    """Return the text of JSON. Raise ValueError with the reason, TooDeep where it is nested deeper than MAX_DEPTH."""
    if not body.strip():
        raise ValueError("it is empty, and has to be JSON")
    if deeper_than(body, MAX_DEPTH):  # first: how deep the decoders go depends on what the stack has left
        raise TooDeep(f"it is nested too deeply: more than {MAX_DEPTH} levels")
    try:
        _STRICT.decode(body)
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(_unreadable_part(body) or f"it is not JSON: {error}") from error


#: Digits of a whole number: what `int` reads without a limit of its own.
_MAX_DIGITS = 4300
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG = f"has more than {_MAX_DIGITS} digits: write a shorter number"
_HALF = "has half of a surrogate pair (\\ud800 to \\udfff alone), which is no character: write both halves or none"


def _unreadable_part(body: bytes) -> str:
    """Return what is wrong with a text that is JSON by its grammar, with its place; "" of any other text."""

    def limited(literal: str) -> object:
        return _LONG if len(literal) > _MAX_DIGITS else None

    try:
        return next(_faults(json.loads(body, parse_int=limited, parse_constant=_refuse)), "")
    except ValueError:
        return ""


def _faults(value: object, place: str = "") -> Iterator[str]:
    if value is _LONG:
        yield f"{place or 'it'} {_LONG}"
    elif isinstance(value, str) and _SURROGATE.search(value):
        yield f"{place or 'it'} {_HALF}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _faults(item, f"{place}/{number}")
    elif isinstance(value, dict):
        for name, item in value.items():
            inner = f"{place}/{shown(pointer_token(name))}"
            if _SURROGATE.search(name):
                yield f"{inner} {_HALF}"
            yield from _faults(item, inner)


def _refuse(literal: str) -> None:
    raise ValueError(f"{literal} is no number of JSON")


def pointer_token(name: str) -> str:
    """Return a name as one part of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def deeper_than(text: bytes, levels: int) -> bool:
    """Tell whether arrays and objects of a text stand in each other deeper than so many levels.

    Of a text that is no JSON it tells it of the beginning, as far as that could be one.
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
    """Keep a number exact; one that even Decimal cannot hold stays text: it is nothing that posd reads."""
    try:
        return Decimal(literal)
    except InvalidOperation:
        return literal


_EXACT = json.JSONDecoder(object_pairs_hook=Object.of, parse_float=number, parse_int=number)


#: One encoder for what is stored and sent: decimals stay numbers with the digits they have.
ENCODER = msgspec.json.Encoder(decimal_format="number")


def encode(value: Any) -> bytes:
    """Encode to JSON with exact decimals."""
    return ENCODER.encode(value)


#: An amount as it is stored: its members, and those of `extra_taxes`, each with the digits that it was written with.
AMOUNT = msgspec.json.Decoder(dict[str, Decimal | dict[str, Decimal]])


class Wire(msgspec.Struct, frozen=True):
    """What a field is on the wire, where it is held as something else; `required`: it has to be there.

    A type in words is of the API's documents, which the core does not know.
    """

    type: Any
    required: bool = False


#: Of words in an answer: there may be more of them one day, and a client has to accept that.
#: Of the lines of a history `later` says the same; its value names the schema of lines that a client does not know.
OPEN = Meta(extra={"open": True})

#: A moment as posd writes it.
Moment = Annotated[str, Meta(description="ISO 8601, UTC, milliseconds", extra_json_schema={"format": "date-time"})]
#: A UUID: accepted in any case, written in lower case.
Uuid = Annotated[
    str,
    Meta(
        pattern="^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$",
        extra_json_schema={"format": "uuid"},
    ),
]
#: One that a program chose: neither nil nor max.
ChosenUuid = Annotated[Uuid, Meta(extra_json_schema={"not": {"type": "string", "pattern": NIL_OR_MAX}})]
#: An amount that posd writes: a JSON number with the digits that it has.
Exact = Annotated[Decimal, Meta(description="an exact decimal: read it as one, never as a binary float")]
#: An amount that posd reads.
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
    """Further taxes. Others are refused, unless `[amounts] extra_taxes` in the configuration of posd admits them."""

    MORE: ClassVar[Any] = Money

    airport_tax: Money | None = Decimal(0)
    iac: Money | None = Decimal(0)
    ice: Money | None = Decimal(0)
    travel_agency: Money | None = Decimal(0)


class AskedAmount(msgspec.Struct, frozen=True):
    """What is to be paid. The sum of all has to be above 0. Further members are refused, unless `[amounts] members` in
    the configuration of posd admits them.
    """

    MORE: ClassVar[Any] = Money

    iva: Annotated[Money | None, Meta(description="the tax on `subtotal_iva`")] = Decimal(0)
    subtotal_iva: Annotated[Money | None, Meta(description="what is taxed, without the tax")] = Decimal(0)
    subtotal_iva0: Annotated[Money | None, Meta(description="what is not taxed")] = Decimal(0)
    tip: Annotated[Money | None, Meta(description="a tip that the customer has given already")] = None
    extra_taxes: Annotated[ExtraTaxes | None, Meta(description="further taxes")] = None


class Amount(msgspec.Struct, frozen=True):
    """What was asked for, as it went to the terminal; empty where nothing is known of it, and for a void that named
    none. Further members are those that the till wrote.
    """

    MORE: ClassVar[Any] = Exact

    iva: Annotated[Exact | msgspec.UnsetType, Meta(description="the tax on `subtotal_iva`")] = msgspec.UNSET
    subtotal_iva: Annotated[Exact | msgspec.UnsetType, Meta(description="what is taxed")] = msgspec.UNSET
    subtotal_iva0: Annotated[Exact | msgspec.UnsetType, Meta(description="what is not taxed")] = msgspec.UNSET
    extra_taxes: Annotated[dict[str, Exact] | msgspec.UnsetType, Meta(description="further taxes")] = msgspec.UNSET
