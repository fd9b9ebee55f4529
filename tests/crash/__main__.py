"""`python -m tests.crash`: the crash matrix, or one cell of it. Exit code 1 if any cell failed."""

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from posd.base.crashpoints import POINTS
from tests.crash.cell import FAILED, Cell, Result, parse, run
from tests.crash.scenarios import SCENARIOS

#: Prefix of frequent points -> the passes of the point at which the daemon is killed.
COUNTS = {"event": (1, 2, 3, 4), "till": (1, 2, 3), "writer": (1, 2, 3), "search": (1, 2), "print": (1, 2)}
#: Further passes of the writer's commits. The seed draws one of these passes.
LATER = range(4, 10)
#: The first crash leaves work for the next start. The second crash happens during that start.
LEFT_BY = {
    "recovery": ("start.intended:1", "start.written:1", "event.committed:2"),
    "print_recovery": ("print.intended:1", "print.written:1", "print.concluded:1"),
}


def rows(seed: int) -> list[tuple[str, ...]]:
    """Return the crashes of the matrix. A crash has the end of each life of the daemon."""
    random, found = Random(seed), []
    for point in sorted(POINTS):
        kind = point.partition(".")[0]
        if kind in LEFT_BY:
            found += [(left, f"{point}:1") for left in LEFT_BY[kind]]
            continue
        later = (random.choice(LATER),) if kind == "writer" else ()
        found += [(f"{point}:{count}",) for count in (*COUNTS.get(kind, (1,)), *later)]
    return found


def cells(seed: int) -> list[Cell]:
    """Return all cells."""
    return [Cell(lives, scenario) for scenario in SCENARIOS for lives in rows(seed)]


async def run_all(wanted: Iterable[Cell], seed: int) -> list[Result]:
    """Run cells, several at the same time. Print each result."""
    turn = asyncio.Semaphore(JOBS)

    async def one(cell: Cell) -> Result:
        async with turn:
            result = await run(cell, seed)
            _print(result)
            return result

    return await asyncio.gather(*(one(cell) for cell in wanted))


def never_reached(wanted: Sequence[Cell], results: Sequence[Result]) -> list[str]:
    """Return the points that no cell has reached."""
    pairs = zip(wanted, results, strict=True)
    reached = {cell.points[-1] for cell, result in pairs if result.crashes == len(cell.lives)}
    return sorted({cell.points[-1] for cell in wanted} - reached)


#: Cells that run side by side.
JOBS = 3


def main() -> int:
    """Run the requested cells, and print progress and summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--only", metavar="POINT:COUNT,SCENARIO", help="one cell, as the progress names it; with logs")
    parser.add_argument("--seed", type=int, default=1, help="of ids, of the terminal's delays, of counts; 1")
    options = parser.parse_args()
    try:
        wanted = [parse(options.only)] if options.only else cells(options.seed)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # this handler ends all processes after SIGTERM too
    try:
        results = asyncio.run(run_all(wanted, options.seed))
    except KeyboardInterrupt:
        return 130
    if options.only:
        for line in results[0].log:
            print(json.dumps(line))
    missing = [] if options.only else never_reached(wanted, results)
    print(f"never reached: {', '.join(missing) or 'none'}; {dict(Counter(result.verdict for result in results))}")
    return 1 if missing or any(result.verdict == FAILED for result in results) else 0


def _print(result: Result) -> None:
    print(f"{result.verdict}: {result.cell} ({result.seconds:.1f} s)", *result.faults, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
