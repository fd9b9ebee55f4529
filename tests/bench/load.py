"""Load on a server: requests that are ready as bytes, sent by a process of its own over connections that are kept."""

import asyncio
import pickle
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processes import ROOT, environment
from tests.bench.sender import Chain, Load


@dataclass(frozen=True)
class Server:
    """A server that is ready; `ca` is the file of the CA that its certificate is of."""

    pid: int
    port: int
    ca: Path


class Sender:
    """A process that has connections to a server (`tests.bench.sender`)."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    async def send(self, chains: Sequence[Chain]) -> Load:
        """Send all requests, those of a chain one after the other. Raise EOFError where the process failed."""
        assert self._process.stdin is not None
        pickle.dump(chains, self._process.stdin)
        self._process.stdin.flush()
        return await self.answer()

    async def answer(self) -> Load:
        """Return what it tells next."""
        assert self._process.stdout is not None
        load: Load = await asyncio.to_thread(pickle.load, self._process.stdout)
        return load


@asynccontextmanager
async def connected(server: Server, connections: int) -> AsyncIterator[Sender]:
    """Run a load's process for the block."""
    command = (sys.executable, "-m", "tests.bench.sender", str(server.port), str(server.ca), str(connections))
    with subprocess.Popen(  # noqa: ASYNC220 - it ends with its standard input
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=ROOT
    ) as process:
        sender = Sender(process)
        await sender.answer()
        yield sender


def post(path: str, body: bytes) -> bytes:
    """Return the bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def trusting(ca: object) -> ssl.SSLContext:
    """Return a client's context that trusts one CA file."""
    return ssl.create_default_context(cafile=str(ca))
