"""Cancellation or refund. A void is a cancellation on the calendar day of its original in the merchant's time zone.

A later void is a refund.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.times import iso
from posd.payments.operations import end_of_day, reversal

#: Zones with and without daylight saving. In Santiago, Asuncion, Beirut and Havana the clocks change at midnight.
ZONES = (
    "America/Guayaquil",
    "America/Santiago",
    "America/Asuncion",
    "America/Havana",
    "Asia/Beirut",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Pacific/Kiritimati",
    "UTC",
)
RECEIVED = datetime(2030, 1, 1, tzinfo=UTC)


def what(zone: str, original: str, void: str) -> str | None:
    """Return the kind of a void. A time is in the local time of the zone or has an offset."""
    moments = [datetime.fromisoformat(text) for text in (original, void)]
    approved, voided = (item if item.tzinfo else item.replace(tzinfo=ZoneInfo(zone)) for item in moments)
    return reversal(iso(end_of_day(approved, ZoneInfo(zone))), iso(voided), RECEIVED)


@pytest.mark.parametrize(
    ("zone", "original", "void", "expected"),
    [
        ("America/Guayaquil", "2026-11-20T10:00:00", "2026-11-20T10:00:01", "cancellation"),
        ("America/Guayaquil", "2026-11-20T00:00:00", "2026-11-20T23:59:59.999", "cancellation"),
        ("America/Guayaquil", "2026-11-20T23:59:59.999", "2026-11-21T00:00:00", "refund"),
        ("America/Guayaquil", "2026-11-20T10:00:00", "2026-12-20T10:00:00", "refund"),
        ("America/Guayaquil", "2026-11-21T03:00:00Z", "2026-11-21T04:59:59.999Z", "cancellation"),
        ("America/Guayaquil", "2026-11-21T03:00:00Z", "2026-11-21T05:00:00Z", "refund"),
        ("Europe/Berlin", "2026-03-29T00:30:00", "2026-03-29T23:59:59", "cancellation"),  # this day has 23 hours
        ("Europe/Berlin", "2026-03-29T00:30:00", "2026-03-30T00:00:00", "refund"),
        ("Europe/Berlin", "2026-10-25T00:00:00", "2026-10-25T22:59:59Z", "cancellation"),  # this day has 25 hours
        ("Europe/Berlin", "2026-10-25T00:00:00", "2026-10-25T23:00:00Z", "refund"),
        (
            "America/Santiago",
            "2026-09-05T12:00:00",
            "2026-09-06T03:59:59Z",
            "cancellation",
        ),  # this night has no midnight
        ("America/Santiago", "2026-09-05T12:00:00", "2026-09-06T04:00:00Z", "refund"),
        (
            "America/Santiago",
            "2026-04-04T12:00:00",
            "2026-04-05T03:59:59Z",
            "cancellation",
        ),  # the hour from 23:00 occurs twice
        ("America/Santiago", "2026-04-04T12:00:00", "2026-04-05T04:00:00Z", "refund"),
    ],
)
def test_the_calendar_day_decides_whether_a_void_is_a_cancellation(
    zone: str, original: str, void: str, expected: str
) -> None:
    assert what(zone, original, void) == expected


@given(
    st.sampled_from(ZONES).map(ZoneInfo),
    st.integers(1_577_836_800, 2_050_000_000).map(lambda second: datetime.fromtimestamp(second, UTC)),
    st.timedeltas(timedelta(0), timedelta(days=3)),
)
def test_the_kind_of_a_void_equals_a_comparison_of_two_dates(
    zone: ZoneInfo, original: datetime, later: timedelta
) -> None:
    void = original + later
    same_day = original.astimezone(zone).date() == void.astimezone(zone).date()
    # The stored text has milliseconds.
    until = datetime.fromisoformat(iso(end_of_day(original, zone)))
    assert (void < until) is same_day


def test_posds_time_counts_if_the_terminals_clock_is_impossible() -> None:
    until = "2026-11-21T05:00:00.000Z"
    early, late = datetime(2026, 11, 21, 4, tzinfo=UTC), datetime(2026, 11, 21, 6, tzinfo=UTC)
    assert (reversal(until, "noon", early), reversal(until, "noon", late)) == ("cancellation", "refund")


def test_without_its_original_the_kind_of_a_void_is_unknown() -> None:
    assert reversal(None, "2026-11-21T05:00:00.000Z", RECEIVED) is None
