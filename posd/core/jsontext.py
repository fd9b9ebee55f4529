"""JSON as it comes from outside: strict (RFC 8259, UTF-8), every number exact, repeated names noticed."""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

#: Checks what the standard library lets pass: NaN, lone surrogates, and nesting that would exhaust the stack.
_STRICT = msgspec.json.Decoder(float_hook=str)


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
    """Decode JSON; objects are `Object`, numbers Decimal. Raise ValueError with the reason."""
    try:
        _STRICT.decode(body)
        return json.loads(body.decode("utf-8"), object_pairs_hook=Object.of, parse_float=_number, parse_int=_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def _number(literal: str) -> Decimal | str:
    """Keep a number exact; one that even Decimal cannot hold stays text: it is nothing that posd reads."""
    try:
        return Decimal(literal)
    except InvalidOperation:
        return literal
