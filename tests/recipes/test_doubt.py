"""A payment without any report. The cashier must call the supervisor. Only a person's decision ends the payment."""

import pytest

from tests.recipes.counter import Counter
from tests.recipes.running import tried
from tests.recipes.test_charges import CHARGES

EXTRA = "[reconcile]\nfirst_event_grace_seconds = 1\n"
#: The terminal has charged the card, but the reply, the events and a search do not report the charge.
LOST_ALL = "9000.29"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest.mark.parametrize("name", tried(CHARGES, quick=["charge.py"]))
async def test_only_a_person_ends_a_payment_in_doubt(counter: Counter, name: str) -> None:
    async with counter.recipe(name, LOST_ALL) as recipe:
        await recipe.says("Do not charge again")
        await counter.pass_time()
        said = await recipe.says("CALL THE SUPERVISOR")
        assert "Do not charge again" in said
        await counter.daemon.restart()
        (identity,) = counter.requests
        await counter.decide(identity, "resolve", result="declined")
        assert await recipe.ended() == 3
    assert recipe.said[-1].startswith("NOT PAID: declined")
    await counter.one_request()
