"""Payments from the till's PUT to the last event, many at once and one after the other, as fast as they go."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from itertools import repeat
from uuid import uuid4

from tests.bench.load import trusting
from tests.bench.shop import AMOUNT, Payment, Shop
from tests.bench.wire import Wire, call, taken_over
from tests.support.senders import crowd


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
            _, path = shop.terminals.arrived.pop(identity)
            for event in Payment(identity, serial, path).events():
                lan.send(event)
                await lan.answer(200)
    finally:
        own.close()
        lan.close()
