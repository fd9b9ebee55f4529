"""One cell of the matrix: a scenario, and the points at which the daemon is killed."""

import asyncio
import traceback
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from posd.base.crashpoints import POINTS
from tests.crash import printing
from tests.crash.scenarios import OPEN, SCENARIOS
from tests.crash.verdict import offline_faults, online_faults
from tests.crash.world import World, open_world

#: Maximum duration of a cell on a busy machine, in seconds. A cell usually takes a few seconds.
CELL_SECONDS = 90.0

OK, NOT_REACHED, FAILED = "ok", "not reached", "FAILED"


class Cell(NamedTuple):
    """One cell. `lives`: POINT:COUNT for each life of the daemon that ends by a crash. Most cells have one such
    life.
    """

    lives: tuple[str, ...]
    scenario: str

    @property
    def points(self) -> list[str]:
        """The named points."""
        return [life.partition(":")[0] for life in self.lives]

    def __str__(self) -> str:
        return f"{'+'.join(self.lives)},{self.scenario}"


@dataclass
class Result:
    """Result of a cell."""

    cell: Cell
    faults: list[str] = field(default_factory=list)
    crashes: int = 0
    #: Lines of the terminal's ledger, and of the daemon's log.
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.faults:
            return FAILED
        return OK if self.crashes == len(self.cell.lives) else NOT_REACHED

    def __str__(self) -> str:
        return "\n    ".join([f"{self.verdict}: {self.cell}", *self.faults])


def parse(text: str) -> Cell:
    """Read POINT:COUNT[+POINT:COUNT...],SCENARIO. Raise ValueError."""
    row, _, scenario = text.rpartition(",")
    cell = Cell(tuple(row.split("+")), scenario)
    if scenario not in SCENARIOS or not POINTS.issuperset(cell.points):
        raise ValueError(
            f"{text} is not a cell; points: {', '.join(sorted(POINTS))}; scenarios: {', '.join(SCENARIOS)}"
        )
    return cell


async def run(cell: Cell, seed: int, turn: asyncio.Semaphore) -> Result:
    """Run the cell in its turn. Return a result that has all faults."""
    result = Result(cell)
    end = None
    async with turn, open_world(SCENARIOS[cell.scenario], cell.lives, seed) as world:
        try:
            async with asyncio.timeout(CELL_SECONDS):
                end = await _play(world, result)
            result.faults += offline_faults(world)
        except Exception as error:  # noqa: BLE001 - after any error the cell has failed
            result.faults += traceback.format_exception(error)
        result.crashes = world.crashes
        result.log = [*world.terminal.ledger, *world.log, *world.daemon.lines]
    if world.crashes < len(cell.lives) and not result.faults and end not in world.scenario.ends:
        result.faults.append(f"it was never killed, and ended as {end}, not as {world.scenario.ends}")
    return result


async def _play(world: World, result: Result) -> str:
    """Run the scenario to its end, and wait until all parts are quiet. Compare terminal, relays, till and posd. Return
    the end of the scenario's print jobs, or without print jobs of the scenario's payment.
    """
    if world.scenario.before is not None:
        await world.scenario.before(world)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.watch())
        await world.scenario.plot(world)
        await world.quiet()
        result.faults += await online_faults(world)
        outcome = None if world.jobs else (await world.get(world.payment))["outcome"]
        world.stop()
    if world.jobs:
        return printing.end(world, OPEN)
    return str(outcome["result"]) if outcome else OPEN
