"""The poller of print jobs as a task.

The task is idle without open jobs, and its memory stays small for any replies.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from posd.config import load
from posd.config.schema import PrintConfig
from posd.printing import poll as spooler_module
from posd.printing import rows
from posd.printing.model import PrintJob
from posd.printing.poll import PrintPoller
from posd.printing.schedule import CAUSED_PAUSE_SECONDS
from posd.printing.start import PrintTurns
from posd.records.model import Phase
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.terminal import Request, http, scripted_terminal

TERMINAL = "SN-TEST"
ENTRY = f'[[terminals]]\nserial = "{TERMINAL}"\n'


AT = "2026-01-02T03:04:05.000Z"
JOB = PrintJob(
    print_job_id="job-1",
    terminal=TERMINAL,
    created_at=AT,
    updated_at=AT,
    phase=Phase.ACTIVE,
    sent_to="https://192.0.2.1",
)


def now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def spooling(home: Path, entry: str = ENTRY) -> AsyncIterator[PrintPoller]:
    """Create a poller and one job that the terminal has accepted. The poller has not adopted the job yet."""
    (home / "config.toml").write_text(toml(home, entry))
    config = load(home / "config.toml")
    store = await Store.open(home / "posd.db", home / "posd.db.lock")
    await store.write(lambda unit: rows.begin(unit, JOB, "intent"))
    fleet = Fleet(config.terminals, config.profiles)
    parts = ServiceParts(store, fleet, now, chance=random.random)
    spooler = PrintPoller(parts, PrintTurns(), PrintConfig(3600, 3600, 3600, "document", "text"))
    store.hub.listen(spooler.changed, rows.PrintJobChanged)
    try:
        yield spooler
    finally:
        await spooler.close()
        await fleet.close()
        await store.close()


async def some_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_without_open_jobs_the_poller_does_not_wake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    running: asyncio.Task[None] | None = None
    timeout = asyncio.timeout

    def noting(seconds: float | None) -> asyncio.Timeout:
        if asyncio.current_task() is running:
            waits.append(seconds)
        return timeout(seconds)

    async with spooling(tmp_path) as spooler:
        monkeypatch.setattr(spooler_module.asyncio, "timeout", noting)
        running = asyncio.create_task(spooler.run())
        await some_turns(100)
        assert waits == [None], "the poller waits once, without a wake-up time"
        spooler.adopt([JOB])
        await some_turns(100)
        assert len(waits) > 1, "a new job wakes the poller"
        running.cancel()
        await asyncio.wait({running})


async def test_many_unusable_callbacks_of_a_job_plan_one_poll(tmp_path: Path) -> None:
    async with spooling(tmp_path) as spooler:
        spooler.adopt([JOB])
        for _ in range(1000):
            spooler.unusable(JOB.print_job_id)
        assert (spooler._lines[TERMINAL].jobs, spooler._plans.keys()) == ({JOB.print_job_id}, {JOB.print_job_id})


async def test_an_unusable_callback_during_a_poll_causes_the_next_poll_after_a_pause(tmp_path: Path) -> None:
    """The terminal sends an unusable callback after each poll, and each callback causes a poll."""
    over: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()

    async def confused(_request: Request, writer: asyncio.StreamWriter) -> None:
        running.cancel()  # the pause is so long that even a slow machine makes no other poll
        spooler.unusable(JOB.print_job_id)
        over.set_result(spooler._lines[TERMINAL].asking)
        writer.write(http(200, b'{"status": "IN_PROGRESS"}'))

    async with scripted_terminal(tmp_path) as terminal, spooling(tmp_path, terminal.toml) as spooler:
        terminal.print_poll = confused
        spooler.adopt([JOB])
        running = asyncio.create_task(spooler.run())
        async with asyncio.timeout(30):
            await (await over)
        await asyncio.wait({running})
        plan = spooler._plans[JOB.print_job_id]
        assert plan.poll_at == plan.asked_at + CAUSED_PAUSE_SECONDS
        assert len(terminal.polls) == 1
