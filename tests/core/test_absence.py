"""Downtimes of the listener: which an operator must check, and what ends the check (terminal API, Delivery)."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from posd.base.problems import remedy
from posd.daemon.downtime import Absence, DowntimeCause, EndedAbsence, away, merged, settled, steps, too_long, words
from posd.payments.model import LastSearch, SearchResult

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BEFORE, SINCE = "2026-11-20T11:50:00.000Z", "2026-11-20T12:00:05.000Z"


def absence(*, seconds: float | None = 720.0, cause: DowntimeCause = "stopped", **payments: str | None) -> Absence:
    return Absence(cause, seconds, "2026-11-20T12:00:00.000Z", payments or {"a": None})


@pytest.mark.parametrize(
    ("gap", "seconds", "long"),
    [
        (0, 0.0, False),
        (240, 240.0, False),
        (241, 241.0, True),
        (86_400, 86_400.0, True),
        (-1, None, True),  # the clock was set back, so posd cannot tell the length and must report the downtime
        (-86_400, None, True),
    ],
)
def test_a_downtime_of_four_minutes_is_reported_and_no_time_is_negative(
    gap: float, seconds: float | None, long: bool
) -> None:
    measured = away(NOON - timedelta(seconds=gap), NOON)
    assert (measured, too_long(measured)) == (seconds, long)


@pytest.mark.parametrize(
    ("searched", "last", "ended", "expected"),
    [
        (None, None, False, False),
        (None, None, True, True),
        (None, LastSearch(SINCE, SearchResult.FOUND), False, True),
        (None, LastSearch(SINCE, SearchResult.NONE), False, False),
        (None, LastSearch(SINCE, SearchResult.NO_ANSWER), False, False),
        (BEFORE, LastSearch(BEFORE, SearchResult.FOUND), False, False),  # no search since the downtime
        (BEFORE, LastSearch(SINCE, SearchResult.FOUND), False, True),
        (BEFORE, LastSearch(SINCE, SearchResult.NONE), True, True),
    ],
)
def test_after_a_downtime_a_payment_is_settled_by_its_end_or_a_search(
    searched: str | None, last: LastSearch | None, ended: bool, expected: bool
) -> None:
    assert settled(absence(a=searched), "a", ended=ended, last_search=last) is expected


@pytest.mark.parametrize(
    ("old", "new", "seconds"), [(300.0, 900.0, 900.0), (900.0, 300.0, 900.0), (None, 300.0, None), (300.0, None, None)]
)
def test_a_second_downtime_keeps_the_payments_of_the_first(
    old: float | None, new: float | None, seconds: float | None
) -> None:
    first, second = absence(seconds=old, a=None), absence(seconds=new, cause="suspended", b=BEFORE)
    both = merged(first, second)
    assert (both.cause, both.seconds, both.payments) == ("suspended", seconds, {"a": None, "b": BEFORE})
    assert merged(None, second) == second


@pytest.mark.parametrize(
    ("item", "left", "parts"),
    [
        (absence(), 1, ["for about 12 min until 2026", "posd was not running", "1 payment was open", "it has neither"]),
        (absence(a=None, b=None), 1, ["2 payments were open", "1 of them has neither", ": posd reconcile a; check"]),
        (absence(a=None, b=None), 2, ["2 of them have neither", "posd reconcile a; posd reconcile b"]),
        (absence(**dict.fromkeys("abcde")), 5, ["posd reconcile c; for 2 more: posd list --open"]),
        (absence(**dict.fromkeys("abc")), 3, ["posd reconcile c; check"]),
        (absence(seconds=7199.0), 1, ["for about 120 min"]),
        (absence(seconds=7200.0), 1, ["for about 2 h"]),
        (absence(seconds=172_799.0), 1, ["for about 48 h"]),
        (absence(seconds=172_800.0), 1, ["for about 2 days"]),
        (absence(seconds=604_800.0), 1, ["for about 7 days"]),
        (absence(seconds=None), 1, ["down for an unknown time (posd was not running, and the clock was set) while"]),
        (absence(cause="suspended"), 1, ["this machine was suspended"]),
        (absence(cause="deaf"), 1, ["no connection could be accepted"]),
        (absence(cause="held_up"), 1, ["posd was held up"]),
    ],
)
def test_the_check_describes_the_downtime_and_says_what_to_do(item: Absence, left: int, parts: list[str]) -> None:
    said = f"{words(item, left)}: {remedy(steps(list(item.payments)[:left]))}"
    assert [part for part in parts if part not in said] == []
    assert "ID" not in said


@pytest.mark.parametrize(
    ("last_sign", "seconds"),
    [(NOON - timedelta(days=7), 7 * 86_400.0), (NOON + timedelta(hours=1), None), (None, 720.0)],
)
def test_the_times_of_a_downtime_follow_a_correction_of_the_clock(
    last_sign: datetime | None, seconds: float | None
) -> None:
    """At the start the clock is five years behind. A minute later an operator corrects the clock."""
    measured = Absence("stopped", None if last_sign else 720.0, "2021-11-20T12:00:00.000Z", {"a": None})
    found = EndedAbsence(measured, 1000.0, last_sign, None)
    now = found.now(NOON + timedelta(seconds=60), 1060.0)
    assert (now.until, now.seconds) == ("2026-11-20T12:00:00.000Z", seconds)
    older = absence(seconds=900.0, b=None)
    assert set(msgspec.structs.replace(found, older=older).now(NOON, 1000.0).payments) == {"a", "b"}
