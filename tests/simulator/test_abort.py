"""Aborts, at every state and in races (spec 3.1, rule 2)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.scenarios import SCENARIOS
from tests.simulator.conftest import Receiver, Till


async def test_nothing_running_is_a_conflict(till: Till) -> None:
    answer = await till.abort()
    assert (answer.status_code, answer.json()["code"]) == (409, "NOTHING_RUNNING")


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_an_abort_before_the_first_event_still_lets_that_event_come(
    slow_till: Till, receiver: Receiver, scenario: str
) -> None:
    await slow_till.charge(metadata={"scenario": scenario}, events_webhook_url=receiver.url)
    assert (await slow_till.abort()).status_code == 200
    events = [delivery.event for delivery in await receiver.wait_for(2)]
    assert [event["status"] for event in events] == ["TERMINAL_ACKNOWLEDGED", "TERMINAL_CANCELED"]
    assert events[1]["previous_status"] == "TERMINAL_ACKNOWLEDGED"
    assert not {"reading_type", "failure_reason", "raw_response"} & set(events[1])


async def test_an_abort_after_the_card_was_presented(slow_till: Till, receiver: Receiver) -> None:
    await slow_till.charge(metadata={"scenario": "approve-chip-pin"}, events_webhook_url=receiver.url)
    await slow_till.terminal.ledger.wait_for("event", status="CARD_PRESENTED")
    assert (await slow_till.abort()).status_code == 200
    last = (await receiver.wait_for(3))[-1].event
    assert (last["status"], last["previous_status"]) == ("TERMINAL_CANCELED", "CARD_PRESENTED")
    assert not {"reading_type", "failure_reason", "raw_response"} & set(last)
    assert last["operation"]["type"] == "CHARGE"


async def test_after_approval_was_requested_it_is_too_late(slow_till: Till, receiver: Receiver) -> None:
    await slow_till.charge(events_webhook_url=receiver.url)
    await slow_till.terminal.ledger.wait_for("event", status="APPROVAL_REQUESTED")
    answer = await slow_till.abort()
    assert (answer.status_code, answer.json()["code"]) == (409, "PAST_POINT_OF_NO_RETURN")
    await receiver.wait_for(4)
    assert receiver.statuses[-1] == "APPROVAL"


async def test_two_aborts_of_one_payment_cancel_it_once(slow_till: Till) -> None:
    await slow_till.charge(metadata={"scenario": "wait-for-abort"})
    answers = await asyncio.gather(slow_till.abort(), slow_till.abort())
    assert [answer.status_code for answer in answers] == [200, 200]
    await slow_till.terminal.ledger.wait_for("final")
    assert (await slow_till.abort()).status_code == 409
    assert len(slow_till.terminal.ledger.of("final")) == 1


async def test_an_abort_that_races_the_approval_is_kept_or_refused_but_never_half(
    settings: Callable[..., Settings], client: httpx2.AsyncClient
) -> None:
    """Whatever the moment: 200 means canceled and not charged, 409 means that the payment took its course."""
    ends = {200: ("TERMINAL_CANCELED", False), 409: ("APPROVAL", True)}
    rng, seen = Random(5), Counter[str]()
    async with Simulator(settings(speed=500)) as terminal:
        till = Till(terminal, client)
        for _ in range(40):
            transaction = (await till.charge()).json()["operation"]["client_transaction_id"]
            await asyncio.sleep(rng.uniform(0.0, 0.04))  # the moment is what varies here, nothing waits for it
            aborted = (await till.abort()).status_code
            final = await terminal.ledger.wait_for("final", client_transaction_id=transaction)
            assert (final["status"], final["charged"]) == ends[aborted]
            seen[final["status"]] += 1
    assert set(seen) == {"TERMINAL_CANCELED", "APPROVAL"}, seen
