"""`posd simulate` as a process, with its lines on a pipe."""

import json
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


async def until(process: Command, kind: str, **fields: Any) -> Line:
    """Wait for a line of this kind with these fields."""
    wanted = {"kind": kind} | fields
    return await process.line(lambda line: wanted.items() <= line.items())


def lines_of(ledger: Path, kind: str, **fields: Any) -> list[Line]:
    """Return the lines of a ledger file of this kind with these fields. Raise an error for an incomplete line."""
    text = ledger.read_text()
    assert text[-1:] in ("", "\n")
    wanted = {"kind": kind} | fields
    return [line for line in map(json.loads, text.splitlines()) if wanted.items() <= line.items()]
