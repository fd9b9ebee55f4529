"""An unruly terminal: events out of order and more than once, and none lost (spec 6.2: at least once)."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.delivery import AGAIN_SECONDS, DETOUR_SECONDS
from tests.simulator.conftest import PATIENCE, Receiver, Till

MakeSettings = Callable[..., Settings]
ORDER = ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]
#: Payments that a test makes: 120 events.
PAYMENTS = 30
HASTE = 250.0


async def pay(till: Till, receiver: Receiver, number: int, scenario: str = "approve-contactless") -> str:
    """Run a payment to its end, return its id: always the same for a number, and with it everything that is drawn."""
    transaction = str(UUID(int=number, version=4))
    await till.charge(
        client_transaction_id=transaction, metadata={"scenario": scenario}, events_webhook_url=receiver.url
    )
    await till.terminal.ledger.wait_for("final", client_transaction_id=transaction)
    return transaction


async def idle(terminal: Simulator, state: Path) -> None:
    """Return when the terminal has nothing left to deliver: its queue's journal is empty then."""
    changed = asyncio.Event()
    terminal.ledger.listen(lambda _: changed.set())
    async with asyncio.timeout(PATIENCE):
        while (state / "queue.jsonl").stat().st_size:
            await changed.wait()
            changed.clear()


@asynccontextmanager
async def unruly(settings: MakeSettings, client: httpx2.AsyncClient, **changes: Any) -> AsyncIterator[Till]:
    async with Simulator(settings(**{"unruly": True, "speed": HASTE, "seed": 1} | changes)) as terminal:
        yield Till(terminal, client)


def of(receiver: Receiver, transaction: str) -> list[dict[str, Any]]:
    return [item.event for item in receiver.deliveries if item.event["client_transaction_id"] == transaction]


@pytest.mark.slow
async def test_events_come_out_of_order_and_a_third_of_them_twice(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, tmp_path: Path
) -> None:
    async with unruly(settings, client) as till:
        transactions = [await pay(till, receiver, number) for number in range(PAYMENTS)]
        await idle(till.terminal, tmp_path)
        made = [line["event_id"] for line in till.terminal.ledger.of("event")]
        again = till.terminal.ledger.of("attempt", again=True)
        assert till.terminal.ledger.of("dropped") == []
    times = Counter(delivery.event["event_id"] for delivery in receiver.deliveries)
    assert set(times) == set(made)
    assert set(times.values()) == {1, 2}
    twice = {event_id for event_id, count in times.items() if count == 2}
    assert len(made) / 5 <= len(twice) <= len(made) / 2
    assert {line["event_id"] for line in again} == twice
    assert all(line["attempt"] == 1 for line in again)
    bodies = {(delivery.event["event_id"], delivery.raw) for delivery in receiver.deliveries}
    assert len(bodies) == len(made)

    firsts = [list(dict.fromkeys(event["status"] for event in of(receiver, one))) for one in transactions]
    assert all(sorted(statuses) == sorted(ORDER) for statuses in firsts)
    disordered = [statuses for statuses in firsts if statuses != ORDER]
    assert PAYMENTS / 4 <= len(disordered) < PAYMENTS
    assert any(statuses[-1] != "APPROVAL" for statuses in disordered)  # the final overtakes too


async def test_without_it_each_comes_once_and_in_order(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, tmp_path: Path
) -> None:
    async with unruly(settings, client, unruly=False) as till:
        transactions = [await pay(till, receiver, number) for number in range(8)]
        await idle(till.terminal, tmp_path)
        assert till.terminal.ledger.of("attempt", again=True) == []
    for transaction in transactions:
        assert [event["status"] for event in of(receiver, transaction)] == ORDER


async def test_an_event_that_is_refused_does_not_hold_up_the_others(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver
) -> None:
    receiver.answer = lambda event: 503 if event["status"] == "TERMINAL_ACKNOWLEDGED" else 200
    async with unruly(settings, client, speed=100.0) as till:
        transaction = await pay(till, receiver, 1)
        for status in ORDER[1:]:
            await till.terminal.ledger.wait_for("attempt", status=status, result=200)
        retried = await till.terminal.ledger.wait_for("attempt", status=ORDER[0], attempt=2)
        assert (retried["client_transaction_id"], retried["result"]) == (transaction, 503)


async def test_what_is_refused_for_good_does_not_come_again(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer = lambda _: 404
    async with unruly(settings, client) as till:
        for number in range(5):
            await pay(till, receiver, number)
        await idle(till.terminal, tmp_path)
        assert len(till.terminal.ledger.of("dropped", again=False, reason="permanent_rejection")) == 20
    assert len(receiver.deliveries) == 20


async def test_the_second_delivery_is_tried_again_like_the_first(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, tmp_path: Path
) -> None:
    seen: Counter[str] = Counter()

    def second_fails_once(event: dict[str, Any]) -> int:
        seen[event["event_id"]] += 1
        return 503 if seen[event["event_id"]] == 2 else 200

    receiver.answer = second_fails_once
    async with unruly(settings, client) as till:
        for number in range(5):
            await pay(till, receiver, number)
        await idle(till.terminal, tmp_path)
        again = till.terminal.ledger.of("attempt", again=True)
    assert {(line["attempt"], line["result"]) for line in again} == {(1, 503), (2, 200)}
    assert set(seen.values()) == {1, 3}


async def test_what_waits_for_its_first_or_second_delivery_survives_a_restart(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, tmp_path: Path
) -> None:
    """Stopped where some events wait for their second delivery, and the finals are refused until then."""
    speed = 40.0  # the ten attempts of the refused take over seven seconds
    receiver.answer = lambda event: 503 if event["status"] == "TERMINAL_CANCELED" else 200
    async with unruly(settings, client, speed=speed) as till:
        for number in itertools.count():
            await pay(till, receiver, number, "cancel-by-cardholder")
            accepted = till.terminal.ledger.of("attempt", result=200)
            if (tmp_path / "queue.jsonl").read_text().count('"op":"again"') > sum(line["again"] for line in accepted):
                break
        await till.terminal.ledger.wait_for("attempt", status="TERMINAL_CANCELED", result=503)
        made = [line["event_id"] for line in till.terminal.ledger.of("event")]
    before = Counter(line["event_id"] for line in till.terminal.ledger.of("attempt", result=200))
    assert set(before) < set(made)
    receiver.answer = lambda _: 200
    async with unruly(settings, client, speed=speed) as till:
        await idle(till.terminal, tmp_path)
        first = till.terminal.ledger.of("attempt", status="TERMINAL_CANCELED", again=False)
        assert max(line["attempt"] for line in first) > 1  # counted on, not anew
        assert till.terminal.ledger.of("dropped") == []
        after = Counter(line["event_id"] for line in till.terminal.ledger.of("attempt", result=200))
    assert set(before + after) == set(made)
    assert set((before + after).values()) == {1, 2}
    assert set(before) & set(after)  # second deliveries that were waiting
    arrived = Counter(delivery.event["event_id"] for delivery in receiver.deliveries)
    assert set(arrived) == set(made)


@pytest.mark.quick(1)
@pytest.mark.parametrize("seconds", [DETOUR_SECONDS, AGAIN_SECONDS])
async def test_it_stops_at_once_while_events_are_held_up(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, seconds: float
) -> None:
    """At this speed the network holds events up for up to 20 seconds."""
    async with unruly(settings, client, speed=seconds / 20) as till:
        await till.charge(metadata={"scenario": "cancel-by-cardholder"}, events_webhook_url=receiver.url)
        await till.terminal.ledger.wait_for("final")
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 10
