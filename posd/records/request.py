"""What the readers of the till's requests share: faults by JSON Pointer, limits, comparison by value."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from posd.base.json_types import decode

#: Levels of arrays and objects in metadata, and in options: terminals and tills read it with what they have.
MAX_FREE_FORM_DEPTH = 64

#: A terminal's serial number, in characters; the terminal API shows no limit.
MAX_SERIAL_CHARACTERS = 128


class MalformedJson(ValueError):
    """The body is not JSON."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with a request."""

    path: str
    message: str
    missing: bool = False  # it is not there at all


def pointer_token(name: str) -> str:
    """Return a name as one part of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def by_value(text: bytes) -> Any:
    """Return what a JSON text means, to be compared with another."""
    return _comparable(decode(text))


def _comparable(value: Any) -> Any:
    """Return a value that equals another exactly where the JSON means the same: true is not 1."""
    match value:
        case dict():
            return {name: _comparable(member) for name, member in value.items()}
        case list():
            return [_comparable(item) for item in value]
        case bool():
            return f"JSON {value}"
        case str():
            return f"text {value}"
        case _:
            return value


#: Who decided, and why, in characters: a name and a sentence.
MAX_OPERATOR_CHARACTERS = 128


MAX_NOTE_CHARACTERS = 1024


class Signed(msgspec.Struct, frozen=True):
    """What a person decides has a name and a reason; both are kept, with the user id of the process that calls."""

    operator: Annotated[str, Meta(description="who", min_length=1, max_length=MAX_OPERATOR_CHARACTERS, pattern="\\S")]
    note: Annotated[str, Meta(description="why", min_length=1, max_length=MAX_NOTE_CHARACTERS, pattern="\\S")]
