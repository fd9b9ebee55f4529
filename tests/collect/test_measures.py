"""The measurements can be made: small ones, of which nothing is held against a bound."""

import pytest

from tests.collect import beside
from tests.support.needs import needs

pytestmark = needs("nats-server")


@pytest.mark.slow
async def test_a_payment_beside_a_relay_is_measured() -> None:
    found = await beside.measure(1, 3, 200, ["absent", "running", "hung", "cut off"])
    lines = beside.table(found).splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == ["absent", "running", "hung", "cut off"]
    assert all(len(item.start) == 1 and item.start[0] > 0 for item in found.values())
