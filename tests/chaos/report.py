"""What a run has done to the street, and what was found: for people, as JSON, and as a page of the documentation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.books import Finding
from tests.chaos.memory import GROWTH_KILOBYTES, Life, Memory, growth

#: Characters of a fault that are shown; the logs have the rest.
MAX_FAULT = 400
#: Findings that are alike and shown one by one.
SHOWN = 5
#: By what such findings differ: ids, numbers, the words of an event.
_PARTICULARS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+|[A-Z]+(_[A-Z]+)+")


@dataclass
class Report:
    """What was done to the street, and what was found."""

    command: str
    began: str
    seconds: float
    directory: str
    confirmed: bool
    injected: dict[str, int]
    connections: dict[str, dict[str, int]]
    bursts: list[int]
    figures: dict[str, int] = field(default_factory=dict)
    #: Scenario -> how many payments played it.
    scenarios: dict[str, int] = field(default_factory=dict)
    lives: int = 0
    #: The longest lives of the daemon in the stretches in which it was left alone.
    steady: list[Life] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def take(self, memory: Memory) -> None:
        """Take the figures of the memory; where it grows, that is a fault."""
        self.steady = memory.steady()
        grown = growth(self.steady)
        if grown is not None and grown > GROWTH_KILOBYTES:
            self.faults.append(f"the daemon's memory grows: {self.steady_words}")

    def count(self, kind: str) -> int:
        """How many findings of a kind there are."""
        return sum(finding.kind == kind for finding in self.findings)

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.findings and not self.faults

    @property
    def found(self) -> str:
        """The findings in one line."""
        counts = ", ".join(f"{self.count(kind)} {kind}" for kind in ("lost", "doubled", "wrong"))
        return counts + (f", {len(self.faults)} faults" if self.faults else "")

    @property
    def steady_words(self) -> str:
        """Whether the memory grows."""
        grown = growth(self.steady)
        if grown is None:
            return "the run was too short to say whether the daemon's memory grows"
        lives = "; ".join(
            f"in a life of {life.payments} payments {life.second_quarter / 1024:.1f} MB in the second quarter, "
            f"{life.last_quarter / 1024:.1f} MB in the last, at most {life.most / 1024:.1f} MB"
            for life in self.steady
        )
        return f"{lives}: {grown / 1024:+.1f} MB at most ({_mb(GROWTH_KILOBYTES)} are allowed)"


def words(report: Report) -> str:
    """Say it for people."""
    lines = [f"{report.seconds:g} s; search and abort are {'' if report.confirmed else 'not '}confirmed", ""]
    lines += ["injected:", *_counts(report.injected)]
    for direction, fates in report.connections.items():
        lines += [f"connections {direction}:", *_counts(fates)]
    lines.append(f"events made during the outages: {', '.join(map(str, report.bursts)) or 'none'}")
    lines += ["scenarios played:", *_counts(report.scenarios)]
    lines += ["what came of it:", *_counts(report.figures)]
    lines += [f"{report.lives} lives of the daemon", report.steady_words, "", report.found]
    lines += [f"  {line}" for line in _folded(report.findings)]
    lines += [f"  fault: {fault[:MAX_FAULT]}" for fault in report.faults]
    lines.append(f"the same again: {report.command}")
    return "\n".join(lines)


def _folded(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding; of those that differ in ids and numbers alone, the first ones and how many."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.kind, _PARTICULARS.sub("…", finding.what)), []).append(finding)
    lines: list[str] = []
    for (kind, what), those in alike.items():
        lines += [f"{kind}: {finding.subject}: {finding.what}" for finding in those[:SHOWN]]
        if len(those) > SHOWN:
            lines.append(f"{kind}: and {len(those) - SHOWN} more: {what}")
    return lines


def _counts(counts: dict[str, int]) -> list[str]:
    return [f"  {count:6} {name.replace('_', ' ')}" for name, count in counts.items()]


def _mb(kilobytes: int) -> str:
    return f"{kilobytes / 1024:.0f} MB"
