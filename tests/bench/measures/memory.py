"""Resident memory: idle, after many payments, and of each till that waits."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.paying import pay
from tests.bench.processes import KIB, processor_seconds, quiet, resident_bytes
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import open_shop
from tests.bench.wire import call, taken_over
from tests.support.senders import crowd

MIB = 1024 * KIB

#: MB (of 1024 × 1024 bytes), the last KB (of 1024).
IDLE_LIMIT = 55.0
GROWTH_LIMIT = 5.0
WAITING_LIMIT = 25.0

#: Terminals of the shop, all of which take payments at once, and how often the memory is looked at meanwhile.
TERMINALS = 16
LOOKS = 20
#: After a load, until what it has used is given back: sweeps of the daemon that follow in some seconds. Seconds.
SETTLE_SECONDS = 10
#: Payments that are open while tills wait; as many tills wait for each.
OPEN = 10


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure the memory of a daemon as it is in a shop: with discovery on."""
    if not bench.short:
        async with open_shop(bench.directory("memory-bytecode"), 1, as_installed(bench)):
            pass  # the first start writes the bytecode, and is larger for it
    return [*await _of_payments(bench), await _of_tills(bench)]


async def _of_payments(bench: Bench) -> Sequence[Row]:
    count, looks = bench.pick(100_000, 96), bench.pick(LOOKS, 2)
    async with open_shop(bench.directory("memory"), TERMINALS, as_installed(bench), "enabled = true") as shop:
        await asyncio.sleep(bench.pick(60, 1))
        idle = resident_bytes(shop.pid) / MIB
        grown: dict[int, float] = {}
        seconds, used = 0.0, processor_seconds(shop.pid)
        for paid in range(count // looks, count + 1, count // looks):
            seconds += await pay(shop, count // looks)
            grown[paid] = resident_bytes(shop.pid) / MIB
            bench.say(f"{paid:,} payments, {grown[paid]:.1f} MB")
        used = processor_seconds(shop.pid) - used
        await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
        after = resident_bytes(shop.pid) / MIB
    pace = {
        "payments_per_second": count / seconds,
        "processor_ms_per_payment": used / count * 1000,
        "terminals": TERMINALS,
    }
    naive = await _of_naive(bench)
    return [
        Row(
            figure="resident memory, idle",
            measured=idle,
            limit=IDLE_LIMIT,
            unit="MB",
            at_least=False,
            ours=f"{idle:.1f} MB",
            naive=f"{naive:.1f} MB",
            note="a minute after the start, discovery on, sixteen terminals",
        ),
        Row(
            figure=f"resident memory, after {count:,} payments, above idle",
            measured=after - idle,
            limit=GROWTH_LIMIT,
            unit="MB",
            at_least=False,
            ours=f"{after:.1f} MB",
            note=f"{count / seconds:,.0f} payments a second, five requests each",
            details=pace | {"idle_mb": idle, "mb_after_payments": grown, "mb_settled": after},
        ),
    ]


async def _of_naive(bench: Bench) -> float:
    """Return the MB of a naive receiver that has just started."""
    directory = bench.directory("memory-naive")
    database = ("--database", str(directory / "naive.db"))
    size = 0.0
    for _ in range(bench.pick(2, 1)):  # the first start writes the bytecode
        async with serving("tests.bench.naive", directory, *database, environment=as_installed(bench)) as server:
            await quiet(server.pid)
            size = resident_bytes(server.pid) / MIB
    return size


async def _of_tills(bench: Bench) -> Row:
    """Of tills that wait for open payments over a connection each, the client's memory not counted."""
    count = bench.pick(1000, 20)
    async with open_shop(bench.directory("waiting"), OPEN, as_installed(bench), "enabled = true") as shop:
        payments = await shop.start(OPEN)
        await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
        resident = {0: resident_bytes(shop.pid)}
        async with AsyncExitStack() as stack:
            for tills in (count, 2 * count):
                connections = stack.enter_context(crowd(shop.daemon.till_socket, count))
                for number, connection in enumerate(connections):
                    waiting = await taken_over(connection)
                    stack.callback(waiting.close)
                    waiting.send(call("GET", f"{payments[number % OPEN].identity}/outcome"))
                await quiet(shop.pid)
                resident[tills] = resident_bytes(shop.pid)
    each = (resident[count] - resident[0]) / count / KIB
    more = (resident[2 * count] - resident[count]) / count / KIB
    return Row(
        figure="resident memory of a waiting till",
        measured=each,
        limit=WAITING_LIMIT,
        unit="KB",
        at_least=False,
        ours=f"{each:.1f} KB",
        note=f"of {count:,} that wait for {OPEN} open payments over a connection each; of {count:,} more {more:.1f} KB",
        details={"mb_by_tills": {tills: size / MIB for tills, size in resident.items()}, "kb_of_one_more": more},
    )
