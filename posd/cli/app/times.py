"""Texts of times: in the local zone or in UTC, with the name of the zone.

All commands use this module for times.

In a table, the head of the column names the zone. A single time has its zone beside it. In a pipe, times are ISO 8601
with the offset, which programs can sort and parse.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from posd.cli.explain.catalogue import named

#: Pattern of a time inside a sentence of the daemon.
_OF_DAEMON = re.compile(r"20\d\d-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?Z| \d\d:\d\d(:\d\d)? UTC)", re.ASCII)

#: Whether times are in UTC. --utc sets it once for a command.
_in_utc = False
#: Year that is omitted; None: the present year.
_year: int | None = None


class TimeCell(str):
    """A time of the API in a cell of a table. It is empty if there is no time."""

    __slots__ = ()


def use(*, utc: bool, year: int | None = None) -> None:
    """Set whether times are in UTC, and which year is omitted (None: the present one)."""
    global _in_utc, _year
    _in_utc, _year = utc, year


def in_utc() -> bool:
    """Return whether times are in UTC."""
    return _in_utc


def local(at: datetime | str) -> datetime:
    """Return a time in the displayed zone: UTC or local."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone(UTC if _in_utc else None)


def zone(times: Iterable[datetime]) -> str:
    """Return the name of the zone of these times: CET, UTC-05, or CET/CEST if they are in winter and summer."""
    return "/".join(dict.fromkeys(map(_zone, times)))


def here() -> str:
    """Return the name of the displayed zone now."""
    return _zone(local(datetime.now(UTC)))


def _zone(at: datetime) -> str:
    name = at.tzname() or ""
    return f"UTC{name}" if name[:1] in ("+", "-") else name


def short(at: datetime | str, *, milliseconds: bool = False, year: bool = False) -> str:
    """Return date and time of day without the zone: 26 Nov 14:03:12.

    The year is included if it is another one, or with `year`.
    """
    moment = local(at)
    of_year = f" {moment.year}" if year or moment.year != (_year or datetime.now(moment.tzinfo).year) else ""
    return f"{moment:%d} {named(f'{moment:%b}')}{of_year} {clock(moment, milliseconds=milliseconds)}"


def clock(at: datetime | str, *, milliseconds: bool = False) -> str:
    """Return the time of day without the zone: 14:03:12."""
    return local(at).time().isoformat("milliseconds" if milliseconds else "seconds")


#: Units of an age: singular, plural, and seconds.
_UNITS = (("day", "days", 86_400), ("hour", "hours", 3600), ("minute", "minutes", 60))


def seconds_since(at: str) -> float:
    """Return the age of a time in seconds. It is negative for a time in the future."""
    return (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()


def roughly(seconds: float) -> str:
    """Return the text of a duration in its largest unit: 7 days, 1 hour, 15 minutes."""
    one, several, unit = next((row for row in _UNITS if seconds >= row[2]), _UNITS[-1])
    count = int(seconds // unit)
    return f"{count} {named(one if count == 1 else several)}"


def age(seconds: float) -> str:
    """Return the text of a duration in one or two units: 40 s, 12 min, 3 h 5 min, 4 d 2 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if not minutes:
        return f"{int(seconds)} s"
    if not hours:
        return f"{minutes} min"
    one, other = (f"{days} d", f"{hours % 24} h") if days else (f"{hours} h", f"{minutes % 60} min")
    return one if other.startswith("0 ") else f"{one} {other}"


def day(at: datetime | str) -> str:
    """Return the day of a time: 2026-11-26."""
    return f"{local(at):%Y-%m-%d}"


def moment(at: datetime | str | None, *, date: bool = False, year: bool = False) -> str:
    """Return the text of a single time: 14:03:12 UTC-05, with `date` 26 Nov 14:03:12 UTC-05.

    Without a time return a dash.

    With `year` the text always has the date and its year, for a clock whose year may be wrong.
    """
    if not at:
        return "-"
    return f"{short(at, year=year) if date or year else clock(at)} {_zone(local(at))}"


def in_words(text: str, *, year: bool = False) -> str:
    """Return a sentence of the daemon, with its UTC times replaced by texts of `moment`."""
    return _OF_DAEMON.sub(lambda found: moment(found[0].replace(" UTC", "Z"), date=True, year=year), text)


def for_programs(at: datetime | str, *, milliseconds: bool = False) -> str:
    """Return the text of a time in a pipe: 2026-11-26T14:03:12-05:00, with --utc with Z.

    Without a time return a dash.
    """
    if not at:
        return "-"
    written = local(at).isoformat(timespec="milliseconds" if milliseconds else "seconds")
    return written.replace("+00:00", "Z") if _in_utc else written
