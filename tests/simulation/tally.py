"""Totals of many runs."""

import time
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.runs import Played


@dataclass
class Tally:
    """Totals of runs, without the runs in which the simulation itself failed."""

    began: float = field(default_factory=time.monotonic)
    runs: int = 0
    payments: int = 0
    lives: int = 0
    virtual_seconds: float = 0.0
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: list[Played] = field(default_factory=list)

    def add(self, played: Played) -> None:
        """Count a run."""
        self.runs += 1
        if (result := played.result) is not None:
            self.payments += result.payments
            self.lives += result.lives
            self.virtual_seconds += result.virtual_seconds
            self.seen += result.seen
        if played.failures:
            self.failed.append(played)

    def line(self) -> str:
        """Return a line with the progress."""
        seconds = time.monotonic() - self.began
        return (
            f"{self.payments:,} payments in {self.runs:,} runs, {self.payments / max(seconds, 1e-3):.0f} a second, "
            f"{self.lives:,} lives of posd, {self.virtual_seconds / 3600:,.0f} simulated hours, "
            f"{len(self.failed)} runs failed"
        )
