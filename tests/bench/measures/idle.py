"""How often an idle daemon wakes the processor."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.processes import processor_seconds, quiet, switches
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import open_shop

#: Wake-ups a second, over a minute.
LIMIT = 2.0

#: After the start until it counts, in seconds: mDNS asks most in its first moments, which are no idle time.
SETTLE_SECONDS = 20


async def measure(bench: Bench) -> Sequence[Row]:
    """Count how often the threads of a daemon that has nothing to do come off the processor, discovery on.

    There are sixteen terminals in the configuration, and no payment is open.
    """
    seconds = bench.pick(60, 2)
    directory = bench.directory("idle")
    database = ("--database", str(directory / "naive.db"))
    async with (
        open_shop(directory, 16, as_installed(bench), "enabled = true") as shop,
        serving("tests.bench.naive", bench.directory("idle-naive"), *database) as naive,
    ):
        await quiet(shop.pid)
        await asyncio.sleep(bench.pick(SETTLE_SECONDS, 0))
        before, used, begun = Counter(switches(shop.pid)), processor_seconds(shop.pid), time.monotonic()
        naive_before = sum(switches(naive.pid).values())
        await asyncio.sleep(seconds)
        after, elapsed = Counter(switches(shop.pid)), time.monotonic() - begun
        used = processor_seconds(shop.pid) - used
        naive_woken = sum(switches(naive.pid).values()) - naive_before
    woken = after - before
    return [
        Row(
            figure="wake-ups when idle, of all threads",
            measured=woken.total() / elapsed,
            limit=LIMIT,
            unit="wake-ups/s",
            at_least=False,
            ours=f"{woken.total() / elapsed:.2f}/s",
            naive=f"{naive_woken / elapsed:.2f}/s",
            note=f"over {elapsed:.0f} s, discovery on, {used * 1000 / elapsed:.1f} ms of processor time a second",
            details={
                "by_thread_per_second": {thread: count / elapsed for thread, count in woken.items()},
                "processor_ms_per_second": used * 1000 / elapsed,
            },
        )
    ]
