"""The day's totals of the recipe are those of `posd report`, to the last digit, and what is open is told."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.cli.processes import posd
from tests.recipes.counter import Counter, open_counter


@pytest.fixture
async def counter(programs: Path) -> AsyncIterator[Counter]:
    """A counter of the test's own: the day's totals have only its payments."""
    async with open_counter(programs, "SN-1") as counter:
        counter.fresh()
        yield counter


def zone_where_it_is_noon() -> str:
    """A time zone in which no midnight comes near this test."""
    ahead = 12 - datetime.now(UTC).hour
    return f"Etc/GMT{-ahead:+d}"  # the sign says how far UTC is ahead


async def report(counter: Counter, zone: str) -> Any:
    socket = counter.daemon.till_socket
    done = posd("report", "--timezone", zone, "--json", socket=socket)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout, parse_float=Decimal)


@pytest.mark.slow
async def test_the_totals_are_those_of_the_report(counter: Counter) -> None:
    zone = zone_where_it_is_noon()
    environment = {"MERCHANT_TIMEZONE": zone}
    for amount in ("0.10", "0.20", "1234.57"):
        last = await counter.pay(amount)
    await counter.pay("9000.04", "declined")
    reservation = await counter.pay("50.00", type="pre-auth")
    await counter.pay("45.01", type="capture", original=reservation)
    await counter.pay(None, type="void", original=last)

    async with counter.recipe("end_of_day.py", **environment) as recipe:
        assert await recipe.ends() == 0
    totals = {name: Decimal(total) for name, total in map(str.split, recipe.said)}
    shown = await report(counter, zone)
    assert totals.pop("total") == shown["total"]["total"] == Decimal("45.31")
    assert totals == {"capture": Decimal("45.01"), "charge": Decimal("1234.87"), "void": Decimal("-1234.57")}
    assert totals["capture"] + totals["charge"] == shown["total"]["charged"]
    assert totals["void"] == shown["total"]["reversed"]

    open_payment = await counter.hold()
    async with counter.recipe("end_of_day.py", **environment) as recipe:
        assert await recipe.ends() == 4
    assert f"NOT CLEAR: charge {open_payment} (9000.08)" in recipe.said[-1]
    yesterday = (datetime.now(ZoneInfo(zone)) - timedelta(days=1)).date().isoformat()
    async with counter.recipe("end_of_day.py", yesterday, **environment) as recipe:  # open, of any day
        assert await recipe.ends() == 4
    assert open_payment in recipe.said[-1]
    await counter.let_go(open_payment)

    async with counter.recipe("end_of_day.py", yesterday, **environment) as recipe:
        assert await recipe.ends() == 0
    assert recipe.said == [f"{'total':10} {'0':>12}"]


@pytest.mark.slow
async def test_what_no_person_has_checked_keeps_the_day_open(counter: Counter) -> None:
    environment = {"MERCHANT_TIMEZONE": zone_where_it_is_noon()}
    part = await counter.pay("9000.98")
    unheard = await counter.start("9000.67")
    await counter.pass_time()
    (final,) = counter.terminal.ledger.of("final", client_transaction_id=unheard)
    await counter.resolve(unheard, "approved")  # by the bank's list; of the terminal's reference posd knows nothing
    void = await counter.pay(None, type="void", transaction_reference=final["transaction_reference"])
    assert (await counter.daemon.transaction(void))["original"] is None
    async with counter.recipe("end_of_day.py", **environment) as recipe:
        assert await recipe.ends() == 4
    assert any(line.startswith(f"NOT CLEAR: charge {part} (5000.00): ") for line in recipe.said)
    assert recipe.said[-1].startswith(f"NOT CLEAR: void {void} ")
