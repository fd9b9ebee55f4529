"""Times. People get local times with the zone, or UTC. Programs get times with an offset."""

import time
from collections.abc import Iterator

import pytest

from posd.cli.app import times
from posd.cli.app.tables import laid_out
from posd.cli.app.times import TimeCell

SUMMER, WINTER = "2026-07-01T12:00:00.120Z", "2026-11-20T14:02:11.123Z"


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        times.use(utc=False, year=2026)
        yield
    time.tzset()
    times.use(utc=False)


@pytest.mark.parametrize("zone", ["America/Guayaquil"], indirect=True)
def test_a_time_has_its_zone(zone: None) -> None:
    assert times.moment(WINTER) == "09:02:11 UTC-05"
    assert times.moment(WINTER, date=True) == "20 Nov 09:02:11 UTC-05"
    assert times.moment("2025-11-20T14:02:11Z", date=True) == "20 Nov 2025 09:02:11 UTC-05"
    assert times.moment(WINTER, year=True) == "20 Nov 2026 09:02:11 UTC-05"
    assert times.moment(None) == times.moment("") == "-"
    assert times.short(WINTER, milliseconds=True) == "20 Nov 09:02:11.123"
    assert times.day("2026-11-20T03:00:00Z") == "2026-11-19"
    assert times.for_programs(WINTER) == "2026-11-20T09:02:11-05:00"
    assert times.in_words("not before 2026-11-20 14:02:11 UTC, nor 2026-11-20T14:02:11.123Z") == (
        "not before 20 Nov 09:02:11 UTC-05, nor 20 Nov 09:02:11 UTC-05"
    )
    times.use(utc=True, year=2026)
    assert times.moment(WINTER, date=True) == "20 Nov 14:02:11 UTC"
    assert times.for_programs(WINTER, milliseconds=True) == "2026-11-20T14:02:11.123Z"


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_a_table_names_the_zones_of_its_times_once(zone: None) -> None:
    rows = [(TimeCell(SUMMER), "a"), (TimeCell(WINTER), "b"), (TimeCell(""), "c")]
    head, _, body = laid_out(("at", "what"), rows, 80)
    assert head == ["at (CEST/CET)    what"]
    assert body == ["01 Jul 14:00:00  a", "20 Nov 15:02:11  b", "-                c"]
    assert laid_out(("at",), [(TimeCell(""),)], 80).head == ["at"]
