"""Attack a daemon and measure the effects. Exit code 1 if a bound is exceeded."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.hostile.attacker import LAST
from tests.hostile.attacks import ATTACKS, TOGETHER
from tests.hostile.run import Run
from tests.hostile.shop import open_shop
from tests.rig.command import execute
from tests.rig.figures import show
from tests.rig.webhooks import faults

#: Attacks by admitted tills and terminals are last, because these attackers may leave more memory in use than
#: strangers.
ALL = sorted([*ATTACKS, *TOGETHER], key=lambda name: any(ATTACKS[one].insider for one in TOGETHER.get(name, [name])))
#: Seconds before the first measurement, until memory stops growing.
WARM_UP_SECONDS = 5.0
#: Number of terminals of the attacked shop, each with its own address.
TERMINALS = 4


async def command() -> int:
    """Run the attacks in turn on one daemon. Print the measurements."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="of each attack; half as long is quiet before it")
    parser.add_argument("--attack", action="append", choices=ALL, help="repeatable; all without it")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="posd-hostile-", dir="/tmp") as directory:
        async with open_shop(Path(directory), TERMINALS) as shop:
            run = Run(shop, nice=LAST)
            await run.warm_up(min(WARM_UP_SECONDS, options.seconds))
            for name in options.attack or ALL:
                print(name, flush=True)
                names = TOGETHER.get(name, [name])
                results.append(await run.attack(name, names, options.seconds / 2, options.seconds))
        results[-1].faults.extend(f"a fault in the log: {line}" for line in faults(shop.daemon))
    columns = [figure.name for figure in results[0].figures]
    show(("attack", *columns), ([item.name, *(f"{x.median:.3g}" for x in item.figures)] for item in results))
    broken = [f"{result.name}: {fault}" for result in results for fault in result.faults]
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(execute(command()))
