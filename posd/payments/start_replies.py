"""What the one attempt to send a start request proves (design 4, step 5; spec 2.2 and 4.1).

`Attempt` is what the terminal client saw; `judge` turns it into what is known. The line that matters is whether
anything of the request was written: before it nothing can have been charged, after it everything is possible.
"""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from posd.payments.events import read_acknowledgement
from posd.payments.lifecycle import Status

#: How much of a refusal is kept as evidence, in characters; terminals answer with a short JSON error.
MAX_REFUSAL_TEXT = 2048


class NotSent(msgspec.Struct, frozen=True, tag="not_sent"):
    """Nothing of the request was written to the network."""

    reason: str


class Replied(msgspec.Struct, frozen=True, tag="replied"):
    """A whole reply was read: HTTP status and body. `complete` is False where the body was cut at the limit."""

    status: int
    body: bytes
    complete: bool = True


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Something was written, and no readable reply came."""

    reason: str


Attempt = NotSent | Replied | Lost


class Acknowledged(msgspec.Struct, frozen=True):
    """The terminal took the request; `serial_number` is who says so, where it says it."""

    serial_number: str | None


class Refused(msgspec.Struct, frozen=True):
    """The terminal answered that it does not run it."""

    status: int
    body: str


class Unsent(msgspec.Struct, frozen=True):
    """Provably never sent."""

    reason: str


class Doubtful(msgspec.Struct, frozen=True):
    """It may be running."""

    reason: str


Judgement = Acknowledged | Refused | Unsent | Doubtful

#: 408 says that the terminal gave up reading, not that it had not begun.
UNDECIDED_CLIENT_ERRORS = frozenset({408})


def judge(attempt: Attempt, client_transaction_id: str) -> Judgement:
    """Judge the attempt to start the transaction of that id."""
    match attempt:
        case NotSent(reason=reason):
            return Unsent(reason)
        case Lost(reason=reason):
            return Doubtful(reason)
        case Replied(status=status) if 200 <= status < 300:
            return _judge_success(attempt, client_transaction_id)
        case Replied(status=status, body=body) if 300 <= status < 500 and status not in UNDECIDED_CLIENT_ERRORS:
            return Refused(status, body.decode("utf-8", "replace")[:MAX_REFUSAL_TEXT])
        case Replied(status=status):
            return Doubtful(f"the terminal answered HTTP {status}")
        case _:
            assert_never(attempt)


def _judge_success(reply: Replied, client_transaction_id: str) -> Judgement:
    acknowledgement = read_acknowledgement(reply.body) if reply.complete else None
    if acknowledgement is None:
        return Doubtful(f"the terminal answered HTTP {reply.status} with something that is no acknowledgement")
    if acknowledgement.status != Status.TERMINAL_ACKNOWLEDGED:
        return Doubtful(f"the terminal answered HTTP {reply.status} with status {acknowledgement.status}")
    if any(echoed != client_transaction_id for echoed in acknowledgement.client_transaction_ids):
        return Doubtful("the terminal acknowledged another transaction")
    return Acknowledged(acknowledgement.serial_number)


#: Outcome words for the log, by kind of judgement.
NAMES: Mapping[type[Judgement], str] = {
    Acknowledged: "acknowledged",
    Refused: "refused",
    Unsent: "unsent",
    Doubtful: "in_doubt",
}
