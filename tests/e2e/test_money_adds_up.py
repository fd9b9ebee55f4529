"""Exact amounts from the till's JSON to the terminal's wire. posd refuses a wrong sum before it sends a request."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from posd.base.times import iso, parse_iso
from tests.e2e.test_unlikely import approved as approved_in
from tests.rig.chains import Operation, approved, operation, taking
from tests.rig.shop import Payment, Shop, acknowledging, open_shop
from tests.rig.tables import every

pytestmark = pytest.mark.asyncio(loop_scope="module")
#: Number of terminals in the quick suite.
TERMINALS = 60

TILLS = 8
NIL = "00000000-0000-0000-0000-000000000000"


async def refused(shop: Shop, code: str, **request: Any) -> Any:
    """Start a charge. Check that posd refuses with this code, and sends and records nothing."""
    payment = shop.payment()
    reply = await payment.put(**request)
    assert (reply.status, reply.json["code"]) == (409 if code == "expired" else 422, code), reply.body
    assert payment.requests == []
    assert (await shop.daemon.call("GET", f"/transactions/{payment.identity}")).status == 404
    return reply.json


async def test_without_a_setting_the_currency_of_approvals_counts_even_after_a_restart(home: Path) -> None:
    async with open_shop(home) as own:
        again = own.payment()
        again.serial = (await approved_in(own, currency="JPY")).serial
        for _ in range(2):
            refusal = (await again.put(amount={"subtotal_iva0": "5.1"})).json
            assert refusal["errors"][0]["path"] == "/amount/subtotal_iva0"
            # only another terminal has an approval
            await refused(own, "invalid_request", amount={"subtotal_iva0": "5.001"})
            assert await own.daemon.stop() == 0
            await own.daemon.start()
        own.terminal.start = acknowledging(again.serial)
        assert (await again.put(amount={"subtotal_iva0": "5.0"})).status == 201


async def test_all_refunds_together_are_limited_by_the_charge(shop: Shop) -> None:
    charge = await approved(shop, "charge")
    first = await operation(shop, "refund", charge).begin(original=charge.identity, amount={"subtotal_iva0": 5})
    await first.finish(raw_response=first.answer(authorized_amount=5))
    outcome = (await first.get())["outcome"]
    assert (outcome["result"], outcome["reversal"], outcome["authorized_amount"]) == ("approved", "refund", 5)

    refund = operation(shop, "refund", charge)
    problem = await refund.refused("already_derived", original=charge.identity, amount={"subtotal_iva0": 1})
    assert '"additional": true' in problem["detail"]
    for amount in ({"subtotal_iva0": 6.21}, {}):
        given = {"amount": amount} if amount else {}
        problem = await refund.refused("amount_exceeds", original=charge.identity, repeat=True, **given)
        assert problem["allowed"] == Decimal("6.20")
    await (await refund.begin(original=charge.identity, repeat=True, amount={"subtotal_iva0": 6.2})).finish(
        raw_response=refund.answer(authorized_amount=6.2)
    )
    await operation(shop, "void", charge).refused("chain_conflict", original=charge.identity, repeat=True)


#: Type of an original -> the operations of tills that race for it.
RACES = (("pre-auth", "capture void"), ("pre-auth", "re-auth"), ("charge", "void refund"), ("charge", "post-tip"))


@every("first, kinds", RACES)
async def test_posd_sends_only_one_of_simultaneous_operations_on_one_original(
    shop: Shop, first: str, kinds: str
) -> None:
    original = await approved(shop, first)
    names = [{"original": original.identity.upper()}, {"transaction_reference": original.reference}]
    tills = [operation(shop, kind) for kind in kinds.split() * (TILLS // len(kinds.split()))]
    shop.terminal.start = taking
    replies = await asyncio.gather(*(till.put(**names[number // 2 % 2]) for number, till in enumerate(tills)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * (TILLS - 1)
    assert sorted(len(till.requests) for till in tills) == [0] * (TILLS - 1) + [1]
    assert {reply.json["code"] for reply in replies if reply.status == 409} <= {"chain_conflict", "already_derived"}
    assert len((await original.get())["derived"]) == 1


async def ended(item: Operation, authorized: float | None, **request: Any) -> Operation:
    """Run an operation to its approval with this `authorized_amount`."""
    await item.begin(**request)
    return await item.finish(raw_response=item.answer(authorized_amount=authorized))


@pytest.mark.parametrize("reference", [NIL, "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"])
async def test_customers_with_the_same_reference_do_not_block_each_other(shop: Shop, reference: str) -> None:
    charges = []
    for _ in range(2):
        charge = await operation(shop, "charge").begin()
        await charge.finish(raw_response=charge.answer(transaction_reference=reference))
        charges.append(charge)
    first, second = charges
    (told,) = (await second.get())["attention"]
    assert told["code"] == "approval_unlikely"
    assert first.identity in told["detail"]
    for charge in charges:
        document = await charge.get()
        assert document["derived"] == []
        await ended(operation(shop, "refund", charge), 11.20, original=charge.identity)
    for kind in ("refund", "void") if reference != NIL else ():  # the same reference on a third terminal is ambiguous
        problem = await operation(shop, kind).refused("unknown_original", transaction_reference=reference)
        assert first.identity in problem["detail"]


# `not_after`.


def soon(seconds: float) -> str:
    return iso(datetime.now(UTC) + timedelta(seconds=seconds))


async def test_a_call_that_waited_too_long_in_a_queue_charges_no_customer(shop: Shop) -> None:
    problem = await refused(shop, "expired", not_after=soon(-600))
    assert parse_iso(problem["now"]) - parse_iso(problem["not_after"]) >= timedelta(minutes=10)
    assert "under a new id" in problem["detail"]


async def test_a_start_in_time_is_sent_and_a_later_repetition_gets_the_payment(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    assert (await payment.put(not_after=soon(600))).status == 201
    assert len(payment.requests) == 1
    for later in (soon(-600), soon(900), None, "nonsense"):
        assert (await payment.put(not_after=later)).status == 200


#: Till's `amount` -> amount in the request to the terminal, as bytes.
AMOUNTS = {
    '{"iva": 0.1, "subtotal_iva": 0.2}': '{"iva":0.1,"subtotal_iva":0.2,"subtotal_iva0":0}',
    '{"iva": "10.10"}': '{"iva":10.10,"subtotal_iva":0,"subtotal_iva0":0}',
    '{"iva": 0.00, "subtotal_iva": 5, "tip": 1.50}': '{"iva":0.00,"subtotal_iva":5,"subtotal_iva0":0,"tip":1.50}',
    '{"extra_taxes": {"ice": 0.7}}': '{"iva":0,"subtotal_iva":0,"subtotal_iva0":0,"extra_taxes":{"ice":0.7}}',
}


async def put(payment: Payment, amount: str, more: str = "") -> Any:
    """Start a payment with exactly these bytes."""
    text = f'{{"terminal": "{payment.serial}", "amount": {amount}{more}}}'.encode()
    return await payment.shop.daemon.call("PUT", f"/transactions/{payment.identity}", text)


@pytest.mark.parametrize("amount", AMOUNTS, ids=str)
async def test_an_amount_reaches_the_terminal_with_the_digits_of_the_till(shop: Shop, amount: str) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    reply = await put(payment, amount)
    assert reply.status == 201
    (request,) = payment.requests
    assert f'"amount":{AMOUNTS[amount]},'.encode() in request.body
    assert f'"amount":{AMOUNTS[amount]},'.encode() in reply.body
    assert (await put(payment, amount)).status == 200


#: Free-form objects, with numbers in the notation of a till.
FREE_FORM = (
    '{"price": 1.10, "huge": 1e5, "tiny": 1E-7, "big": 12345678901234567890.123456789}',
    '{"z": 1, "a": {"c": [1.0, 1.00], "b": null}, "m": true}',
    '{"name": "Peña 日本 \\u00e9 \\ud83d\\ude00 \\"quoted\\" \\/", "empty": ""}',
    '{ "spaced" :  [ 1 ,2 ] }',
)


@pytest.mark.parametrize("text", FREE_FORM)
async def test_metadata_and_options_are_sent_verbatim(shop: Shop, text: str) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    members = text.strip()[1:-1].strip()
    reply = await put(payment, '{"iva": 1}', f', "metadata": {text}, "options": {{"omit_card": true, {members}}}')
    assert reply.status == 201
    (request,) = payment.requests
    assert f'"metadata":{text}'.encode() in request.body
    sent = json.loads(request.body, parse_float=str)
    given = json.loads(text, parse_float=str)
    assert {name: sent[name] for name in given} == given
    assert list(sent)[-len(given) - 1 :] == ["omit_card", *given]
    assert text.encode() in (await shop.daemon.call("GET", f"/transactions/{payment.identity}")).body
