"""What is seen of the one attempt to call a terminal: whether anything was written, and whether a whole reply came."""

from collections.abc import Callable
from typing import TypeVar, assert_never

import msgspec

from posd.terminals.envelope import ErrorEnvelope, read_envelope


class NotSent(msgspec.Struct, frozen=True, tag="not_sent"):
    """Nothing of the request was written to the network."""

    reason: str


class Replied(msgspec.Struct, frozen=True, omit_defaults=True, tag="replied"):
    """A whole reply was read: HTTP status and body. `complete` is False where the body was cut at the limit.

    `remark`: what there is to say of the reply as such, in words, as of the clocks where it refuses a signed call.
    `sealed`: the body is encrypted, and could not be opened: nothing in it can be read.
    """

    status: int
    body: bytes
    complete: bool = True
    remark: str = ""
    sealed: bool = False


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Something was written, and no readable reply came."""

    reason: str


Attempt = NotSent | Replied | Lost


def refuser(attempt: Attempt) -> str | None:
    """Return the serial of the terminal that refuses, where its error names it (terminal API, Refusals)."""
    if not isinstance(attempt, Replied) or attempt.status < 400:
        return None
    error = read_envelope(attempt.body)
    return None if error is None else error.serial_number


class Withheld(Exception):
    """What is to be told before anything is sent refuses the call; the message says why."""


# What the one attempt to start something on a terminal proves, of a payment or a print job.

Taken = TypeVar("Taken")

#: How much of a refusal is kept as evidence, in characters; terminals answer with a short JSON error.
MAX_REFUSAL_TEXT = 2048


class Refused(msgspec.Struct, frozen=True):
    """The terminal answered that it does not run it; `remark` as of the reply, `error` its own where it can be read."""

    status: int
    body: str
    remark: str = ""
    error: ErrorEnvelope | None = None

    @property
    def reason(self) -> str | None:
        """The terminal's own type and code, to be shown; None where it named none."""
        return self.error.name if self.error else None


class Unsent(msgspec.Struct, frozen=True):
    """Provably never sent."""

    reason: str


class Doubtful(msgspec.Struct, frozen=True):
    """It may be running."""

    reason: str


#: 408 says that the terminal gave up reading, not that it had not begun.
UNDECIDED_CLIENT_ERRORS = frozenset({408})
#: The terminal does not know who calls: it asks the acquirer nothing for that.
UNAUTHENTICATED = frozenset({401, 403})


def with_remark(words: str, remark: str) -> str:
    """Lay what there is to say of a reply beside what it means."""
    return f"{words}; {remark}" if remark else words


def judge_start(
    attempt: Attempt, accepted: Callable[[Replied], Taken], *, reads_errors: bool = True
) -> Taken | Refused | Unsent | Doubtful:
    """Judge the one attempt to start something; `accepted` says what a 2xx reply means.

    `reads_errors`: False for what was recorded by a version that did not read the error in a reply. It is judged as
    it was judged then, so that an upgrade changes no state.
    """
    match attempt:
        case NotSent(reason=reason):
            return Unsent(reason)
        case Lost(reason=reason):
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


def refused(reply: Replied, error: ErrorEnvelope | None) -> Refused:
    """Return the refusal that a reply is."""
    return Refused(reply.status, reply.body.decode("utf-8", "replace")[:MAX_REFUSAL_TEXT], reply.remark, error)
