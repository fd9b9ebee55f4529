"""Rules for an absence of the webhook listener, after which events may be lost. All functions are pure.

A terminal sends an event ten times, with pauses of 2, 4, 8, ... up to 60 seconds. After some five minutes the event is
lost. So if the listener was absent for more than four minutes, a missing event proves nothing. Each payment that was
open during the absence needs searches, until it has ended or a search has found it.

posd computes the length of an absence from its last sign of life, which can be half a minute old. The clock may also
have been set since. So posd reports the length as "about", or not at all.

Source: terminal API, Delivery.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from posd.base.problems import RemedyStep
from posd.base.times import iso
from posd.payments.model import LastSearch, SearchResult

#: Longest harmless absence, in seconds. After such an absence, a terminal still makes further attempts.
MOST_SECONDS = 240.0


#: Cause of an absence, as far as posd can detect it.
DowntimeCause = Literal["stopped", "suspended", "held_up", "deaf"]
WORDS: Mapping[DowntimeCause, str] = {
    "stopped": "posd was not running",
    "suspended": "this machine was suspended",
    "held_up": "posd was held up",
    "deaf": "no connection could be accepted",
}


class Absence(msgspec.Struct, frozen=True):
    """Period without a listener: cause, length (None: unknown because the clock was set), and end.

    `payments`: id of a payment open in that period -> time of its newest search, or None.
    """

    cause: DowntimeCause
    seconds: float | None
    until: str
    payments: dict[str, str | None]


class EndedAbsence(msgspec.Struct, frozen=True):
    """Absence that ended in this process. `ended`: its end, on the boot clock.

    `last_sign`: posd's last sign of life before the absence; None if the length was measured. `older`: an earlier
    absence with unsettled payments.
    """

    absence: Absence
    ended: float
    last_sign: datetime | None
    older: Absence | None

    def now(self, wall: datetime, elapsed: float) -> Absence:
        """Return this absence and the earlier one as a single absence, with times by the present wall clock."""
        back = wall - timedelta(seconds=elapsed - self.ended)
        seconds = self.absence.seconds if self.last_sign is None else away(self.last_sign, back)
        return merged(self.older, msgspec.structs.replace(self.absence, seconds=seconds, until=iso(back)))


def away(last_sign: datetime, back: datetime) -> float | None:
    """Return the seconds from the last sign of life to the end of the absence, or None if no clock can measure them."""
    seconds = (back - last_sign).total_seconds()
    return seconds if seconds >= 0 else None


def too_long(seconds: float | None) -> bool:
    """Return whether a terminal may drop its events in a period of that length. Return True for an unknown length."""
    return seconds is None or seconds > MOST_SECONDS


def merged(old: Absence | None, new: Absence) -> Absence:
    """Return the newer of two absences, with the payments of both, and the length of the longer one."""
    if old is None:
        return new
    seconds = None if old.seconds is None or new.seconds is None else max(old.seconds, new.seconds)
    return msgspec.structs.replace(new, seconds=seconds, payments=old.payments | new.payments)


def settled(absence: Absence, client_transaction_id: str, *, ended: bool, last_search: LastSearch | None) -> bool:
    """Return whether the state of a payment is known again, because it has ended, or a later search found it.

    A search without a result is not enough, because the acquirer does not know a payment that waits for a card.
    """
    if ended:
        return True
    searched = absence.payments[client_transaction_id]
    return last_search is not None and last_search.result is SearchResult.FOUND and last_search.at != searched


#: Maximum number of payments that `steps` names, each with its command.
MOST_NAMED = 3


def steps(left: Sequence[str]) -> list[RemedyStep]:
    """Return what an operator should do about the unsettled payments of an absence. `left`: their ids."""
    named = [RemedyStep("", f"posd reconcile {identity}") for identity in left[:MOST_NAMED]]
    if len(left) > MOST_NAMED:
        named.append(RemedyStep(f"for {len(left) - MOST_NAMED} more", "posd list --open"))
    return [*named, RemedyStep("check the terminal too")]


def words(absence: Absence, left: int) -> str:
    """Return text about an absence. `left`: number of unsettled payments."""
    count = len(absence.payments)
    # If the length is unknown, the end is unknown too: the clock was wrong at the last sign of life, or at the end.
    away, cause = "for an unknown time", f"{WORDS[absence.cause]}, and the clock was set"
    if absence.seconds is not None:
        away, cause = f"{_duration(absence.seconds)} until {absence.until}", WORDS[absence.cause]
    opened = "1 payment was open" if count == 1 else f"{count} payments were open"
    still = "it has" if count == left == 1 else f"{left} of them {'has' if left == 1 else 'have'}"
    return (
        f"the webhook listener was down {away} ({cause}) while {opened}; a terminal gives up an event after some "
        f"five minutes, so the event may never come. {still} neither ended nor been found by a search since"
    )


def _duration(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"for about {seconds / 60:.0f} min"
    if seconds < 2 * 86_400:
        return f"for about {seconds / 3600:.0f} h"
    return f"for about {seconds / 86_400:.0f} days"
