"""The whole matrix: its cells, and their run side by side."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random

from posd.base.crashpoints import POINTS
from tests.crash.cell import Cell, Result, run
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


async def run_all(wanted: Iterable[Cell], seed: int, jobs: int, tell: Callable[[Result], None]) -> list[Result]:
    """Run cells, several at the same time. Call `tell` with each result."""
    turn = asyncio.Semaphore(jobs)

    async def one(cell: Cell) -> Result:
        async with turn:
            result = await run(cell, seed)
            tell(result)
            return result

    return await asyncio.gather(*(one(cell) for cell in wanted))


def never_reached(wanted: Sequence[Cell], results: Sequence[Result]) -> list[str]:
    """Return the points that no cell has reached."""
    pairs = zip(wanted, results, strict=True)
    reached = {cell.points[-1] for cell, result in pairs if result.crashes == len(cell.lives)}
    return sorted({cell.points[-1] for cell in wanted} - reached)
