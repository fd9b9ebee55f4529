"""Watch the interfaces of the current namespace, and print each change as a line of JSON.

Each input line is a command of iproute2 to run in the namespace. With the argument `polled`, the program does not use
the kernel's reports.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator

import structlog

from posd.terminals import interfaces
from posd.terminals.interfaces import Interfaces


async def refused() -> AsyncIterator[None]:
    raise OSError("not supported here")
    yield


async def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if "polled" in sys.argv:
        interfaces.TICK_SECONDS = 0.05
    watched = Interfaces(reports=refused if "polled" in sys.argv else interfaces.reports)
    watched.listen(lambda: tell(watched))
    watching = asyncio.create_task(watched.run())
    tell(watched)
    while line := await asyncio.to_thread(sys.stdin.readline):
        subprocess.run(["ip", *line.split()], check=True)
    watching.cancel()
    await asyncio.wait({watching})


def tell(watched: Interfaces) -> None:
    running = sorted(item.name for item in watched.state if item.running)
    print(json.dumps({"addresses": sorted(watched.addresses), "running": running}), flush=True)


asyncio.run(main())
