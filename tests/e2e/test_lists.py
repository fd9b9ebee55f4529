"""Lists of payments by what the till wrote and by how they ended, their totals, and amounts as texts."""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from tests.support.events import APPROVED
from tests.support.shop import Shop, acknowledging

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def wrote(shop: Shop, metadata: str) -> str:
    """Start a payment with metadata that are written so, byte for byte."""
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    amount = '"amount": {"iva": 1.20, "subtotal_iva": 10.00}'
    body = f'{{"terminal": "{payment.serial}", {amount}, "metadata": {metadata}}}'.encode()
    assert (await shop.daemon.call("PUT", f"/transactions/{payment.identity}", body)).status == 201
    return payment.identity


#: Members of answers that hold amounts of posd's own.
AMOUNTS = {"amount", "authorized_amount", "tips"}
#: Members that stay as they came.
VERBATIM = {"metadata", "options", "final_event", "event"}


def in_texts(document: Any, *, amount: bool = False) -> Any:
    """Return a document whose amounts are numbers as it is where they are texts."""
    match document:
        case dict():
            return {
                name: value if name in VERBATIM else in_texts(value, amount=amount or name in AMOUNTS)
                for name, value in document.items()
            }
        case list():
            return [in_texts(item, amount=amount) for item in document]
        case int() | Decimal() if amount and not isinstance(document, bool):
            return str(document)
        case _:
            return document


async def both(shop: Shop, path: str, **call: Any) -> tuple[Any, Any]:
    """Return what a call answers with amounts as numbers, and as texts."""
    asked = [path, f"{path}{'&' if '?' in path else '?'}amounts=text"]
    replies = [await shop.daemon.call(call.get("method", "GET"), each, call.get("body")) for each in asked]
    assert replies[0].status == replies[1].status
    return replies[0].json, replies[1].json


async def test_amounts_are_texts_on_any_call_that_asks_for_it(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    amount = {"iva": 1.2, "subtotal_iva": "10.00", "extra_taxes": {"ice": 0.3}, "tip": 2}
    more = {"metadata": {"amount": 1.5, "n": 7}, "options": {"amount_limit": 9.99}}
    body = {"terminal": payment.serial, "amount": amount, **more}
    at = f"/transactions/{payment.identity}"
    started = await shop.daemon.call("PUT", f"{at}?amounts=text", body)
    assert started.status == 201
    assert started.json["amount"] == {
        "iva": "1.2",
        "subtotal_iva": "10.00",
        "subtotal_iva0": "0",
        "extra_taxes": {"ice": "0.3"},
        "tip": "2",
    }
    assert started.json["metadata"] == {"amount": Decimal("1.5"), "n": 7}
    first, *others = APPROVED  # in order, so that posd does not ask for it between two calls
    assert await payment.event(*first) == 200
    calls: Iterable[tuple[str, dict[str, Any]]] = [
        (at, {}),
        (at, {"method": "PUT", "body": body}),
        (f"{at}/outcome?timeout=0", {}),
        (f"{at}/history", {}),
        (f"/transactions?terminal={payment.serial}&totals=true", {}),
    ]
    for path, call in calls:
        numbers, texts = await both(shop, path, **call)
        assert texts == in_texts(numbers)
    for status, previous in others:
        assert await payment.event(status, previous) == 200
    for path in (at, f"{at}/outcome", f"{at}/events", f"/transactions?terminal={payment.serial}&totals=true", "/feed"):
        numbers, texts = await both(shop, path)
        assert texts == in_texts(numbers)
    numbers, texts = await both(shop, f"{at}/abort", method="POST")
    assert (numbers["code"], texts["outcome"]["authorized_amount"]) == ("already_final", "11.2")
    assert texts == in_texts(numbers)
    assert texts["outcome"]["final_event"]["raw_response"]["authorized_amount"] == Decimal("11.2")


async def test_any_other_word_is_refused_by_the_name_of_the_parameter(shop: Shop) -> None:
    for path in ("/version", f"/transactions/{uuid4()}", "/transactions"):
        for value in ("number", "", "Text"):
            reply = await shop.daemon.call("GET", f"{path}?amounts={value}")
            assert (reply.status, reply.json["code"]) == (422, "invalid_request")
            assert [error["path"] for error in reply.json["errors"]] == ["amounts"]
    payment = shop.payment()
    body = json.dumps({"terminal": payment.serial, "amount": {"iva": 1}}).encode()
    reply = await shop.daemon.call("PUT", f"/transactions/{payment.identity}?amounts=cents", body)
    assert (reply.status, reply.json["errors"][0]["path"]) == (422, "amounts")
    assert payment.requests == []
