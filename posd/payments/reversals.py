"""Whether a void is a cancellation or a refund: by calendar day in the merchant's time zone.

Source: terminal API, Lifecycle.
"""

from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Literal

from posd.base.times import parse_iso

Reversal = Literal["cancellation", "refund"]


def end_of_day(moment: datetime, zone: tzinfo) -> datetime:
    """Return the midnight, in UTC, that ends the calendar day of a moment in that zone.

    Days of daylight saving have 23 or 25 hours; where midnight itself is skipped, the first moment after it counts.
    """
    day = moment.astimezone(zone).date() + timedelta(days=1)
    return datetime.combine(day, time.min, zone).astimezone(UTC)


def reversal(same_day_until: str | None, occurred_at: str, received_at: datetime) -> Reversal | None:
    """Tell what a void is that was approved at a moment (ISO 8601, of the terminal; else when posd heard of it).

    None where the day of its original is not known.
    """
    if same_day_until is None:
        return None
    try:
        at = parse_iso(occurred_at)
    except ValueError:
        at = received_at
    return "cancellation" if at < parse_iso(same_day_until) else "refund"
