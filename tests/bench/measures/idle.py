"""How often an idle daemon wakes the processor, and how long it computes, by the size of its fleet."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.processes import processor_seconds, quiet, switches
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import open_shop

#: Wake-ups a second that a fleet of so many terminals may cost.
LIMITS = {1: 0.5, 10: 1.0, 300: 4.0}
#: What of a processor the largest one may take, in percent.
PROCESSOR_LIMIT = 1.0

#: After the start until it counts, in seconds: mDNS asks most in its first moments, which are no idle time.
SETTLE_SECONDS = 20
#: How long a round counts. The daemons take turns: they would hear each other's questions on the network.
ROUND_SECONDS = 12


@dataclass
class Rest:
    """What a process did with nothing to do, in each round: wake-ups of all its threads, and percent of a processor."""

    woken: list[float] = field(default_factory=list)
    percent: list[float] = field(default_factory=list)


async def measure(bench: Bench) -> Sequence[Row]:
    """Count how often the threads of an idle daemon come off the processor, discovery on; no payment is open."""
    found = {}
    for terminals in LIMITS:
        bench.say(f"idle: {terminals} terminals")
        directory = bench.directory(f"idle/{terminals}")
        async with open_shop(directory, terminals, as_installed(bench), "enabled = true") as shop:
            found[terminals] = await _rest(bench, shop.pid)
    database = ("--database", str(bench.directory("idle/naive") / "naive.db"))
    async with serving("tests.bench.naive", bench.home / "idle" / "naive", *database) as server:
        naive = await _rest(bench, server.pid)
    largest = max(LIMITS)
    return [
        *(
            Row(
                figure=f"wake-ups a second when idle, of all threads, {terminals} terminal{'s' * (terminals > 1)}",
                rounds=found[terminals].woken,
                limit=limit,
                unit="wake-ups/s",
                at_least=False,
                ours=f"{median(found[terminals].woken):.2f}/s",
                naive=f"{median(naive.woken):.2f}/s",
                note=f"discovery on, {median(found[terminals].percent):.2f} % of a processor",
            )
            for terminals, limit in LIMITS.items()
        ),
        Row(
            figure=f"processor time when idle, {largest} terminals",
            rounds=found[largest].percent,
            limit=PROCESSOR_LIMIT,
            unit="% of a processor",
            at_least=False,
            ours=f"{median(found[largest].percent):.2f} %",
            naive=f"{median(naive.percent):.2f} %",
        ),
    ]


async def _rest(bench: Bench, pid: int) -> Rest:
    rest = Rest()
    await quiet(pid)
    await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
    for _ in bench.rounds():
        before, used, begun = switches(pid), processor_seconds(pid), time.monotonic()
        await asyncio.sleep(bench.pick(ROUND_SECONDS, 1))
        woken = sum(count - before.get(thread, 0) for thread, count in switches(pid).items())
        elapsed = time.monotonic() - begun
        rest.woken.append(woken / elapsed)
        rest.percent.append((processor_seconds(pid) - used) / elapsed * 100)
    return rest
