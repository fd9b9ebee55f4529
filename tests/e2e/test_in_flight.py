"""Answers that are not read and bodies that are sent by halves: memory stays, the others go on, the words say why."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.hostile.measure import forget_peak, usage
from tests.store.filled import filling
from tests.support.daemon import Daemon, running

#: What it may have more than idle, in megabytes.
MOST_MB = 32.0
PAYMENTS = 300
LARGE = json.dumps({"note": "x" * 16_000}).encode()

#: A process of its own: argument 1 is the socket, 2 how many connections, 3 what each sends. It reads nothing until a
#: line comes on its standard input, then it prints how each answer began.
CLIENT = """
import socket, sys
path, count, request = sys.argv[1], int(sys.argv[2]), sys.stdin.buffer.readline().decode("unicode_escape").encode()
request = request.rstrip(b"|")
held = []
for _ in range(count):
    item = socket.socket(socket.AF_UNIX)
    item.settimeout(30)
    try:
        item.connect(path)
        item.sendall(request)
        held.append(item)
    except OSError:
        pass
print("sent", flush=True)
sys.stdin.buffer.readline()
for item in held:
    try:
        print(item.recv(13).decode()[9:12], flush=True)
    except OSError:
        print("cut", flush=True)
"""


class Client:
    """A process that sends and does not read."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def send(self, count: int, request: str) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CLIENT, str(self._daemon.till_socket), str(count)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request.encode("unicode_escape") + b"|\n")
        assert await self._process.stdout.readline() == b"sent\n"

    async def answers(self) -> set[str]:
        """Return the statuses of the answers, and end."""
        output, _ = await self._process.communicate(b"\n")
        return set(output.decode().split())

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@pytest.fixture(params=[LARGE, b"{}"], ids=["large", "small"])
async def daemon(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Daemon]:
    async with running(tmp_path, "") as daemon:
        await daemon.stop()  # it has made its key
        with filling(daemon.database) as filled:
            filled.db.execute("BEGIN")
            for number in range(1, PAYMENTS + 1):
                filled.pay(number, metadata=request.param)
            filled.db.execute("COMMIT")
        await daemon.start()
        yield daemon


PAGE = "GET /v1/transactions?limit=300 HTTP/1.1\r\nhost: posd\r\n\r\n"
HALF = (
    f"PUT /v1/transactions/{uuid4()} HTTP/1.1\r\nhost: posd\r\ncontent-type: application/json\r\n"
    "content-length: 250000\r\n\r\n" + "x" * 200_000
)


def pid(daemon: Daemon) -> int:
    assert daemon.process is not None
    return daemon.process.pid


async def calls(daemon: Daemon) -> float:
    """Ask for a short list and for a start, again and again; return how long a call took, in seconds."""
    began = asyncio.get_running_loop().time()
    for _ in range(20):
        assert (await daemon.call("GET", "/transactions?limit=1")).status == 200
        start = {"type": "charge", "terminal": "SN-1", "amount": {"subtotal_iva0": 1}}
        reply = await daemon.call("PUT", f"/transactions/{uuid4()}", start)
        assert reply.json["code"] == "unknown_terminal"
    return (asyncio.get_running_loop().time() - began) / 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "count", "sent"),
    [(1, 60, PAGE), (1, 390, PAGE), (2, 200, HALF), (6, 60, HALF)],
    ids=["pages", "many_pages", "bodies", "processes"],
)
async def test_what_is_not_read_or_not_sent_whole_takes_little_memory(
    daemon: Daemon, processes: int, count: int, sent: str
) -> None:
    for _ in range(3):
        assert (await daemon.call("GET", "/transactions?limit=300")).status == 200
    quiet = await calls(daemon)
    idle = usage(pid(daemon)).memory_mb
    forget_peak(pid(daemon))
    clients = [Client(daemon) for _ in range(processes)]
    try:
        await asyncio.gather(*(client.send(count, sent) for client in clients))
        took = await calls(daemon)
        peak = usage(pid(daemon)).peak_mb
        print(
            f"idle {idle:.1f} MB, peak {peak - idle:+.1f} MB, a call {took * 1000:.1f} ms, quiet {quiet * 1000:.1f} ms"
        )
        statuses = set().union(*await asyncio.gather(*(client.answers() for client in clients)))
    finally:
        await asyncio.gather(*(client.end() for client in clients))
    assert peak - idle <= MOST_MB
    assert "429" in statuses
