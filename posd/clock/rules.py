"""Rules for the trust in the wall clock. All functions are pure.

Payments need the wall clock only for `not_after` and for signed calls. Irreversible actions need it: retention, and
certificates, which terminals check by their own clocks. The evidence for and against the wall clock is:

- The highest trusted wall time, which is stored over restarts, and the date of this build. Time does not go back.
- The clock since the boot, including sleep. Within a run the wall clock advances as this clock does. An NTP service
  that slews the wall clock moves both, so only steps are visible.
- The kernel's state that a time service controls the clock. A change of the clock by hand clears this state. The
  absence of this state proves nothing, because many shops have no time service.
- The times in terminals' events. One terminal proves nothing, because its time may be wrong.

Two times are stored. A later reading must not be before the *highest*. The *confirmed* time limits retention. The
confirmed time follows the wall clock by the time that posd measures. An absence of posd is added at once only if it is
at most a night, or a witness confirms it. So retention never deletes much because of one reading after a start.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Longest trusted step from the highest time to a start: a week in which the shop is closed, and a day.
ABSENCE = timedelta(days=8)
#: Longest absence of posd that is added to the confirmed time at once: a night in which the shop is closed.
NIGHT = timedelta(days=1)
#: Speed at which the confirmed time follows a longer absence, as a multiple of measured time.
CATCH_UP = 4.0
#: Seconds in which small steps (for example of a daily ntpdate) may add up to the limit. After them the sum restarts at
#: 0.
REFERENCE_SECONDS = 86_400.0
#: Seconds for which events are evidence, and minimum number of their payments and terminals.
EVENT_SECONDS = 3600.0
LEAST_PAYMENTS = 3
LEAST_TERMINALS = 2
#: Longest time of a trusted record after the highest stored time, which is written every quarter of an hour. A later
#: record was written with an untrusted clock.
RECORD = timedelta(minutes=30)


class Kernel(StrEnum):
    """The kernel's state of the clock."""

    SYNCHRONISED = "synchronised"
    UNSYNCHRONISED = "unsynchronised"
    UNKNOWN = "unknown"  # the state cannot be read here


class Doubt(StrEnum):
    """Reason why the clock is not trusted."""

    BEFORE_BUILD = "before_build"
    BEHIND = "behind"
    STEPPED_BACK = "stepped_back"
    STEPPED_AHEAD = "stepped_ahead"
    FAR_AHEAD = "far_ahead"


#: Witness that confirms the clock.
ClockWitness = Literal["kernel", "events"]

#: Doubts that a witness ends. Otherwise a clock that was set back is trusted when it is right again, or after an
#: operator's confirmation.
ENDED_BY_WITNESS = frozenset({Doubt.STEPPED_BACK, Doubt.STEPPED_AHEAD, Doubt.FAR_AHEAD})

WORDS: Mapping[Doubt, str] = {
    Doubt.BEFORE_BUILD: "the clock says {now}, but this posd was made on {built}",
    Doubt.BEHIND: "the clock says {now}, but it was {highest} already",
    Doubt.STEPPED_BACK: "the clock went back by {step}: it says {now}",
    Doubt.STEPPED_AHEAD: "the clock jumped ahead by {step}: it says {now}, and nothing confirms that",
    Doubt.FAR_AHEAD: "the clock says {now}, {step} after the last trusted time, and nothing confirms that",
}


class ClockReading(msgspec.Struct, frozen=True):
    """Readings of both clocks at one moment: the wall clock, and the seconds since the boot (including sleep)."""

    wall: datetime
    elapsed: float


class StoredClock(msgspec.Struct, frozen=True):
    """State that is stored over restarts. `overruled`: the build whose date an operator declared wrong, or "".

    `by_records`: whether the state comes only from the times of records. Then the present may be any time after the
    newest record.
    """

    highest: datetime
    confirmed: datetime
    overruled: str = ""
    by_records: bool = False


class EventTime(msgspec.Struct, frozen=True):
    """Received event, with the terminal's time, and the seconds since the boot at its arrival."""

    terminal: str
    payment: str
    occurred: datetime
    elapsed: float


class TerminalTimes(msgspec.Struct, frozen=True):
    """Evidence of the last hour's events, with one vote for each terminal."""

    payments: Annotated[int, Meta(description="payments of the last hour with an event that has a time")]
    terminals: Annotated[int, Meta(description="terminals that sent these")]
    ahead_seconds: Annotated[
        float | None, Meta(description="lead of the clock over the terminals' clocks (median), null without events")
    ]
    agree: Annotated[bool, Meta(description="whether enough terminals agree with the clock to confirm it")]


def beginning(kept: StoredClock | None, newest_record: datetime | None) -> StoredClock | None:
    """Return the state of earlier runs from the stored state and the newest record. Return None if there is neither."""
    if newest_record is None:
        return kept
    if kept is None:  # an earlier version stored nothing
        return StoredClock(newest_record, newest_record, by_records=True)
    if kept.highest < newest_record <= kept.highest + RECORD:
        return msgspec.structs.replace(kept, highest=newest_record)
    return kept


def step(reading: ClockReading, reference: ClockReading) -> timedelta:
    """Return the movement of the wall clock minus the elapsed time."""
    return reading.wall - reference.wall - timedelta(seconds=reading.elapsed - reference.elapsed)


def doubt(
    reading: ClockReading, kept: StoredClock | None, reference: ClockReading | None, built: datetime, limit: timedelta
) -> Doubt | None:
    """Return why the clock is not trusted by the readings alone, or None.

    `reference`: the last trusted reading of this run. `limit`: the largest usual step.
    """
    if reading.wall < built and not (kept is not None and kept.overruled == built.isoformat()):
        return Doubt.BEFORE_BUILD
    if kept is not None and reading.wall < kept.highest - limit:
        return Doubt.BEHIND
    if reference is not None:
        moved = step(reading, reference)
        if abs(moved) <= limit:
            return None
        return Doubt.STEPPED_AHEAD if moved > timedelta() else Doubt.STEPPED_BACK
    if kept is None or kept.by_records:
        return None
    return Doubt.FAR_AHEAD if reading.wall > kept.highest + ABSENCE else None


def heard(sightings: Collection[EventTime], reading: ClockReading, limit: timedelta) -> TerminalTimes:
    """Compare the clock with the times in the events of the last hour.

    An event may arrive late, but never early, so the newest event of a terminal counts. The median over the terminals
    counts. With an even number of terminals, both middle values must agree.
    """
    recent = sorted(
        (item for item in sightings if reading.elapsed - item.elapsed <= EVENT_SECONDS), key=lambda item: item.terminal
    )
    ahead = sorted(
        min((reading.wall - _now_by(item, reading)).total_seconds() for item in items)
        for _, items in groupby(recent, key=lambda item: item.terminal)
    )
    payments = len({item.payment for item in recent})
    if not ahead:
        return TerminalTimes(0, 0, None, agree=False)
    middle = (ahead[(len(ahead) - 1) // 2], ahead[len(ahead) // 2])
    enough = payments >= LEAST_PAYMENTS and len(ahead) >= LEAST_TERMINALS
    agree = enough and all(abs(seconds) <= limit.total_seconds() for seconds in middle)
    return TerminalTimes(payments, len(ahead), round(sum(middle) / 2, 3), agree)


def _now_by(item: EventTime, reading: ClockReading) -> datetime:
    """Return the present time by the clock of a terminal."""
    return item.occurred + timedelta(seconds=reading.elapsed - item.elapsed)


def witness(kernel: Kernel, terminals: TerminalTimes) -> ClockWitness | None:
    """Return the witness that confirms the clock, or None."""
    if kernel is Kernel.SYNCHRONISED:
        return "kernel"
    return "events" if terminals.agree else None


def asks(found: Doubt | None, reading: ClockReading, kept: StoredClock | None) -> bool:
    """Return whether a witness is needed to end a doubt, or to advance the confirmed time at once."""
    if found is not None:
        return found in ENDED_BY_WITNESS
    return kept is not None and reading.wall - kept.confirmed > NIGHT


def moved(kept: StoredClock | None, reading: ClockReading, passed: float, *, confirmed: bool) -> StoredClock:
    """Return the state after a trusted reading. `passed`: seconds that posd has measured since the last reading.

    `confirmed`: whether a witness agrees with the clock.
    """
    if kept is None:
        return StoredClock(reading.wall, reading.wall)
    behind = reading.wall - kept.confirmed
    if not confirmed and behind > NIGHT:
        behind = min(behind, timedelta(seconds=CATCH_UP * passed))
    return msgspec.structs.replace(
        kept,
        highest=max(kept.highest, reading.wall),
        confirmed=kept.confirmed + max(behind, timedelta()),
        by_records=False,
    )


def by_person(reading: ClockReading, built: datetime) -> StoredClock:
    """Return the state after an operator's confirmation."""
    return StoredClock(reading.wall, reading.wall, built.isoformat() if reading.wall < built else "")


def words(
    found: Doubt, reading: ClockReading, kept: StoredClock | None, reference: ClockReading | None, built: datetime
) -> str:
    """Return why the clock is not trusted, as text."""
    highest = reading.wall if kept is None else kept.highest
    moved_by = reading.wall - highest if reference is None else step(reading, reference)
    return WORDS[found].format(
        now=_moment(reading.wall), built=f"{built:%Y-%m-%d}", highest=_moment(highest), step=span(moved_by)
    )


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(value: timedelta) -> str:
    """Return a duration for display."""
    seconds = round(abs(value).total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 2 * 86_400 else f"{seconds // 86_400} days"
