"""`posd simulate` as a process, with its lines on a pipe."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support import forks

Line = dict[str, Any]
Process = forks.Process | asyncio.subprocess.Process
#: Maximum real time until the next line, in seconds. The first line comes when the process is ready.
PATIENCE = 30.0


@asynccontextmanager
async def simulate(*options: str, tmp: Path) -> AsyncIterator[tuple[Process, Line]]:
    """Run the simulator with JSON lines on a pipe for the block. Wait until the simulator is ready."""
    command = ("simulate", "--listen", "127.0.0.1:0", "--speed", "100", *options)
    process = await forks.start(*command, env=os.environ | {"TMPDIR": str(tmp)})
    try:
        yield process, await next_line(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def next_line(process: Process) -> Line:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        text = await process.stdout.readline()
    assert text, "the simulator has ended"
    line: Line = json.loads(text)
    return line


async def until(process: Process, kind: str, **fields: Any) -> Line:
    """Read lines until a line of this kind has these fields."""
    wanted = {"kind": kind} | fields
    while not wanted.items() <= (line := await next_line(process)).items():
        pass
    return line


def lines_of(ledger: Path, kind: str, **fields: Any) -> list[Line]:
    """Return the lines of a ledger file of this kind with these fields. Raise an error for an incomplete line."""
    text = ledger.read_text()
    assert text[-1:] in ("", "\n")
    wanted = {"kind": kind} | fields
    return [line for line in map(json.loads, text.splitlines()) if wanted.items() <= line.items()]
