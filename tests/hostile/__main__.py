"""`python -m tests.hostile`: attack a daemon and measure. Exit code 1 if a bound is exceeded."""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.hostile.attacks import ATTACKS, TOGETHER
from tests.hostile.report import deeds, table
from tests.hostile.run import Result, Run
from tests.hostile.shop import open_shop

#: Insiders come last, because they may leave more memory in use than strangers may.
ALL = sorted([*ATTACKS, *TOGETHER], key=lambda name: any(ATTACKS[one].insider for one in TOGETHER.get(name, [name])))
#: Seconds before the first measurement, until memory stops growing.
WARM_UP_SECONDS = 5.0
#: Number of terminals of the attacked shop, each with its own address.
TERMINALS = 4


async def measure(names: Sequence[str], seconds: float, directory: Path, *, nice: int) -> list[Result]:
    """Measure attacks in turn on one daemon."""
    results = []
    async with open_shop(directory, TERMINALS) as shop:
        run = Run(shop, nice=nice)
        await run.warm_up(min(WARM_UP_SECONDS, seconds))
        for name in names:
            results.append(await run.attack(name, TOGETHER.get(name, [name]), seconds / 2, seconds))
            sys.stderr.write(f"{name}: {'; '.join(results[-1].broken)[:200] or 'within the bounds'}\n")
    faults = [line for line in shop.daemon.lines if line.get("level") in ("error", "critical")]
    if faults:
        results[-1].broken.append(f"faults in the log: {faults[:3]}")
    return results


def main() -> int:
    """Parse the command line, run the attacks, print the measurements."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="of each attack; half as long is quiet before it")
    parser.add_argument("--attack", action="append", choices=ALL, help="repeatable; all without it")
    parser.add_argument("--nice", type=int, default=19, help="nice value of the attackers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    options = parser.parse_args()
    names = options.attack or ALL
    directory = Path(tempfile.mkdtemp(prefix="posd-hostile-", dir="/tmp"))
    try:
        results = asyncio.run(_until_told(names, options.seconds, directory, options.nice))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(table(results))
    print()
    print(deeds(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 1 if any(result.broken for result in results) else 0


async def _until_told(names: Sequence[str], seconds: float, directory: Path, nice: int) -> list[Result]:
    """Measure. SIGTERM ends it like Ctrl-C."""
    work = asyncio.create_task(measure(names, seconds, directory, nice=nice))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    return await work


if __name__ == "__main__":
    sys.exit(main())
