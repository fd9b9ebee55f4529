"""The error envelope: what the service writes when it refuses a request (terminal API, Refusals).

`{type, code, message, param, object}`. It is at the top of a reply, in its member `failure`, or in its member `object`,
which otherwise holds what the error is about. All three are read leniently, because the reply is untrusted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from posd.base.damaged_json import UNREADABLE, decoded
from posd.base.json_types import Object, as_text
from posd.base.text import shown

#: Longest stored type, code and parameter, and longest stored message, in characters.
MAX_WORD, MAX_MESSAGE = 64, 256

#: Longest serial, in characters, as in the configuration; and its names in an error.
MAX_SERIAL, SERIAL_NAMES = 64, ("serial_number", "serialNumber")

#: Type of an error from the acquirer, and prefix of its codes in older documents.
ACQUIRER, ACQUIRER_CODES = "ACQUIRER", "ACQ"
#: Code of a busy terminal, with HTTP 409. No other code means busy.
BUSY = "TER-003"


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """An error in the terminal's own words; a field is None if it is missing or no text.

    `acquirer`: the acquirer may have been asked. `busy`: the terminal runs something. `certain`: it is an error under
    HTTP 2xx too, where a lone code can mean anything. `clear`: all readable parts agree. `whole`: clear, with a type
    and a code. `serial_number`: the terminal that it names.
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
        """Its type and code, for display."""
        return shown(" ".join(filter(None, (self.type, self.code))) or "no code")


def read_envelope(body: bytes) -> ErrorEnvelope | None:
    """Return the readable error in a reply, or None."""
    try:
        members = decoded(body)[0]
    except ValueError:
        return None
    return envelope_in(members) if isinstance(members, Object) else None


def envelope_in(members: Object) -> ErrorEnvelope | None:
    """Return the error in an object: the first with type and code, else the first with one of them."""
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
        # A repeated member has two values, so one of them may be the acquirer's.
        acquirer=any("type" in place.repeated for place in found)
        or any(_is_acquirers(type_, code) for type_, code in named),
        busy=any((code or "").strip().upper() == BUSY for _, code in named),
        certain=any(map(all, named)) or found[-1] is not members,
        clear=clear,
        whole=bool(type_ and code) and clear,
        serial_number=_serial_number(members.get("object")),
    )


def _serial_number(about: Any) -> str | None:
    """Return the serial that an error names; None if it names none, several, or an unreadable one."""
    if not isinstance(about, Object) or about.repeated.intersection(SERIAL_NAMES):
        return None
    said = {serial for name in SERIAL_NAMES if (serial := word(about, name, MAX_SERIAL + 1)) is not None}
    serial = said.pop() if len(said) == 1 else ""
    return serial if 0 < len(serial) <= MAX_SERIAL and UNREADABLE not in serial else None


def word(members: Mapping[str, Any], name: str, limit: int = MAX_WORD) -> str | None:
    """Return a text, or the digits of a number; None for anything else, and for an empty text."""
    return (as_text(members.get(name)) or "")[:limit] or None


def _places(members: Object) -> Iterator[Object]:
    """Yield the objects that are errors, the outermost first; `object` can hold other things, and needs both words."""
    inner = members.get("object")
    deeper = inner.get("failure") if isinstance(inner, Object) else None
    for place, enough in ((members, any), (members.get("failure"), any), (inner, all), (deeper, any)):
        if isinstance(place, Object) and enough(word(place, name) is not None for name in ("type", "code")):
            yield place


def _is_acquirers(type_: str | None, code: str | None) -> bool:
    return (type_ or "").strip().upper() == ACQUIRER or (code or "").strip().upper().startswith(ACQUIRER_CODES)
