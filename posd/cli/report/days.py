"""Days of the merchant."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

#: Years that a report can be of: wide, and far enough from the ends of the calendar to reckon with.
YEARS = range(1970, 9000)

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Days:
    """The days from `first` to `last`, both of them included, in a time zone."""

    first: date
    last: date
    zone: ZoneInfo

    @property
    def start(self) -> datetime:
        """The first moment, in UTC."""
        return _midnight(self.first, self.zone)

    @property
    def end(self) -> datetime:
        """The first moment after it, in UTC."""
        return _midnight(self.last + timedelta(days=1), self.zone)


def read_day(text: str, today: date) -> date:
    """Read `today`, `yesterday` or a date such as 2026-11-20. Raise ValueError with what can be written."""
    words = {"today": today, "yesterday": today - timedelta(days=1)}
    if text in words:
        return words[text]
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:  # the 31st of a month of 30 days
        day = None
    if day is None or day.year not in YEARS:
        raise ValueError(f"{text!r} is not a day: write one as 2026-11-20, or today, or yesterday")
    return day


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """Return when a day begins; where the clock skips midnight, that is the first moment after it."""
    return datetime.combine(day, time.min, zone).astimezone(UTC)
