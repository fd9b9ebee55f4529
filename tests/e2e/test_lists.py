"""Lists of payments by what the till wrote and by how they ended, their totals, and amounts as texts."""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from posd.payments.model import Result
from tests.support.events import APPROVED
from tests.support.shop import Payment, Shop, acknowledging, answering
from tests.support.streams import ask, collect, stream

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
    of = {"of": "payment", "currency": None}
    expected = [
        {"type": "charge", "result": "approved", **of, "count": 2, **sums("22.4", "22.40", "1.0")},
        {"type": "charge", "result": "declined", **of, "count": 1, **sums("11.2", "0", "0.5")},
        {"type": "charge", "result": None, **of, "count": 1, **sums("11.2", "0", "0")},
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


async def test_a_stream_has_amounts_as_it_was_asked_for(shop: Shop) -> None:
    payment = await shop.started()
    await payment.end("APPROVAL")
    read = {}
    for query in ("", "?amounts=text"):
        async with stream(shop.daemon.till_socket, f"/transactions/{payment.identity}/events{query}") as source:
            read[query] = await collect(source, lambda message: message.event == "outcome")
    numbers, texts = ([message.json for message in read[query]] for query in ("", "?amounts=text"))
    assert texts[-1]["authorized_amount"] == "11.2"
    assert texts == in_texts(numbers)


async def test_a_till_that_waits_gets_the_outcome_as_it_asked_for(shop: Shop) -> None:
    payment = await shop.started()
    path = f"/transactions/{payment.identity}/outcome"
    waiting = [await ask(shop.daemon.till_socket, path + query) for query in ("?amounts=text", "")]
    await payment.end("APPROVAL")
    answers = [(await connection.reply())[1]["authorized_amount"] for connection in waiting]
    assert answers == ["11.2", Decimal("11.2")]
    for connection in waiting:
        connection.hang_up()


async def test_each_call_of_a_connection_asks_for_itself(shop: Shop) -> None:
    payment = await shop.started()
    path = f"/transactions/{payment.identity}"
    connection = await ask(shop.daemon.till_socket, f"{path}?amounts=text")
    assert (await connection.reply())[1]["amount"]["iva"] == "1.2"
    connection.writer.write(f"GET /v1{path} HTTP/1.1\r\nhost: posd\r\n\r\n".encode())
    assert (await connection.reply())[1]["amount"]["iva"] == Decimal("1.2")
    connection.hang_up()


@pytest.mark.parametrize("path", ["/version", "/health", "/openapi.json", "/terminals", "/print-jobs"])
async def test_a_call_without_amounts_takes_it_too(shop: Shop, path: str) -> None:
    numbers, texts = await both(shop, path)
    assert texts.keys() == numbers.keys()


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


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("", "since"),
        ("since=2026-11-20T00:00:00Z", "since"),
        ("since=2026-11-20T00:00:00Z&until=2026-11-20T00:00:00Z", "until"),
        ("since=2026-11-20T00:00:00Z&until=2028-11-20T00:00:00Z", "until"),
        ("since=0001-01-01T00:00:00Z&until=0001-01-02T00:00:00Z", "since"),
        ("since=9999-12-30T00:00:00Z&until=9999-12-31T00:00:00Z", "since"),
        ("since=2026-11-20T00:00:00&until=2026-11-21T00:00:00Z", "since"),
        ("since=2026-11-20T00:00:00Z&until=2026-11-21T00:00:00Z&shift=last", "shift"),
        ("shift=soon", "shift"),
        ("shift=open&timezone=Mars/Olympus", "timezone"),
        ("shift=open&timezone=../../etc", "timezone"),
        ("shift=open&timezone=America", "timezone"),
    ],
)
async def test_a_report_of_no_span_is_refused_with_what_is_wrong(shop: Shop, query: str, wrong: str) -> None:
    reply = await shop.daemon.call("GET", f"/report?{query}")
    assert (reply.status, reply.json["code"]) == (422, "invalid_request"), reply.body
    assert [error["path"] for error in reply.json["errors"]] == [wrong]
