"""`posd simulate` as a process, with its lines on a pipe."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.rig.program import Command

Line = dict[str, Any]


@asynccontextmanager
async def simulate(*options: str, tmp: Path) -> AsyncIterator[tuple[Command, Line]]:
    """Run the simulator with JSON lines on a pipe for the block. Wait until the simulator is ready."""
    command = ("simulate", "--listen", "127.0.0.1:0", "--speed", "100", *options)
    process = await Command.start(None, *command, TMPDIR=str(tmp))
    try:
        yield process, await process.line(lambda line: "ready" in line)
    finally:
        await process.stop(signal.SIGKILL)
