"""The start request: accepted and refused requests, and exact amounts (terminal API, Start request)."""

import json

import pytest

from posd.simulator.wire import encode
from tests.simulator.conftest import Receiver, Till

UUID = "7f3c0000-0000-4000-8000-000000000001"


REFUSED: list[tuple[bytes, int, str]] = [
    (b"{", 400, "not JSON"),
    (b'{"client_transaction_id": "\xff"}', 400, "not JSON"),
    (b"[]", 400, "not a JSON object"),
    (b"{}", 422, "client_transaction_id"),
    (b'{"client_transaction_id": 7, "amount": {}}', 422, "client_transaction_id"),
    (b'{"client_transaction_id": "7f3c", "amount": {}}', 422, "client_transaction_id"),
    (b'{"client_transaction_id": "%s"}' % UUID.encode(), 422, "amount"),
    *(
        (json.dumps({"client_transaction_id": UUID, "amount": {}} | fields).encode(), 422, named)
        for fields, named in (
            ({"amount": None}, "amount"),
            ({"amount": {"iva": "1.20"}}, "amount.iva"),
            ({"amount": {"iva": -1}}, "amount.iva"),
            ({"amount": {"iva": 0.12345}}, "amount.iva"),
            ({"amount": {"iva": 10**12}}, "amount.iva"),
            ({"amount": {"extra_taxes": {"ice": "1"}}}, "amount.extra_taxes.ice"),
            ({"events_webhook_url": 7}, "events_webhook_url"),
            ({"events_webhook_url": "ftp://127.0.0.1/x"}, "events_webhook_url"),
            ({"events_webhook_url": "https://127.0.0.1:99999/x"}, "events_webhook_url"),
            ({"metadata": {"scenario": "aprove"}}, "metadata.scenario"),
        )
    ),
]


@pytest.mark.quick(16)
@pytest.mark.parametrize(("body", "status", "named"), REFUSED, ids=range(len(REFUSED)))
async def test_a_request_that_breaks_the_terminal_api_is_refused(
    till: Till, body: bytes, status: int, named: str
) -> None:
    answer = await till.post(body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert named in answer.json()["message"]
    assert [line["http_status"] for line in till.terminal.ledger.of("start")] == [status]
    assert (await till.charge()).status_code == 200  # a refusal does not occupy the terminal


async def test_an_id_sent_twice_is_accepted_twice_and_the_ledger_shows_both(till: Till) -> None:
    assert (await till.charge(client_transaction_id=UUID)).status_code == 200
    await till.terminal.ledger.wait_for("final")
    assert (await till.charge(client_transaction_id=UUID)).status_code == 200
    assert len(till.terminal.ledger.of("start", client_transaction_id=UUID, http_status=200)) == 2


AMOUNTS = [
    ('{"iva":0.1,"subtotal_iva":0.2,"subtotal_iva0":0}', "0.3"),
    ('{"iva":1.20,"subtotal_iva":10.10,"subtotal_iva0":0.00}', "11.30"),
    ('{"subtotal_iva0":19999999.99}', "19999999.99"),
    ('{"subtotal_iva0":999999999999.9999}', "999999999999.9999"),
    ('{"subtotal_iva0":100,"tip":5.5,"extra_taxes":{"ice":0.05}}', "105.55"),
]


@pytest.mark.parametrize(("amount", "total"), AMOUNTS)
async def test_money_is_exact_from_the_request_to_the_event(
    till: Till, receiver: Receiver, amount: str, total: str
) -> None:
    """Every digit is compared as text, without a decoder between the wire and the assertion."""
    body = f'{{"client_transaction_id":"{UUID}","amount":{amount},"events_webhook_url":"{receiver.url}"}}'
    answer = await till.post(body.encode())
    assert f'"amount":{amount}' in answer.text
    final = (await receiver.wait_for(4))[-1].raw.decode()
    assert f'"authorized_amount":{total},' in final
    for name, value in json.loads(amount, parse_float=str, parse_int=str).items():
        if name == "extra_taxes":
            assert '"extra_taxes":{"airport_tax":0,"iac":0,"ice":0.05,"travel_agency":0}' in final
        elif name != "subtotal_iva0" and float(value) == 0:
            assert f'"{name}"' not in final
        else:
            assert f'"{name}":{value}' in final
    assert till.terminal.terminal.requests == [body]
    (line,) = till.terminal.ledger.of("final")
    assert f'"amount":{total},' in encode(list(till.terminal.ledger)).decode()
    assert str(line["amount"]) == total
