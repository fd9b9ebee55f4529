"""What posd is compared with: servers as processes of their own, on the same certificate."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from posd import tls
from tests.bench.load import trusting
from tests.support.daemon import START_SECONDS


@dataclass(frozen=True)
class Server:
    """A server that is ready."""

    pid: int
    port: int
    context: ssl.SSLContext


@asynccontextmanager
async def serving(
    module: str, directory: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Run `python -m MODULE --certificate FILE --key FILE --port 0 …`, which prints its port when it is ready."""
    made = tls.init(directory / "tls", names=["localhost"], addresses=["127.0.0.1"])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--certificate", str(made.certificate), "--key", str(made.private_key)),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | dict(environment or {}),
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        yield Server(process.pid, int(line), trusting(made.ca_certificate))
    finally:
        process.terminate()
        await process.wait()
