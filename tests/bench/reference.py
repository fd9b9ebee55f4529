"""What the quick run found against what is stored: which ratios are worse, and by how much."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

FILE = Path(__file__).with_name("reference.json")
#: How much worse than the reference a ratio may be: by a quarter of it.
TOLERANCE = 0.25


@dataclass(frozen=True)
class Ratio:
    """A figure of which less is better, as each round has it; the median counts. Not `judged`: it is only shown."""

    name: str
    rounds: Sequence[float]
    judged: bool = True

    @property
    def measured(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    def better(self, other: "Ratio") -> "Ratio":
        """Return the one of two measurements whose median is less."""
        return self if self.measured <= other.measured else other

    def change(self, reference: Mapping[str, float]) -> float | None:
        """Return by which part it is over the reference, below 0 where it is better; None without a reference."""
        before = reference.get(self.name)
        return None if before is None else self.measured / before - 1


def complaints(measured: Sequence[Ratio], reference: Mapping[str, float]) -> list[str]:
    """Say what is worse by more than the tolerance, and what stands on one side alone."""
    judged = [ratio for ratio in measured if ratio.judged]
    found = []
    for ratio in judged:
        change = ratio.change(reference)
        if change is None:
            found.append(f"{ratio.name}: the reference does not have it")
        elif change > TOLERANCE:
            before = reference[ratio.name]
            found.append(f"{ratio.name}: {ratio.measured:.3g}, {change:.0%} worse than the reference of {before:.3g}")
    names = {ratio.name for ratio in judged}
    found += [f"{name}: it was not measured" for name in reference if name not in names]
    return found


def read(file: Path = FILE) -> dict[str, float]:
    """Return the stored reference; it is empty where there is no file."""
    stored: dict[str, float] = json.loads(file.read_text())["ratios"] if file.exists() else {}
    return stored


def write(measured: Sequence[Ratio], versions: Mapping[str, str], file: Path = FILE) -> None:
    """Store what is judged of a run, and what it was measured with, as the reference."""
    ratios = {ratio.name: float(f"{ratio.measured:.4g}") for ratio in measured if ratio.judged}
    file.write_text(json.dumps({"made_with": dict(versions), "ratios": ratios}, indent=1) + "\n")
