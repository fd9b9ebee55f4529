"""Parameters of every measurement: a directory and the number of rounds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.table import Row

#: Rounds of each measurement.
ROUNDS = 5


@dataclass(frozen=True)
class Bench:
    """One run of the benchmark. With `short` the run only shows that every part works. The test suite uses `short`."""

    home: Path
    short: bool

    def rounds(self, warm: bool = False) -> range:
        """Return the numbers of the rounds. With `warm` add a round 0, whose figures do not count."""
        return range(1, 2) if self.short else range(0 if warm else 1, ROUNDS + 1)

    def pick(self, full: int, short: int) -> int:
        """Return the number for a full or for a short run."""
        return short if self.short else full

    def directory(self, name: str) -> Path:
        """Return a new directory."""
        made = self.home / name
        made.mkdir(parents=True)
        return made

    def as_installed(self) -> dict[str, str]:
        """Return an environment in which the interpreter keeps bytecode. For a short run the environment is empty,
        because writing bytecode would slow the run.
        """
        if self.short:
            return {}
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.home / "bytecode")}


#: A function that measures one part of the table.
Measure = Callable[[Bench], Awaitable[Sequence[Row]]]
