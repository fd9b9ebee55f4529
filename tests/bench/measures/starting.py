"""From the start of the process until it is ready, against the imports that such a daemon cannot do without."""

import asyncio
import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from posd import tls
from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.rows import Row
from tests.support.daemon import START_SECONDS, toml
from tests.support.ports import reserve

#: Times the bare imports.
LIMIT = 3.0

#: What is imported in the bare interpreter; the line after it says when that is done.
BARE = "import starlette, hypercorn, aiosqlite, zeroconf, structlog; print(flush=True)"

#: Terminals of the fleet, which are found by discovery.
TERMINALS = 4


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure with everything in the page cache and the bytecode kept, the database there from the first start on."""
    directory = bench.directory("starting")
    environment = os.environ | as_installed(bench)
    made = tls.init(directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    config = directory / "config.toml"
    terminals = "".join(f'[[terminals]]\nserial = "SN-{number:04}"\n' for number in range(1, TERMINALS + 1))
    config.write_text(
        toml(directory, terminals, discovery="enabled = true").replace("127.0.0.1:0", f"127.0.0.1:{reserve()}")
    )
    starts: list[float] = []
    imports: list[float] = []
    naives: list[float] = []
    naive = ("-m", "tests.bench.naive", "--certificate", str(made.certificate), "--key", str(made.private_key))
    naive = (*naive, "--database", str(directory / "naive.db"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(str(directory / "notify.sock"))
        told = environment | {"NOTIFY_SOCKET": str(directory / "notify.sock")}
        await _start(config, told, manager)  # the first of each writes the bytecode, and the first start the database
        await _first_line(environment, "-c", BARE)
        await _first_line(environment, *naive)
        for number in range(bench.pick(20, 2)):
            bench.say(f"start to ready, round {number + 1}")
            starts.append(await _start(config, told, manager))
            imports.append(await _first_line(environment, "-c", BARE))
            naives.append(await _first_line(environment, *naive))
    ready, bare = statistics.median(starts), statistics.median(imports)
    return [
        Row(
            figure="start to ready (READY=1), warm cache",
            measured=statistics.median(ours / theirs for ours, theirs in zip(starts, imports, strict=True)),
            limit=LIMIT,
            unit="×",
            at_least=False,
            ours=f"{ready * 1000:.0f} ms",
            reference=f"{bare * 1000:.0f} ms",
            naive=f"{statistics.median(naives) * 1000:.0f} ms",
            note="against importing starlette, hypercorn, aiosqlite, zeroconf and structlog in a bare interpreter",
            details={"starts_s": starts, "imports_s": imports, "naive_s": naives},
        )
    ]


async def _start(config: Path, environment: Mapping[str, str], manager: socket.socket) -> float:
    """Start the daemon; return how many seconds passed until it said that it is ready. Stop it again."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "posd", "--config", str(config), "run"),
        stdout=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            await _hear(manager, b"READY=1")
        seconds = time.perf_counter() - begun
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
    await _hear(manager, b"STOPPING=1")
    return seconds


async def _hear(manager: socket.socket, word: bytes) -> None:
    while word not in (await asyncio.get_running_loop().sock_recv(manager, 4096)).splitlines():
        pass


async def _first_line(environment: Mapping[str, str], *arguments: str) -> float:
    """Start an interpreter; return how many seconds passed until its first line. Stop it again."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments), stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        seconds = time.perf_counter() - begun
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()
    if not line:
        raise RuntimeError(f"{arguments} ended without a line")
    return seconds
