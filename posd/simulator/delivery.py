"""The delivery policy of the transaction webhook (terminal API, Delivery), as decisions; the sender carries them out.

| outcome of the consumer endpoint                      | decision        |
| ----------------------------------------------------- | --------------- |
| 2xx                                                   | delivered       |
| time-out, connection reset, DNS failure               | retry           |
| 408, 429, 500, 502, 503, 504                          | retry           |
| 400, 401, 403, 404, 409, 422                          | drop: permanent |
| any other status (redirects among them: not followed) | drop: permanent |

The last row is this simulator's choice, for the terminal API is silent: a consumer that counts on a retry which nobody
promised shall lose the event here and not in a shop.

A terminal preserves the order of a transaction's events; an unruly network does not, and brings some of them twice
(at least once is all that is promised: terminal API, Delivery): see `Detour`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random

from posd.simulator.posting import Lost, Outcome

#: Attempts per event (terminal API, Delivery).
MAX_ATTEMPTS = 10
#: From the first attempt of an event, in terminal seconds: 15 minutes (terminal API, Delivery).
WINDOW_SECONDS = 900.0
#: Backoff base in terminal seconds (terminal API, Delivery).
BACKOFF_BASE_SECONDS = 2.0
#: Backoff cap in terminal seconds, before the jitter (terminal API, Delivery).
BACKOFF_CAP_SECONDS = 60.0

#: The longest that an unruly network holds an event up, in terminal seconds: longer than any pause of the scenarios, so
#: that the next event can overtake it, the final too.
DETOUR_SECONDS = 20.0
#: How many of the delivered events an unruly network brings once more.
AGAIN_SHARE = 1 / 3
#: The longest that it keeps the second one back, in terminal seconds: past the end of most payments.
AGAIN_SECONDS = 30.0


class Verdict(Enum):
    """What an outcome means for the event."""

    DELIVERED = "delivered"
    RETRY = "retry"
    PERMANENT = "permanent"


#: The statuses that the terminal API names; 2xx is a range and stands in `judge`.
VERDICTS: Mapping[int, Verdict] = {
    400: Verdict.PERMANENT,
    401: Verdict.PERMANENT,
    403: Verdict.PERMANENT,
    404: Verdict.PERMANENT,
    408: Verdict.RETRY,
    409: Verdict.PERMANENT,
    422: Verdict.PERMANENT,
    429: Verdict.RETRY,
    500: Verdict.RETRY,
    502: Verdict.RETRY,
    503: Verdict.RETRY,
    504: Verdict.RETRY,
}


def judge(outcome: Outcome) -> Verdict:
    """Look an outcome up in the terminal API's table."""
    if isinstance(outcome, Lost):
        return Verdict.RETRY
    if 200 <= outcome <= 299:
        return Verdict.DELIVERED
    return VERDICTS.get(outcome, Verdict.PERMANENT)


def backoff(attempt: int, jitter: float) -> float:
    """Return the delay in terminal seconds after `attempt` (0 is the first): min(60, 2 * 2^attempt) + random(0..2).

    `jitter` is the random part as a fraction, 0 to 1.
    """
    exponential: float = BACKOFF_BASE_SECONDS * 2.0**attempt
    return min(BACKOFF_CAP_SECONDS, exponential) + jitter * BACKOFF_BASE_SECONDS


@dataclass(frozen=True, slots=True)
class Delivered:
    """The consumer has it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` terminal seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Never try again; `reason` is `permanent_rejection`, `attempts_exhausted` or `window_exhausted`."""

    reason: str


Decision = Delivered | Retry | Drop


def decide(outcome: Outcome, *, attempts: int, elapsed: float, jitter: float) -> Decision:
    """Decide after an attempt.

    `attempts` counts those made, this one included; `elapsed` is terminal seconds since the first of them; `jitter` is
    a random fraction, 0 to 1. A retry that would begin after the window is not waited for.
    """
    match judge(outcome):
        case Verdict.DELIVERED:
            return Delivered()
        case Verdict.PERMANENT:
            return Drop("permanent_rejection")
        case Verdict.RETRY:
            delay = backoff(attempts - 1, jitter)
            return exhausted(attempts=attempts, elapsed=elapsed + delay) or Retry(delay)


@dataclass(frozen=True, slots=True)
class Detour:
    """What an unruly network does to an event: it comes `delay` terminal seconds late.

    `again_after` is how many terminal seconds after its delivery it comes `again`.
    """

    delay: float
    again: bool
    again_after: float


def detour(rng: Random) -> Detour:
    """Draw what happens to an event."""
    return Detour(rng.uniform(0, DETOUR_SECONDS), rng.random() < AGAIN_SHARE, rng.uniform(0, AGAIN_SECONDS))


def exhausted(*, attempts: int, elapsed: float) -> Drop | None:
    """Return why no attempt may be made any more: ten attempts or 15 minutes, whichever comes first; else None."""
    if attempts >= MAX_ATTEMPTS:
        return Drop("attempts_exhausted")
    if elapsed > WINDOW_SECONDS:
        return Drop("window_exhausted")
    return None
