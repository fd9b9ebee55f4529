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
TAXES = {"airport_tax": "0", "iac": "0", "ice": "0.0500", "travel_agency": "0"}
#: As it is sent, digit by digit.
AMOUNT = '{"iva":1.20,"subtotal_iva":10.00,"subtotal_iva0":999999999999.9999,"extra_taxes":{"ice":0.0500}}'


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


async def test_every_digit_arrives(quick_till: Till, receiver: Receiver) -> None:
    events = await run_all(quick_till, receiver, AMOUNT)
    sent = json.loads(AMOUNT, parse_float=str, parse_int=str)
    for event in events:
        assert event["operation"]["amount"] == sent | {"currency": "USD", "tip": "0", "extra_taxes": TAXES}
        assert event["raw_response"]["authorized_amount"] == "1000000000011.2499"
        assert event["raw_response"]["additional_amounts"]["amount"] == "1000000000011.2499"
    ledger = json.loads((await quick_till.get("/simulator/ledger")).text, parse_float=str, parse_int=str)
    finals = [line["amount"] for line in ledger if line["kind"] == "final"]
    assert finals == ["1000000000011.2499"] * len(STEPS)


async def test_a_void_after_a_restart_has_every_digit_of_its_original(
    settings: MakeSettings, client: httpx2.AsyncClient
) -> None:
    event: dict[str, Any] = {}
    for name in ("charge", "void"):
        body = request(transaction_reference=event["raw_response"]["transaction_reference"]) if event else request()
        del body["amount"]
        text = json.dumps(body) if event else f'{json.dumps(body)[:-1]}, "amount": {AMOUNT}}}'
        async with Simulator(settings(speed=QUICK_SPEED)) as terminal:
            till = Till(terminal, client)
            assert (await till.post(text.encode(), LOCAL[name])).status_code == 200
            await terminal.ledger.wait_for("final")
            answer = await till.search(body["client_transaction_id"])
        (event,) = json.loads(answer.content, parse_float=str, parse_int=str)
        assert event["operation"]["amount"]["iva"] == "1.20"
        assert event["operation"]["amount"]["extra_taxes"] == TAXES
        assert event["raw_response"]["authorized_amount"] == "1000000000011.2499"


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


async def test_a_void_of_its_own_amount_gets_no_tip(settings: MakeSettings, client: httpx2.AsyncClient) -> None:
    async with Simulator(settings(speed=QUICK_SPEED, tip=Decimal("1.50"))) as terminal:
        till = Till(terminal, client)
        reference = (await till.run("charge"))["raw_response"]["transaction_reference"]
        void = await till.run("void", transaction_reference=reference, amount={"subtotal_iva0": 4})
    assert (void["operation"]["amount"]["tip"], void["raw_response"]["authorized_amount"]) == ("0", "4")


async def test_the_acknowledgement_knows_of_no_tip(settings: MakeSettings, client: httpx2.AsyncClient) -> None:
    async with Simulator(settings(tip=Decimal("1.50"))) as terminal:
        answer = await Till(terminal, client).charge(amount={"subtotal_iva0": 5})
    assert answer.json()["operation"]["amount"] == {"subtotal_iva0": 5}
