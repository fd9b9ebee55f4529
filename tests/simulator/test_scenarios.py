"""Every scenario's events, in shape and sequence, at a real HTTPS receiver (spec 2.1, 3.1, 6.1)."""

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.operations import FINALS, Status
from posd.simulator.scenario import Wait, draw, payments
from tests.simulator.conftest import SPEED, Receiver, Till

ALWAYS = {"event_id", "occurred_at", "status", "merchant_id", "client_transaction_id", "terminal"}
A, C, Q = "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED"

#: scenario -> (status, reading_type or None where the event has none), in order
SEQUENCES: dict[str, list[tuple[str, str | None]]] = {
    "approve-contactless": [(A, None), (C, "CONTACTLESS"), (Q, "CONTACTLESS"), ("APPROVAL", "CONTACTLESS")],
    "approve-chip-pin": [(A, None), (C, "CHIP"), (Q, "CHIP"), ("APPROVAL", "CHIP")],
    "approve-third-presentation": [
        (A, None),
        (C, "CONTACTLESS"),
        (C, "CHIP"),
        (C, "CHIP"),
        (Q, "CHIP"),
        ("APPROVAL", "CHIP"),
    ],
    "decline": [(A, None), (C, "CONTACTLESS"), (Q, "CONTACTLESS"), ("DECLINED", "CONTACTLESS")],
    "reject-before-card": [(A, None), ("TERMINAL_REJECTED", None)],
    "reject-after-card": [(A, None), (C, "CHIP"), ("TERMINAL_REJECTED", "CHIP")],
    "cancel-by-cardholder": [(A, None), ("TERMINAL_CANCELED", None)],
    "wait-for-abort": [(A, None), ("TERMINAL_REJECTED", None)],
}
#: status -> what its event carries beside the fields that all have, previous_status and reading_type
EXTRAS = {
    "APPROVAL": {"operation", "raw_response"},
    "DECLINED": {"failure_reason"},
    "TERMINAL_REJECTED": {"operation", "failure_reason"},
    "TERMINAL_CANCELED": {"operation"},
}


async def run(till: Till, receiver: Receiver, scenario: str, **fields: Any) -> list[dict[str, Any]]:
    metadata = {"scenario": scenario, "reference": "ticket 1042"}
    answer = await till.charge(metadata=metadata, events_webhook_url=receiver.url, **fields)
    assert answer.status_code == 200, answer.text
    deliveries = await receiver.wait_for(len(SEQUENCES[scenario]))
    return [delivery.event for delivery in deliveries]


@pytest.mark.quick(3)
@pytest.mark.parametrize("scenario", SEQUENCES)
async def test_the_events_of_a_scenario(till: Till, receiver: Receiver, scenario: str) -> None:
    events = await run(till, receiver, scenario)
    assert [(event["status"], event.get("reading_type")) for event in events] == SEQUENCES[scenario]
    previous = None
    for event in events:
        expected = ALWAYS | EXTRAS.get(event["status"], set())
        expected |= {"previous_status"} if previous else set()
        expected |= {"reading_type"} if "reading_type" in event else set()
        assert set(event) == expected
        assert event.get("previous_status") == previous
        assert event["terminal"] == {"serial_number": "SN-0001", "brand": "Simulated", "model": "SIM-1"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["occurred_at"])
        previous = event["status"]
    assert len({event["event_id"] for event in events}) == len(events)
    assert len({event["client_transaction_id"] for event in events}) == 1
    assert {delivery.headers["content-type"] for delivery in receiver.deliveries} == {"application/json"}


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
    assert set(raw) == {
        "additional_amounts",
        "authorized_amount",
        "card_type",
        "cvm_type",
        "franchise",
        "gateway_response",
        "message_fields",
        "transaction_reference",
        "transaction_status",
        "transaction_type",
        "ticket_number",
        "card_data",
    }
    assert set(raw["additional_amounts"]) == {"account_type", "amount", "amount_type", "card_type", "currency_code"}
    assert set(raw["message_fields"]) == {"F11", "F38", "F39", "F55"}
    assert all(isinstance(value, str) for value in raw["message_fields"].values())
    assert set(raw["gateway_response"]) == {"code", "message"}
    assert set(raw["card_data"]) == {"bank", "brand", "country", "type"}
    assert raw["cvm_type"] == "PIN"
    assert raw["authorized_amount"] == 5
    assert str(uuid.UUID(raw["transaction_reference"])) == raw["transaction_reference"] != transaction
    final = till.terminal.ledger.of("final", client_transaction_id=transaction)
    assert [(line["status"], line["charged"], line["amount"]) for line in final] == [("APPROVAL", True, 5)]
    assert final[0]["transaction_reference"] == raw["transaction_reference"]


@pytest.mark.parametrize("scenario", [name for name, steps in SEQUENCES.items() if steps[-1][0] != "APPROVAL"])
async def test_only_an_approval_charges(till: Till, receiver: Receiver, scenario: str) -> None:
    events = await run(till, receiver, scenario)
    (final,) = till.terminal.ledger.of("final")
    assert (final["status"], final["charged"], final["amount"]) == (events[-1]["status"], False, None)


async def test_the_first_event_comes_one_to_two_seconds_after_the_acknowledgement(
    till: Till, receiver: Receiver
) -> None:
    answer = await till.charge(events_webhook_url=receiver.url)
    (start,), event = till.terminal.ledger.of("start"), await till.terminal.ledger.wait_for("event")
    waited = int(event["at"][17:19] + event["at"][20:23]) - int(start["at"][17:19] + start["at"][20:23])
    assert waited % 60_000 >= 1000 / SPEED - 1  # milliseconds, both rounded
    assert answer.json()["event_id"] != (await receiver.wait_for(1))[0].event["event_id"]


async def test_a_payment_without_a_webhook_runs_and_says_nothing(till: Till) -> None:
    answer = await till.charge()
    assert answer.status_code == 200
    assert (await till.terminal.ledger.wait_for("final"))["charged"] is True
    assert till.terminal.ledger.of("event") == []
    assert (await till.charge()).status_code == 200  # and leaves the terminal free


@pytest.mark.parametrize("scenario", SEQUENCES)
def test_these_end_in_a_final_and_only_there(scenario: str) -> None:
    steps = payments()[scenario].steps
    assert steps[0].status == Status.TERMINAL_ACKNOWLEDGED
    assert [step.status in FINALS for step in steps] == [False] * (len(steps) - 1) + [True]


@pytest.mark.parametrize("seed", range(50))
def test_cycles_take_as_long_as_the_spec_has_observed(seed: int) -> None:
    def length(scenario: str) -> float:
        rng = Random(seed)
        return sum(draw(step.after, rng) for step in payments()[scenario].steps if not isinstance(step.after, Wait))

    assert 8 <= length("approve-contactless") <= 33
    assert 8 <= length("approve-chip-pin") <= 33
    assert 10 <= length("reject-before-card") <= 12
    assert 1.8 <= length("cancel-by-cardholder") <= 3.2


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
