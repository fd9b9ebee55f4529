"""The error envelope: what the service writes where it does not do what it was asked (terminal API, Refusals).

`{type, code, message, param, object}`. It stands at the top of an answer, in its member `failure`, or in its member
`object`, which otherwise says what the error is about. All of them are read, leniently: the answer is a stranger's.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from posd.base.damaged_json import UNREADABLE, decoded
from posd.base.json_types import Object
from posd.base.text import shown

#: Longest text that is kept of a type, a code and a parameter, and of a message, in characters.
MAX_WORD, MAX_MESSAGE = 64, 256

#: Longest serial that is read, in characters, as in the configuration; and how an error may name it.
MAX_SERIAL, SERIAL_NAMES = 64, ("serial_number", "serialNumber")

#: The type of what the acquirer answered, and how its codes began in older documents.
ACQUIRER, ACQUIRER_CODES = "ACQUIRER", "ACQ"
#: With HTTP 409: the terminal is busy. Any other code says nothing of that.
BUSY = "TER-003"


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """An error in the terminal's own words, each None where it is not there or no text.

    `acquirer`: the acquirer may have been asked. `busy`: the terminal runs something. `certain`: it is an error under
    HTTP 2xx too, where a code alone can be anything. `clear`: all that can be read of it says one thing. `whole`: it is
    clear, and has a type and a code. `serial_number`: of whom it says that it is.
    """

    type: str | None
    code: str | None
    message: str | None
    param: str | None = None
    acquirer: bool = False
    busy: bool = False
    certain: bool = False
    clear: bool = True
    whole: bool = False
    serial_number: str | None = None

    @property
    def name(self) -> str:
        """Its type and code, to be shown."""
        return shown(" ".join(filter(None, (self.type, self.code))) or "no code")


def read_envelope(body: bytes) -> ErrorEnvelope | None:
    """Return the error that an answer holds, None where it holds none that can be read."""
    try:
        members = decoded(body)[0]
    except ValueError:
        return None
    return envelope_in(members) if isinstance(members, Object) else None


def envelope_in(members: Object) -> ErrorEnvelope | None:
    """Return the error that an object holds: the first that has type and code, else the first that has one of them."""
    found = list(_places(members))
    if not found:
        return None
    named = [(word(place, "type"), word(place, "code")) for place in found]
    best = next((at for at, (type_, code) in enumerate(named) if type_ and code), 0)
    type_, code = named[best]
    ambiguous = any(place.repeated & {"type", "code"} for place in found)
    others = {pair for pair in named if all(pair)} - {named[best]}
    codes = {code.upper() for _, code in named if code}
    clear = not ambiguous and not others and len(codes) <= 1 and UNREADABLE not in f"{type_}{code}"
    return ErrorEnvelope(
        type=type_,
        code=code,
        message=word(found[best], "message", MAX_MESSAGE),
        param=word(found[best], "param"),
        # What says two things may say that one.
        acquirer=any("type" in place.repeated for place in found)
        or any(_is_acquirers(type_, code) for type_, code in named),
        busy=any((code or "").strip().upper() == BUSY for _, code in named),
        certain=any(map(all, named)) or found[-1] is not members,
        clear=clear,
        whole=bool(type_ and code) and clear,
        serial_number=_serial_number(members.get("object")),
    )


def _serial_number(about: Any) -> str | None:
    """Return the terminal that an error is about, None where it says none, or two, or one that cannot be read."""
    if not isinstance(about, Object) or about.repeated.intersection(SERIAL_NAMES):
        return None
    said = {serial for name in SERIAL_NAMES if (serial := word(about, name, MAX_SERIAL + 1)) is not None}
    serial = said.pop() if len(said) == 1 else ""
    return serial if 0 < len(serial) <= MAX_SERIAL and UNREADABLE not in serial else None


def word(members: Mapping[str, Any], name: str, limit: int = MAX_WORD) -> str | None:
    """Return a text, or the digits of a number; None where there is neither, and for an empty text."""
    value = members.get(name)
    if isinstance(value, Decimal):
        value = str(value)
    return value[:limit] or None if isinstance(value, str) else None


def _places(members: Object) -> Iterator[Object]:
    """Yield the objects that are errors, the outermost first; `object` can hold much else, and needs both words."""
    inner = members.get("object")
    deeper = inner.get("failure") if isinstance(inner, Object) else None
    for place, enough in ((members, any), (members.get("failure"), any), (inner, all), (deeper, any)):
        if isinstance(place, Object) and enough(word(place, name) is not None for name in ("type", "code")):
            yield place


def _is_acquirers(type_: str | None, code: str | None) -> bool:
    return (type_ or "").strip().upper() == ACQUIRER or (code or "").strip().upper().startswith(ACQUIRER_CODES)
