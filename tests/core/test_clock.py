"""Trust in the wall clock: every doubt, the end of the doubt, and the movement of the confirmed time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd import RELEASED
from posd.base.times import released
from posd.clock import rules
from posd.clock.rules import (
    ABSENCE,
    CATCH_UP,
    ENDED_BY_WITNESS,
    EVENT_SECONDS,
    NIGHT,
    RECORD,
    ClockReading,
    Doubt,
    EventTime,
    Kernel,
    StoredClock,
    TerminalTimes,
)
from tests.rig.tables import every

BUILT = datetime(2026, 11, 20, tzinfo=UTC)
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
LIMIT = timedelta(seconds=300)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
KEPT = StoredClock(NOON, NOON)


def at(ahead: timedelta = timedelta(), elapsed: float = 0.0) -> ClockReading:
    """Return a reading of both clocks.

    `ahead`: time of the wall clock since noon. `elapsed`: seconds of the boot clock since the reference.
    """
    return ClockReading(NOON + ahead, 1000.0 + elapsed)


class Case(NamedTuple):
    reading: ClockReading
    kept: StoredClock | None
    reference: ClockReading | None
    doubt: Doubt | None


CASES = {
    "a first start trusts the clock": Case(at(), None, None, None),
    "a first start distrusts a clock before the build": Case(
        ClockReading(BUILT - SECOND, 0.0), None, None, Doubt.BEFORE_BUILD
    ),
    "the day of the build does not count as before the build": Case(ClockReading(BUILT, 0.0), None, None, None),
    "an operator confirmed a clock before this build": Case(
        ClockReading(BUILT - DAY, 0.0), StoredClock(BUILT - DAY, BUILT - DAY, BUILT.isoformat()), None, None
    ),
    "an operator confirmed a clock before another build": Case(
        ClockReading(BUILT - DAY, 0.0),
        StoredClock(BUILT - DAY, BUILT - DAY, "2026-01-01T00:00:00+00:00"),
        None,
        Doubt.BEFORE_BUILD,
    ),
    "a restart after a moment": Case(at(SECOND), KEPT, None, None),
    "a restart after a night": Case(at(DAY), KEPT, None, None),
    "a restart after a week": Case(at(7 * DAY), KEPT, None, None),
    "a restart at the bound": Case(at(ABSENCE), KEPT, None, None),
    "a restart beyond the bound": Case(at(ABSENCE + SECOND), KEPT, None, Doubt.FAR_AHEAD),
    "a restart in the far future": Case(at(900 * DAY), KEPT, None, Doubt.FAR_AHEAD),
    "only a record of years ago": Case(at(900 * DAY), StoredClock(NOON, NOON, by_records=True), None, None),
    "only a record of a later time": Case(at(-DAY), StoredClock(NOON, NOON, by_records=True), None, Doubt.BEHIND),
    "a restart a little earlier": Case(at(-LIMIT), KEPT, None, None),
    "a restart earlier": Case(at(-LIMIT - SECOND), KEPT, None, Doubt.BEHIND),
    "time passes": Case(at(DAY, 86_400.0), KEPT, at(), None),
    "a suspended machine": Case(at(30 * DAY, 30 * 86_400.0), StoredClock(NOON, NOON), at(), None),
    "a small step ahead": Case(at(LIMIT + 10 * SECOND, 10.0), KEPT, at(), None),
    "a large step ahead": Case(at(LIMIT + 11 * SECOND, 10.0), KEPT, at(), Doubt.STEPPED_AHEAD),
    "a jump of 900 days": Case(at(900 * DAY, 60.0), KEPT, at(), Doubt.STEPPED_AHEAD),
    "a jump that was undone": Case(at(60 * SECOND, 60.0), KEPT, at(), None),
    "a small step back": Case(at(10 * SECOND - LIMIT, 10.0), StoredClock(NOON, NOON), at(), None),
    "a large step back": Case(at(-DAY, 10.0), KEPT, at(), Doubt.BEHIND),
    "a step back to just after the last reading": Case(at(SECOND, 86_400.0), KEPT, at(), Doubt.STEPPED_BACK),
}


@every("case", CASES.values(), CASES)
def test_the_evidence_decides_whether_to_trust_the_clock(case: Case) -> None:
    assert rules.doubt(case.reading, case.kept, case.reference, BUILT, LIMIT) is case.doubt
    if case.doubt is not None:
        words = rules.words(case.doubt, case.reading, case.kept, case.reference, BUILT)
        assert f"{case.reading.wall:%Y-%m-%d %H:%M:%S} UTC" in words


@every(
    ("name", "words"),
    [
        ("a restart earlier", "was 2026-12-01 12:00:00 UTC already"),
        ("a restart beyond the bound", ", 8 days after the last trusted time"),
        ("a jump of 900 days", "ahead by 899 days"),  # one minute of the 900 days has really passed
        ("a step back to just after the last reading", "back by 23 h"),
    ],
)
def test_a_doubt_about_the_clock_names_the_trusted_time_and_the_step(name: str, words: str) -> None:
    case = CASES[name]
    assert case.doubt is not None
    assert words in rules.words(case.doubt, case.reading, case.kept, case.reference, BUILT)


def test_every_doubt_has_a_text_and_a_time_source_ends_every_doubt_except_two() -> None:
    assert set(rules.WORDS) == set(Doubt)
    assert set(Doubt) - ENDED_BY_WITNESS == {Doubt.BEFORE_BUILD, Doubt.BEHIND}


class Earlier(NamedTuple):
    kept: StoredClock | None
    record: datetime | None
    known: StoredClock | None


EARLIER = {
    "neither a stored clock nor a record": Earlier(None, None, None),
    "an earlier version stored only records": Earlier(None, NOON, StoredClock(NOON, NOON, by_records=True)),
    "no record": Earlier(KEPT, None, KEPT),
    "an older record": Earlier(KEPT, NOON - DAY, KEPT),
    "a record later than the stored time": Earlier(KEPT, NOON + RECORD, StoredClock(NOON + RECORD, NOON)),
    "a record too far after the stored time": Earlier(KEPT, NOON + RECORD + SECOND, KEPT),
}


@every("case", EARLIER.values(), EARLIER)
def test_the_state_of_earlier_runs_is_used(case: Earlier) -> None:
    assert rules.beginning(case.kept, case.record) == case.known


class Sightings(NamedTuple):
    sightings: Sequence[EventTime]
    agree: bool
    ahead: float | None


def seen(terminal: str, payment: str, ahead: float = 0.0, ago: float = 0.0) -> EventTime:
    """Return an event of a terminal. `ago`: seconds since the receipt.

    `ahead`: seconds by which the terminal's clock is ahead.
    """
    return EventTime(terminal, payment, NOON + timedelta(seconds=ahead - ago), 1000.0 - ago)


HEARD = {
    "no event": Sightings([], False, None),
    "one event": Sightings([seen("A", "1")], False, 0.0),
    "many events of one terminal": Sightings([seen("A", str(number)) for number in range(20)], False, 0.0),
    "one payment of two terminals": Sightings([seen("A", "1"), seen("B", "1")], False, 0.0),
    "three events of two terminals": Sightings([seen("A", "1"), seen("B", "2"), seen("A", "3")], True, 0.0),
    "one of three is old": Sightings([seen("A", "1", ago=900), seen("B", "2"), seen("A", "3")], True, 0.0),
    "three old events": Sightings([seen("A", "1", ago=900), *[seen("B", n, ago=600) for n in "23"]], True, 0.0),
    "one at the age limit": Sightings([seen("A", "1", ago=EVENT_SECONDS), seen("B", "2"), seen("B", "3")], True, 0.0),
    "one slightly ahead": Sightings([seen("A", "1", -0.0004), seen("B", "2"), seen("B", "3")], True, 0.0),
    "an event that came late": Sightings([seen("A", "1", -3000), seen("B", "2"), seen("A", "3")], True, 0.0),
    "one too old": Sightings([seen("A", "1", ago=EVENT_SECONDS + 1), seen("B", "2"), seen("B", "3")], False, 0.0),
    "one of two terminals wrong": Sightings([seen("A", "1", 7200), seen("B", "2"), seen("B", "3")], False, -3600.0),
    "one of three terminals wrong": Sightings([seen("A", "1", 10**8), seen("B", "2"), seen("C", "3")], True, 0.0),
    "two of three terminals wrong": Sightings(
        [seen("A", "1", 7200), seen("B", "2", 7200), seen("C", "3")], False, -7200.0
    ),
    "all within the limit": Sightings([seen("A", "1", 300), seen("B", "2", -300), seen("C", "3", 300)], True, -300.0),
}


@every("case", HEARD.values(), HEARD)
def test_several_terminals_confirm_the_clock_but_one_terminal_does_not(case: Sightings) -> None:
    found = rules.heard(case.sightings, at(), LIMIT)
    assert (found.agree, found.ahead_seconds) == (case.agree, case.ahead)


def test_the_clock_is_confirmed_by_sufficient_evidence() -> None:
    agreeing, silent = TerminalTimes(3, 2, 0.0, agree=True), TerminalTimes(0, 0, None, agree=False)
    assert rules.heard([], at(), LIMIT) == silent
    assert rules.witness(Kernel.SYNCHRONISED, silent) == "kernel"
    for kernel in (Kernel.UNKNOWN, Kernel.UNSYNCHRONISED):
        assert rules.witness(kernel, agreeing) == "events"
        assert rules.witness(kernel, silent) is None


def test_the_evidence_for_a_clock_is_read_only_if_it_can_change_the_result() -> None:
    asked = {found: rules.asks(found, at(), KEPT) for found in Doubt}
    assert asked == {found: found in ENDED_BY_WITNESS for found in Doubt}
    assert not rules.asks(None, at(), None)
    assert not rules.asks(None, at(NIGHT), KEPT)
    assert rules.asks(None, at(NIGHT + SECOND), KEPT)


def test_the_confirmed_time_moves_with_a_trusted_clock() -> None:
    assert rules.moved(None, at(), 0.0, confirmed=False) == KEPT
    assert rules.moved(KEPT, at(SECOND), 1.0, confirmed=False) == StoredClock(NOON + SECOND, NOON + SECOND)
    assert rules.moved(KEPT, at(-SECOND), 1.0, confirmed=False) == KEPT, "the confirmed time never goes back"
    night = at(NIGHT)
    assert rules.moved(KEPT, night, 0.0, confirmed=False) == StoredClock(night.wall, night.wall)


def test_one_reading_after_a_long_downtime_does_not_move_the_confirmed_time() -> None:
    week = at(7 * DAY)
    after = rules.moved(KEPT, week, 0.0, confirmed=False)
    assert after == StoredClock(week.wall, NOON)
    assert rules.moved(KEPT, week, 0.0, confirmed=True) == StoredClock(week.wall, week.wall)
    records = rules.moved(StoredClock(NOON, NOON, by_records=True), week, 0.0, confirmed=False)
    assert records == after, "nor for records"
    later = rules.moved(after, at(7 * DAY + SECOND), 1.0, confirmed=False)
    assert later.confirmed == NOON + timedelta(seconds=CATCH_UP)


@given(st.lists(st.tuples(st.integers(0, 8 * 86_400), st.integers(0, 3600), st.booleans()), max_size=20))
def test_the_confirmed_time_never_goes_back_and_never_exceeds_the_clock(steps: list[tuple[int, int, bool]]) -> None:
    kept, wall = KEPT, NOON
    for ahead, passed, confirmed in steps:
        wall += timedelta(seconds=ahead)
        before = kept
        kept = rules.moved(kept, ClockReading(wall, 0.0), float(passed), confirmed=confirmed)
        assert before.confirmed <= kept.confirmed <= kept.highest == wall


def test_after_an_operators_confirmation_an_earlier_clock_is_trusted() -> None:
    back = at(-5 * DAY)
    assert rules.doubt(back, KEPT, at(), BUILT, LIMIT) is Doubt.BEHIND
    kept = rules.by_person(back, BUILT)
    assert kept.overruled == rules.by_person(ClockReading(BUILT, 0.0), BUILT).overruled == ""
    assert rules.doubt(back, kept, back, BUILT, LIMIT) is None
    ancient = ClockReading(BUILT - 5 * DAY, 0.0)
    kept = rules.by_person(ancient, BUILT)
    assert rules.doubt(ancient, kept, ancient, BUILT, LIMIT) is None
    assert msgspec.json.decode(msgspec.json.encode(kept), type=StoredClock) == kept


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (timedelta(seconds=-90), "90 s"),
        (timedelta(seconds=120), "2 min"),
        (timedelta(minutes=90), "90 min"),
        (timedelta(hours=2), "2 h"),
        (timedelta(hours=40), "40 h"),
        (timedelta(days=2), "2 days"),
        (timedelta(days=900, hours=1), "900 days"),
    ],
)
def test_a_duration_is_written_as_text(value: timedelta, words: str) -> None:
    assert rules.span(value) == words


def test_the_build_time_of_this_version_is_in_utc() -> None:
    assert (released().isoformat()[:10], released().tzinfo) == (RELEASED, UTC)
