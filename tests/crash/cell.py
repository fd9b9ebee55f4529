"""One cell of the matrix: a scenario, and the points at which the daemon is killed."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from posd.base.crashpoints import POINTS
from tests.crash import printing
from tests.crash.opening import open_world
from tests.crash.scenarios import OPEN, SCENARIOS
from tests.crash.verdict import offline_faults, online_faults
from tests.crash.world import World

#: Maximum duration of a cell on a busy machine, in seconds. A cell usually takes a few seconds.
CELL_SECONDS = 90.0

OK, NOT_REACHED, FAILED = "ok", "not reached", "FAILED"


@dataclass(frozen=True)
class Cell:
    """One cell. `lives`: POINT:COUNT for each life of the daemon that ends by a crash. Most cells have one such
    life.
    """

    lives: tuple[str, ...]
    scenario: str

    @property
    def row(self) -> str:
        """All crashes of the cell in one text."""
        return "+".join(self.lives)

    @property
    def points(self) -> list[str]:
        """The named points."""
        return [life.partition(":")[0] for life in self.lives]

    def __str__(self) -> str:
        return f"{self.row},{self.scenario}"


@dataclass
class Result:
    """Result of a cell."""

    cell: str
    verdict: str = FAILED
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    crashes: int = 0
    #: End of the scenario: the outcome's result or "open" for a payment, and the status for a print job.
    end: str | None = None
    log: list[dict[str, Any]] = field(default_factory=list)


def parse(text: str) -> Cell:
    """Read POINT:COUNT[+POINT:COUNT...],SCENARIO. Raise ValueError."""
    row, _, scenario = text.rpartition(",")
    lives = tuple(life if ":" in life else f"{life}:1" for life in row.split("+"))
    for life in lives:
        point, _, count = life.partition(":")
        if point not in POINTS or not count.isdecimal():
            raise ValueError(f"{life} is no crash: give POINT:COUNT with one of {', '.join(sorted(POINTS))}")
    if scenario not in SCENARIOS:
        raise ValueError(f"{scenario} is no scenario: give one of {', '.join(SCENARIOS)}")
    return Cell(lives, scenario)


async def run(cell: Cell, seed: int) -> Result:
    """Run the cell. Return a result that has all faults."""
    result = Result(str(cell))
    began = time.monotonic()
    with TemporaryDirectory(prefix="posd-") as home:
        async with open_world(SCENARIOS[cell.scenario], cell.lives, Path(home), seed) as world:
            try:
                async with asyncio.timeout(CELL_SECONDS):
                    await _play(world, result)
                result.faults += offline_faults(world)
            except* Exception as group:  # noqa: BLE001 - after any error the cell has failed
                result.faults += [_words(error) for error in _leaves(group)]
                result.faults += _story(world)
            result.crashes, result.log = world.crashes, world.logged
    if world.crashes < len(cell.lives) and not result.faults and result.end not in world.scenario.ends:
        result.faults.append(f"it was never killed, and ended as {result.end}, not as {world.scenario.ends}")
    if not result.faults:
        result.verdict = OK if world.crashes == len(cell.lives) else NOT_REACHED
    result.seconds = round(time.monotonic() - began, 2)
    return result


async def _play(world: World, result: Result) -> None:
    """Run the scenario to its end, and wait until all parts are quiet. Compare terminal, relays, till and posd."""
    if world.scenario.before is not None:
        await world.scenario.before(world)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.watch())
        await world.scenario.plot(world)
        await world.quiet()
        result.faults += await online_faults(world)
        result.end = await _end(world)
        world.stop()


async def _end(world: World) -> str:
    """Return the end of the scenario's print jobs. Without print jobs, return the end of the scenario's payment."""
    if world.jobs:
        return printing.end(world, OPEN)
    outcome = (await world.get(world.payment))["outcome"]
    return str(outcome["result"]) if outcome else OPEN


def _story(world: World) -> list[str]:
    """Return the terminal's events and the daemon's last log lines, for an aborted cell."""
    said = [
        " ".join(str(entry[name]) for name in ("kind", "status", "result", "http_status", "found") if name in entry)
        for entry in world.terminal.ledger
    ]
    return [f"terminal: {', '.join(said)}", f"posd, killed {world.crashes} times, said last: {world.logged[-2:]}"]


def _words(error: BaseException) -> str:
    match error:
        case AssertionError():
            return str(error)
        case TimeoutError():
            return f"it was not over within {CELL_SECONDS:g} s"
        case _:
            return f"{type(error).__name__}: {error}"


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for item in error.exceptions for leaf in _leaves(item)]
    return [error]
