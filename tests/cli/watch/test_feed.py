"""Where a moment stands in the feed, and what comes behind it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.cli.app.connection import Api
from posd.cli.watch import source
from posd.cli.watch.source import Change
from tests.support.counter import Counter


@pytest.fixture(scope="module")
def told() -> Iterator[tuple[Api, list[Change]]]:
    """A feed with some payments in it, and all of its lines."""
    with TemporaryDirectory(prefix="posd-") as home, Counter(Path(home)) as shop, Api(shop.socket) as api:
        assert (source.newest(api), list(source.past(api, 0))) == (0, [])
        assert source.begin(api, datetime.now().astimezone()) == 0
        assert source.holds(api, 0)
        for amount in (1, 2, 3):
            shop.ended(shop.charge(amount))
        yield api, api.get("/feed", {"limit": "500"}).body["changes"]


@pytest.mark.slow
def test_the_newest_line_and_those_that_are_not_there(told: tuple[Api, list[Change]]) -> None:
    api, changes = told
    assert len(changes) > 12
    newest = changes[-1]["seq"]
    assert source.newest(api) == newest
    assert source.holds(api, newest)
    assert not source.holds(api, newest + 1)
    assert [change for page in source.past(api, newest) for change in page] == []


@pytest.mark.slow
def test_each_moment_is_found(told: tuple[Api, list[Change]]) -> None:
    api, changes = told
    moments = [datetime.fromisoformat(change["at"]) for change in changes]
    for moment in [*moments, moments[0] - timedelta(hours=1), moments[-1] + timedelta(hours=1)]:
        begun = source.begin(api, moment)
        behind = [change["seq"] for page in source.past(api, begun) for change in page]
        assert behind == [change["seq"] for change, at in zip(changes, moments, strict=True) if at >= moment]


def test_what_is_there_comes_before_what_is_live(told: tuple[Api, list[Change]]) -> None:
    api, changes = told
    lines = source.live(api, changes[2]["seq"])
    assert [next(lines)[0]["seq"] for _ in changes[3:]] == [change["seq"] for change in changes[3:]]
