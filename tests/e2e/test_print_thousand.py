"""Very many jobs with a terminal that is away for a while: a short version, whose absence is made of events.

`python -m tests.printing` runs the long one: a thousand jobs, and a minute. Nothing is judged by time here: each bound
is what the pauses leave room for in the time that did pass.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import some
from tests.printing.run import Plan, Scene, run

JOBS = (30, 200)
LATE = 5
#: How often posd must have called in vain before the terminal comes back.
KNOCKS = 3
#: And how many payments must have been made meanwhile on another terminal.
PAYMENTS = 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("jobs", some(JOBS, 30))
async def test_many_jobs_and_an_absence(home: Path, tell: Callable[[str], None], jobs: int) -> None:
    """No storm, all settled: each job is created once, asked for a few times, and no payment is kept waiting."""

    async def absence(scene: Scene) -> None:
        await scene.gate.turned(KNOCKS)
        await scene.paid("while away", PAYMENTS)

    plan = Plan(
        jobs=jobs,
        late=LATE,
        away=absence,
        first=0.5,
        most=2,
        held=True,
        told=False,
        speed=1000,
        quiet_payments=1,
        pause=0.5,
    )
    result = await run(home, plan)
    names = [f"job-{number:04}" for number in range(jobs)]
    assert result.creations == dict.fromkeys(names, 1)
    assert {status for status, _ in result.ends} == {"COMPLETED"}
    assert result.ends["COMPLETED", "poll"] >= jobs - 1  # the one that waited for paper is told
    assert result.ends.total() == jobs
    assert result.late_ends == {(None, "unsent"): LATE}
    assert KNOCKS <= result.knocks <= result.most_knocks
    assert set(names[1:]) <= set(result.polls) <= set(names)
    assert max(result.polls.values()) <= result.most_polls
    assert result.approved
    tell(
        f"{jobs} print jobs, away for {result.seconds_away:.1f} s: {result.knocks} connections to the absent terminal"
        f" (bound {result.most_knocks}), {result.polls.total()} questions, payments beside took"
        f" {result.ratio('beside'):.1f} times as long"
    )
