"""An attacker's process: `python -m tests.hostile.attacker NAME OPTION... ADDRESS...`.

It stands for another machine of the network, whose processor is not posd's: so it runs behind everybody else
(`--nice`). It prints what it has done as one JSON document at its end.
"""

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path

from tests.hostile.attacks import ATTACKS, keep_on
from tests.hostile.wire import Attacker

#: Behind everybody else altogether: other machines do not take a processor from posd, so these take only what is idle.
LAST = 19


def main() -> None:
    """Attack until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.attacker")
    parser.add_argument("name", choices=list(ATTACKS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--body", type=Path, required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--nice", type=int, required=True)
    parser.add_argument("sources", nargs="+")
    options = parser.parse_args()
    os.nice(options.nice)
    if options.nice == LAST:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    logging.disable()  # asyncio's words on broken connections
    attacker = Attacker(options.port, options.sources, options.path, options.body.read_bytes(), options.socket)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # broken connections
        await keep_on(attacker, options.name, options.seconds)
        os.write(1, json.dumps(attacker.counts).encode())
        os._exit(0)  # at once, as a machine that is switched off

    asyncio.run(run())


if __name__ == "__main__":
    main()
