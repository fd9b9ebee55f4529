"""Whether the wall clock can be believed: pure.

Payments never ask for it. What cannot be undone does: retention, and certificates, which terminals check by clocks of
their own. The witnesses:

- the highest wall time that was believed, kept over restarts, and the date of this build: time does not go back;
- the clock that counts since the boot, also while the machine sleeps: within a run the wall clock moves as it does. An
  NTP service that slews it moves both, so that only steps show;
- the kernel's word that a time service keeps the clock. Setting the clock by hand takes that word back. Its absence
  says nothing: many shops have no time service;
- the times that terminals write into their events. One terminal proves nothing: it may be wrong, or lie.

Two times are kept. The *highest* is what a later reading must not be behind. The *confirmed* time is how far retention
may have moved: it follows the wall clock as posd measures it, and moves over an absence at once only where that is a
night's, or a witness agrees. So one reading after a start never deletes much.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta

#: So far ahead of the highest time a start is believed: a week in which the shop was closed, and a day.
ABSENCE = timedelta(days=8)
#: Over so much the confirmed time moves at once: the shop was closed for a night.
NIGHT = timedelta(days=1)
#: Over a longer absence the confirmed time moves so many times as fast as time that posd measures.
CATCH_UP = 4.0
#: Small steps (a daily ntpdate) may add up to the limit within this, in seconds; then counting begins anew.
REFERENCE_SECONDS = 86_400.0
#: Events count as witnesses for so long, in seconds; of so many payments and terminals at least.
EVENT_SECONDS = 3600.0
LEAST_PAYMENTS = 3
LEAST_TERMINALS = 2
#: A record counts as a time that was believed where it is at most so long after the highest time that was kept, which
#: is written every quarter of an hour. One that is later was made under a clock that was not believed.
RECORD = timedelta(minutes=30)


class Kernel(StrEnum):
    """What the kernel says of the clock."""

    SYNCHRONISED = "synchronised"
    UNSYNCHRONISED = "unsynchronised"
    UNKNOWN = "unknown"  # it may not be asked here


class Doubt(StrEnum):
    """Why the clock is not believed."""

    BEFORE_BUILD = "before_build"
    BEHIND = "behind"
    STEPPED_BACK = "stepped_back"
    STEPPED_AHEAD = "stepped_ahead"
    FAR_AHEAD = "far_ahead"


class Witness(StrEnum):
    """What confirms that the clock is right."""

    KERNEL = "kernel"
    EVENTS = "events"


#: Which witnesses end a doubt. A clock that goes back is believed when it is right again, or by a person's word.
ENDED_BY: Mapping[Doubt, frozenset[Witness]] = {
    Doubt.BEFORE_BUILD: frozenset(),
    Doubt.BEHIND: frozenset(),
    Doubt.STEPPED_BACK: frozenset({Witness.KERNEL, Witness.EVENTS}),
    Doubt.STEPPED_AHEAD: frozenset({Witness.KERNEL, Witness.EVENTS}),
    Doubt.FAR_AHEAD: frozenset({Witness.KERNEL, Witness.EVENTS}),
}

WORDS: Mapping[Doubt, str] = {
    Doubt.BEFORE_BUILD: "the clock says {now}, and this posd was made on {built}",
    Doubt.BEHIND: "the clock says {now}, and it was {highest} already",
    Doubt.STEPPED_BACK: "the clock went back by {step}: it says {now}",
    Doubt.STEPPED_AHEAD: "the clock jumped ahead by {step}: it says {now}, and nothing confirms that",
    Doubt.FAR_AHEAD: "the clock says {now}, {step} after the last time that was believed, and nothing confirms that",
}


class Reading(msgspec.Struct, frozen=True):
    """The clocks at one moment: the wall clock, and the seconds since the boot (sleep included)."""

    wall: datetime
    elapsed: float


class Kept(msgspec.Struct, frozen=True):
    """What is kept over restarts. `overruled`: the build of which a person said that its date is wrong, "" for none.

    `by_records`: nothing was kept yet, only records tell of a time. It may be any time since the newest of them.
    """

    highest: datetime
    confirmed: datetime
    overruled: str = ""
    by_records: bool = False


class Sighting(msgspec.Struct, frozen=True):
    """An event that came: when the terminal says that it was made, and the seconds since the boot at its arrival."""

    terminal: str
    payment: str
    occurred: datetime
    elapsed: float


class TerminalTimes(msgspec.Struct, frozen=True):
    """What the events of the last hour say, each terminal with one voice."""

    payments: Annotated[int, Meta(description="payments of the last hour with an event that has a time")]
    terminals: Annotated[int, Meta(description="terminals that these came from")]
    ahead_seconds: Annotated[
        float | None, Meta(description="how far the clock is ahead of the terminals' (median), null without events")
    ]
    agree: Annotated[bool, Meta(description="whether enough of them agree with the clock to confirm it")]


def beginning(kept: Kept | None, newest_record: datetime | None) -> Kept | None:
    """Return what is known of earlier runs: what was kept, and the newest record where it can count; None: nothing."""
    if newest_record is None:
        return kept
    if kept is None:  # an earlier version kept nothing
        return Kept(newest_record, newest_record, by_records=True)
    if kept.highest < newest_record <= kept.highest + RECORD:
        return msgspec.structs.replace(kept, highest=newest_record)
    return kept


def step(reading: Reading, reference: Reading) -> timedelta:
    """Return by how much the wall clock moved more than time passed."""
    return reading.wall - reference.wall - timedelta(seconds=reading.elapsed - reference.elapsed)


def doubt(
    reading: Reading, kept: Kept | None, reference: Reading | None, built: datetime, limit: timedelta
) -> Doubt | None:
    """Say why the clock is not to be believed by itself, None where nothing speaks against it.

    `reference` is the last reading of this run that was believed. `limit` is the largest step that is usual.
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


def heard(sightings: Collection[Sighting], reading: Reading, limit: timedelta) -> TerminalTimes:
    """Compare the clock with the times that events of the last hour bear.

    An event may come late, never early: of a terminal the one counts that was made last. Of several terminals the
    median counts; of an even number both in the middle have to agree.
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


def _now_by(item: Sighting, reading: Reading) -> datetime:
    """Return what time it is now by the clock of a terminal."""
    return item.occurred + timedelta(seconds=reading.elapsed - item.elapsed)


def witness(kernel: Kernel, terminals: TerminalTimes) -> Witness | None:
    """Return what confirms the clock now, None where nothing does."""
    if kernel is Kernel.SYNCHRONISED:
        return Witness.KERNEL
    return Witness.EVENTS if terminals.agree else None


def asks(found: Doubt | None, reading: Reading, kept: Kept | None) -> bool:
    """Whether it matters what confirms the clock: to end a doubt, or to move the confirmed time at once."""
    if found is not None:
        return bool(ENDED_BY[found])
    return kept is not None and reading.wall - kept.confirmed > NIGHT


def moved(kept: Kept | None, reading: Reading, passed: float, *, confirmed: bool) -> Kept:
    """Return what is kept after a reading that is believed; `passed`: seconds that posd has measured since the last.

    `confirmed`: a witness agrees with the clock.
    """
    if kept is None:
        return Kept(reading.wall, reading.wall)
    behind = reading.wall - kept.confirmed
    if not confirmed and behind > NIGHT:
        behind = min(behind, timedelta(seconds=CATCH_UP * passed))
    return msgspec.structs.replace(
        kept,
        highest=max(kept.highest, reading.wall),
        confirmed=kept.confirmed + max(behind, timedelta()),
        by_records=False,
    )


def by_person(reading: Reading, built: datetime) -> Kept:
    """Return what is kept after a person has said that the clock is right now."""
    return Kept(reading.wall, reading.wall, built.isoformat() if reading.wall < built else "")


def words(found: Doubt, reading: Reading, kept: Kept | None, reference: Reading | None, built: datetime) -> str:
    """Say why the clock is not believed."""
    highest = reading.wall if kept is None else kept.highest
    moved_by = reading.wall - highest if reference is None else step(reading, reference)
    return WORDS[found].format(
        now=_moment(reading.wall), built=f"{built:%Y-%m-%d}", highest=_moment(highest), step=span(moved_by)
    )


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(value: timedelta) -> str:
    """Write how long something is, for people."""
    seconds = round(abs(value).total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 2 * 86_400 else f"{seconds // 86_400} days"
