"""Amounts of every operation: exact to the digit from the request to the event, with and without a tip."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import LOCAL, QUICK_SPEED, Receiver, Till, request

MakeSettings = Callable[..., Settings]
#: In the order of a chain: each is done to the reference that the one before it brought, the tip and the void to that
#: of a charge, the last void to the capture's.
STEPS = ("pre-auth", "re-auth", "capture", "void", "charge", "post-tip", "void")


async def run_all(till: Till, receiver: Receiver, amount: str) -> list[dict[str, Any]]:
    """Run STEPS, voids without an amount; return their final events as delivered, every number as its text."""
    events: list[dict[str, Any]] = []
    reference = None
    for name in STEPS:
        if name == "charge":
            reference = None
        fields = request(events_webhook_url=receiver.url)
        del fields["amount"]
        body = json.dumps(fields | ({"transaction_reference": reference} if reference else {}))
        if name != "void":
            body = f'{body[:-1]}, "amount": {amount}}}'
        answer = await till.post(body.encode(), LOCAL[name])
        assert answer.status_code == 200, answer.text
        assert name == "void" or f'"amount":{amount}' in answer.text
        await receiver.wait_for(4 * len(events) + 4)
        events.append(json.loads(receiver.deliveries[-1].raw, parse_float=str, parse_int=str))
        if name != "post-tip":
            reference = events[-1]["raw_response"]["transaction_reference"]
    return events


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("tip", "sent", "shown"),
    [
        (None, "", "0"),
        (None, ',"tip":3.30', "3.30"),
        ("1.50", "", "1.50"),
        ("0.0001", ',"tip":3.30', "3.3001"),
        ("999999999999", ',"tip":1', "1000000000000"),
        ("0", "", "0"),
    ],
)
async def test_a_tip_is_added_where_the_cardholder_pays(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, tip: str | None, sent: str, shown: str
) -> None:
    """Where one is set: to what is charged, authorized or captured, and not to a tip, nor to a void of its own."""
    amount = f'{{"subtotal_iva0":10.05{sent}}}'
    async with Simulator(settings(speed=QUICK_SPEED, tip=None if tip is None else Decimal(tip))) as terminal:
        events = await run_all(Till(terminal, client), receiver, amount)
    total, plain = Decimal("10.05") + Decimal(shown), json.loads(amount, parse_float=str, parse_int=str).get("tip", "0")
    seen = [(event["operation"]["amount"]["tip"], event["raw_response"]["authorized_amount"]) for event in events]
    tipped, without = (shown, str(total)), (plain, str(Decimal("10.05") + Decimal(plain)))
    assert seen == [tipped, tipped, tipped, tipped, tipped, without, tipped]
