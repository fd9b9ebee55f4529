"""What a report says of memory."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.memory import GROWTH_KILOBYTES, MIN_PAYMENTS, Memory, Sample
from tests.chaos.report import Report, words

#: A run of so many payments has stretches that are long enough to say something.
LONG = 20 * MIN_PAYMENTS
#: Of a run in which nothing was found.
REPORT = Report(
    "python -m tests.chaos", "2026-11-20T10:00+00:00", 60.0, "/tmp/run", True, {"daemon_killed": 1}, {}, [3]
)


def memory(kilobytes: Callable[[int], int], payments: int = LONG) -> Memory:
    """What a daemon in one life needed, by how many payments had begun."""
    return Memory(payments, [Sample(begun, 1, kilobytes(begun)) for begun in range(payments + 1)])


def in_each_life(begun: int) -> int:
    """What a daemon needs that does not forget what it has done, and is new at the half of the run."""
    return 60_000 + 30 * GROWTH_KILOBYTES * (begun % (LONG // 2)) // LONG


@pytest.mark.parametrize(
    ("kilobytes", "grows"),
    [
        (lambda _: 60_000, False),
        (lambda begun: 60_000 + begun // 4, False),
        (lambda begun: 90_000 - 2 * begun, False),
        (lambda begun: 60_000 + 2 * GROWTH_KILOBYTES * begun // LONG, True),
        (in_each_life, True),
    ],
)
def test_memory_that_grows_is_a_fault(kilobytes: Callable[[int], int], *, grows: bool):
    report = replace(REPORT, faults=[])
    report.take(memory(kilobytes))
    assert bool(report.faults) is grows, report.steady_words


def test_a_short_run_says_nothing_of_memory():
    report = replace(REPORT, faults=[])
    report.take(memory(lambda begun: 1000 * begun, LONG // 10))
    assert not report.faults
    assert "too short" in words(report)
