"""Process of an attacker (`python -m tests.hostile.attacker NAME NICE FIELDS`). FIELDS: fields of `Attacker` as JSON.

The attacker represents another machine of the network. That machine has its own processor, so the process runs with the
lowest priority.
"""

import asyncio
import json
import logging
import os
import sys

from tests.hostile.attacks import ATTACKS
from tests.hostile.wire import AGAIN_SECONDS, CUT_OFF, Attacker

#: Idle priority. Other machines take no processor time from posd, so attackers use only idle time.
LAST = 19


async def attack(name: str, attacker: Attacker) -> None:
    """Attack with all workers of one process until the input ends. The workers end with the process."""
    kind = ATTACKS[name]

    async def work() -> None:
        while True:
            try:
                await kind.once(attacker)
            except CUT_OFF:
                await asyncio.sleep(AGAIN_SECONDS)
            await asyncio.sleep(kind.rest)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # broken connections
    workers = [asyncio.create_task(work()) for _ in range(max(1, kind.workers // kind.processes))]
    told = loop.run_in_executor(None, sys.stdin.read)
    done, _ = await asyncio.wait([told, *workers], return_when=asyncio.FIRST_COMPLETED)
    for ended in done:
        ended.result()
    os._exit(0)  # the process ends at once, like a machine that is switched off


if __name__ == "__main__":
    name, nice, fields = sys.argv[1:]
    os.nice(int(nice))
    if int(nice) == LAST:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    logging.disable()  # asyncio logs broken connections
    asyncio.run(attack(name, Attacker(**json.loads(fields))))
