"""Rules for the trust in the wall clock. All functions are pure.

Payments need the wall clock only for `not_after` and for signed calls. Irreversible actions need it: retention, and
certificates, which terminals check by their own clocks. The evidence for and against the wall clock is:

- The highest trusted wall time, which is stored, and the date of this build. Time does not go back.
- The boot clock (seconds since the boot, including sleep). While posd runs, both clocks must advance equally. If an NTP
  service slows or speeds up the wall clock, the boot clock follows. So a difference is a step of the wall clock.
- The kernel's report that a time service controls the clock. A change of the clock by hand ends this report. A missing
  report proves nothing, because many shops have no time service.
- The times in terminals' events. One terminal proves nothing, because its time may be wrong.

Two times are stored. The *highest* time is the latest trusted time. A later reading must not be before it. Retention
computes the age of records from the *confirmed* time, which follows the wall clock. If posd has not run for more than a
night, the confirmed time catches up slowly, unless the kernel or the events confirm the clock. So retention never
deletes much because of one reading after a start.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: At a start, the clock is in doubt if it is further ahead of the highest time than this. A shop may close for a week.
ABSENCE = timedelta(days=8)
#: Longest time without posd that is added to the confirmed time at once: a night with a closed shop.
NIGHT = timedelta(days=1)
#: After a longer time without posd, the confirmed time advances by at most this many seconds per measured second.
CATCH_UP = 4.0
#: Period (s) in which small steps, for example of a daily ntpdate, may add up to the limit. Then a new period begins.
REFERENCE_SECONDS = 86_400.0
#: Evidence from events: the maximum age of an event (s), and the minimum numbers of payments and of terminals.
EVENT_SECONDS = 3600.0
LEAST_PAYMENTS = 3
LEAST_TERMINALS = 2
#: A record was written with an untrusted clock if it is newer than the stored highest time by more than this. The
#: highest time is stored every quarter of an hour.
RECORD = timedelta(minutes=30)


class Kernel(StrEnum):
    """The kernel's state of the wall clock: whether a time service controls the clock."""

    SYNCHRONISED = "synchronised"
    UNSYNCHRONISED = "unsynchronised"
    UNKNOWN = "unknown"  # the state cannot be read on this machine


class Doubt(StrEnum):
    """Reason why the clock is not trusted."""

    BEFORE_BUILD = "before_build"
    BEHIND = "behind"
    STEPPED_BACK = "stepped_back"
    STEPPED_AHEAD = "stepped_ahead"
    FAR_AHEAD = "far_ahead"


#: Source that confirms the clock.
ClockWitness = Literal["kernel", "events"]

#: Doubts that a source (`ClockWitness`) ends. Other doubts end when the clock is right again, or when an operator
#: confirms it.
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
    """Stored state: the highest trusted time, and the confirmed time.

    `overruled`: date of the build that an operator declared wrong, or "". `by_records`: whether the state comes only
    from the times of records. Then the present may be any time after the newest record.
    """

    highest: datetime
    confirmed: datetime
    overruled: str = ""
    by_records: bool = False


class EventTime(msgspec.Struct, frozen=True):
    """Time in a terminal's event, and the seconds since the boot at the arrival of that event."""

    terminal: str
    payment: str
    occurred: datetime
    elapsed: float


class TerminalTimes(msgspec.Struct, frozen=True):
    """Evidence from the events of the last hour. Each terminal has one vote."""

    payments: Annotated[int, Meta(description="number of payments of the last hour with an event that has a time")]
    terminals: Annotated[int, Meta(description="number of terminals that sent these events")]
    ahead_seconds: Annotated[
        float | None, Meta(description="by how much the clock is ahead of the terminals' (median), null without events")
    ]
    agree: Annotated[bool, Meta(description="whether enough terminals agree with the clock to confirm it")]


def beginning(kept: StoredClock | None, newest_record: datetime | None) -> StoredClock | None:
    """Return the state at a start, from the stored state and the newest record's time; None if both are missing."""
    if newest_record is None:
        return kept
    if kept is None:  # an earlier version stored nothing
        return StoredClock(newest_record, newest_record, by_records=True)
    if kept.highest < newest_record <= kept.highest + RECORD:
        return msgspec.structs.replace(kept, highest=newest_record)
    return kept


def step(reading: ClockReading, reference: ClockReading) -> timedelta:
    """Return the step of the wall clock since `reference`: the advance of the wall clock minus the elapsed time."""
    return reading.wall - reference.wall - timedelta(seconds=reading.elapsed - reference.elapsed)


def doubt(
    reading: ClockReading, kept: StoredClock | None, reference: ClockReading | None, built: datetime, limit: timedelta
) -> Doubt | None:
    """Return the reason not to trust the clock, from the readings alone, or None.

    `reference`: the trusted reading of this run from which steps are measured. `limit`: the largest step that needs no
    confirmation.
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

    An event may arrive late, but never early. So for each terminal the event with the shortest delay counts. The median
    over the terminals counts. With an even number of terminals, both middle values must agree with the clock.
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
    """Return the present time by the clock of the terminal that sent an event."""
    return item.occurred + timedelta(seconds=reading.elapsed - item.elapsed)


def witness(kernel: Kernel, terminals: TerminalTimes) -> ClockWitness | None:
    """Return the source that confirms the clock, or None."""
    if kernel is Kernel.SYNCHRONISED:
        return "kernel"
    return "events" if terminals.agree else None


def asks(found: Doubt | None, reading: ClockReading, kept: StoredClock | None) -> bool:
    """Return whether the kernel or events must confirm the clock, to end a doubt or to advance the confirmed time."""
    if found is not None:
        return found in ENDED_BY_WITNESS
    return kept is not None and reading.wall - kept.confirmed > NIGHT


def moved(kept: StoredClock | None, reading: ClockReading, passed: float, *, confirmed: bool) -> StoredClock:
    """Return the state after a trusted reading.

    `passed`: seconds since the last reading, as posd measured them. `confirmed`: whether a source confirms the clock.
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
    """Return the reason not to trust the clock, as text."""
    highest = reading.wall if kept is None else kept.highest
    moved_by = reading.wall - highest if reference is None else step(reading, reference)
    return WORDS[found].format(
        now=_moment(reading.wall), built=f"{built:%Y-%m-%d}", highest=_moment(highest), step=span(moved_by)
    )


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(value: timedelta) -> str:
    """Return a duration as text, without its sign."""
    seconds = round(abs(value).total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 2 * 86_400 else f"{seconds // 86_400} days"
