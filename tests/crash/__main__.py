"""`python -m tests.crash`: the crash matrix, or one cell of it. Exit code 1 if any cell failed."""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random

from posd.base.crashpoints import POINTS
from tests.crash.cell import FAILED, Cell, Result, parse, run
from tests.crash.scenarios import SCENARIOS
from tests.rig.command import execute

#: Prefix of frequent points -> the passes of the point at which the daemon is killed.
COUNTS = {"event": (1, 2, 3, 4), "till": (1, 2, 3), "writer": (1, 2, 3), "search": (1, 2), "print": (1, 2)}
#: Further passes of the writer's commits. The seed draws one of these passes.
LATER = range(4, 10)
#: The first crash leaves work for the next start. The second crash happens during that start.
LEFT_BY = {
    "recovery": ("start.intended:1", "start.written:1", "event.committed:2"),
    "print_recovery": ("print.intended:1", "print.written:1", "print.concluded:1"),
}
#: Cells that run side by side.
JOBS = 3


def cells(seed: int) -> list[Cell]:
    """Return all cells of the matrix. A cell has the end of each life of the daemon."""
    random, rows = Random(seed), list[tuple[str, ...]]()
    for point in sorted(POINTS):
        kind = point.partition(".")[0]
        if kind in LEFT_BY:
            rows += [(left, f"{point}:1") for left in LEFT_BY[kind]]
            continue
        later = (random.choice(LATER),) if kind == "writer" else ()
        rows += [(f"{point}:{count}",) for count in (*COUNTS.get(kind, (1,)), *later)]
    return [Cell(lives, scenario) for scenario in SCENARIOS for lives in rows]


async def run_all(wanted: Sequence[Cell], seed: int, turn: asyncio.Semaphore) -> list[Result]:
    """Run cells, several at the same time. Print each result."""

    async def one(cell: Cell) -> Result:
        result = await run(cell, seed, turn)
        print(result, flush=True)
        return result

    return await asyncio.gather(*(one(cell) for cell in wanted))


async def command() -> int:
    """Run the requested cells, and print their results and the points that no cell has reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--only", metavar="POINT:COUNT,SCENARIO", help="one cell, as the progress names it; with logs")
    parser.add_argument("--seed", type=int, default=1, help="of ids, of the terminal's delays, of counts; 1")
    options = parser.parse_args()
    try:
        wanted = [parse(options.only)] if options.only else cells(options.seed)
    except ValueError as error:
        parser.error(str(error))
    results = await run_all(wanted, options.seed, asyncio.Semaphore(JOBS))
    if options.only:
        print(*results[0].log, sep="\n")
    reached = {result.cell.points[-1] for result in results if result.crashes == len(result.cell.lives)}
    missing = sorted({cell.points[-1] for cell in wanted} - reached)
    print(f"never reached: {', '.join(missing) or 'none'}; {dict(Counter(result.verdict for result in results))}")
    return 1 if (missing and not options.only) or any(result.verdict == FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(execute(command()))
