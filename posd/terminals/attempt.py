"""Result of the one attempt to call a terminal: whether anything was written, and whether a complete reply arrived.

An error in a reply is `{type, code, message, param, object}` (terminal API, Refusals). A terminal writes the error at
the top of the reply, in a member `failure`, or in a member `object`. If the error is at the top, its member `object`
can describe the payment instead. All places are parsed leniently, because a reply is untrusted.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, assert_never

import msgspec

from posd.base.json_types import UNREADABLE, Object, as_text, decoded
from posd.base.text import shown

#: Longest stored type, code and `param` of an error, and longest stored message, in characters.
MAX_WORD, MAX_MESSAGE = 64, 256

#: Longest serial, in characters, and the names of the member of an error that has the serial.
MAX_SERIAL, SERIAL_NAMES = 64, ("serial_number", "serialNumber")

#: Type of an error from the acquirer, and prefix of its codes in older documents.
ACQUIRER, ACQUIRER_CODES = "ACQUIRER", "ACQ"
#: Error code of a busy terminal, with HTTP 409. No other code means busy.
BUSY = "TER-003"


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """Error in a terminal's reply. A field is None if it is missing or not a text.

    `acquirer`: whether the acquirer may have been asked. `busy`: whether the terminal runs another operation.
    `certain`: whether it is an error even in a 2xx reply. There, a code alone proves nothing. `clear`: whether all
    readable parts agree. `whole`: whether it is clear, and has a type and a code. `serial_number`: serial in the error.
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
        """Type and code of the error, for display."""
        return shown(" ".join(filter(None, (self.type, self.code))))


def read_envelope(body: bytes) -> ErrorEnvelope | None:
    """Return the readable error in a reply, or None."""
    try:
        members = decoded(body)[0]
    except ValueError:
        return None
    return envelope_in(members) if isinstance(members, Object) else None


def envelope_in(members: Object) -> ErrorEnvelope | None:
    """Return the first error in a reply that has type and code, else the first error with a type or a code."""
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
        # A repeated member has two values, and one of them may be the acquirer's.
        acquirer=any("type" in place.repeated for place in found)
        or any(_is_acquirers(type_, code) for type_, code in named),
        busy=any((code or "").strip().upper() == BUSY for _, code in named),
        certain=any(map(all, named)) or found[-1] is not members,
        clear=clear,
        whole=bool(type_ and code) and clear,
        serial_number=_serial_number(members.get("object")),
    )


def _serial_number(about: Any) -> str | None:
    """Return the serial in an error. Return None if there is no serial, several serials, or an unreadable serial."""
    if not isinstance(about, Object) or about.repeated.intersection(SERIAL_NAMES):
        return None
    said = {serial for name in SERIAL_NAMES if (serial := word(about, name, MAX_SERIAL + 1)) is not None}
    serial = said.pop() if len(said) == 1 else ""
    return serial if 0 < len(serial) <= MAX_SERIAL and UNREADABLE not in serial else None


def word(members: Mapping[str, Any], name: str, limit: int = MAX_WORD) -> str | None:
    """Return a member as a text, or None if it is missing, empty, or neither a text nor a number."""
    return (as_text(members.get(name)) or "")[:limit] or None


def _places(members: Object) -> Iterator[Object]:
    """Yield the objects that are errors, the outermost first.

    The member `object` is an error only if it has both type and code.
    """
    inner = members.get("object")
    deeper = inner.get("failure") if isinstance(inner, Object) else None
    for place, enough in ((members, any), (members.get("failure"), any), (inner, all), (deeper, any)):
        if isinstance(place, Object) and enough(word(place, name) is not None for name in ("type", "code")):
            yield place


def _is_acquirers(type_: str | None, code: str | None) -> bool:
    return (type_ or "").strip().upper() == ACQUIRER or (code or "").strip().upper().startswith(ACQUIRER_CODES)


class NotSent(msgspec.Struct, frozen=True, tag="not_sent"):
    """No byte of the request was written to the network."""

    reason: str


class Replied(msgspec.Struct, frozen=True, omit_defaults=True, tag="replied"):
    """A reply arrived, with HTTP status and body. `complete`: False if the body was cut at a limit.

    `remark`: a sentence about the reply, such as the clock difference after a refused signed call. `sealed`: whether
    the body is encrypted and could not be decrypted.
    """

    status: int
    body: bytes
    complete: bool = True
    remark: str = ""
    sealed: bool = False


class ReplyLost(msgspec.Struct, frozen=True, tag="lost"):
    """Bytes were written, and no readable reply arrived."""

    reason: str


Attempt = NotSent | Replied | ReplyLost


def cut(attempt: Attempt, most: int) -> Attempt:
    """Return an attempt with at most `most` bytes of its reply. The remark has the full size.

    A cut reply is not complete. posd judges the cut reply, because only that is stored and can be judged again.
    """
    if not isinstance(attempt, Replied) or len(attempt.body) <= most:
        return attempt
    words = with_remark(f"the reply has {len(attempt.body)} bytes; posd keeps {most}", attempt.remark)
    return msgspec.structs.replace(attempt, body=attempt.body[:most], complete=False, remark=words)


def size_of(attempt: Attempt) -> int:
    """Return the size of the reply in bytes, or 0 without a reply."""
    return len(attempt.body) if isinstance(attempt, Replied) else 0


def refuser(attempt: Attempt) -> str | None:
    """Return the serial in a refusal, or None (terminal API, Refusals)."""
    if not isinstance(attempt, Replied) or attempt.status < 400:
        return None
    error = read_envelope(attempt.body)
    return None if error is None else error.serial_number


class CallFailed(Exception):
    """Call without a reply. The message is the reason. The caller knows whether anything was sent."""


# What the attempt to start a payment or a print job proves.

Taken = TypeVar("Taken")

#: Largest number of characters of a refusal that are kept as evidence. Terminals send a short JSON error.
MAX_REFUSAL_TEXT = 2048


class StartRefused(msgspec.Struct, frozen=True):
    """The terminal replied that it does not run the start.

    `remark`: remark on the reply. `error`: the terminal's error, if readable.
    """

    status: int
    body: str
    remark: str = ""
    error: ErrorEnvelope | None = None

    @property
    def reason(self) -> str | None:
        """Type and code of the terminal's error, for display, or None."""
        return self.error.name if self.error else None


class Doubtful(msgspec.Struct, frozen=True):
    """Judgement of a start that may be running."""

    reason: str


#: Statuses 4xx that do not refuse the start. After a 408 the terminal may still have started the payment.
UNDECIDED_CLIENT_ERRORS = frozenset({408})
#: Statuses of refused authentication. The terminal has not accepted the caller, and sends nothing to the acquirer.
UNAUTHENTICATED = frozenset({401, 403})


def with_remark(words: str, remark: str) -> str:
    """Return a sentence about a reply, followed by the remark if it is not empty."""
    return f"{words}; {remark}" if remark else words


def judge_start(
    attempt: Attempt, accepted: Callable[[Replied], Taken], *, reads_errors: bool = True
) -> Taken | StartRefused | NotSent | Doubtful:
    """Judge the attempt to start a payment or a print job. `accepted` judges a 2xx reply.

    `reads_errors`: False if the attempt was recorded by a version of posd that ignored errors in replies. Then judge as
    that version did, so that an upgrade changes no state.
    """
    match attempt:
        case NotSent():
            return attempt
        case ReplyLost(reason=reason):
            return Doubtful(reason)
        case Replied(status=status) if 200 <= status < 300:
            return accepted(attempt)
        case Replied(status=status):
            error = read_envelope(attempt.body) if reads_errors else None
            unknown = attempt.sealed and status not in UNAUTHENTICATED
            acquirer = unknown or (error is not None and error.acquirer)
            if 300 <= status < 500 and status not in UNDECIDED_CLIENT_ERRORS and not acquirer:
                return refused(attempt, error)
            named = f" with {error.name}" if error else ""
            asked = ": the acquirer may have been asked" if acquirer else ""
            return Doubtful(with_remark(f"the terminal answered HTTP {status}{named}{asked}", attempt.remark))
        case _:
            assert_never(attempt)


def refused(reply: Replied, error: ErrorEnvelope | None) -> StartRefused:
    """Return the refusal in a reply."""
    return StartRefused(reply.status, reply.body.decode("utf-8", "replace")[:MAX_REFUSAL_TEXT], reply.remark, error)


# Comparison of clocks after a signed call. The authentication signs the time, and a terminal refuses a time that is too
# far from its own. The `Date` header of its reply has the terminal's time, in whole seconds (RFC 9110, 6.6.1).


def clock_ahead(now: datetime, date: str | None) -> int | None:
    """Return by how many seconds this clock is ahead of a `Date` header (negative: behind).

    Return None if the header is missing or invalid.
    """
    try:
        theirs = parsedate_to_datetime(date or "")
        return round((now - (theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC))).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def clock_remark(status: int, seconds: int | None, window: int) -> str:
    """Return a sentence about the likely cause of a refused signed call, or an empty text.

    `seconds`: from `clock_ahead`. `window`: accepted clock difference, in seconds.
    """
    if seconds is not None and abs(seconds) > window:
        direction = "ahead of" if seconds > 0 else "behind"
        return (
            f"the clock of this machine is {in_words(abs(seconds))} {direction} that of the terminal, which accepts "
            f"{in_words(window)}: that is the likely cause. Correct the wrong clock, then try again"
        )
    if status not in UNAUTHENTICATED:
        return ""
    compared = (
        "its reply does not give its time"
        if seconds is None
        else f"the clocks differ by {in_words(abs(seconds))}, which is allowed"
    )
    return (
        f"it refused the authentication; {compared}. Check auth, business_code and [hash_encrypt] in the configuration "
        "(docs/guides/real-terminals.md)"
    )


def in_words(seconds: int) -> str:
    """Return a duration in minutes and seconds as text."""
    minutes, rest = divmod(seconds, 60)
    parts = [f"{minutes} min"] if minutes else []
    return " ".join(parts if minutes and not rest else [*parts, f"{rest} s"])
