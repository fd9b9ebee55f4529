"""Time from the start of the daemon until the daemon is ready, compared with the imports that any such daemon needs."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from posd.tls import issue
from tests.bench.bench import Bench
from tests.bench.table import Row
from tests.support.daemon import START_SECONDS, Daemon, toml
from tests.support.manager import Manager, manager
from tests.support.usage import FRESH, processor_seconds, resident_bytes

#: Limits of a start, in multiples of the bare imports.
LIMIT = 2.0
#: Number of starts of the daemon and of the bare imports in a round.
STARTS = 4
#: The program of the bare interpreter: imports, then a line of output. The program runs until the test ends it.
BARE = "import starlette, hypercorn, aiosqlite, zeroconf, structlog; print(flush=True); input()"
#: Terminals that discovery has to find.
FLEET = "".join(f'[[terminals]]\nserial = "SN-{number:04}"\n' for number in range(1, 5))


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure starts. Before the measurement, a first start loads all files into the page cache, writes the bytecode
    and makes the database.
    """
    found = await starts(bench, bench.pick(STARTS, 1))
    ready, bare = ([median(pair[side].seconds for pair in pairs) for pairs in found] for side in (0, 1))
    ratios = [one / other for one, other in zip(ready, bare, strict=True)]
    return [Row("start to ready (READY=1), empty, warm cache, by the bare imports", ratios, LIMIT, "×")]


async def starts(bench: Bench, count: int) -> list[list[tuple["Start", "Start"]]]:
    """Return this many starts of the daemon and of the bare imports for each round."""
    directory = bench.directory("starting")
    issue.init(directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    found = []
    with manager(directory) as told:
        variables = bench.as_installed() | told.environment
        daemon = Daemon(directory, toml(directory, FLEET, "", "enabled = true"), variables, FRESH)
        for number in bench.rounds(warm=True):  # the first start of each kind writes the bytecode
            pairs = [(await start(daemon, told), await bare_imports(bench.as_installed())) for _ in range(count)]
            if number:
                found.append(pairs)
    return found


@dataclass(frozen=True)
class Start:
    """Resources of a process until it was ready: seconds of the clock, processor seconds, and bytes of memory."""

    seconds: float
    processor: float
    resident: int

    @classmethod
    def since(cls, begun: float, pid: int) -> "Start":
        """Return the measurement of a process that is ready now."""
        return cls(time.perf_counter() - begun, processor_seconds(pid), resident_bytes(pid))


async def start(daemon: Daemon, told: Manager) -> Start:
    """Start the daemon, wait until it is ready, and stop the daemon. Return the measurement."""
    begun = time.perf_counter()
    await daemon.start(wait=False)
    assert daemon.process is not None
    await told.heard_of("READY")
    found = Start.since(begun, daemon.process.pid)
    await daemon.stop()
    await told.heard_of("STOPPING")
    return found


async def bare_imports(others: Mapping[str, str]) -> Start:
    """Start an interpreter, wait until all imports are done, and stop the interpreter. Return the measurement."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BARE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | others,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            await process.stdout.readuntil(b"\n")
        return Start.since(begun, process.pid)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()
