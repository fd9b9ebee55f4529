"""What posd is compared with: servers as processes of their own, on the same certificate."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from posd import tls
from tests.bench.load import Server
from tests.bench.program import ROOT, Program
from tests.support.daemon import START_SECONDS


@asynccontextmanager
async def serving(
    module: str,
    directory: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    program: Program | None = None,
) -> AsyncIterator[Server]:
    """Run `python -m MODULE --certificate FILE --key FILE …`, which prints its port when it is ready."""
    made = tls.init(directory / "tls", names=["localhost"], addresses=["127.0.0.1"])
    program = program or Program()
    process = await asyncio.create_subprocess_exec(
        *(program.python, "-m", module, "--certificate", str(made.certificate), "--key", str(made.private_key)),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env=program.environment(environment or {}),
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        yield Server(process.pid, int(line), made.ca_certificate)
    finally:
        process.terminate()
        await process.wait()
