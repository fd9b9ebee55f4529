"""A row of the table: a figure of each round, the bound that their median is held to, and what it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Row:
    """One figure, as each round has it; `limit` is of the same unit, None where the figure is not judged.

    `at_least` says on which side of the limit the median has to be. `ours`, `reference` and `naive` are absolute values
    in words, of posd, of what it is compared with, and of a naive receiver where that applies. `details` holds what
    else was measured, and goes to the JSON alone.
    """

    figure: str
    rounds: Sequence[float]
    limit: float | None
    unit: str
    at_least: bool
    ours: str
    reference: str = ""
    naive: str = ""
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def holds(self) -> bool:
        """Whether it is on the right side, or not judged."""
        if self.limit is None:
            return True
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def bound(self) -> str:
        """The bound in words."""
        return "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {self.limit:.4g} {self.unit}"

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return vars(self) | {
            "rounds": list(self.rounds),
            "measured": self.measured,
            "least": min(self.rounds),
            "most": max(self.rounds),
            "holds": self.holds,
            "bound": self.bound,
        }
