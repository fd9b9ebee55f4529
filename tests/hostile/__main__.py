"""Attack a daemon and measure the effects. Exit code 1 if a bound is exceeded."""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.hostile.attacker import LAST
from tests.hostile.attacks import ATTACKS, TOGETHER
from tests.hostile.run import Result, Run
from tests.hostile.shop import open_shop

#: Attacks by admitted tills and terminals are last, because these attackers may leave more memory in use than
#: strangers.
ALL = sorted([*ATTACKS, *TOGETHER], key=lambda name: any(ATTACKS[one].insider for one in TOGETHER.get(name, [name])))
#: Seconds before the first measurement, until memory stops growing.
WARM_UP_SECONDS = 5.0
#: Number of terminals of the attacked shop, each with its own address.
TERMINALS = 4


async def measure(names: Sequence[str], seconds: float, directory: Path) -> list[Result]:
    """Measure attacks in turn on one daemon."""
    results = []
    async with open_shop(directory, TERMINALS) as shop:
        run = Run(shop, nice=LAST)
        await run.warm_up(min(WARM_UP_SECONDS, seconds))
        for name in names:
            results.append(await run.attack(name, TOGETHER.get(name, [name]), seconds / 2, seconds))
            print(results[-1], *(f"BROKEN: {item[:300]}" for item in results[-1].broken), sep="\n", flush=True)
    faults = [line for line in shop.daemon.lines if line.get("level") in ("error", "critical")]
    if faults:
        results[-1].broken.append(f"faults in the log: {faults[:3]}")
        print(results[-1].broken[-1])
    return results


def main() -> int:
    """Parse the command line, run the attacks, print the measurements."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="of each attack; half as long is quiet before it")
    parser.add_argument("--attack", action="append", choices=ALL, help="repeatable; all without it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the attackers like Ctrl-C
    with tempfile.TemporaryDirectory(prefix="posd-hostile-", dir="/tmp") as directory:
        try:
            results = asyncio.run(measure(options.attack or ALL, options.seconds, Path(directory)))
        except KeyboardInterrupt:
            return 130
    return 1 if any(result.broken for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
