"""Result of the one attempt to call a terminal: whether anything was written, and whether a whole reply arrived."""

from collections.abc import Callable
from typing import TypeVar, assert_never

import msgspec

from posd.terminals.envelope import ErrorEnvelope, read_envelope


class NotSent(msgspec.Struct, frozen=True, tag="not_sent"):
    """No byte of the request was written to the network."""

    reason: str


class Replied(msgspec.Struct, frozen=True, omit_defaults=True, tag="replied"):
    """A whole reply: HTTP status and body. `complete` is False if the body was cut at the limit.

    `remark`: a sentence about the reply, such as the clocks after a refused signed call. `sealed`: the body is
    encrypted and could not be decrypted; nothing in it can be read.
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
    """Return an attempt with at most `most` bytes of its reply; a remark states the full size.

    The stored attempt is the one that is judged: a cut reply is not complete.
    """
    if not isinstance(attempt, Replied) or len(attempt.body) <= most:
        return attempt
    words = with_remark(f"the reply has {len(attempt.body)} bytes; posd keeps {most}", attempt.remark)
    return msgspec.structs.replace(attempt, body=attempt.body[:most], complete=False, remark=words)


def size_of(attempt: Attempt) -> int:
    """Return the stored bytes of a reply."""
    return len(attempt.body) if isinstance(attempt, Replied) else 0


def refuser(attempt: Attempt) -> str | None:
    """Return the serial that a refusal names, or None (terminal API, Refusals)."""
    if not isinstance(attempt, Replied) or attempt.status < 400:
        return None
    error = read_envelope(attempt.body)
    return None if error is None else error.serial_number


class SendWithheld(Exception):
    """Call refused by its `connected` callback, before anything was sent; the message names the reason."""


# What the one attempt to start a payment or a print job proves.

Taken = TypeVar("Taken")

#: Most characters of a refusal that are kept as evidence; terminals send a short JSON error.
MAX_REFUSAL_TEXT = 2048


class StartRefused(msgspec.Struct, frozen=True):
    """The terminal replied that it does not run the start; `remark` as of the reply, `error` its own if readable."""

    status: int
    body: str
    remark: str = ""
    error: ErrorEnvelope | None = None

    @property
    def reason(self) -> str | None:
        """The terminal's own type and code, for display, or None."""
        return self.error.name if self.error else None


class NeverSent(msgspec.Struct, frozen=True):
    """Start that was provably never sent."""

    reason: str


class Doubtful(msgspec.Struct, frozen=True):
    """Start that may be running."""

    reason: str


#: 408 shows that the terminal stopped reading, not that it had not begun.
UNDECIDED_CLIENT_ERRORS = frozenset({408})
#: Refused authentication: the terminal does not know the caller and sends nothing to the acquirer.
UNAUTHENTICATED = frozenset({401, 403})


def with_remark(words: str, remark: str) -> str:
    """Append the remark of a reply to a sentence about its meaning."""
    return f"{words}; {remark}" if remark else words


def judge_start(
    attempt: Attempt, accepted: Callable[[Replied], Taken], *, reads_errors: bool = True
) -> Taken | StartRefused | NeverSent | Doubtful:
    """Judge the one attempt to start something; `accepted` returns the meaning of a 2xx reply.

    `reads_errors`: False for records of a version that did not read the error in a reply. They are judged as that
    version did, so that an upgrade changes no state.
    """
    match attempt:
        case NotSent(reason=reason):
            return NeverSent(reason)
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
