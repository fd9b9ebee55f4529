"""Amounts, metadata and options: from the till's JSON to the terminal's wire, exactly (spec 2.4)."""

import json
from typing import Any

import pytest

from tests.support.shop import Payment, Shop, acknowledging

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: What the till writes as `amount` -> what the terminal reads, byte for byte.
AMOUNTS = {
    '{"iva": 0.1, "subtotal_iva": 0.2}': '{"iva":0.1,"subtotal_iva":0.2,"subtotal_iva0":0}',
    '{"iva": "10.10"}': '{"iva":10.10,"subtotal_iva":0,"subtotal_iva0":0}',
    '{"iva": 0.00, "subtotal_iva": 5, "tip": 1.50}': '{"iva":0.00,"subtotal_iva":5,"subtotal_iva0":0,"tip":1.50}',
    '{"extra_taxes": {"ice": 0.7}}': '{"iva":0,"subtotal_iva":0,"subtotal_iva0":0,"extra_taxes":{"ice":0.7}}',
}


async def put(payment: Payment, amount: str, more: str = "") -> Any:
    """Start a payment by text, so that the bytes are the test's own."""
    text = f'{{"terminal": "{payment.serial}", "amount": {amount}{more}}}'.encode()
    return await payment.shop.daemon.call("PUT", f"/transactions/{payment.identity}", text)


@pytest.mark.parametrize("amount", AMOUNTS, ids=str)
async def test_an_amount_reaches_the_terminal_as_the_till_wrote_it(shop: Shop, amount: str) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    reply = await put(payment, amount)
    assert reply.status == 201
    (request,) = payment.requests
    assert f'"amount":{AMOUNTS[amount]},'.encode() in request.body
    assert f'"amount":{AMOUNTS[amount]},'.encode() in reply.body
    assert (await put(payment, amount)).status == 200


#: The till's own objects, as it writes them.
FREE_FORM = (
    '{"price": 1.10, "huge": 1e5, "tiny": 1E-7, "big": 12345678901234567890.123456789}',
    '{"z": 1, "a": {"c": [1.0, 1.00], "b": null}, "m": true}',
    '{"name": "Peña 日本 \\u00e9 \\ud83d\\ude00 \\"quoted\\" \\/", "empty": ""}',
    '{ "spaced" :  [ 1 ,2 ] }',
)


@pytest.mark.parametrize("text", FREE_FORM)
async def test_metadata_and_options_go_verbatim(shop: Shop, text: str) -> None:
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
