"""Measurement of payments from the till's PUT to the last event: many at once, and one after the other."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import repeat
from uuid import uuid4

from tests.bench.shop import AMOUNT, Shop
from tests.bench.wire import Wire, listener, taken_over, till
from tests.support import events
from tests.support.senders import crowd
from tests.support.usage import processor_seconds, quiet

#: Pause after each step of a single payment, in seconds. In a shop the next step also comes later, so two steps share
#: no work.
PAUSE_SECONDS = 0.003


async def start(shop: Shop, own: Wire, serial: str) -> str:
    """Start a payment. Return the id."""
    identity = str(uuid4())
    own.send("PUT", f"/v1/transactions/{identity}", json.dumps({"terminal": serial, "amount": AMOUNT}).encode())
    await own.answer(201)
    return identity


async def end(shop: Shop, lan: Wire, identity: str, serial: str) -> None:
    """Send all events of an approved payment."""
    path = shop.arrived.pop(identity)
    for status, previous in events.APPROVED:
        lan.send("POST", path, events.body(identity, status, previous, serial))
        await lan.answer(200)


async def pay(shop: Shop, count: int) -> None:
    """Run this many payments to their end, on all terminals at once.

    Each terminal has a till in a process of its own, because a process may start only a limited number of payments in a
    day. Each terminal sends its events over one connection.
    """
    left = repeat(None, count)
    with crowd(shop.daemon.till_socket, len(shop.serials), each=1) as tills:
        async with asyncio.TaskGroup() as group:
            for connection, serial in zip(tills, shop.serials, strict=True):
                group.create_task(_pay(shop, connection, serial, left))


async def _pay(shop: Shop, connection: socket.socket, serial: str, left: Iterator[None]) -> None:
    own, lan = await taken_over(connection), await listener(shop.daemon.port, shop.daemon.ca)
    try:
        for _ in left:
            await end(shop, lan, await start(shop, own, serial), serial)
    finally:
        own.close()
        lan.close()


@asynccontextmanager
async def one_by_one(shop: Shop) -> AsyncIterator["Alone"]:
    """Connect a till, a waiting till, a reader of the feed and the terminals for the block."""
    wires = own, waiter, feed = [await till(shop.daemon.till_socket) for _ in range(3)]
    lan = await listener(shop.daemon.port, shop.daemon.ca)
    feed.send("GET", "/v1/feed", headers="accept: text/event-stream\r\n")
    reading = asyncio.create_task(feed.discard())
    try:
        yield Alone(shop, own, waiter, lan)
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        for wire in (*wires, lan):
            wire.close()


class Alone:
    """Measurement of payments that run one after the other. Each payment has a start, the terminal's acknowledgement,
    four events, a till that waits for the outcome, and a reader of the feed that gets the changes.
    """

    def __init__(self, shop: Shop, own: Wire, waiter: Wire, lan: Wire) -> None:
        self._shop, self._own, self._waiter, self._lan = shop, own, waiter, lan

    async def pay(self, count: int) -> float:
        """Run payments on the terminals in turn.

        Return the daemon's processor seconds for each payment, over all its threads.
        """
        await quiet(self._shop.pid)
        used = processor_seconds(self._shop.pid)
        for number in range(count):
            serial = self._shop.serials[number % len(self._shop.serials)]
            identity = await start(self._shop, self._own, serial)
            await asyncio.sleep(PAUSE_SECONDS)
            self._waiter.send("GET", f"/v1/transactions/{identity}/outcome")
            await asyncio.sleep(PAUSE_SECONDS)
            await end(self._shop, self._lan, identity, serial)
            await self._waiter.answer(200)
            await asyncio.sleep(PAUSE_SECONDS)
        await quiet(self._shop.pid)
        return (processor_seconds(self._shop.pid) - used) / count
