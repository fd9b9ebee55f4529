"""Payments from the till's PUT to the last event: many at once, and one after the other."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from uuid import uuid4

from tests.bench.load import trusting
from tests.bench.processes import processor_seconds, quiet
from tests.bench.shop import AMOUNT, Payment, Shop
from tests.bench.wire import Wire, call, taken_over, till
from tests.support.senders import crowd

#: After each step of a payment alone, in seconds: in a shop the next one is seconds away and shares no work with it.
PAUSE_SECONDS = 0.003
FEED = b"GET /v1/feed HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n\r\n"


async def pay(shop: Shop, count: int) -> float:
    """Run so many payments to their end, on all terminals at once; return how many seconds that took.

    Each terminal has a till of its own, in a process of its own (no process may start so many in a day), and keeps its
    connection for its events.
    """
    left = repeat(None, count)
    with crowd(shop.daemon.till_socket, len(shop.serials), each=1) as tills:
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for connection, serial in zip(tills, shop.serials, strict=True):
                group.create_task(_pay(shop, connection, serial, left))
        return time.perf_counter() - begun


async def _pay(shop: Shop, connection: socket.socket, serial: str, left: Iterator[None]) -> None:
    own = await taken_over(connection)
    lan = Wire(await asyncio.open_connection("127.0.0.1", shop.daemon.port, ssl=trusting(shop.daemon.ca)))
    order = json.dumps({"terminal": serial, "amount": AMOUNT}).encode()
    try:
        for _ in left:
            identity = str(uuid4())
            own.send(call("PUT", identity, order))
            await own.answer(201)
            for event in Payment(identity, serial, shop.terminals.arrived.pop(identity)).events():
                lan.send(event)
                await lan.answer(200)
    finally:
        own.close()
        lan.close()


async def pay_each(shop: Shop) -> float:
    """Run a payment on each terminal, one after the other; return the daemon's processor seconds for each.

    A payment is a start, its terminal's acknowledgement and four events, the outcome at a till that waits, and the
    changes in the feed that another program reads. What is counted is the time of all the daemon's threads.
    """
    context = trusting(shop.daemon.ca)
    own, waiter, feed = [await till(shop.daemon.till_socket) for _ in range(3)]
    lan = Wire(await asyncio.open_connection("127.0.0.1", shop.daemon.port, ssl=context))
    await quiet(shop.pid)
    used = processor_seconds(shop.pid)
    feed.send(FEED)
    reading = asyncio.create_task(feed.discard())
    try:
        for serial in shop.serials:
            identity = str(uuid4())
            own.send(call("PUT", identity, json.dumps({"terminal": serial, "amount": AMOUNT}).encode()))
            await own.answer(201)
            path = shop.terminals.arrived.pop(identity)
            await asyncio.sleep(PAUSE_SECONDS)
            waiter.send(call("GET", f"{identity}/outcome"))
            await asyncio.sleep(PAUSE_SECONDS)
            for event in Payment(identity, serial, path).events():
                lan.send(event)
                await lan.answer(200)
            await waiter.answer(200)
            await asyncio.sleep(PAUSE_SECONDS)
        await quiet(shop.pid)
        return (processor_seconds(shop.pid) - used) / len(shop.serials)
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        for wire in (own, waiter, feed, lan):
            wire.close()
