"""From the start of the process until it is ready, against the imports that such a daemon cannot do without."""

import asyncio
import signal
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from posd import tls
from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.processes import processor_seconds, resident_bytes
from tests.bench.program import ROOT, Program
from tests.bench.rows import Row
from tests.support.daemon import ANY_PORT, START_SECONDS, toml
from tests.support.ports import reserve

#: Times the bare imports.
LIMIT = 2.0
#: Starts of each in a round.
STARTS = 4

#: What is imported in the bare interpreter; the line after it says when that is done, and it lives until it is ended.
BARE = "import starlette, hypercorn, aiosqlite, zeroconf, structlog; print(flush=True); input()"

#: Terminals of the fleet, which are found by discovery.
TERMINALS = 4


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure with everything in the page cache and the bytecode kept, the database there from the first start on."""
    directory = bench.directory("starting")
    environment = Program().environment(as_installed(bench))
    config, made = prepare(directory)
    naive = ("-m", "tests.bench.naive", "--certificate", str(made.certificate), "--key", str(made.private_key))
    naive = (*naive, "--database", str(directory / "naive.db"))
    starts: list[list[float]] = []
    imports: list[list[float]] = []
    naives: list[float] = []
    with service_manager(directory) as manager:
        await start(
            config, environment, manager
        )  # the first of each writes the bytecode, and the first start the database
        await first_line(environment, "-c", BARE)
        await first_line(environment, *naive)
        for number in bench.rounds():
            bench.say(f"start to ready, round {number}")
            starts.append([])
            imports.append([])
            for _ in range(bench.pick(STARTS, 1)):
                starts[-1].append((await start(config, environment, manager)).seconds)
                imports[-1].append((await first_line(environment, "-c", BARE)).seconds)
            naives.append((await first_line(environment, *naive)).seconds)
    ready, bare = ([statistics.median(taken) for taken in side] for side in (starts, imports))
    return [
        Row(
            figure="start to ready (READY=1), empty, warm cache, by the bare imports",
            rounds=[ours / theirs for ours, theirs in zip(ready, bare, strict=True)],
            limit=LIMIT,
            unit="×",
            at_least=False,
            ours=f"{statistics.median(ready) * 1000:.0f} ms",
            reference=f"{statistics.median(bare) * 1000:.0f} ms",
            naive=f"{statistics.median(naives) * 1000:.0f} ms",
            note="against importing starlette, hypercorn, aiosqlite, zeroconf and structlog in a bare interpreter",
            details={"starts_s": starts, "imports_s": imports, "naive_s": naives},
        )
    ]


@dataclass(frozen=True)
class Start:
    """Until a process was ready, in seconds: on the clock, and of the processor; and how many bytes it then had."""

    seconds: float
    processor: float
    resident: int


def prepare(directory: Path, terminals: str | None = None) -> tuple[Path, tls.TlsFiles]:
    """Write a configuration, with terminals that discovery finds unless others are given; return it and its TLS."""
    made = tls.init(directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    if terminals is None:
        terminals = "".join(f'[[terminals]]\nserial = "SN-{number:04}"\n' for number in range(1, TERMINALS + 1))
    config = directory / "config.toml"
    config.write_text(
        toml(directory, terminals, discovery="enabled = true").replace(ANY_PORT, f"127.0.0.1:{reserve()}")
    )
    return config, made


@contextmanager
def service_manager(directory: Path) -> Iterator[socket.socket]:
    """Give the socket at which daemons say that they are ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        address = directory / "notify.sock"
        manager.bind(str(address))
        try:
            yield manager
        finally:
            address.unlink()


async def start(
    config: Path, environment: Mapping[str, str], manager: socket.socket, python: str = sys.executable
) -> Start:
    """Start the daemon; return what it took until it said that it is ready. Stop it again."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(python, "-m", "posd", "--config", str(config), "run"),
        stdout=asyncio.subprocess.DEVNULL,
        env=environment | {"NOTIFY_SOCKET": manager.getsockname()},
        cwd=config.parent,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            await _hear(manager, b"READY=1")
        found = _until_now(begun, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
    await _hear(manager, b"STOPPING=1")
    return found


def _until_now(begun: float, pid: int) -> Start:
    return Start(time.perf_counter() - begun, processor_seconds(pid), resident_bytes(pid))


async def _hear(manager: socket.socket, word: bytes) -> None:
    while word not in (await asyncio.get_running_loop().sock_recv(manager, 4096)).splitlines():
        pass


async def first_line(environment: Mapping[str, str], *arguments: str, python: str = sys.executable) -> Start:
    """Start an interpreter; return what it took until its first line. Stop it again."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(python, *arguments), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"{arguments} ended without a line")
        return _until_now(begun, process.pid)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()
