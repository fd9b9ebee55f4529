"""A terminal's delivery alone, on a virtual clock. Queue, sender, TLS and receivers are real."""

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from posd.simulator.clock import VirtualClock
from posd.simulator.delivery import Poster, Queue, QueuedEvent, Sender
from posd.simulator.ledger import Ledger
from posd.simulator.network import client_context
from tests.simulator.conftest import Receiver, Script

#: Start of the tests' clock, a time in 2026.
START = 1_780_000_000.0


class Delivering:
    """Control of a sender, with the arrivals at the receiver and their times."""

    def __init__(self, sender: Sender, queue: Queue, ledger: Ledger, clock: VirtualClock, receiver: Receiver) -> None:
        self.sender = sender
        self.queue = queue
        self.ledger = ledger
        self.clock = clock
        self.receiver = receiver

    def submit(
        self,
        transaction: str,
        *,
        url: str | None = None,
        say: int | None = None,
        event_id: str | None = None,
        **fields: Any,
    ) -> str:
        """Queue an event. Return its id. `say` gives the receiver's reply, if the test's receiver listens."""
        event_id = event_id or str(uuid.uuid4())
        body = json.dumps({"event_id": event_id, "client_transaction_id": transaction, "status": "X", "say": say})
        self.sender.submit(QueuedEvent(event_id, transaction, "X", url or self.receiver.url, body, **fields))
        return event_id

    def attempts(self, event_id: str) -> list[dict[str, Any]]:
        return self.ledger.of("attempt", event_id=event_id)

    def dropped(self, event_id: str) -> list[str]:
        return [line["reason"] for line in self.ledger.of("dropped", event_id=event_id)]


class Book:
    """Times of arrival at the receiver, in terminal seconds since the clock's start."""

    def __init__(self, clock: VirtualClock, receiver: Receiver, answer: Script) -> None:
        self.arrivals: list[tuple[float, str]] = []
        self.answer = answer
        self._clock = clock
        receiver.answer = self._note

    def _note(self, event: dict[str, Any]) -> int | None:
        self.arrivals.append((self._clock.now() - START, event["event_id"]))
        return self.answer(event)

    def times(self, event_id: str) -> list[float]:
        return [at for at, arrived in self.arrivals if arrived == event_id]

    def first(self, event: dict[str, Any]) -> bool:
        """Record an arrival. Return whether the event arrives for the first time."""
        return len(self.times(event["event_id"])) == 1

    def order(self) -> list[str]:
        return [event_id for _, event_id in self.arrivals]


@asynccontextmanager
async def delivering(
    directory: Path,
    trust: Path,
    clock: VirtualClock,
    receiver: Receiver,
    *,
    timeout: float = 30.0,
) -> AsyncIterator[Delivering]:
    """Run a sender on the queue of this directory. The end of the block is like a power cut."""
    queue, ledger = Queue(directory / "queue.jsonl"), Ledger()
    poster = Poster(client_context(trust), clock)
    sender = Sender(queue, ledger, clock, poster, timeout=timeout, seed="policy", unruly=False)
    sender.start()
    try:
        yield Delivering(sender, queue, ledger, clock, receiver)
    finally:
        await sender.stop()
        await poster.close()
        queue.close()
