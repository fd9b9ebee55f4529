"""Days of the merchant: beginning, end, and accepted formats."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.cli.report.view import span

ZONES = ["America/Guayaquil", "Europe/Madrid", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "UTC"]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        # Days of the past. For future days, versions of the time zone data can differ.
        ("America/Guayaquil", date(2024, 11, 20), 24),
        ("Europe/Madrid", date(2024, 3, 31), 23),
        ("Europe/Madrid", date(2024, 10, 27), 25),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),  # this day has no midnight
        ("America/Havana", date(2024, 11, 3), 25),  # this day has two midnights
        ("Australia/Lord_Howe", date(2024, 10, 6), 23.5),
    ],
)
def test_a_day_has_the_hours_between_two_midnights(zone: str, day: date, hours: float) -> None:
    start, end = span(day, day, ZoneInfo(zone))
    assert end - start == timedelta(hours=hours)


@given(st.sampled_from(ZONES), st.integers(0, 60 * 365 * 24 * 60))
def test_every_moment_belongs_to_exactly_one_day(zone: str, minutes: int) -> None:
    moment = datetime(1990, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    local = moment.astimezone(ZoneInfo(zone)).date()
    near = [local + timedelta(days=number) for number in range(-2, 3)]
    assert [day for day in near if _holds(span(day, day, ZoneInfo(zone)), moment)] == [local]


def _holds(days: tuple[datetime, datetime], moment: datetime) -> bool:
    return days[0] <= moment < days[1]
