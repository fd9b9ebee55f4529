"""The results of a run. Each figure has a row, and the median of its rounds is compared with the limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


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
