"""After any faults between lanes and head office, the tables of head office equal the lanes' data, row by row, with the
lanes' totals.
"""

import pytest

from tests.collect.fleet import play
from tests.rig.needs import needs

pytestmark = [pytest.mark.slow, needs("nats-server", "postgres", "initdb")]


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_tables_equal_the_data_of_the_lanes(seed: int) -> None:
    played = await play(seed, lanes=3, payments=30, troubles=6)
    assert played.broken["restore"] == 1
    assert sum(len(post.payments) for post in played.posts) > 30
