"""What many runs have done, counted, and told: while they go, and at the end."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.runs import Played

YEAR: Final = 365.25 * 86_400


@dataclass
class Tally:
    """The sum of runs."""

    processes: int
    began: float = field(default_factory=time.monotonic)
    runs: int = 0
    payments: int = 0
    lives: int = 0
    virtual_seconds: float = 0.0
    cpu: float = 0.0
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: list[Played] = field(default_factory=list)

    def add(self, played: Played) -> None:
        """Count a run."""
        self.runs += 1
        self.payments += played.payments
        self.lives += played.lives
        self.virtual_seconds += played.virtual_seconds
        self.cpu += played.cpu
        self.seen += played.seen
        if played.failed:
            self.failed.append(played)

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began

    def rates(self) -> tuple[float, float]:
        """Return payments a second, and payments a second of a processor."""
        return self.payments / max(self.seconds, 1e-3), self.payments / max(self.cpu, 1e-3)

    def outcomes(self) -> dict[str, int]:
        """Return how often tills heard each outcome, with the last evidence, with any fault or none under way."""
        found: Counter[str] = Counter()
        for (what, fault), count in self.seen.items():
            if what.startswith("outcome: ") and fault in ("none", ""):
                found[what.removeprefix("outcome: ")] += count
        return dict(sorted(found.items()))

    def progress(self, wanted: int) -> str:
        """Tell how far it is, in a line."""
        second, core = self.rates()
        left = (wanted - self.payments) * self.seconds / self.payments if self.payments else 0.0
        failures = f"{len(self.failed)} runs failed" if self.failed else "no failure"
        return (
            f"{self.payments:,} of {wanted:,} payments, {self.runs:,} runs, {second:.0f}/s ({core:.0f} a core), "
            f"{failures}, {_duration(self.seconds)} so far" + (f", {_duration(left)} left" if left > 0 else "")
        )

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        second, core = self.rates()
        return {
            "payments": self.payments,
            "runs": self.runs,
            "lives": self.lives,
            "virtual_seconds": round(self.virtual_seconds, 3),
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu, 1),
            "processes": self.processes,
            "payments_per_second": round(second, 1),
            "payments_per_cpu_second": round(core, 1),
            "outcomes": self.outcomes(),
            "failures": [failure(played) for played in self.failed],
            "seen": [[what, fault, count] for (what, fault), count in sorted(self.seen.items())],
        }

    def words(self) -> str:
        """Tell the sum, for people."""
        second, core = self.rates()
        outcomes = self.outcomes()
        width = max(map(len, outcomes), default=0)
        return "\n".join(
            (
                f"payments  {self.payments:,} in {self.runs:,} runs",
                f"time      {_duration(self.seconds)} on {self.processes} processes",
                f"simulated {self.virtual_seconds / YEAR:.2f} years",
                f"rate      {second:.1f} payments a second, {core:.1f} a second of a processor",
                f"daemons   {self.lives:,} lives",
                "outcomes, with their last evidence, as tills heard them",
                *(f"  {name:{width}} {count:>11,}" for name, count in outcomes.items()),
                f"failures  {len(self.failed)} runs" if self.failed else "failures  none",
            )
        )


def failure(played: Played) -> dict[str, Any]:
    """Return a run that failed as JSON has it."""
    return {
        "seed": played.job.seed,
        "size": played.job.size,
        "faults": list(played.job.faults),
        "digest": played.digest,
        "failures": played.failures,
        "broken": played.broken,
    }


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
