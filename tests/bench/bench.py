"""Parameters and results of every measurement. Each figure has a row, and the median of its rounds is compared with the
limit or with the stored reference.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

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


@dataclass(frozen=True)
class Row:
    """One figure with its value in each round. `limit`: highest allowed median, in the same unit."""

    figure: str
    rounds: Sequence[float]
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        """Return whether the median is within the limit."""
        return median(self.rounds) <= self.limit

    def __str__(self) -> str:
        least, most = f"{min(self.rounds):.3g}", f"{max(self.rounds):.3g}"
        held = "holds" if self.holds else "falls short"
        return (
            f"{median(self.rounds):8.3g} {self.unit} ({least} to {most}), at most {self.limit:g}: {held}: {self.figure}"
        )


#: A function that measures one part of the table.
Measure = Callable[[Bench], Awaitable[Sequence[Row]]]

FILE = Path(__file__).with_name("reference.json")
#: Share by which a ratio may be worse than the reference.
TOLERANCE = 0.25

#: Name of a ratio -> its value in each round. The median counts, and less is better.
Ratios = Mapping[str, Sequence[float]]


def better(one: Ratios, other: Ratios) -> Ratios:
    """Return the measurement with the lower median for each ratio."""
    return {name: min(one[name], other[name], key=median) for name in one}


def complaints(measured: Ratios, reference: Mapping[str, float]) -> list[str]:
    """Return texts about ratios that are worse by more than the tolerance, and about ratios that only one measurement
    has.
    """
    found = []
    for name, rounds in measured.items():
        if name not in reference:
            found.append(f"{name}: the reference does not have it")
        elif (change := median(rounds) / reference[name] - 1) > TOLERANCE:
            worse = f"{change:.0%} worse than the reference of {reference[name]:.3g}"
            found.append(f"{name}: {median(rounds):.3g}, {worse}")
    return found + [f"{name}: it was not measured" for name in reference if name not in measured]


def read_reference() -> dict[str, float]:
    """Return the stored reference."""
    stored: dict[str, float] = json.loads(FILE.read_text())["ratios"]
    return stored


def write_reference(measured: Ratios, versions: Mapping[str, str]) -> None:
    """Store a run and its environment as the reference."""
    ratios = {name: float(f"{median(rounds):.4g}") for name, rounds in measured.items()}
    FILE.write_text(json.dumps({"made_with": dict(versions), "ratios": ratios}, indent=1) + "\n")
