"""The queue of a printer. A full queue accepts no job. The queue follows a terminal that moves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posd.base.problems import Problem
from posd.printing import start as printing_module
from posd.printing.rows import derive, difference
from tests.rig.shop import Held
from tests.rig.tables import there
from tests.rig.terminal import PATIENCE_SECONDS, taking_print
from tests.services.inside import RECEIPT, Inside, composed


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with composed(tmp_path, announced=True) as parts:
        yield parts


async def test_a_full_queue_refuses_jobs_with_the_reason(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing_module, "MAX_WAITING", 3)
    inside.terminal.print_start = hung = Held(taking_print)
    calls = [await inside.behind(f"job-{number}") for number in range(3)]
    with pytest.raises(Problem) as full:
        await inside.printing.start("job-3", RECEIPT)
    assert (full.value.code, full.value.status) == ("queue_full", 503)
    assert await inside.get_job("job-3") is None
    hung.release.set()
    assert {(await call)[0].phase for call in calls} == {"active"}
    job, created = await inside.printing.start("job-3", RECEIPT)
    assert (job.phase, created, len(inside.terminal.prints)) == ("active", True, 4)


async def test_a_waiting_job_is_sent_to_the_terminals_present_address(inside: Inside) -> None:
    inside.terminal.print_start = hung = Held(taking_print)
    first = await inside.behind("job-1")
    await asyncio.wait_for(hung.arrived.wait(), PATIENCE_SECONDS)
    waiting = await inside.behind("job-2")
    inside.announce(1)
    await inside.terminal.unplug(0)
    hung.release.set()
    jobs = [(await call)[0] for call in (first, waiting)]
    assert [job.phase for job in jobs] == ["active", "active"]
    assert [job.sent_to for job in jobs] == inside.terminal.base_urls
    for identity in ("job-1", "job-2"):
        stored = there(await inside.get_job(identity))
        derived = await inside.store.read(lambda db, stored=stored: derive(db, stored))
        assert difference(stored, derived) == {}
