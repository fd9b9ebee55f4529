"""What is measured of a daemon over some number of stored payments."""

from dataclasses import dataclass, field
from pathlib import Path

#: Terminals of the fleet, and connections over which their events come.
TERMINALS = 64
#: What "none" has: the newest payments of the other, so that both answer the same page, or the same one.
NEWEST = 100


@dataclass
class Side:
    """A daemon over so many stored payments, in a directory of its own; one figure a round, in seconds but for three.

    `acknowledged` is a second; `idle` and `worked` are MB, before and after all that is asked of it in the round.
    """

    directory: Path
    stored: int
    starts: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    looked_up: list[float] = field(default_factory=list)
    from_disk: list[float] = field(default_factory=list)
    lists: dict[str, list[float]] = field(default_factory=dict)
    totals: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)

    @property
    def database(self) -> Path:
        """Its database."""
        return self.directory / "state" / "posd.db"
