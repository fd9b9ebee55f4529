"""Delivers the queue's events: one lane per transaction, in order; what to do after an attempt is decided elsewhere.

An unruly sender keeps no order: each event has a lane of its own, is held up for a while, and some come twice.
"""

import asyncio
import ssl
import time
from random import Random

from posd.simulator import delivery
from posd.simulator.clock import Clock
from posd.simulator.delivery import Delivered, Drop, Retry
from posd.simulator.ledger import Ledger
from posd.simulator.posting import Poster
from posd.simulator.queue import Item, Queue


class Sender:
    """Carries out the delivery policy (spec 6.2): persistent, in order within a transaction, lanes independent."""

    def __init__(
        self,
        queue: Queue,
        ledger: Ledger,
        clock: Clock,
        *,
        tls: ssl.SSLContext,
        timeout: float,
        seed: str,
        unruly: bool,
    ) -> None:
        """`timeout` is in real seconds for a whole attempt; `tls` verifies the receivers' certificates."""
        self._queue = queue
        self._ledger = ledger
        self._clock = clock
        self._seed = seed
        self._unruly = unruly
        #: By transaction; of an unruly sender by the item's number.
        self._lanes: dict[str | int, asyncio.Task[None]] = {}
        self._poster = Poster(tls, timeout)

    def start(self) -> None:
        """Take up what an earlier run left in the queue."""
        for item in self._queue.items():
            self._send(item)

    def submit(self, item: Item) -> None:
        """Queue an event; it is on file when this returns, and on its way soon after."""
        self._send(self._queue.put(item))

    async def stop(self) -> None:
        """Stop at once; what was not delivered stays queued."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        await self._poster.close()

    def _send(self, item: Item) -> None:
        """See to it that an item is on its way: in its transaction's lane, or alone where order is not kept."""
        lane = item.number if self._unruly else item.client_transaction_id
        if lane in self._lanes:
            return
        self._lanes[lane] = asyncio.create_task(self._run(lane, item))

    async def _run(self, lane: str | int, item: Item) -> None:
        try:
            if self._unruly:
                await self._run_alone(item)
            else:
                await self._run_lane(item.client_transaction_id)
        finally:
            del self._lanes[lane]

    async def _run_lane(self, transaction: str) -> None:
        while (item := self._queue.first(transaction)) is not None:
            await self._deliver(item)
            self._queue.done(item)

    async def _run_alone(self, item: Item) -> None:
        rng = Random(f"{self._seed}/{item.event_id}/detour")  # noqa: S311 - reproducible, not secret
        detour = delivery.detour(rng)
        if not item.again:
            await self._clock.sleep(detour.delay)
            if await self._deliver(item) and detour.again:
                self._queue.again(item)
        if item.again:
            await self._clock.sleep(detour.again_after)
            await self._deliver(item)
        self._queue.done(item)

    async def _deliver(self, item: Item) -> bool:
        """Return when the item was delivered (True) or given up (False)."""
        jitter = Random(f"{self._seed}/{item.event_id}/{item.attempts}")  # noqa: S311 - reproducible, not secret
        if item.first_attempt_at is not None:  # left over from an earlier run
            gone = delivery.exhausted(attempts=item.attempts, elapsed=self._clock.since(item.first_attempt_at))
            if gone is not None:
                self._drop(item, gone)
                return False
        while True:
            began = time.time()
            outcome = await self._poster.post(item.url, item.body.encode())
            self._queue.attempted(item, at=began)
            decision = delivery.decide(
                outcome,
                attempts=item.attempts,
                elapsed=self._clock.since(item.first_attempt_at or began),
                jitter=jitter.random(),
            )
            self._ledger.add(
                "attempt",
                client_transaction_id=item.client_transaction_id,
                event_id=item.event_id,
                status=item.status,
                again=item.again,
                attempt=item.attempts,
                result=outcome,
                retry_in_seconds=round(decision.delay, 3) if isinstance(decision, Retry) else None,
            )
            match decision:
                case Delivered():
                    return True
                case Drop():
                    self._drop(item, decision)
                    return False
                case Retry():
                    await self._clock.sleep(decision.delay)

    def _drop(self, item: Item, drop: Drop) -> None:
        self._ledger.add(
            "dropped",
            client_transaction_id=item.client_transaction_id,
            event_id=item.event_id,
            status=item.status,
            again=item.again,
            reason=drop.reason,
        )
