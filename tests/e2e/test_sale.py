"""One charge for one sale. The commit of the intent checks the `sale` over all terminals (local API, `sale`)."""

import asyncio
from uuid import uuid4

import pytest

from tests.rig.shop import Payment, Shop, acknowledging
from tests.rig.slow import named_quick
from tests.rig.terminal import Request
from tests.rig.webhooks import disk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]
#: Number of terminals in the quick suite.
TERMINALS = 40

#: Number of races between two tills for one sale.
RACES = 20


@pytest.fixture
def sale() -> str:
    """Return a new sale key."""
    return f"till-3/{uuid4()}"


async def paid(shop: Shop, sale: str) -> Payment:
    """Return an acknowledged payment of this sale."""
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    assert (await payment.put(sale=sale)).status == 201
    return payment


async def conflicts(shop: Shop, sale: str) -> list[str]:
    """Start a payment of the sale on another terminal. Check that posd sends and records nothing. Return the blocking
    payments.
    """
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    reply = await payment.put(sale=sale)
    if reply.status == 201:
        return []
    assert (reply.status, reply.json["code"]) == (409, "sale_conflict")
    assert payment.requests == []
    assert (await shop.daemon.call("GET", f"/transactions/{payment.identity}")).status == 404
    assert (await shop.daemon.call("GET", f"/terminals/{payment.serial}")).json["transaction"] is None
    # The id is still unused.
    assert (await payment.put(sale=str(uuid4()))).status == 201
    return list(reply.json["transactions"])


async def test_an_open_or_approved_sale_is_not_charged_again(shop: Shop, sale: str) -> None:
    payment = await paid(shop, sale)
    assert await conflicts(shop, sale) == [payment.identity]
    await payment.approve()
    assert await conflicts(shop, sale) == [payment.identity]
    listed = (await shop.daemon.call("GET", f"/transactions?sale={sale}")).json["transactions"]
    assert [item["client_transaction_id"] for item in listed] == [payment.identity]
    assert (await payment.put(sale=sale)).status == 200  # the same call gets the payment instead of a refusal


async def test_a_payment_in_doubt_or_released_blocks_its_sale(shop: Shop, sale: str) -> None:
    payment = await shop.in_doubt(sale=sale)
    assert await conflicts(shop, sale) == [payment.identity]
    assert (await payment.post("release", {"operator": "Ana", "note": "broken"})).status == 200
    assert await conflicts(shop, sale) == [payment.identity]
    word = {"operator": "Ana", "note": "the acquirer knows nothing of it", "result": "not_started"}
    assert (await payment.post("resolve", word, admin=True)).status == 200
    assert await conflicts(shop, sale) == []


async def test_the_member_additional_allows_another_charge_of_the_same_sale(shop: Shop, sale: str) -> None:
    first = await paid(shop, sale)
    split = shop.payment()
    shop.terminal.start = acknowledging(split.serial)
    assert (await split.put(sale=sale, additional=True)).status == 201
    assert await conflicts(shop, sale) == [split.identity, first.identity]
    assert await conflicts(shop, sale.upper()) == []
    assert (await shop.payment().put(sale="")).status == 422
    assert (await shop.payment().put(sale="x" * 129)).status == 422


@pytest.mark.parametrize("_race", named_quick(range(RACES), (0, 1, 2)))
async def test_of_two_tills_on_two_terminals_one_succeeds(shop: Shop, sale: str, _race: int) -> None:
    tills = [shop.payment(), shop.payment()]

    async def acknowledge(request: Request, writer: asyncio.StreamWriter) -> None:
        serial = next(till.serial for till in tills if till.identity.encode() in request.body)
        await acknowledging(serial)(request, writer)

    shop.terminal.start = acknowledge
    replies = await asyncio.gather(*(till.put(sale=sale) for till in tills))
    assert sorted(reply.status for reply in replies) == [201, 409]
    winner, loser = tills if replies[0].status == 201 else reversed(tills)
    refusal = next(reply for reply in replies if reply.status == 409)
    assert (refusal.json["code"], refusal.json["transactions"]) == ("sale_conflict", [winner.identity])
    assert (len(winner.requests), len(loser.requests)) == (1, 0)
    with disk(shop.daemon) as db:
        rows = db.execute("SELECT client_transaction_id FROM transactions WHERE sale = ?", (sale,)).fetchall()
    assert rows == [(winner.identity,)]
