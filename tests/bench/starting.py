"""From the start of the process until it is ready, against the imports that such a daemon cannot do without."""

import asyncio
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from posd.tls import issue
from tests.bench.bench import Bench
from tests.bench.table import Row
from tests.support.daemon import ANY_PORT, START_SECONDS, toml
from tests.support.manager import Manager, manager
from tests.support.ports import reserve
from tests.support.usage import ROOT, environment, processor_seconds, resident_bytes

#: Times the bare imports.
LIMIT = 2.0
#: Starts of each in a round.
STARTS = 4
#: Imports of the bare interpreter. It then prints a line, and lives until it is ended.
BARE = "import starlette, hypercorn, aiosqlite, zeroconf, structlog; print(flush=True); input()"
#: A fleet that discovery finds.
FLEET = "".join(f'[[terminals]]\nserial = "SN-{number:04}"\n' for number in range(1, 5))


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure with everything in the page cache and the bytecode kept, the database there from the first start on."""
    found = await starts(bench, bench.pick(STARTS, 1))
    ready, bare = ([median(pair[side].seconds for pair in pairs) for pairs in found] for side in (0, 1))
    ratios = [one / other for one, other in zip(ready, bare, strict=True)]
    return [Row("start to ready (READY=1), empty, warm cache, by the bare imports", ratios, LIMIT, "×")]


async def starts(bench: Bench, count: int) -> list[list[tuple["Start", "Start"]]]:
    """Return this many starts of the daemon and of the bare imports for each round."""
    directory = bench.directory("starting")
    config, found = prepare(directory, FLEET), []
    with manager(directory) as told:
        for number in bench.rounds(warm=True):  # the first of each writes the bytecode
            bench.say(f"start to ready, round {number}")
            pairs = [
                (await start(config, bench.as_installed(), told), await bare_imports(bench.as_installed()))
                for _ in range(count)
            ]
            if number:
                found.append(pairs)
    return found


@dataclass(frozen=True)
class Start:
    """Until a process was ready, in seconds: on the clock, and of the processor; and how many bytes it then had."""

    seconds: float
    processor: float
    resident: int

    @classmethod
    def since(cls, begun: float, pid: int) -> "Start":
        """Return it of a process that is ready now."""
        return cls(time.perf_counter() - begun, processor_seconds(pid), resident_bytes(pid))


def prepare(directory: Path, terminals: str) -> Path:
    """Write a configuration with these terminals, and its TLS; return it."""
    issue.init(directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    config = directory / "config.toml"
    text = toml(directory, terminals, discovery="enabled = true")
    config.write_text(text.replace(ANY_PORT, f"127.0.0.1:{reserve()}"))
    return config


async def start(config: Path, others: Mapping[str, str], told: Manager) -> Start:
    """Start the daemon. Return the time until it reported that it is ready. Stop it again."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "posd", "--config", str(config), "run"),
        stdout=asyncio.subprocess.DEVNULL,
        env=environment(others) | told.environment,
        cwd=config.parent,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            await told.heard_of("READY")
        found = Start.since(begun, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
    await told.heard_of("STOPPING")
    return found


async def bare_imports(others: Mapping[str, str]) -> Start:
    """Start an interpreter. Return the time until all imports were done. Stop it again."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BARE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(others),
        cwd=ROOT,
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
