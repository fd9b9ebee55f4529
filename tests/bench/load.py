"""Load on a server: requests that are ready as bytes, sent by a process of its own over connections that are kept."""

import asyncio
import pickle
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.program import ROOT, Program
from tests.bench.sender import LENGTH, STUCK_SECONDS, Chain, Load


@dataclass(frozen=True)
class Server:
    """A server that is ready; `ca` is the file of the CA that its certificate is of."""

    pid: int
    port: int
    ca: Path


class Sender:
    """A process that has connections to a server (`tests.bench.sender`)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, chains: Sequence[Chain]) -> Load:
        """Send all requests, those of a chain one after the other. Raise RuntimeError where the process failed."""
        assert self._process.stdin is not None
        job = pickle.dumps(chains)
        self._process.stdin.write(LENGTH.pack(len(job)) + job)
        await self._process.stdin.drain()
        return await self.answer()

    async def answer(self) -> Load:
        """Return what it tells next."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
                load: Load = pickle.loads(await self._process.stdout.readexactly(length))
        except asyncio.IncompleteReadError:
            raise RuntimeError("the load's process failed; it says why on stderr") from None
        return load


@asynccontextmanager
async def connected(server: Server, connections: int, database: Path | None = None) -> AsyncIterator[Sender]:
    """Run a load's process for the block; with a database it looks at the server and that between two requests."""
    watched = () if database is None else (str(server.pid), str(database))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.sender", str(server.port), str(server.ca), str(connections), *watched),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=Program().environment({}),
        cwd=ROOT,
    )
    assert process.stdin is not None
    try:
        sender = Sender(process)
        await sender.answer()
        yield sender
    finally:
        process.stdin.close()
        await process.wait()


async def send(server: Server, chains: Sequence[Chain], connections: int) -> Load:
    """Send the requests of all chains over so many connections, which are made before the clock starts."""
    async with connected(server, connections) as sender:
        return await sender.send(chains)


def post(path: str, body: bytes) -> bytes:
    """Return the bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def trusting(ca: object) -> ssl.SSLContext:
    """Return a client's context that trusts one CA file."""
    return ssl.create_default_context(cafile=str(ca))
