"""Guards against paying twice for one original (local API, Chains), repeated calls, and the sale."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.chains import Operation, operation, taking
from tests.rig.shop import Shop
from tests.rig.webhooks import disk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]

#: Number of tills that race for one original, and number of races.
TILLS, RACES = 8, 2
#: Operation -> type of the original in these tests.
DONE_TO = {"capture": "pre-auth", "void": "charge", "post-tip": "charge", "re-auth": "pre-auth", "refund": "charge"}
#: How a till can name an original.
WAYS = ("original", "ORIGINAL", "transaction_reference", "TRANSACTION_REFERENCE")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def places(shop: Shop) -> list[Operation]:
    """Return operations on separate terminals, where tests start derived operations."""
    return [operation(shop, "charge") for _ in range(TILLS)]


@pytest_asyncio.fixture(loop_scope="module")
async def counters(shop: Shop, places: list[Operation]) -> AsyncIterator[list[Operation]]:
    """Yield the operations. After each test, no payment is open on these terminals."""
    yield places
    word = {"operator": "Ana", "note": "the test has ended", "result": "canceled"}
    for item in (await shop.daemon.call("GET", "/transactions?open=true")).json["transactions"]:
        path = f"/transactions/{item['client_transaction_id']}/resolve"
        assert (await shop.daemon.call("POST", path, word, socket=shop.daemon.admin_socket)).status == 200


def naming(original: Operation, way: str) -> dict[str, str]:
    """Return an original's name in a till's request."""
    value = original.identity if way.lower() == "original" else original.reference
    return {way.lower(): value.upper() if way.isupper() else value}


# Many tills at once


@pytest.mark.quick(1)
@pytest.mark.parametrize("_race", range(RACES))
@pytest.mark.parametrize("kind", DONE_TO)
async def test_only_one_of_many_tills_succeeds(shop: Shop, counters: list[Operation], kind: str, _race: int) -> None:
    original = await (await operation(shop, DONE_TO[kind], counters[0]).begin()).finish()
    tills = [operation(shop, kind, counter) for counter in counters]
    shop.terminal.start = taking
    replies = await asyncio.gather(
        *(till.put(**naming(original, WAYS[number % len(WAYS)])) for number, till in enumerate(tills))
    )
    assert sorted(reply.status for reply in replies) == [201] + [409] * (TILLS - 1)
    (winner,) = (till for till, reply in zip(tills, replies, strict=True) if reply.status == 201)
    for reply in replies:
        if reply.status == 409:
            assert (reply.json["code"], reply.json["transactions"]) == ("already_derived", [winner.identity])
    assert [len(till.requests) for till in tills] == [int(till is winner) for till in tills]
    assert (await original.get())["derived"] == [winner.identity]
    with disk(shop.daemon) as db:
        query = "SELECT client_transaction_id FROM transactions WHERE derives_from = ?"
        assert db.execute(query, (original.identity,)).fetchall() == [(winner.identity,)]
    await winner.finish()


# The sale


async def test_a_conflict_in_the_chain_is_reported_before_a_conflict_of_the_sale(
    shop: Shop, counters: list[Operation]
) -> None:
    """An unrelated open payment of the sale blocks a step of the chain. `repeat` permits the step."""
    sale, (here, there) = f"till-3/{uuid4()}", counters[:2]
    charge = await (await operation(shop, "charge", here).begin(sale=sale)).finish()
    split = await operation(shop, "charge", there).begin(sale=sale, repeat=True)
    tip = operation(shop, "post-tip", here)
    problem = await tip.refused("sale_conflict", sale=sale, original=charge.identity)
    assert problem["transactions"] == [split.identity]
    await tip.begin(sale=sale, original=charge.identity, repeat=True)
    problem = await operation(shop, "post-tip", here).refused("already_derived", sale=sale, original=charge.identity)
    assert problem["transactions"] == [tip.identity]
    for item in (split, tip):
        await item.finish()
    await (await operation(shop, "void", counters[2]).begin(original=charge.identity)).finish()
