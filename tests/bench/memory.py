"""Resident memory: of an idle daemon, after many payments, and for each waiting till."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tests.bench.bench import Bench
from tests.bench.paying import pay, start
from tests.bench.shop import Shop, open_shop
from tests.bench.table import Row
from tests.bench.wire import taken_over, till
from tests.support.senders import crowd
from tests.support.usage import KIB, MIB, quiet, resident_bytes

#: Limits of memory. The first two limits are in MB (1024 × 1024 bytes), the last limit is in KB (1024 bytes).
IDLE_LIMIT = 45.0
GROWTH_LIMIT = 3.0
WAITING_LIMIT = 25.0

#: Terminals of the shop, which all run payments at once.
TERMINALS = 16
#: Seconds until a new daemon is idle, and seconds after a load until the daemon has released its memory.
IDLE_SECONDS, SETTLE_SECONDS = 60, 10
#: Number of open payments while tills wait. Each payment has the same number of waiting tills.
OPEN = 10


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure the memory of daemons as in a shop, with discovery on. Each round has its own daemons."""
    if not bench.short:  # the first start needs more memory, because it writes bytecode
        async with open_shop(bench.directory("memory-bytecode"), 1, bench.as_installed()):
            pass
    count = bench.pick(10_000, 96)
    idle, after = list[float](), list[float]()
    async with AsyncExitStack() as stack:
        shops = await open_shops(bench, stack, "memory")
        await asyncio.sleep(bench.pick(IDLE_SECONDS, 1))
        for shop in shops:
            idle.append(resident_bytes(shop.pid) / MIB)
        for shop in shops:
            await pay(shop, count)
            await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
            after.append(resident_bytes(shop.pid) / MIB)
    grown = [more - less for more, less in zip(after, idle, strict=True)]
    return [
        Row("resident memory, idle", idle, IDLE_LIMIT, "MB"),
        Row(f"the same after {count:,} payments, above idle", grown, GROWTH_LIMIT, "MB"),
        await _of_tills(bench),
    ]


async def open_shops(bench: Bench, stack: AsyncExitStack, name: str) -> list[Shop]:
    """Start a shop for each round, all at once, with discovery on."""
    return [
        await stack.enter_async_context(
            open_shop(bench.directory(f"{name}/{number}"), TERMINALS, bench.as_installed(), "enabled = true")
        )
        for number in bench.rounds()
    ]


async def _of_tills(bench: Bench) -> Row:
    """Measure the memory for each till that waits for an open payment on a connection of its own, without the client's
    memory.
    """
    count, each = bench.pick(1000, 20), list[float]()
    async with AsyncExitStack() as stack:
        for shop in await open_shops(bench, stack, "waiting"):
            own = await till(shop.daemon.till_socket)
            payments = [await start(shop, own, serial) for serial in shop.serials[:OPEN]]
            own.close()
            await asyncio.sleep(bench.pick(SETTLE_SECONDS // 2, 0))
            before = resident_bytes(shop.pid)
            async with AsyncExitStack() as waiters:
                connections = waiters.enter_context(crowd(shop.daemon.till_socket, count))
                for place, connection in enumerate(connections):
                    waiting = await taken_over(connection)
                    waiters.callback(waiting.close)
                    waiting.send("GET", f"/v1/transactions/{payments[place % OPEN]}/outcome")
                await quiet(shop.pid)
                each.append((resident_bytes(shop.pid) - before) / count / KIB)
    return Row(f"resident memory of a waiting till, of {count:,}", each, WAITING_LIMIT, "KB")
