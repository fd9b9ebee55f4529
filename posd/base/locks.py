"""Lock files, which the kernel gives up when their process ends; and histograms of what posd measures of itself."""

import fcntl
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path


class Held(Exception):
    """Another process holds the lock."""


def take(path: Path) -> int:
    """Take the lock and return its file descriptor; closing it gives the lock up. Raise Held, or OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Held from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# What posd measures of itself is counted where it happens, cheaply; the text of the metrics is made on request.


class Histogram:
    """Counts values by size. `bounds` ascend; each bucket takes what is at most its bound, the last all the rest."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, infinity last, with how many values are at most that."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total
