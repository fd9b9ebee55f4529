"""The day's totals of the recipe, to the last digit, and reasons that keep the day open."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.recipes.counter import Counter, open_counter
from tests.recipes.running import TOOLS
from tests.rig.needs import needs

pytestmark = needs(*TOOLS[".sh"][0])


@pytest.fixture
async def counter(programs: Path) -> AsyncIterator[Counter]:
    """Yield a counter for one test, so that the day's totals have only the payments of this test."""
    async with open_counter(programs, "SN-1") as counter:
        counter.fresh()
        yield counter


def zone_where_it_is_noon() -> str:
    """Return a time zone in which midnight is far from this test."""
    ahead = 12 - datetime.now(UTC).hour
    return f"Etc/GMT{-ahead:+d}"  # the sign in the name is the opposite of the offset


@pytest.mark.slow
async def test_the_day_is_totalled_but_an_unclear_payment_keeps_the_day_open(counter: Counter) -> None:
    zone = zone_where_it_is_noon()
    environment = {"MERCHANT_TIMEZONE": zone}
    for amount in ("0.10", "0.20", "1234.57"):
        last = await counter.pay(amount)
    await counter.pay("9000.04", "declined")
    reservation = await counter.pay("50.00", type="pre-auth")
    await counter.pay("45.01", type="capture", original=reservation)
    await counter.pay(None, type="void", original=last)
    async with counter.recipe("end_of_day.sh", **environment) as recipe:
        assert await recipe.ended() == 0, recipe.said
    assert sorted(recipe.said) == [
        "cancellation: -1234.57 USD",
        "capture: 45.01 USD",
        "charge: 1234.87 USD",
        "total: 45.31 USD",
    ]

    open_payment = await counter.hold()
    async with counter.recipe("end_of_day.sh", **environment) as recipe:
        assert await recipe.ended() == 4
    assert recipe.said[-1] == f"NOT CLEAR: posd show {open_payment}"
    await counter.let_go(open_payment)
    part = await counter.pay("9000.98")  # no person has acknowledged the attention
    yesterday = (datetime.now(ZoneInfo(zone)) - timedelta(days=1)).date().isoformat()
    async with counter.recipe("end_of_day.sh", yesterday, **environment) as recipe:
        assert await recipe.ended() == 4
    assert recipe.said == ["NOT CLEAR: 1 on other days, posd list --attention"]
    for attention in (await counter.daemon.transaction(part))["attention"]:
        await counter.decide(part, "acknowledge", code=attention["code"])
    async with counter.recipe("end_of_day.sh", yesterday, **environment) as recipe:
        assert await recipe.ended() == 0, recipe.said
    assert recipe.said == []


@pytest.mark.parametrize("day", ["2026-09-05", "2026-09-06"])
async def test_a_day_can_begin_after_midnight(counter: Counter, day: str) -> None:
    """In Chile the clocks change from 24:00 of September 5 to 01:00."""
    async with counter.recipe("end_of_day.sh", day, MERCHANT_TIMEZONE="America/Santiago") as recipe:
        assert await recipe.ended() == 0, recipe.said
    assert recipe.said == []
