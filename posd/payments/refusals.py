"""What an error of the terminal means for the payment that it was asked to start (terminal API, Refusals).

HTTP 200 is no approval, and an error inside of it is none either: it is a refusal where the profile says so, a
cancellation where it is the one that says that, and otherwise doubt.
"""

from typing import Any

import msgspec

from posd.base.json_types import Object
from posd.base.text import shown
from posd.terminals.attempt import Doubtful, Refused, Replied, refused, with_remark
from posd.terminals.envelope import BUSY, ErrorEnvelope

#: The type and code of what the cardholder canceled.
CANCELED = ("TERMINAL-SUNMI", "-1")

#: Types of a refusal for want of authentication, and how its codes begin.
AUTHENTICATION = frozenset({"AUTHENTICATION", "AUTH"})
AUTHENTICATION_CODES = "AUTH-"

#: What stands in an answer that says something of the payment beside its error: then the error alone does not count.
SAYS_MORE = (
    "status",
    "transaction_status",
    "transaction_reference",
    "ticket_number",
    "raw_response",
    "rawResponse",
    "approved",
)
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
    reply: Replied, answer: Object, error: ErrorEnvelope, *, trusted: bool
) -> Canceled | Refused | Doubtful:
    """Judge a 2xx answer to a start that holds an error; `trusted`: the profile says that it means "not started"."""
    said = refused(reply, error)
    in_words = f"the terminal answered HTTP {reply.status} with {error.name}"
    if error.acquirer:
        return Doubtful(f"{in_words}: the acquirer may have been asked")
    if not error.whole:
        return Doubtful(in_words)
    if error.code in _ZEROS or _says_more(answer):
        return Doubtful(f"{in_words}, and not that alone")
    if (error.type, error.code) == CANCELED:
        return Canceled(said.status, said.body, error)
    if trusted:
        return said
    return Doubtful(f"{in_words}, and the profile does not say what that means (errors_in_2xx)")


def _says_more(answer: Object) -> bool:
    inner = answer.get("object")
    places: tuple[Any, ...] = (answer, inner, answer.get("failure"))
    return any(
        place.get(name) not in (None, "", False, {})
        for place in places
        if isinstance(place, Object)
        for name in SAYS_MORE
    )


def words(judgement: Refused) -> str:
    """Return why a start was refused, in words, and what there is to say of the reply."""
    return with_remark(_words(judgement), judgement.remark)


def _words(judgement: Refused) -> str:
    status, error = judgement.status, judgement.error
    http = f"the terminal refused the request (HTTP {status}"
    if error is None:
        unknown = "; why is not known" if status == 409 else ""
        return f"{http}){unknown}"
    named = f"{http}, {error.name})"
    if status == 409 and error.code == BUSY:
        return f"{named}: it is busy with something else. posd never tries again by itself: the till decides"
    if status in (401, 403) or _of_authentication(error):
        return f"{named}: it did not accept the authentication. Check auth, business_code, headers and the clock"
    if error.param is not None:
        return f"{named}: the field {shown(error.param)}"
    return f"{named}; why is not known" if status == 409 else named


def _of_authentication(error: ErrorEnvelope) -> bool:
    return (error.type or "").upper() in AUTHENTICATION or (error.code or "").upper().startswith(AUTHENTICATION_CODES)
