"""What is measured of a daemon over some number of stored payments."""

from dataclasses import dataclass, field
from pathlib import Path

#: Terminals of the fleet, and connections over which their events come.
TERMINALS = 64
#: What "none" has: the newest payments of the other, so that both answer the same page, or the same one.
NEWEST = 100


@dataclass
class Side:
    """A daemon over so many stored payments, in a directory of its own; figures in the order of the rounds."""

    directory: Path
    stored: int
    starts: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    looked_up: list[float] = field(default_factory=list)
    by_metadata: list[float] = field(default_factory=list)
    lists: dict[str, list[float]] = field(default_factory=dict)
