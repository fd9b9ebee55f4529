"""A row of the table: a figure, the bound that it is held to, and what it rests on."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One figure. `measured` and `limit` are of one unit; `at_least` says on which side of the limit it has to be.

    `ours`, `reference` and `naive` are absolute values in words, of posd, of what it is compared with, and of a naive
    receiver where that applies. `details` holds what else was measured, and goes to the JSON alone.
    """

    figure: str
    measured: float
    limit: float
    unit: str
    at_least: bool
    ours: str
    reference: str = ""
    naive: str = ""
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether it is on the right side."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:.4g} {self.unit}"

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return vars(self) | {"holds": self.holds, "bound": self.bound}
