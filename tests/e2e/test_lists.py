"""Lists of payments by what the till wrote and by how they ended, and their totals."""

from decimal import Decimal
from urllib.parse import quote
from uuid import uuid4

import pytest

from posd.payments.model import Result
from tests.support.shop import Payment, Shop, acknowledging, answering

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ids(shop: Shop, query: str) -> list[str]:
    reply = await shop.daemon.call("GET", f"/transactions?{query}")
    assert reply.status == 200, reply.body
    return [item["client_transaction_id"] for item in reply.json["transactions"]]


async def wrote(shop: Shop, metadata: str) -> str:
    """Start a payment with metadata that are written so, byte for byte."""
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    amount = '"amount": {"iva": 1.20, "subtotal_iva": 10.00}'
    body = f'{{"terminal": "{payment.serial}", {amount}, "metadata": {metadata}}}'.encode()
    assert (await shop.daemon.call("PUT", f"/transactions/{payment.identity}", body)).status == 201
    return payment.identity


async def test_metadata_is_found_however_it_was_escaped(shop: Shop) -> None:
    own = str(uuid4())
    php = await wrote(shop, f'{{"n\\u00famero": "caf\\u00e9 \\"7\\" \\/ {own}"}}')
    plain = await wrote(shop, f'{{"número": "café \\"7\\" / {own}"}}')
    value = quote(f'café "7" / {own}', safe="")
    assert await ids(shop, f"metadata.n%C3%BAmero={value}") == [plain, php]
    odd = await wrote(shop, f'{{"a\\"b\\\\c\\u0000": "{own}"}}')
    assert await ids(shop, f"metadata.a%22b%5Cc%00={own}") == [odd]


async def test_numbers_are_found_by_value_and_texts_as_they_are(shop: Shop) -> None:
    mine = f"metadata.batch={(batch := str(uuid4()))}"
    number, text, rounded = [
        await wrote(shop, f'{{"batch": "{batch}", "table": {table}}}') for table in ("7.0", '"7"', '"7.00"')
    ]
    assert await ids(shop, f"{mine}&metadata.table=7") == [text, number]
    assert await ids(shop, f"{mine}&metadata.table=7.00") == [rounded, number]
    assert await ids(shop, f"{mine}&metadata.table=70e-1") == [number]
    assert await ids(shop, f"metadata.table=7&{mine}&open=true") == [text, number]
    assert await ids(shop, f"{mine}&metadata.table=8") == []


async def ended_so(shop: Shop, result: Result, batch: str) -> Payment:
    """Return a payment that ended so."""
    payment = shop.payment()
    shop.terminal.start = answering(409) if result is Result.NOT_STARTED else acknowledging(payment.serial)
    amount = {"iva": 1.2, "subtotal_iva": 10, "tip": 0.5}
    assert (await payment.put(amount=amount, metadata={"batch": batch})).status == 201
    statuses = {
        Result.APPROVED: "APPROVAL",
        Result.DECLINED: "DECLINED",
        Result.REJECTED: "TERMINAL_REJECTED",
        Result.CANCELED: "TERMINAL_CANCELED",
    }
    if result in statuses:
        await payment.end(statuses[result])
    return payment


async def test_the_filter_by_result_goes_with_the_others(shop: Shop) -> None:
    mine = f"metadata.batch={(batch := str(uuid4()))}"
    payments = {result: await ended_so(shop, result, batch) for result in Result}
    still_open = await shop.started(metadata={"batch": batch})
    for result, payment in payments.items():
        assert await ids(shop, f"{mine}&result={result}") == [payment.identity]
        assert await ids(shop, f"result={result}&terminal={payment.serial}") == [payment.identity]
        assert await ids(shop, f"result={result}&terminal={still_open.serial}") == []
        assert await ids(shop, f"{mine}&result={result}&open=true") == []
        assert payment.identity in await ids(shop, f"result={result}&phase=final&limit=500")
    reply = await shop.daemon.call("GET", "/transactions?result=lost")
    assert (reply.status, reply.json["errors"][0]["path"]) == (422, "result")


async def test_totals_are_of_the_whole_filter_whatever_the_page(shop: Shop) -> None:
    mine = f"metadata.batch={(batch := str(uuid4()))}"
    for result in (Result.APPROVED, Result.DECLINED, Result.APPROVED):
        await ended_so(shop, result, batch)
    await shop.started(metadata={"batch": batch})
    expected = [
        {"type": "charge", "result": "approved", "count": 2, **sums("22.4", "22.40", "1.0")},
        {"type": "charge", "result": "declined", "count": 1, **sums("11.2", "0", "0.5")},
        {"type": "charge", "result": None, "count": 1, **sums("11.2", "0", "0")},
    ]
    first = (await shop.daemon.call("GET", f"/transactions?{mine}&totals=true&limit=1")).json
    assert len(first["transactions"]) == 1
    cursor = first["next_cursor"]
    second = (await shop.daemon.call("GET", f"/transactions?{mine}&totals=true&limit=1&cursor={cursor}")).json
    assert first["totals"] == second["totals"] == expected
    of_one = (await shop.daemon.call("GET", f"/transactions?{mine}&totals=true&result=declined")).json
    assert of_one["totals"] == expected[1:2]
    none = (await shop.daemon.call("GET", "/transactions?totals=true&sale=of-no-payment")).json
    assert none == {"transactions": [], "next_cursor": None, "totals": []}
    assert "totals" not in (await shop.daemon.call("GET", f"/transactions?{mine}&totals=false")).json


def sums(amount: str, authorized: str, tips: str) -> dict[str, Decimal]:
    return {"amount": Decimal(amount), "authorized_amount": Decimal(authorized), "tips": Decimal(tips)}
