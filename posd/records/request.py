"""Shared code for the bodies of requests: reading of fields, faults with JSON Pointers, limits, comparison."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from posd.base import canonical_json
from posd.base.json_types import Object, TooDeep, decode, long_numbers, pointer, pointer_token
from posd.base.problems import Problem
from posd.base.text import did_you_mean

#: Maximum depth of arrays and objects in metadata and in options. The JSON decoders of terminals and tills have limits
#: of their own.
MAX_FREE_FORM_DEPTH = 64

#: Longest serial number of a terminal, in characters. The terminal API has no limit.
MAX_SERIAL_CHARACTERS = 128
#: Serial number of a terminal in a request.
AskedSerial = Annotated[str, Meta(min_length=1, max_length=MAX_SERIAL_CHARACTERS)]

#: Maximum number of faults that a response lists. A body of the largest size can have thousands of unknown fields. A
#: search for names similar to all of them would block the event loop for seconds.
MAX_FAULTS = 50

#: White space as in the API description (`\S`, ECMA-262). `str.strip` would also remove control characters.
BLANKS = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class RequestFault(msgspec.Struct, frozen=True):
    """Fault of one field of a request."""

    path: str
    message: str
    missing: bool = False  # the field is missing


def check(faults: Iterable[RequestFault], cannot: str) -> None:
    """Raise Problem invalid_request with the first faults, if there are any.

    `cannot`: words about the refused action, such as "cannot start".
    """
    if found := list(islice(faults, MAX_FAULTS)):
        what = "; ".join(f"{fault.path or 'the body'} {fault.message}" for fault in found)
        errors = [{"path": fault.path, "message": fault.message} for fault in found]
        raise Problem("invalid_request", f"{cannot}: {what}", errors=errors)


def unsignable(parts: Mapping[str, bytes], reserved: Collection[str] = ()) -> Iterator[RequestFault]:
    """Yield the faults of values that cannot be signed, because the terminal would serialise them differently.

    `parts`: name -> JSON text of the members of the till's request that are sent. `reserved`: names of the
    objects to which the authentication adds a member of its own, `OF_THE_SIGNATURE`.
    """
    for name, text in parts.items():
        for place, why in canonical_json.faults(text):
            words = f"{why}, and this terminal's calls are signed: write it another way"
            yield RequestFault(pointer((name, *place)), words)
        if name in reserved and OF_THE_SIGNATURE in decode(text):
            yield RequestFault(
                f"/{name}/{OF_THE_SIGNATURE}", "is a name that the authentication of this terminal uses itself"
            )


#: Name of the member that the authentication `hash-encrypt` adds to the signed members of the request.
OF_THE_SIGNATURE = "key"


def differing(
    request: msgspec.Struct, recorded: Any, faults: Iterable[RequestFault], but: Collection[str] = ()
) -> list[str]:
    """Return the names of the fields in which a request differs from the recorded one.

    `but`: fields that are not recorded. JSON texts are compared by content. A faulty field counts as different, because
    the recorded field had no fault. A missing field is compared by its default value. A missing terminal counts as
    equal. If the body is not an object, return `body`.
    """
    found = [fault for fault in faults if not fault.missing]
    if any(fault.path == "" for fault in found):
        return ["body"]
    names = {fault.path.removeprefix("/").partition("/")[0] for fault in found}
    for name in (name for name in request.__struct_fields__ if name not in but):
        asked = getattr(request, name)
        left_out = name == "terminal" and asked is None
        if not left_out and meaning(asked) != meaning(getattr(recorded, name)):
            names.add(name)
    return sorted(names)


def meaning(value: Any) -> Any:
    """Return the value of a field for comparison. A JSON text (bytes) is decoded."""
    return _comparable(decode(value)) if isinstance(value, bytes) else value


def _comparable(value: Any) -> Any:
    """Return a value for comparison by ==. Two results are equal only if both JSON values have the same meaning.

    In Python True equals 1, but in JSON true and 1 are different.
    """
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


#: Longest name of an operator, in characters.
MAX_OPERATOR_CHARACTERS = 128


#: Longest reason of an operator, in characters.
MAX_NOTE_CHARACTERS = 1024


class Signed(msgspec.Struct, frozen=True):
    """Operator and reason of a decision. Both are stored with the user id of the calling process."""

    operator: Annotated[str, Meta(description="name", min_length=1, max_length=MAX_OPERATOR_CHARACTERS, pattern="\\S")]
    note: Annotated[str, Meta(description="the reason", min_length=1, max_length=MAX_NOTE_CHARACTERS, pattern="\\S")]


Word = TypeVar("Word", bound=StrEnum)
T = TypeVar("T")


class FieldReader:
    """Reader of the fields of one body, which collects their faults."""

    #: Word for the body in the text about an unknown field.
    NAME = "call"

    def __init__(self, body: bytes, fields: Sequence[str], nothing: str = "nothing was changed") -> None:
        """Raise Problem malformed_json if the body is not JSON. `nothing`: words about the action that was not done."""
        #: Fields of the body by name.
        self.members: Mapping[str, Any] = {}
        self.faults: list[RequestFault] = []
        #: Whether the body is an object, so that its fields can be read.
        self.readable = False
        try:
            document = decode(body)
        except TooDeep as error:
            self.fault("", f"cannot be read: {error}")
            return
        except ValueError as error:
            raise Problem("malformed_json", f"the body cannot be read: {error}; {nothing}") from error
        if not isinstance(document, Object):
            self.fault("", "must be a JSON object")
            return
        self.readable = True
        self.members = document
        for path in self.repeated(document):
            self.fault(f"/{path}", "appears more than once, with different values")
        for place in long_numbers(body):
            if len(place) == 1:
                self.fault(pointer(place), "is a number with more digits than any field has")
        for name in islice((name for name in document if name not in fields), MAX_FAULTS):
            meant = did_you_mean(name, fields)
            message = f"is not a field of this {self.NAME}{meant}. Fields are {', '.join(fields)}"
            self.fault(f"/{pointer_token(name)}", message)

    def repeated(self, document: Object) -> Iterator[str]:
        """Yield names that occur more than once with different values, as JSON Pointers without the first slash.

        Only objects that posd parses are checked. `metadata` belongs to the till.
        """
        for path in ((), ("amount",), ("amount", "extra_taxes"), ("options",)):
            inner: Any = document
            for name in path:
                inner = inner.get(name) if isinstance(inner, Object) else None
            if isinstance(inner, Object):
                yield from ("/".join((*path, pointer_token(name))) for name in sorted(inner.repeated))

    def fault(self, path: str, message: str, *, missing: bool = False) -> None:
        """Record a fault."""
        self.faults.append(RequestFault(path, message, missing))

    def text(self, name: str, most: int, *, least: int = 1) -> str | None:
        """Return a text of `least` to `most` characters, or None if it is missing."""
        value = self.members.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not least <= len(value) <= most:
            self.fault(f"/{name}", f"must be a string of {least} to {most} characters")
            return None
        return value

    def required_text(self, name: str, most: int) -> str:
        """Return a text of 1 to `most` characters with at least one that is not white space.

        Return "" if the text has a fault.
        """
        value = self.members.get(name)
        if not isinstance(value, str) or not value.strip(BLANKS) or len(value) > most:
            self.fault(f"/{name}", f"is required: a text of 1 to {most} characters")
            return ""
        return value.strip(BLANKS)

    def flag(self, name: str) -> bool | None:
        """Return a boolean member, or None if it is missing."""
        value = self.members.get(name)
        if value is None or isinstance(value, bool):
            return value
        self.fault(f"/{name}", "must be true or false")
        return None

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Return an integer from `least` to `most`, or None if it is missing. 1e3 and 1000.0 are integers too."""
        value = self.members.get(name)
        if value is None:
            return None
        if not isinstance(value, Decimal) or not least <= value <= most or value % 1:
            self.fault(f"/{name}", f"must be a whole number of {least} to {most}")
            return None
        return int(value)

    def choice(self, name: str, words: Sequence[Word]) -> Word:
        """Return one of the allowed words. If the field has none of them, record a fault, and return the first word."""
        given = str(self.members.get(name))
        for word in words:
            if word == given:
                return word
        self.fault(f"/{name}", f"is required: one of {', '.join(words)}")
        return words[0]

    def parsed(self, name: str, parse: Callable[[Any], T]) -> T | None:
        """Return a parsed field, or None if it is missing. `parse` raises ValueError with the fault."""
        value = self.members.get(name)
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            self.fault(f"/{name}", str(error))
        return None


def read_body(kind: type[msgspec.Struct], body: bytes, nothing: str) -> FieldReader:
    """Return a reader of a body with the fields of `kind`. Raise Problem malformed_json.

    `nothing`: see `FieldReader`.
    """
    return FieldReader(body, kind.__struct_fields__, nothing)


Decision = TypeVar("Decision")

#: Constructor of a decision (from reader, operator, note and the caller's user id), and type of its body.
DecisionRow = tuple[Callable[[FieldReader, str, str, int | None], Decision], type[Signed]]


def read_decision(
    row: DecisionRow[Decision], body: bytes, uid: int | None
) -> tuple[Decision, tuple[RequestFault, ...]]:
    """Read the body of an operator's decision. Return the decision, and the faults of the body. Raise Problem.

    `uid`: user id of the calling process, or None if the kernel did not report it.
    """
    read, kind = row
    reader = FieldReader(body, kind.__struct_fields__)
    operator = reader.required_text("operator", MAX_OPERATOR_CHARACTERS)
    note = reader.required_text("note", MAX_NOTE_CHARACTERS)
    return read(reader, operator, note, uid), tuple(reader.faults)


def decided(row: DecisionRow[Decision], body: bytes, uid: int | None, cannot: str) -> Decision:
    """Return the decision in a body. Raise Problem malformed_json or invalid_request. `cannot`: see `check`."""
    decision, faults = read_decision(row, body, uid)
    check(faults, cannot)
    return decision
