"""Times as text: ISO 8601, UTC, milliseconds, `Z`."""

from datetime import UTC, datetime
from functools import lru_cache

from posd import RELEASED

#: The first and the last moment that a datetime can hold.
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@lru_cache(maxsize=8)  # cached: the same time is written in several places
def iso(moment: datetime) -> str:
    """Return an aware datetime as `2026-11-20T10:42:03.120Z`."""
    return in_utc(moment).isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_iso(text: str) -> datetime:
    """Parse any ISO 8601 time. A time without an offset is UTC. Raise ValueError for another text."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_moment(text: object) -> datetime:
    """Parse a time from a caller, and return it in UTC, within `FIRST` and `LAST`.

    Raise ValueError with the reason for an invalid time, or for a time without an offset, whose zone is unknown.
    """
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError('must be a moment with its offset, such as "2026-11-20T10:42:03Z"')
    return in_utc(moment)


def in_utc(moment: datetime) -> datetime:
    """Return a time in UTC, within `FIRST` and `LAST`."""
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):  # ValueError: a time without an offset counts as local time
        return FIRST if moment.year == 1 else LAST


def released() -> datetime:
    """Return the release day of this version. A correct clock is never before that day."""
    return parse_iso(RELEASED)
