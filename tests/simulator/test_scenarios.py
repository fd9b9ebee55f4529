"""Every scenario's events, in shape and sequence, at a real HTTPS receiver (spec 2.1, 3.1, 6.1)."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import Receiver, Till


async def run(till: Till, receiver: Receiver, scenario: str, **fields: Any) -> list[dict[str, Any]]:
    metadata = {"scenario": scenario, "reference": "ticket 1042"}
    answer = await till.charge(metadata=metadata, events_webhook_url=receiver.url, **fields)
    assert answer.status_code == 200, answer.text
    deliveries = await receiver.wait_for(4)
    return [delivery.event for delivery in deliveries]


async def test_what_a_final_event_echoes_and_what_the_acquirer_adds(till: Till, receiver: Receiver) -> None:
    transaction = str(uuid.uuid4())
    events = await run(till, receiver, "approve-chip-pin", client_transaction_id=transaction, is_deferred=True)
    operation, raw = events[-1]["operation"], events[-1]["raw_response"]
    assert operation == {
        "type": "CHARGE",
        "amount": {
            "currency": "USD",
            "subtotal_iva0": 5,
            "tip": 0,
            "extra_taxes": {"airport_tax": 0, "iac": 0, "ice": 0, "travel_agency": 0},
        },
        "transaction_mode": "ONLINE",
        "client_transaction_id": transaction,
        "country": "ECU",
        "is_deferred": True,
        "is_cashback": False,
        "cashback_amount": 0,
        "omit_card": False,
        "metadata": {"scenario": "approve-chip-pin", "reference": "ticket 1042"},
        "query_deferred": False,
        "default_deferred": "",
        "show_decimal_places": True,
        "events_webhook_url": receiver.url,
    }
    names = (
        "additional_amounts authorized_amount card_data card_type cvm_type franchise gateway_response message_fields"
    )
    assert set(raw) == {
        *names.split(),
        *(f"transaction_{name}" for name in ("reference", "status", "type")),
        "ticket_number",
    }
    assert set(raw["message_fields"]) == {"F11", "F38", "F39", "F55"}
    assert raw["cvm_type"] == "PIN"
    assert raw["authorized_amount"] == 5
    assert str(uuid.UUID(raw["transaction_reference"])) == raw["transaction_reference"] != transaction
    final = till.terminal.ledger.of("final", client_transaction_id=transaction)
    assert [(line["status"], line["charged"], line["amount"]) for line in final] == [("APPROVAL", True, 5)]
    assert final[0]["transaction_reference"] == raw["transaction_reference"]


async def test_a_seed_gives_the_same_payment_again(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    body = b'{"client_transaction_id":"7f3c0000-0000-4000-8000-000000000001","amount":{"iva":1.50}}'
    finals: list[dict[str, Any]] = []
    for seed in (7, 7, 8):
        state = tmp_path / str(len(finals))
        state.mkdir()
        async with Simulator(settings(seed=seed, state=state)) as terminal:
            await Till(terminal, client).post(body)
            final = await terminal.ledger.wait_for("final")
        finals.append({name: value for name, value in final.items() if name != "at"})
    assert finals[0] == finals[1]
    assert finals[0]["transaction_reference"] != finals[2]["transaction_reference"]
