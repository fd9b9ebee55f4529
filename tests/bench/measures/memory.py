"""Resident memory: idle, after many payments, after a flood of strangers, and of each till that waits."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import median

from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.paying import pay
from tests.bench.processes import KIB, processor_seconds, quiet, resident_bytes
from tests.bench.program import ROOT, Program
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import Shop, open_shop
from tests.bench.wire import call, taken_over
from tests.hostile.measure import forget_peak, usage
from tests.support.senders import crowd

MIB = 1024 * KIB

#: MB (of 1024 × 1024 bytes), the last KB (of 1024).
IDLE_LIMIT = 45.0
GROWTH_LIMIT = 3.0
FLOOD_LIMIT = 8.0
WAITING_LIMIT = 25.0

#: Terminals of the shop, all of which take payments at once.
TERMINALS = 16
#: After a load, until what it has used is given back: sweeps of the daemon that follow in some seconds. Seconds.
SETTLE_SECONDS = 10
#: What strangers do at the same time (`tests.hostile.attacks`): hundreds of connections, half handshakes, wrong tokens.
FLOOD = ("open-hold", "half-handshakes", "handshakes", "forged")
#: Payments that are open while tills wait; as many tills wait for each.
OPEN = 10


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure the memory of daemons as they are in a shop: with discovery on. Each round has daemons of its own."""
    await write_bytecode(bench, "memory-bytecode")
    paying, flooded = await _of_payments(bench), await _of_flood(bench)
    naive = await _of_naive(bench)
    count = bench.pick(10_000, 96)
    idle = [sizes["idle"] for sizes in (*paying, *flooded)]
    after = [sizes["after"] for sizes in paying]
    return [
        Row(
            figure="resident memory, idle",
            rounds=idle,
            limit=IDLE_LIMIT,
            unit="MB",
            at_least=False,
            ours=f"{median(idle):.1f} MB",
            naive=f"{naive:.1f} MB",
            note=f"a minute after the start, discovery on, {TERMINALS} terminals; {len(idle)} daemons",
        ),
        Row(
            figure=f"resident memory, after {count:,} payments, above idle",
            rounds=[sizes["after"] - sizes["idle"] for sizes in paying],
            limit=GROWTH_LIMIT,
            unit="MB",
            at_least=False,
            ours=f"{median(after):.1f} MB",
            note=(
                f"{median(sizes['per_second'] for sizes in paying):,.0f} payments a second, five requests each, "
                f"{median(sizes['processor_ms'] for sizes in paying):.1f} ms of processor time each"
            ),
            details={"rounds": paying},
        ),
        Row(
            figure="resident memory, after a flood of strangers, above idle",
            rounds=[sizes["after"] - sizes["idle"] for sizes in flooded],
            limit=FLOOD_LIMIT,
            unit="MB",
            at_least=False,
            ours=f"{median(sizes['after'] for sizes in flooded):.1f} MB",
            note=(
                f"{', '.join(FLOOD)} of tests/hostile at once, "
                f"{median(sizes['connections'] for sizes in flooded):,.0f} connections; "
                f"during it {median(sizes['peak'] for sizes in flooded):.1f} MB"
            ),
            details={"rounds": flooded},
        ),
        await _of_tills(bench),
    ]


async def write_bytecode(bench: Bench, name: str, program: Program | None = None) -> None:
    """Start a daemon once: the first start writes the bytecode, and is larger for it."""
    if not bench.short:
        async with open_shop(bench.directory(name), 1, as_installed(bench), program=program):
            pass


async def idle_shops(bench: Bench, stack: AsyncExitStack, name: str) -> list[tuple[Shop, float]]:
    """Start a shop for each round, all at once; return them, and the MB of each a minute later."""
    shops = [
        await stack.enter_async_context(
            open_shop(bench.directory(f"{name}/{number}"), TERMINALS, as_installed(bench), "enabled = true")
        )
        for number in bench.rounds()
    ]
    await asyncio.sleep(bench.pick(60, 1))
    return [(shop, resident_bytes(shop.pid) / MIB) for shop in shops]


async def _of_payments(bench: Bench) -> list[dict[str, float]]:
    count, found = bench.pick(10_000, 96), []
    async with AsyncExitStack() as stack:
        for shop, idle in await idle_shops(bench, stack, "memory"):
            used = processor_seconds(shop.pid)
            seconds = await pay(shop, count)
            used = processor_seconds(shop.pid) - used
            await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
            after = resident_bytes(shop.pid) / MIB
            bench.say(f"memory: {idle:.1f} MB, after {count:,} payments {after:.1f} MB")
            pace = {"per_second": count / seconds, "processor_ms": used / count * 1000}
            found.append({"idle": idle, "after": after} | pace)
    return found


async def _of_flood(bench: Bench) -> list[dict[str, float]]:
    found = []
    async with AsyncExitStack() as stack:
        for number, (shop, idle) in enumerate(await idle_shops(bench, stack, "flooded")):
            forget_peak(shop.pid)
            done = await _flood(shop, bench.pick(8, 1), number)
            peak = usage(shop.pid).peak_mb
            await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
            after = resident_bytes(shop.pid) / MIB
            bench.say(f"memory: {idle:.1f} MB, in a flood {peak:.1f} MB, after it {after:.1f} MB")
            found.append({"idle": idle, "peak": peak, "after": after, "connections": float(done["connections"])})
    return found


async def _flood(shop: Shop, seconds: float, number: int) -> Mapping[str, int]:
    """Let strangers do all of it at once for a time; return what they have done."""
    body = shop.daemon.directory / "body"
    body.write_bytes(b"{}")
    processes = []
    for place, name in enumerate(FLOOD):
        sources = [f"127.{10 + number}.{place}.{host}" for host in range(1, 9)]
        command = (sys.executable, "-m", "tests.hostile.attacker", name, "--port", str(shop.daemon.port))
        options = ("--seconds", str(seconds), "--path", "/", "--body", str(body), "--nice", "5")
        processes.append(
            await asyncio.create_subprocess_exec(
                *(*command, *options, "--socket", str(shop.daemon.till_socket), *sources),
                stdout=asyncio.subprocess.PIPE,
                env=Program().environment({}),
                cwd=ROOT,
            )
        )
    done = Counter[str]()
    for process in processes:
        output, _ = await process.communicate()
        done.update(json.loads(output))
    return done


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
    count, each = bench.pick(1000, 20), list[float]()
    for number in bench.rounds():
        async with open_shop(bench.directory(f"waiting/{number}"), OPEN, as_installed(bench), "enabled = true") as shop:
            payments = await shop.start(OPEN)
            await asyncio.sleep(bench.pick(SETTLE_SECONDS // 2, 0))
            before = resident_bytes(shop.pid)
            async with AsyncExitStack() as stack:
                connections = stack.enter_context(crowd(shop.daemon.till_socket, count))
                for place, connection in enumerate(connections):
                    waiting = await taken_over(connection)
                    stack.callback(waiting.close)
                    waiting.send(call("GET", f"{payments[place % OPEN].identity}/outcome"))
                await quiet(shop.pid)
                each.append((resident_bytes(shop.pid) - before) / count / KIB)
    return Row(
        figure="resident memory of a waiting till",
        rounds=each,
        limit=WAITING_LIMIT,
        unit="KB",
        at_least=False,
        ours=f"{median(each):.1f} KB",
        note=f"of {count:,} that wait for {OPEN} open payments over a connection each",
    )
