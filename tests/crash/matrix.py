"""The whole matrix: its cells, their run side by side, and the table of results."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random

from posd.base.crashpoints import POINTS
from tests.crash.cell import FAILED, NOT_REACHED, OK, Cell, Result, run
from tests.crash.scenarios import SCENARIOS

#: Prefix of frequent points -> at which passes the daemon is killed, if once is not enough.
COUNTS = {"event": (1, 2, 3, 4), "till": (1, 2, 3), "writer": (1, 2, 3), "search": (1, 2), "print": (1, 2)}
#: Further passes for the writer's commits, one of which the seed draws.
LATER = range(4, 10)
#: The first crash leaves work for the next start. The second crash happens during that start.
LEFT_BY = {
    "recovery": ("start.intended:1", "start.written:1", "event.committed:2"),
    "print_recovery": ("print.intended:1", "print.written:1", "print.concluded:1"),
}

MARKS = {OK: ".", NOT_REACHED: "-", FAILED: "F"}


def rows(seed: int) -> list[tuple[str, ...]]:
    """Return the crashes of the matrix: the end of each life of the daemon."""
    random, found = Random(seed), []
    for point in sorted(POINTS):
        kind = point.partition(".")[0]
        if kind in LEFT_BY:
            found += [(left, f"{point}:1") for left in LEFT_BY[kind]]
            continue
        later = (random.choice(LATER),) if kind == "writer" else ()
        found += [(f"{point}:{count}",) for count in (*COUNTS.get(kind, (1,)), *later)]
    return found


def cells(seed: int, points: Sequence[str], scenarios: Sequence[str]) -> list[Cell]:
    """Return the cells of these points and scenarios; none named means all."""
    wanted = [lives for lives in rows(seed) if not points or lives[-1].partition(":")[0] in points]
    return [Cell(lives, scenario) for scenario in scenarios or SCENARIOS for lives in wanted]


async def run_all(wanted: Iterable[Cell], seed: int, jobs: int, tell: Callable[[Result], None]) -> list[Result]:
    """Run cells, some at a time; `tell` is called with each result."""
    turn = asyncio.Semaphore(jobs)

    async def one(cell: Cell) -> Result:
        async with turn:
            result = await run(cell, seed)
            tell(result)
            return result

    return await asyncio.gather(*(one(cell) for cell in wanted))


def table(results: Sequence[tuple[Cell, Result]]) -> str:
    """Return a table of crashes and scenarios with one character each, with the scenarios' numbers above."""
    columns = list(dict.fromkeys(cell.scenario for cell, _ in results))
    marks = {(cell.row, cell.scenario): MARKS[result.verdict] for cell, result in results}
    lines = [f"{number:3}  {name}: {SCENARIOS[name].tells}" for number, name in enumerate(columns, 1)]
    width = max(len(cell.row) for cell, _ in results)
    lines += ["", " " * width + "".join(f"{number:3}" for number in range(1, len(columns) + 1))]
    lines += [
        row.ljust(width) + "".join(f"{marks.get((row, column), ' '):>3}" for column in columns)
        for row in dict.fromkeys(cell.row for cell, _ in results)
    ]
    return "\n".join([*lines, "", ". ok   - the crash was never reached, and all is right   F FAILED"])


def never_reached(results: Sequence[tuple[Cell, Result]]) -> list[str]:
    """Return the points that no cell has reached."""
    tried = {cell.points[-1] for cell, _ in results}
    return sorted(tried - {cell.points[-1] for cell, result in results if result.crashes == len(cell.lives)})
