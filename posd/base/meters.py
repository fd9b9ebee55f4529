"""What posd measures of itself where it happens, cheaply; the text of the metrics is made when somebody asks."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence


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
