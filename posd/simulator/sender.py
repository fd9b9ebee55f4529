"""Delivers the queue's events: one lane per transaction, in order; what to do after an attempt is decided elsewhere.

An event that goes alone has a lane of its own. So has each event of an unruly sender, that keeps no order: it is held
up for a while, and some come twice.
"""

import asyncio
import ssl
from random import Random

from posd.simulator import delivery
from posd.simulator.clock import Clock
from posd.simulator.delivery import Delivered, Drop, Retry
from posd.simulator.ledger import Ledger
from posd.simulator.posting import Poster
from posd.simulator.queue import Item, Queue


class Sender:
    """Carries out the delivery policy: persistent, in order within a transaction, lanes independent.

    Source: terminal API, Delivery.
    """

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
        #: By transaction; of what goes alone by the item's number.
        self._lanes: dict[str | int, asyncio.Task[None]] = {}
        self._poster = Poster(tls, timeout, clock)
        self._connected = asyncio.Event()
        self._connected.set()

    def start(self) -> None:
        """Take up what an earlier run left in the queue."""
        for item in self._queue.items():
            self._send(item)

    def submit(self, item: Item) -> None:
        """Queue an event; it is on file when this returns, and on its way soon after."""
        self._send(self._queue.put(item))

    def pause(self) -> None:
        """Lose the network: no attempt begins, and none is counted; one that is under way ends as it ends.

        The 15 minutes of an event that was tried before go on.
        """
        self._connected.clear()

    def resume(self) -> None:
        """Have the network again: what waits goes on its way, each transaction's in its order."""
        self._connected.set()

    async def stop(self) -> None:
        """Stop at once; what was not delivered stays queued."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        await self._poster.close()

    def _send(self, item: Item) -> None:
        """See to it that an item is on its way: in its transaction's lane, or alone where order is not kept."""
        lane = item.number if self._unruly or item.alone else item.client_transaction_id
        if lane in self._lanes:
            return
        self._lanes[lane] = asyncio.create_task(self._run(lane, item))

    async def _run(self, lane: str | int, item: Item) -> None:
        try:
            if self._unruly:
                await self._run_unruly(item)
            elif item.alone:
                await self._deliver(item)
                self._queue.done(item)
            else:
                await self._run_lane(item.client_transaction_id)
        finally:
            del self._lanes[lane]

    async def _run_lane(self, transaction: str) -> None:
        while (item := self._queue.first(transaction)) is not None:
            await self._deliver(item)
            self._queue.done(item)

    async def _run_unruly(self, item: Item) -> None:
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
        if item.due is not None:
            await self._clock.sleep(self._clock.until(item.due))
        while True:
            await self._connected.wait()
            gone = self._gone(item)  # before a restart, or while the network was away
            if gone is not None:
                self._drop(item, gone)
                return False
            began = self._clock.now()
            self._queue.attempted(item, at=began)  # before it is made: killed in between, it is not made once more
            outcome = await self._poster.post(item.url, item.body.encode(), distrusted=item.distrusted)
            decision = delivery.decide(
                outcome,
                attempts=item.attempts,
                elapsed=self._clock.since(began if item.first_attempt_at is None else item.first_attempt_at),
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

    def _gone(self, item: Item) -> Drop | None:
        """Return why no attempt may be made any more, None where one may."""
        if item.first_attempt_at is None:
            return None
        return delivery.exhausted(attempts=item.attempts, elapsed=self._clock.since(item.first_attempt_at))

    def _drop(self, item: Item, drop: Drop) -> None:
        self._ledger.add(
            "dropped",
            client_transaction_id=item.client_transaction_id,
            event_id=item.event_id,
            status=item.status,
            again=item.again,
            reason=drop.reason,
        )
