"""What the daemon needs: resident memory, sampled over all its lives."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.chaos.faults import steady_stretches

#: Between two samples, in seconds.
SAMPLE_SECONDS = 0.5
#: So many kilobytes more are growth: more than what the allocator keeps for the most that happens at once in a stretch
#: without outages.
GROWTH_KILOBYTES = 16 * 1024
#: A life with fewer payments says nothing.
MIN_PAYMENTS = 400


@dataclass(frozen=True)
class Sample:
    """One look at the daemon."""

    #: Payments that tills had begun.
    begun: int
    #: Which of its lives it was.
    life: int
    #: Resident memory.
    kilobytes: int


@dataclass(frozen=True)
class Life:
    """The longest life of the daemon in a steady stretch; kilobytes are medians.

    Its first quarter is left out: modules are still loaded, caches filled.
    """

    payments: int
    second_quarter: int
    last_quarter: int
    most: int


@dataclass
class Memory:
    """All samples of a run."""

    payments: int
    samples: list[Sample] = field(default_factory=list)

    async def watch(self, look: Callable[[], Sample | None]) -> None:
        """Take samples until cancelled; None is while there is no daemon."""
        while True:
            if (sample := look()) is not None:
                self.samples.append(sample)
            await asyncio.sleep(SAMPLE_SECONDS)

    def steady(self) -> list[Life]:
        """Return the longest life of each steady stretch; none of one in which no life was long enough to say."""
        stretches = [
            [sample for sample in self.samples if begin <= sample.begun < end]
            for begin, end in steady_stretches(self.payments)
        ]
        return [life for stretch in stretches if (life := _longest_life(stretch)) is not None]


def growth(lives: Sequence[Life]) -> int | None:
    """Return by how many kilobytes the daemon grows: within a life, or from the first to the last of them.

    In the first case it is what it has done that it does not forget, in the second what is in the database. None where
    there are not two lives to compare.
    """
    if len(lives) < 2:
        return None
    within = [life.last_quarter - life.second_quarter for life in lives]
    return max(*within, lives[-1].last_quarter - lives[0].last_quarter)


def _longest_life(samples: Sequence[Sample]) -> Life | None:
    by_life: dict[int, list[Sample]] = {}
    for sample in samples:
        by_life.setdefault(sample.life, []).append(sample)
    longest = max(by_life.values(), key=len, default=[])
    payments = longest[-1].begun - longest[0].begun if longest else 0
    if payments < MIN_PAYMENTS:
        return None
    sizes, quarter = [sample.kilobytes for sample in longest], len(longest) // 4
    return Life(
        payments,
        int(median(sizes[quarter : 2 * quarter])),
        int(median(sizes[-quarter:])),
        max(sizes),
    )


def resident_kilobytes(pid: int) -> int:
    """The resident memory of a process, 0 where it is not there."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0
