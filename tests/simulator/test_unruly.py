"""An unruly terminal: events out of order and more than once, and none lost (spec 6.2: at least once)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import PATIENCE, Receiver, Till

ORDER = ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]
#: Payments that a test makes: 120 events.
PAYMENTS = 30
HASTE = 250.0


async def pay(till: Till, receiver: Receiver, number: int) -> str:
    """Run a payment to its end, return its id: always the same for a number, and with it everything that is drawn."""
    transaction = str(UUID(int=number, version=4))
    await till.charge(client_transaction_id=transaction, events_webhook_url=receiver.url)
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


@pytest.mark.slow
async def test_events_come_out_of_order_and_a_third_of_them_twice(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, receiver: Receiver, tmp_path: Path
) -> None:
    async with Simulator(settings(unruly=True, speed=HASTE, seed=1)) as terminal:
        transactions = [await pay(Till(terminal, client), receiver, number) for number in range(PAYMENTS)]
        await idle(terminal, tmp_path)
        made = [line["event_id"] for line in terminal.ledger.of("event")]
        again = terminal.ledger.of("attempt", again=True)
        assert terminal.ledger.of("dropped") == []
    times = Counter(delivery.event["event_id"] for delivery in receiver.deliveries)
    assert set(times) == set(made)
    assert set(times.values()) == {1, 2}
    twice = {event_id for event_id, count in times.items() if count == 2}
    assert len(made) / 5 <= len(twice) <= len(made) / 2
    assert {line["event_id"] for line in again} == twice
    assert all(line["attempt"] == 1 for line in again)
    bodies = {(delivery.event["event_id"], delivery.raw) for delivery in receiver.deliveries}
    assert len(bodies) == len(made)

    events = [item.event for item in receiver.deliveries]
    firsts = [
        list(dict.fromkeys(event["status"] for event in events if event["client_transaction_id"] == one))
        for one in transactions
    ]
    assert all(sorted(statuses) == sorted(ORDER) for statuses in firsts)
    disordered = [statuses for statuses in firsts if statuses != ORDER]
    assert PAYMENTS / 4 <= len(disordered) < PAYMENTS
    assert any(statuses[-1] != "APPROVAL" for statuses in disordered)  # the final overtakes too
