"""The one form in which posd writes a moment: ISO 8601, UTC, milliseconds, `Z`."""

from datetime import UTC, datetime
from functools import lru_cache

from posd import RELEASED


@lru_cache(maxsize=8)  # one moment is written in several places
def iso(moment: datetime) -> str:
    """Return an aware datetime as `2026-11-20T10:42:03.120Z`."""
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_iso(text: str) -> datetime:
    """Read any ISO 8601 moment; one without an offset is UTC. Raise ValueError where it is none."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def released() -> datetime:
    """Return when this version was made, to the day: no right clock is before it."""
    return parse_iso(RELEASED)
