"""What an error of the terminal means for the payment that it was asked to start (terminal API, Refusals).

HTTP 200 is no approval, and an error inside of it is none either: it is a refusal where the profile says so, a
cancellation where it is the one that says that, and otherwise doubt.
"""

from typing import Any

import msgspec

from posd.base.json_types import Object
from posd.base.text import shown
from posd.terminals.attempt import (
    UNAUTHENTICATED,
    Doubtful,
    ErrorEnvelope,
    Replied,
    StartRefused,
    refused,
    with_remark,
    word,
)

#: The type and code of what the cardholder canceled.
CANCELED = ("TERMINAL-SUNMI", "-1")

#: Types of a refusal for want of authentication, and how its codes begin.
AUTHENTICATION = frozenset({"AUTHENTICATION", "AUTH"})
AUTHENTICATION_CODES = "AUTH-"

#: The members of an error, and those of the object that it is about. An answer that says anything beside them may say
#: more of the payment than the error does: then the error alone does not count.
_ERROR = frozenset({"type", "code", "message", "param", "object", "failure"})
_ABOUT = _ERROR | {"client_transaction_id", "terminal_id", "serial_number", "serialNumber"}
#: How deep errors stand, with the object that they are about.
_DEPTH = 3
_NOTHING: tuple[Any, ...] = (None, "", {}, [])
#: A code that integrators were seen to take for an approval.
_ZEROS = frozenset({"0", "00", "000"})


class Canceled(msgspec.Struct, frozen=True):
    """The terminal answered the start itself that the cardholder canceled it."""

    status: int
    body: str
    error: ErrorEnvelope

    @property
    def reason(self) -> str:
        """The terminal's own type and code, to be shown."""
        return self.error.name


def judge_error(
    reply: Replied, answer: Object, error: ErrorEnvelope, client_transaction_id: str, *, trusted: bool
) -> Canceled | StartRefused | Doubtful:
    """Judge a 2xx answer to a start that holds an error; `trusted`: the profile says that it means "not started"."""
    said = refused(reply, error)
    in_words = f"the terminal answered HTTP {reply.status} with {error.name}"
    if error.acquirer:
        return Doubtful(f"{in_words}: the acquirer may have been asked")
    if not error.whole:
        return Doubtful(in_words)
    if error.code in _ZEROS or _says_more(answer, error, client_transaction_id):
        return Doubtful(f"{in_words}, and not that alone")
    if (error.type, error.code) == CANCELED:
        return Canceled(said.status, said.body, error)
    if trusted:
        return said
    return Doubtful(f"{in_words}, and the profile does not say what that means (errors_in_2xx)")


def _says_more(
    place: Any, error: ErrorEnvelope, client_transaction_id: str, known: frozenset[str] = _ERROR, depth: int = 0
) -> bool:
    """Whether an answer says anything beside this error of this payment."""
    if not isinstance(place, Object) or place.repeated or depth > _DEPTH:
        return True

    def more(name: str, value: Any) -> bool:
        match name:
            case "approved":
                return value is not False
            case "type" | "code":
                return word(place, name) != (error.type if name == "type" else error.code)
            case "object" | "failure":
                inner = _ABOUT if name == "object" else _ERROR
                return _says_more(value, error, client_transaction_id, inner, depth + 1)
            case "client_transaction_id" if name in known:
                return not isinstance(value, str) or value.lower() != client_transaction_id
            case _:
                return name not in known or isinstance(value, dict | list)

    return any(more(name, value) for name, value in place.items() if value not in _NOTHING)


def words(judgement: StartRefused) -> str:
    """Return why a start was refused, in words, and what there is to say of the reply."""
    return with_remark(_words(judgement), judgement.remark)


def _words(judgement: StartRefused) -> str:
    status, error = judgement.status, judgement.error
    http = f"the terminal refused the request (HTTP {status}"
    if error is None:
        unknown = "; why is not known" if status == 409 else ""
        return f"{http}){unknown}"
    named = f"{http}, {error.name})"
    if status == 409 and error.busy:
        return f"{named}: it is busy with something else. posd never tries again by itself: the till decides"
    if status in UNAUTHENTICATED or _of_authentication(error):
        return f"{named}: it did not accept the authentication. Check auth, business_code, headers and the clock"
    if error.param is not None:
        return f"{named}: the field {shown(error.param)}"
    return f"{named}; why is not known" if status == 409 else named


def _of_authentication(error: ErrorEnvelope) -> bool:
    return (error.type or "").upper() in AUTHENTICATION or (error.code or "").upper().startswith(AUTHENTICATION_CODES)
