"""The printer of `posd simulate` as a process: its options, its restarts, its death by SIGKILL, what a person reads."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from click import unstyle

from posd.cli.simulate.words import as_words
from tests.simulator.conftest import PATIENCE
from tests.simulator.printers import PRINT, PRINT_JOB, creation
from tests.simulator.processes import lines_of, until
from tests.simulator.restarted import Restarted
from tests.support.slow import chosen_quick, first_quick


class PrintShop(Restarted):
    """A terminal that prints."""

    async def create(self, print_job_id: str, scenario: str | None = None) -> int:
        body = creation(print_job_id, scenario, webhookUrl=self.receiver.url)
        return (await self.client.post(self.base_url + PRINT, json=body)).status_code

    async def status(self, print_job_id: str) -> str | None:
        """Return the state of a job, None where the terminal knows none."""
        answer = await self.client.get(f"{self.base_url}{PRINT_JOB}?print_job_id={print_job_id}")
        return answer.json()["status"] if answer.status_code == 200 else None

    async def prints(self) -> list[str]:
        shown = (await self.client.get(self.base_url + "/simulator/prints")).json()
        return [item["print_job_id"] for item in shown]

    async def paper(self) -> None:
        await self.client.post(self.base_url + "/simulator/paper")

    def told(self) -> list[str]:
        return [item.event["printJobId"] for item in self.receiver.deliveries]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[PrintShop]:
    async with PrintShop.opened(tmp_path) as shop:
        yield shop


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


@pytest.mark.parametrize("number", first_quick([signal.SIGKILL, signal.SIGTERM], 1, ["killed", "stopped"]))
async def test_jobs_survive_a_restart_but_those_that_are_forgotten(shop: PrintShop, number: signal.Signals) -> None:
    """An empty printer holds everything up: what waits behind it is printed after the restart, in its order."""
    async with shop.terminal() as process:
        for name in ("done", "lost", "empty", "waiting", "volatile", "forgotten"):
            scenario = {"empty": "out-of-paper", "volatile": "forgets-at-restart", "forgotten": "forgets"}.get(name)
            assert await shop.create(name, "fails" if name == "lost" else scenario) == 202
        await until(process, "printing", print_job_id="empty")
        await shop.receiver.wait_for(2)
        known = {
            name: await shop.status(name) for name in ("done", "lost", "empty", "waiting", "volatile", "forgotten")
        }
        assert list(known.values()) == ["COMPLETED", "FAILED", "IN_PROGRESS", "PENDING", "PENDING", None]
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == (0 if number is signal.SIGTERM else -number)
    async with shop.terminal() as process:
        await until(process, "printing", print_job_id="empty")  # from its beginning
        assert await shop.prints() == ["done"]
        assert [await shop.status(name) for name in ("done", "lost", "waiting", "volatile", "forgotten")] == [
            *("COMPLETED", "FAILED", "PENDING", None, None)
        ]
        await shop.paper()
        await until(process, "print_webhook", print_job_id="waiting")
        assert await shop.prints() == ["done", "empty", "waiting"]
    assert [line["print_job_id"] for line in lines_of(shop.ledger, "printed")] == ["done", "lost", "empty", "waiting"]
    assert sorted(shop.told()) == ["done", "empty", "lost", "waiting"]


#: Where the process dies in the middle of a job: the point and the number of its passage. What the world knows then:
#: whether the terminal knows the job, whether it had ended, whether that is in the ledger.
POINTS: list[tuple[str, int, bool, bool, bool]] = [
    ("call:record.PrintRecord.take", 1, False, False, False),
    ("return:record.PrintRecord.take", 1, True, False, False),
    ("return:record.PrintRecord.enter", 1, True, False, False),
    ("call:record.PrintRecord.enter", 2, True, False, False),
    ("return:record.PrintRecord.enter", 2, True, True, False),
    ("return:printer._add_printed", 1, True, True, True),
]


#: Before the terminal knows the job, and between its end and the ledger.
QUICK = [POINTS[0], POINTS[4]]
CASES = chosen_quick(POINTS, QUICK, lambda row: f"{row[0]}-{row[1]}")


@pytest.mark.quick(1)
@pytest.mark.parametrize(("point", "passage", "known", "ended", "in_ledger"), CASES)
async def test_killed_at_an_exact_point_of_a_job(
    shop: PrintShop, point: str, passage: int, known: bool, ended: bool, in_ledger: bool
) -> None:
    async with shop.terminal(kill_at=(point, passage)) as process:
        with suppress(httpx2.TransportError):
            await shop.create("job-1")
        assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL
    assert len(lines_of(shop.ledger, "print")) == 1
    assert len(lines_of(shop.ledger, "printed")) == in_ledger
    async with shop.terminal() as process:
        if known and not in_ledger:
            assert (await until(process, "printed"))["print_job_id"] == "job-1"
        assert await shop.status("job-1") == ("COMPLETED" if known else None)
        assert await shop.prints() == ["job-1"] * known
        if known and not ended:
            await until(process, "print_webhook", print_job_id="job-1")
        assert await shop.create("job-2") == 202
        await until(process, "print_webhook", print_job_id="job-2")
    assert shop.told() == ["job-1"] * (known and not ended) + ["job-2"]  # one attempt, and none for what died before it
    assert Counter(line["print_job_id"] for line in lines_of(shop.ledger, "printed")) == Counter(
        ["job-1"] * known + ["job-2"]
    )


CREATED = {"kind": "print", "access_mode": "local", "http_status": 202, "code": None, "scenario": "completes"}


def test_what_a_stranger_sends_does_not_steer_the_screen() -> None:
    told = as_words({"at": "2026-11-01T10:00:00.000Z", "print_job_id": "\x1b[2J\nx"} | CREATED)
    assert told is not None
    assert r" print \u001b[2J\nx answered" in unstyle(told)
