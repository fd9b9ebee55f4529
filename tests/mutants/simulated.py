"""Short runs of the simulation. They run the use cases in this process. Most other tests start a daemon for this."""

import pytest

from tests.simulation import runs
from tests.simulation.runs import Job

START, RUNS, SALES = 49, 12, 20


@pytest.mark.parametrize("number", range(RUNS))
def test_all_promises_hold(number: int) -> None:
    """The run ends at the first failed check, because a fork needs no more than that."""
    assert runs.play(Job(runs.seed_of(START, number), SALES, until_failure=True)).failures == []
