"""Whatever breaks between lanes and head office, its tables are the lanes' stores, row for row, with their totals."""

import pytest

from tests.collect.fleet import play
from tests.support.needs import needs

pytestmark = [pytest.mark.slow, needs("nats-server", "postgres", "initdb")]


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_table_is_what_the_lanes_have(seed: int) -> None:
    played = await play(seed, lanes=3, payments=30, troubles=6)
    assert played.broken["restore"] == 1
    assert sum(len(post.payments) for post in played.posts) > 30
