"""What the slow answers of a server waited for, seen from outside while requests come one at a time.

The kernel tells, for each thread, how long it computed and how long it was ready to and had no processor
(/proc/PID/task/TID/schedstat, in nanoseconds). A checkpoint of SQLite shows as the moment at which the database itself
was written last: between checkpoints only its log is.
"""

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

_NANO = 1e-9


@dataclass(frozen=True)
class Moment:
    """How it stood between two requests: times in seconds."""

    computed: float
    without_processor: float
    client_without_processor: float
    checkpointed: int


@dataclass
class Observer:
    """Looks at a server and its database between requests: `look` is called before the first and after each answer."""

    pid: int
    database: Path
    moments: list[Moment] = field(default_factory=list)

    def look(self) -> None:
        """Note how it stands."""
        computed, waited = _scheduled(self.pid)
        self.moments.append(Moment(computed, waited, _scheduled(os.getpid())[1], self.database.stat().st_mtime_ns))

    def causes(self, latencies: Sequence[float], slow: float) -> Mapping[str, int]:
        """Count the answers that took at least `slow` seconds, by what most of the time over the median went to.

        One that is not longer by computing or by waiting for a processor waited for the disk, or for the interpreter's
        lock, in one of its threads.
        """
        spans = [
            (
                seconds,
                after.computed - before.computed,
                _waited(before, after),
                before.checkpointed != after.checkpointed,
            )
            for seconds, (before, after) in zip(latencies, pairwise(self.moments), strict=True)
        ]
        usual, computing = statistics.median(latencies), statistics.median(span[1] for span in spans)
        found = {"a checkpoint of the database": 0, "no processor was free": 0, "it computed": 0, "disk or lock": 0}
        for seconds, computed, waited, checkpointed in spans:
            if seconds < slow:
                continue
            most = (seconds - usual) / 2
            if checkpointed:
                found["a checkpoint of the database"] += 1
            elif waited >= most:
                found["no processor was free"] += 1
            elif computed - computing >= most:
                found["it computed"] += 1
            else:
                found["disk or lock"] += 1
        return found


def _waited(before: Moment, after: Moment) -> float:
    ours = after.without_processor - before.without_processor
    return ours + after.client_without_processor - before.client_without_processor


def _scheduled(pid: int) -> tuple[float, float]:
    """Return for how many seconds the threads of a process have computed, and waited for a processor."""
    times = [
        [int(number) for number in (task / "schedstat").read_text().split()[:2]]
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return sum(time[0] for time in times) * _NANO, sum(time[1] for time in times) * _NANO
