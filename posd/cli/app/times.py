"""Times as people read them: in the local zone, which is named beside them, or in UTC. Nothing else writes one.

In a table the zone stands once, in the head of the column; a time by itself has it beside it. In a pipe a table has
ISO 8601 with the offset, which sorts and which programs read.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from posd.cli.explain.catalogue import named

#: A time in a sentence of the daemon.
_OF_DAEMON = re.compile(r"20\d\d-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?Z| \d\d:\d\d(:\d\d)? UTC)", re.ASCII)

#: Whether times are in UTC: said once a command, by --utc.
_in_utc = False
#: The year that is not written; None: this year.
_year: int | None = None


class TimeCell(str):
    """A time of the API in a cell of a table; empty if there is none."""

    __slots__ = ()


def use(*, utc: bool, year: int | None = None) -> None:
    """Set whether times are written in UTC from now on, and which year needs no mention."""
    global _in_utc, _year
    _in_utc, _year = utc, year


def in_utc() -> bool:
    """Whether times are written in UTC."""
    return _in_utc


def local(at: datetime | str) -> datetime:
    """Return a time in the zone in which it is written."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone(UTC if _in_utc else None)


def zone(times: Iterable[datetime]) -> str:
    """Return the name of the zone of such times: CET, UTC-05; CET/CEST where they are of both."""
    return "/".join(dict.fromkeys(map(_zone, times)))


def here() -> str:
    """Return the name of the zone now."""
    return _zone(local(datetime.now(UTC)))


def _zone(at: datetime) -> str:
    name = at.tzname() or ""
    return f"UTC{name}" if name[:1] in ("+", "-") else name


def short(at: datetime | str, *, milliseconds: bool = False, year: bool = False) -> str:
    """Write a time without its zone: 26 Nov 14:03:12; with its year if that is another than this, or asked for."""
    moment = local(at)
    named = year or moment.year != (_year or datetime.now(moment.tzinfo).year)
    return f"{moment:%d %b}{f' {moment.year}' if named else ''} {clock(moment, milliseconds=milliseconds)}"


def clock(at: datetime | str, *, milliseconds: bool = False) -> str:
    """Write the time of day without its zone: 14:03:12."""
    return local(at).time().isoformat("milliseconds" if milliseconds else "seconds")


#: Units of an age: the word of one, of several, and the seconds of one.
_UNITS = (("day", "days", 86_400), ("hour", "hours", 3600), ("minute", "minutes", 60))


def seconds_since(at: str) -> float:
    """Return how long ago a time was, in seconds; negative where it is still to come."""
    return (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()


def roughly(seconds: float) -> str:
    """Write a duration in its largest unit: 7 days, 1 hour, 15 minutes."""
    one, several, unit = next((row for row in _UNITS if seconds >= row[2]), _UNITS[-1])
    count = int(seconds // unit)
    return f"{count} {named(one if count == 1 else several)}"


def age(seconds: float) -> str:
    """Write a duration in one or two units: 40 s, 12 min, 3 h 5 min, 4 d 2 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if not minutes:
        return f"{int(seconds)} s"
    if not hours:
        return f"{minutes} min"
    one, other = (f"{days} d", f"{hours % 24} h") if days else (f"{hours} h", f"{minutes % 60} min")
    return one if other.startswith("0 ") else f"{one} {other}"


def day(at: datetime | str) -> str:
    """Write the day of a time: 2026-11-26."""
    return f"{local(at):%Y-%m-%d}"


def moment(at: datetime | str | None, *, date: bool = False, year: bool = False) -> str:
    """Write a time by itself: 14:03:12 UTC-05, with `date` 26 Nov 14:03:12 UTC-05; a dash where there is none.

    With `year` the date always has its year: for a clock whose year may be the wrong one.
    """
    if not at:
        return "-"
    return f"{short(at, year=year) if date or year else clock(at)} {_zone(local(at))}"


def in_words(text: str, *, year: bool = False) -> str:
    """Return a sentence of the daemon, which has times in UTC, with them as they are written here."""
    return _OF_DAEMON.sub(lambda found: moment(found[0].replace(" UTC", "Z"), date=True, year=year), text)


def for_programs(at: datetime | str, *, milliseconds: bool = False) -> str:
    """Write a time for a pipe: 2026-11-26T14:03:12-05:00, in UTC with a Z; a dash where there is none."""
    if not at:
        return "-"
    written = local(at).isoformat(timespec="milliseconds" if milliseconds else "seconds")
    return written.replace("+00:00", "Z") if _in_utc else written
