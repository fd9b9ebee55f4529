"""Sample of the crash matrix with every point and every scenario at least once. `python -m tests.crash` runs the whole
matrix.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from posd.base.crashpoints import POINTS
from tests.crash.cell import OK, Result, parse, run
from tests.crash.scenarios import SCENARIOS
from tests.rig.slow import named_quick

#: Number of cells that run in parallel. The machine has two cores, and a cell waits half of its time.
JOBS = 4
#: One crash of each kind for the quick suite.
QUICK = {
    "start.written:1,reply-lost",
    "event.committed:1,reject-before-card",
    "start.before_send:1,line-cut",
    "writer.committed:3,two-tills",
    "print.written:1,printed",
    "replace.old_aside:1,restored",
}
SEED = 1

#: Scenario -> crashes that the scenario reaches.
SAMPLE = (
    "start.before_intent:1,approve-contactless",
    "start.written:1+recovery.before_commit:1,approve-chip-pin",
    "event.answered:3,approve-third-presentation",
    "event.before_commit:4,decline",
    "event.committed:1,reject-before-card",
    "start.replied:1,reject-after-card",
    "till.before_answer:1,cancel-by-cardholder",
    "writer.before_commit:4,wait-for-abort",
    "start.written:1,reply-lost",
    "start.intended:1+recovery.committed:1,request-lost",
    "start.before_send:1,line-cut",
    "start.intended:1,unreachable",
    "event.committed:4,reply-late",
    "start.concluded:1,refused-after-event",
    "start.replied:1,refused-409",
    "writer.committed:2,refused-422",
    "event.committed:2,answers-lost",
    "event.answered:2,unruly",
    "search.before_send:1,event-lost",
    "search.recorded:1,found-by-search",
    "reconcile.before_commit:1,silence",
    "search.recorded:2,reconciled",
    "abort.fenced:1,abort-starting",
    "abort.settled:1,abort-waiting",
    "abort.before_fence:1,abort-late",
    "event.answered:3,abort-too-late",
    "backup.copied:1,backed-up",
    "backup.checked:1,backed-up",
    "backup.renamed:1,backed-up",
    "backup.rotated:1,backed-up-again",
    "prune.payments_removed:1,pruned",
    "prune.feed_removed:1,pruned",
    "prune.space_returned:1,pruned",
    "writer.committed:3,pruned",
    "restore.built:1,restored",
    "restore.keys_written:1,restored",
    "replace.committed:1,restored",
    "replace.old_aside:1,restored",
    "replace.in_place:1,restored",
    "writer.committed:3,two-tills",
    "writer.before_commit:3,one-basket",
    "operator.committed:1,released",
    "operator.before_commit:1,resolved",
    "till.answered:2,resolved-wrongly",
    "search.replied:2,proved",
    "reconcile.committed:1,proved",
    "abort.replied:1,probe-hits",
    "print.before_intent:1,printed",
    "print.intended:1,printed",
    "print.before_send:2,print-line",
    "print.written:1,printed",
    "print.replied:1,print-refused",
    "print.concluded:1,print-untold",
    "print_event.before_commit:1,printed",
    "print_event.committed:1,print-failed",
    "print_event.answered:1,print-line",
    "print_poll.before_send:1,print-untold",
    "print_poll.replied:1,print-untold",
    "print_poll.recorded:1,print-untold",
    "print.written:1+print_recovery.before_commit:1,printed",
    "print.replied:1+print_recovery.committed:1,print-reply-lost",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(request: pytest.FixtureRequest) -> AsyncIterator[Mapping[str, "asyncio.Task[Result]"]]:
    """Yield the selected cells as tasks. A few cells run at the same time."""
    turn = asyncio.Semaphore(JOBS)
    here = (item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec"))
    texts = [item.callspec.params["text"] for item in here]
    tasks = {text: asyncio.create_task(run(parse(text), SEED, turn)) for text in texts}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", named_quick(SAMPLE, QUICK))
@pytest.mark.asyncio(loop_scope="module")
async def test_after_a_kill_at_each_point_the_end_is_right(
    running: Mapping[str, "asyncio.Task[Result]"], text: str
) -> None:
    result = await running[text]
    assert result.verdict == OK, "\n".join([str(result), *map(str, result.log)])


def test_the_sample_has_every_point_and_every_scenario() -> None:
    cells = [parse(text) for text in SAMPLE]
    assert {point for cell in cells for point in cell.points} == POINTS
    assert {cell.scenario for cell in cells} == SCENARIOS.keys()
