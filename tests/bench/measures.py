"""Parameters, measurements and results. Each figure has a row, and the median of its rounds is compared with a limit.

The ratios of the quick run hardly depend on the load of the machine: processor time, memory and bytes written to the
disk. Other processes on the machine change rates, and hardly change these values.
"""

import asyncio
import os
import sys
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from posd.tls import issue
from tests.bench.shop import Shop, connected, one_by_one, open_shop, pay, start
from tests.rig.daemon import START_SECONDS, Daemon, toml
from tests.rig.figures import Figure
from tests.rig.manager import Manager, manager
from tests.rig.program import program
from tests.rig.senders import ask_on, crowd
from tests.rig.shim import Kind, Operation, build
from tests.rig.usage import FRESH, KIB, MIB, processor_seconds, quiet, resident_bytes

#: Rounds of each measurement.
ROUNDS = 5
#: Factor by which a ratio may be worse than the reference.
TOLERANCE = 1.25


@dataclass(frozen=True)
class Bench:
    """One run of the benchmark. With `short` the run only shows that every part works. The test suite uses `short`."""

    home: Path
    short: bool

    def rounds(self, warm: bool = False) -> range:
        """Return the numbers of the rounds. With `warm` add a round 0, whose figures do not count."""
        return range(1, 2) if self.short else range(0 if warm else 1, ROUNDS + 1)

    def pick(self, full: int, short: int) -> int:
        """Return the number for a full or for a short run."""
        return short if self.short else full

    def directory(self, name: str) -> Path:
        """Return a new directory."""
        made = self.home / name
        made.mkdir(parents=True)
        return made

    def as_installed(self) -> dict[str, str]:
        """Return an environment in which the interpreter keeps bytecode. For a short run the environment is empty,
        because writing bytecode would slow the run.
        """
        if self.short:
            return {}
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.home / "bytecode")}


#: A function that measures one part of the table.
Measure = Callable[[Bench], Awaitable[Sequence[Figure]]]

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


async def measure_memory(bench: Bench) -> Sequence[Figure]:
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
            idle.append(resident_bytes(shop.daemon.pid) / MIB)
        for shop in shops:
            await pay(shop, count)
            await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
            after.append(resident_bytes(shop.daemon.pid) / MIB)
    grown = [more - less for more, less in zip(after, idle, strict=True)]
    return [
        Figure("resident memory, idle", idle, "MB", IDLE_LIMIT),
        Figure(f"the same after {count:,} payments, above idle", grown, "MB", GROWTH_LIMIT),
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


async def _of_tills(bench: Bench) -> Figure:
    """Measure the memory for each till that waits for an open payment on a connection of its own, without the client's
    memory.
    """
    count, each = bench.pick(1000, 20), list[float]()
    async with AsyncExitStack() as stack:
        for shop in await open_shops(bench, stack, "waiting"):
            own = await connected(shop.daemon.till_socket)
            payments = [await start(own, serial) for serial in shop.serials[:OPEN]]
            own.hang_up()
            await asyncio.sleep(bench.pick(SETTLE_SECONDS // 2, 0))
            before = resident_bytes(shop.daemon.pid)
            async with AsyncExitStack() as waiters:
                connections = waiters.enter_context(crowd(shop.daemon.till_socket, count))
                for place, connection in enumerate(connections):
                    waiting = await ask_on(connection, f"/transactions/{payments[place % OPEN]}/outcome")
                    waiters.callback(waiting.hang_up)
                await quiet(shop.daemon.pid)
                each.append((resident_bytes(shop.daemon.pid) - before) / count / KIB)
    return Figure(f"resident memory of a waiting till, of {count:,}", each, "KB", WAITING_LIMIT)


#: Limits of a start, in multiples of the bare imports.
LIMIT = 2.0
#: Number of starts of the daemon and of the bare imports in a round.
STARTS = 4
#: The program of the bare interpreter: imports, then a line of output. The program runs until the test ends it.
BARE = "import starlette, hypercorn, aiosqlite, zeroconf, structlog; print(flush=True); input()"
#: Terminals that discovery has to find.
FLEET = "".join(f'[[terminals]]\nserial = "SN-{number:04}"\n' for number in range(1, 5))


async def measure_starts(bench: Bench) -> Sequence[Figure]:
    """Measure starts. Before the measurement, a first start loads all files into the page cache, writes the bytecode
    and makes the database.
    """
    found = await starts(bench, bench.pick(STARTS, 1))
    ready, bare = ([median(pair[side].seconds for pair in pairs) for pairs in found] for side in (0, 1))
    return [Figure("start to ready (READY=1), empty, warm cache, by the bare imports", _by(ready, bare), "×", LIMIT)]


async def starts(bench: Bench, count: int) -> list[list[tuple["Start", "Start"]]]:
    """Return this many starts of the daemon and of the bare imports for each round."""
    directory = bench.directory("starting")
    issue.init(directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    found = []
    with manager(directory) as told:
        variables = bench.as_installed() | told.environment
        daemon = Daemon(directory, toml(directory, FLEET, "", "enabled = true"), variables, FRESH)
        for number in bench.rounds(warm=True):  # the first start of each kind writes the bytecode
            pairs = [(await start_daemon(daemon, told), await bare_imports(bench.as_installed())) for _ in range(count)]
            if number:
                found.append(pairs)
    return found


class Start(NamedTuple):
    """Resources of a process until it was ready: seconds of the clock, processor seconds, and bytes of memory."""

    seconds: float
    processor: float
    resident: int


def _since(begun: float, pid: int) -> Start:
    """Return the measurement of a process that is ready now."""
    return Start(time.perf_counter() - begun, processor_seconds(pid), resident_bytes(pid))


async def start_daemon(daemon: Daemon, told: Manager) -> Start:
    """Start the daemon, wait until it is ready, and stop the daemon. Return the measurement."""
    begun = time.perf_counter()
    await daemon.start(wait=False)
    await told.heard_of("READY")
    found = _since(begun, daemon.pid)
    await daemon.stop()
    await told.heard_of("STOPPING")
    return found


async def bare_imports(others: Mapping[str, str]) -> Start:
    """Start an interpreter, wait until all imports are done, and stop the interpreter. Return the measurement."""
    begun = time.perf_counter()
    async with program(sys.executable, "-c", BARE, env=os.environ | others) as process:
        async with asyncio.timeout(START_SECONDS):
            await process.stdout.readuntil(b"\n")
        return _since(begun, process.pid)


#: Size of a file system's block, which is the least amount that a disk writes, in bytes.
BLOCK = 4096


def writes(operations: Iterable[Operation], moments: Sequence[int]) -> tuple[Counter[int], Counter[int]]:
    """Return the numbers of syncs and of written bytes between each moment (`Shim.position`) and the previous moment.
    The bytes are in whole blocks. Each block counts once between two syncs.
    """
    names: dict[tuple[int, int], str] = {}
    dirty = defaultdict[str, set[int]](set)
    syncs, written = Counter[int](), Counter[int]()
    for operation in operations:
        name = names.get(operation.descriptor, operation.name)
        if operation.kind is Kind.OPEN:
            names[operation.descriptor] = operation.name
        elif operation.kind is Kind.WRITE:
            end = operation.offset + len(operation.data)
            dirty[name].update(range(operation.offset // BLOCK, (end - 1) // BLOCK + 1))
        elif operation.kind is Kind.SYNC:
            place = bisect_left(moments, operation.end)
            syncs[place] += 1
            written[place] += len(dirty.pop(name, ())) * BLOCK
    return syncs, written


async def record(bench: Bench, count: int) -> tuple[list[float], list[float]]:
    """Run this many payments a round under the shim. Return, for each round, the mean number of syncs and of KiB of a
    payment.
    """
    home = bench.directory("recorded")
    directory = home / "posd"
    shim = build(home, directory / "state")
    rounds = bench.rounds()
    async with open_shop(directory, 1, shim.environment()) as shop, one_by_one(shop) as pay_in_turn:
        await pay_in_turn(count)
        moments = [shim.position()]
        for _ in rounds:
            await pay_in_turn(count)
            moments.append(shim.position())
    syncs, written = writes(shim.operations(), moments)
    shim.log.unlink()
    return [syncs[number] / count for number in rounds], [written[number] / count / KIB for number in rounds]


#: Payments in a round whose processor time is measured, and payments in a round under the shim.
PAYMENTS, RECORDED = 30, 12


async def measure_ratios(bench: Bench, reference: Mapping[str, float]) -> Sequence[Figure]:
    """Measure the ratios of the quick run, of five rounds. A ratio that the reference lacks does not hold."""
    begun = [pair for (pair,) in await starts(bench, 1)]
    bare = [other for _, other in begun]
    syncs, kib = await record(bench, bench.pick(RECORDED, 2))
    async with AsyncExitStack() as stack:
        idle = await open_shops(bench, stack, "idle")
        for item in idle:
            await quiet(item.daemon.pid)
        sizes = [resident_bytes(item.daemon.pid) for item in idle]
    count = bench.pick(PAYMENTS, 2)
    async with open_shop(bench.directory("paying"), count, secure=True) as shop, one_by_one(shop) as pay_in_turn:
        seconds = [await pay_in_turn(count) for _ in bench.rounds(warm=True)][-len(begun) :]
    found = {
        "processor time of a whole payment, by the bare imports'": _by(seconds, [item.processor for item in bare]),
        "syncs of a payment": syncs,
        "KiB written for a payment": kib,
        "idle memory, by the bare imports'": _by(sizes, [item.resident for item in bare]),
        "processor time from start to ready, by the bare imports'": _by(
            [ours.processor for ours, _ in begun], [item.processor for item in bare]
        ),
    }
    assert reference.keys() <= found.keys(), f"the reference has a ratio that is not measured: {reference.keys()}"
    return [Figure(name, rounds, "×", TOLERANCE * reference.get(name, 0.0)) for name, rounds in found.items()]


def _by(values: Iterable[float], others: Iterable[float]) -> list[float]:
    return [value / other for value, other in zip(values, others, strict=True)]
