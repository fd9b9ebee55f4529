"""Measured figures with their limits, and tables of results."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One figure with its value in each round. `limit`: highest permitted median, in the same unit."""

    name: str
    rounds: Sequence[float]
    unit: str = ""
    limit: float = inf

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def holds(self) -> bool:
        """Return whether the median is within the limit."""
        return self.median <= self.limit

    def __str__(self) -> str:
        return f"{self.name}: {self.median:.3g} {self.unit}, at most {self.limit:.3g}"

    @property
    def columns(self) -> Sequence[str]:
        """The figure as a row of a table with the columns COLUMNS."""
        values = (f"{value:.3g} {self.unit}" for value in (min(self.rounds), self.median, max(self.rounds), self.limit))
        return (self.name, *values, "holds" if self.holds else "falls short")


COLUMNS = ("figure", "min", "median", "max", "limit", "")


def show(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown, as the documents have it."""
    table = Table(*columns, box=box.MARKDOWN)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=240).print(table)
