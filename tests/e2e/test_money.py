"""Amounts, metadata and options: from the till's JSON to the terminal's wire, exactly (spec 2.4)."""

import json
from typing import Any
from uuid import uuid4

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


#: A wrong `amount` -> the JSON Pointers of the problem.
WRONG = {
    '{"iva": NaN}': None,
    '{"iva": 1e12}': ["/amount/iva"],
    '{"iva": 1, "extra_taxes": 5, "a/b~c": -1}': ["/amount/extra_taxes", "/amount/a~1b~0c"],
    "null": ["/amount"],
}


@pytest.mark.parametrize("amount", WRONG, ids=str)
async def test_a_wrong_amount_is_refused_by_name(shop: Shop, amount: str) -> None:
    payment = Payment(shop, str(uuid4()), "SN-000")
    seen = len(shop.terminal.requests)
    reply = await put(payment, amount)
    pointers = WRONG[amount]
    if pointers is None:
        assert (reply.status, reply.json["code"]) == (400, "malformed_json")
    else:
        assert (reply.status, reply.json["code"]) == (422, "invalid_request")
        assert [error["path"] for error in reply.json["errors"]] == pointers
        assert all(error["message"] for error in reply.json["errors"])
    assert (await shop.daemon.call("GET", f"/transactions/{payment.identity}")).status == 404
    assert len(shop.terminal.requests) == seen


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


RESERVED = (
    "client_transaction_id",
    "amount",
    "metadata",
    "events_webhook_url",
    "webhookUrl",
    "transaction_reference",
)


async def test_options_cannot_replace_what_posd_sets(shop: Shop) -> None:
    payment = Payment(shop, str(uuid4()), "SN-000")
    reply = await payment.put(options=dict.fromkeys(RESERVED, "x"))
    assert reply.status == 422
    assert [error["path"] for error in reply.json["errors"]] == sorted(f"/options/{name}" for name in RESERVED)


async def test_the_free_form_objects_have_a_limit(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    limit = 16 * 1024
    options = '{"omit_card":true}'
    fits = json.dumps({"note": "x" * (limit - len(options) - len('{"note": ""}'))})
    assert len(fits) + len(options) == limit
    over = await put(payment, '{"iva": 1}', f', "metadata": {fits[:-2]}y"}}, "options": {options}')
    assert (over.status, over.json["errors"][0]["path"]) == (422, "/metadata")
    exact = await put(payment, '{"iva": 1}', f', "metadata": {fits}, "options": {options}')
    assert exact.status == 201
    assert fits.encode() in payment.requests[0].body
