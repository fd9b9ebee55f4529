"""Process of an attacker (`python -m tests.hostile.attacker NAME OPTION... ADDRESS...`).

The attacker represents another machine of the network. That machine has its own processor, so the process runs with the
lowest priority (`--nice`). At its end the process prints its counts as one JSON document.
"""

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path

from tests.hostile.attacks import ATTACKS, keep_on
from tests.hostile.wire import Attacker

#: Idle priority. Other machines take no processor time from posd, so attackers use only idle time.
LAST = 19


def main() -> None:
    """Attack until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.attacker")
    parser.add_argument("name", choices=list(ATTACKS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--body", type=Path, required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--nice", type=int, required=True)
    parser.add_argument("sources", nargs="+")
    options = parser.parse_args()
    os.nice(options.nice)
    if options.nice == LAST:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    logging.disable()  # asyncio logs broken connections
    attacker = Attacker(options.port, options.sources, options.path, options.body.read_bytes(), options.socket)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # broken connections
        await keep_on(attacker, options.name)
        os.write(1, json.dumps(attacker.counts).encode())
        os._exit(0)  # the process ends at once, like a machine that is switched off

    asyncio.run(run())


if __name__ == "__main__":
    main()
