"""Whether the webhook listener was away for so long that a terminal may have given up on its events: pure.

A terminal sends an event ten times, with pauses of 2, 4, 8, ... up to 60 seconds: some five minutes, then the event is
lost for good. So after four minutes without a listener a missing event proves nothing any more, and each payment
that was open then is a matter for search, until it has ended or a search has found it.

How long it was follows from the last sign of life that is left, which is up to half a minute old, and from a clock that
may have been set in between: it is said as "about", or not at all.

Source: terminal API, Delivery.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from posd.base.times import iso
from posd.payments.model import LastSearch, SearchResult

#: So long a listener may be away: what comes after it is one of the last tries of a terminal, or none. Seconds.
MOST_SECONDS = 240.0


class Cause(StrEnum):
    """Why posd did not listen, as far as it can tell."""

    STOPPED = "stopped"
    SUSPENDED = "suspended"
    HELD_UP = "held_up"
    DEAF = "deaf"


WORDS: Mapping[Cause, str] = {
    Cause.STOPPED: "posd was not running",
    Cause.SUSPENDED: "this machine was suspended",
    Cause.HELD_UP: "posd was held up",
    Cause.DEAF: "no connection could be accepted",
}


class Absence(msgspec.Struct, frozen=True):
    """A time without a listener: why, how long (None: unknown, the clock was set), and when it was over.

    `payments` are those that were open then: id -> when each had been searched for last, None for never.
    """

    cause: Cause
    seconds: float | None
    until: str
    payments: dict[str, str | None]


class Seen(msgspec.Struct, frozen=True):
    """An absence that this process has seen the end of: so long ago by the clock that no one sets.

    `last_sign` is that before it, None where its length was measured; `older` is what an earlier absence left.
    """

    absence: Absence
    ended: float
    last_sign: datetime | None
    older: Absence | None

    def now(self, wall: datetime, elapsed: float) -> Absence:
        """Return it, with what an earlier one left, by the clock as it is now: it may have been set right since."""
        back = wall - timedelta(seconds=elapsed - self.ended)
        seconds = self.absence.seconds if self.last_sign is None else away(self.last_sign, back)
        return merged(self.older, msgspec.structs.replace(self.absence, seconds=seconds, until=iso(back)))


def away(last_sign: datetime, back: datetime) -> float | None:
    """Return how long it was from the last sign of life to the return, in seconds; None where no clock can tell."""
    seconds = (back - last_sign).total_seconds()
    return seconds if seconds >= 0 else None


def too_long(seconds: float | None) -> bool:
    """Whether a terminal may have given up meanwhile: also where it is unknown how long it was."""
    return seconds is None or seconds > MOST_SECONDS


def merged(old: Absence | None, new: Absence) -> Absence:
    """Return the newer of two absences, with the payments that the older has left and the longer time."""
    if old is None:
        return new
    seconds = None if old.seconds is None or new.seconds is None else max(old.seconds, new.seconds)
    return msgspec.structs.replace(new, seconds=seconds, payments=old.payments | new.payments)


def settled(absence: Absence, client_transaction_id: str, *, ended: bool, last_search: LastSearch | None) -> bool:
    """Whether it is known again how a payment of it stands: it has ended, or a search since then has found it.

    That a search found nothing settles nothing: a terminal that waits for a card is not known to the acquirer.
    """
    if ended:
        return True
    searched = absence.payments[client_transaction_id]
    return last_search is not None and last_search.result is SearchResult.FOUND and last_search.at != searched


#: So many payments are named with their command.
MOST_NAMED = 3


def todo(left: Sequence[str]) -> str:
    """Say what a person does about the payments of an absence that are not settled."""
    commands = "; ".join(f"posd reconcile {identity}" for identity in left[:MOST_NAMED])
    more = f"; for {len(left) - MOST_NAMED} more: posd list --open" if len(left) > MOST_NAMED else ""
    return f"{commands}{more}; look at the terminal too"


def words(absence: Absence, left: int) -> str:
    """Say what happened; `left` counts the payments that are not settled."""
    count = len(absence.payments)
    # Where the length is not known, neither is its end: one of the two times is of a wrong clock.
    away, cause = "for an unknown time", f"{WORDS[absence.cause]}, and the clock was set"
    if absence.seconds is not None:
        away, cause = f"{_duration(absence.seconds)} until {absence.until}", WORDS[absence.cause]
    opened = "1 payment was open" if count == 1 else f"{count} payments were open"
    still = "it has" if count == left == 1 else f"{left} of them {'has' if left == 1 else 'have'}"
    return (
        f"the webhook listener was away {away} ({cause}) while {opened}; a terminal gives up on an "
        f"event after some five minutes, so it may never come. {still} neither ended nor been found by a search since"
    )


def _duration(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"for about {seconds / 60:.0f} min"
    if seconds < 2 * 86_400:
        return f"for about {seconds / 3600:.0f} h"
    return f"for about {seconds / 86_400:.0f} days"
