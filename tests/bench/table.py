"""What a run found: a row for each figure, and all of them as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from rich import box
from rich.table import Table

HEAD = ("figure", "min", "median", "max", "bound", "", "posd", "compared with")


@dataclass(frozen=True)
class Row:
    """One figure, as each round has it; `limit` is of the same unit. The median of the rounds is judged.

    `at_least` tells on which side of the limit it has to be; `ours` and `reference` are absolute values in words, of
    posd and of what it is compared with.
    """

    figure: str
    rounds: Sequence[float]
    limit: float
    unit: str
    at_least: bool
    ours: str
    reference: str = ""

    @property
    def measured(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def holds(self) -> bool:
        """Whether it is on the right side."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def cells(self, short: bool) -> tuple[str, ...]:
        """Return its line; a short run is not judged."""
        held = "" if short else "holds" if self.holds else "falls short"
        bound = f"{'≥' if self.at_least else '≤'} {self.limit:.4g} {self.unit}"
        least, most = f"{min(self.rounds):.3g}", f"{max(self.rounds):.3g}"
        middle = f"{self.measured:.3g} {self.unit}"
        return self.figure, least, middle, most, bound, held, self.ours, self.reference


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return one by the other, round by round."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


@dataclass
class Part:
    """What one measure found, and how long that took; or why it found nothing."""

    name: str
    seconds: float
    rows: Sequence[Row] = ()
    failure: str | None = None


@dataclass
class Report:
    """One run. `short` is one that shows only that everything works: its figures are not judged."""

    command: str
    began: str
    short: bool
    machine: Sequence[str]
    parts: list[Part] = field(default_factory=list)

    @property
    def rows(self) -> Iterator[Row]:
        """All rows, in order."""
        for part in self.parts:
            yield from part.rows

    @property
    def good(self) -> bool:
        """Whether everything was measured and, where figures are judged, every bound holds."""
        measured = not any(part.failure for part in self.parts)
        return measured and (self.short or all(row.holds for row in self.rows))

    @property
    def verdict(self) -> str:
        """All of it in a sentence."""
        rows = list(self.rows)
        broken = [f"{part.name} ({part.failure})" for part in self.parts if part.failure]
        holding = f"{sum(row.holds for row in rows)} of {len(rows)} bounds hold"
        said = f"{len(rows)} figures, not judged (--short)" if self.short else holding
        return said + (f"; not measured: {', '.join(broken)}" if broken else "")


def screen(report: Report) -> Table:
    """Return it for a terminal."""
    table = Table(*HEAD, box=box.SIMPLE_HEAD, caption=report.verdict, caption_justify="left", pad_edge=False)
    for row in report.rows:
        table.add_row(*row.cells(report.short), style=None if report.short or row.holds else "bold red")
    return table
