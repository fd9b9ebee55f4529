"""Days of the merchant: their beginning and end, and the accepted formats."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.cli.report.view import Days, read_day

TODAY = date(2026, 3, 1)
ZONES = ["America/Guayaquil", "Europe/Madrid", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "UTC"]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        # Past days, because editions of the time zone data can differ about future days.
        ("America/Guayaquil", date(2024, 11, 20), 24),
        ("Europe/Madrid", date(2024, 3, 31), 23),
        ("Europe/Madrid", date(2024, 10, 27), 25),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),  # a day whose midnight is skipped
        ("America/Havana", date(2024, 11, 3), 25),  # a day with two midnights
        ("Australia/Lord_Howe", date(2024, 10, 6), 23.5),
    ],
)
def test_a_day_has_the_hours_between_two_midnights(zone: str, day: date, hours: float) -> None:
    days = Days(day, day, ZoneInfo(zone))
    assert days.end - days.start == timedelta(hours=hours)


@given(st.sampled_from(ZONES), st.integers(0, 60 * 365 * 24 * 60))
def test_every_moment_belongs_to_exactly_one_day(zone: str, minutes: int) -> None:
    moment = datetime(1990, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    local = moment.astimezone(ZoneInfo(zone)).date()
    near = [local + timedelta(days=number) for number in range(-2, 3)]
    assert [day for day in near if _holds(Days(day, day, ZoneInfo(zone)), moment)] == [local]


def _holds(days: Days, moment: datetime) -> bool:
    return days.start <= moment < days.end


@pytest.mark.parametrize(
    ("text", "day"),
    [("today", TODAY), ("yesterday", date(2026, 2, 28)), ("2024-02-29", date(2024, 2, 29))],
)
def test_each_format_of_a_day_is_accepted(text: str, day: date) -> None:
    assert read_day(text, TODAY) == day


@pytest.mark.parametrize("text", ["", "2026-02-30", "20261120", "2026-W10-1", "9999-12-31", "0001-01-01", "tomorrow"])
def test_an_invalid_day_is_refused_with_the_accepted_formats(text: str) -> None:
    with pytest.raises(ValueError, match="write one like 2026-11-20, or today, or yesterday"):
        read_day(text, TODAY)
