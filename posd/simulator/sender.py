"""Delivers the queue's events: one lane per transaction, in order; what to do after an attempt is decided elsewhere."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from random import Random

import httpx2

from posd.simulator import delivery
from posd.simulator.clock import Clock
from posd.simulator.delivery import Delivered, Drop, Lost, Outcome, Retry
from posd.simulator.ledger import Ledger
from posd.simulator.queue import Item, Queue


class Sender:
    """Carries out the delivery policy (spec 6.2): persistent, in order within a transaction, lanes independent."""

    def __init__(
        self, queue: Queue, ledger: Ledger, clock: Clock, *, tls: ssl.SSLContext, timeout: float, seed: str
    ) -> None:
        """`timeout` is in real seconds for a whole attempt; `tls` verifies the receivers' certificates."""
        self._queue = queue
        self._ledger = ledger
        self._clock = clock
        self._timeout = timeout
        self._seed = seed
        self._lanes: dict[str, asyncio.Task[None]] = {}
        # A connection per attempt: a kept one that went stale would look like a failure of the consumer.
        self._client = httpx2.AsyncClient(
            verify=tls,
            trust_env=False,
            follow_redirects=False,
            timeout=None,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            headers={"content-type": "application/json", "user-agent": "card-terminal"},
        )

    def start(self) -> None:
        """Take up what an earlier run left in the queue."""
        for transaction in self._queue.transactions():
            self._open_lane(transaction)

    def submit(self, item: Item) -> None:
        """Queue an event; it is on file when this returns, and on its way soon after."""
        self._queue.put(item)
        if item.client_transaction_id not in self._lanes:
            self._open_lane(item.client_transaction_id)

    async def stop(self) -> None:
        """Stop at once; what was not delivered stays queued."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        await self._client.aclose()

    def _open_lane(self, transaction: str) -> None:
        self._lanes[transaction] = asyncio.create_task(self._run_lane(transaction))

    async def _run_lane(self, transaction: str) -> None:
        try:
            while (item := self._queue.first(transaction)) is not None:
                await self._deliver(item)
                self._queue.done(item)
        finally:
            del self._lanes[transaction]

    async def _deliver(self, item: Item) -> None:
        """Return when the item was delivered or given up."""
        jitter = Random(f"{self._seed}/{item.event_id}/{item.attempts}")  # noqa: S311 - reproducible, not secret
        if item.first_attempt_at is not None:  # left over from an earlier run
            gone = delivery.exhausted(attempts=item.attempts, elapsed=self._clock.since(item.first_attempt_at))
            if gone is not None:
                self._drop(item, gone)
                return
        while True:
            began = time.time()
            outcome = await self._attempt(item)
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
                attempt=item.attempts,
                result=outcome,
                retry_in_seconds=round(decision.delay, 3) if isinstance(decision, Retry) else None,
            )
            match decision:
                case Delivered():
                    return
                case Drop():
                    self._drop(item, decision)
                    return
                case Retry():
                    await self._clock.sleep(decision.delay)

    def _drop(self, item: Item, drop: Drop) -> None:
        self._ledger.add(
            "dropped",
            client_transaction_id=item.client_transaction_id,
            event_id=item.event_id,
            status=item.status,
            reason=drop.reason,
        )

    async def _attempt(self, item: Item) -> Outcome:
        try:
            async with asyncio.timeout(self._timeout):
                # The answer's body is nobody's business, and can be endless: only its status is read.
                async with self._client.stream("POST", item.url, content=item.body.encode()) as response:
                    return response.status_code
        except (TimeoutError, httpx2.TimeoutException):
            return Lost.TIMEOUT
        except httpx2.ConnectError as error:
            return _why_not_connected(error)
        except httpx2.HTTPError:
            return Lost.RESET


def _why_not_connected(error: BaseException) -> Lost:
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return Lost.TLS
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Lost.DNS
    return Lost.UNREACHABLE


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
