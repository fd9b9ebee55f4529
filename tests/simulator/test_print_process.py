"""The printer of `posd simulate` as a process: its options, its restarts, its death by SIGKILL, what a person reads."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest
from click import unstyle
from click.testing import CliRunner

from posd.cli.simulate import simulate as command
from posd.cli.simulate.words import MAX_PAPER_LINES, as_words
from tests.simulator.conftest import PATIENCE
from tests.simulator.printers import PRINT, PRINT_JOB, creation
from tests.simulator.processes import lines_of, next_line, until
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


async def test_a_job_that_is_stuck_is_stuck_again(shop: PrintShop) -> None:
    async with shop.terminal("--print-scenario", "stuck") as process:
        assert await shop.create("job-1") == 202
        await until(process, "printing")
        await kill(process)
    async with shop.terminal() as process:
        await until(process, "printing", print_job_id="job-1")
        assert await shop.status("job-1") == "IN_PROGRESS"


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


@pytest.mark.slow  # four processes
async def test_killed_again_and_again_every_job_is_printed_once(shop: PrintShop) -> None:
    rng, created = Random(5), []
    for _ in range(3):
        async with shop.terminal("--speed", "300") as process:
            for _ in range(4):
                created.append(f"job-{len(created)}")
                assert await shop.create(created[-1]) == 202
            for _ in range(rng.randrange(2, 16)):
                await next_line(process)
            await kill(process)
    async with shop.terminal("--speed", "300") as process:
        created.append("last")
        assert await shop.create("last") == 202
        await until(process, "printed", print_job_id="last")
        assert await shop.prints() == created
    assert [line["print_job_id"] for line in lines_of(shop.ledger, "printed")] == created
    assert [line["print_job_id"] for line in lines_of(shop.ledger, "print")] == created
    assert len(set(shop.told())) == len(shop.told())


def test_a_file_that_is_no_list_of_jobs_is_told(tmp_path: Path) -> None:
    (tmp_path / "prints.jsonl").write_text('{"op":"state","slip":"unknown","status":"COMPLETED"}\n')
    before = signal.getsignal(signal.SIGTERM)
    options = ["--no-mdns", "--http", "--listen", "127.0.0.1:0", "--state", str(tmp_path)]
    result = CliRunner().invoke(command, options)
    signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 2
    assert "line 1 of" in result.stderr
    assert "--state" in result.stderr


def test_the_help_tells_of_printing() -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert "--print-scenario" in text
    assert "print:NAME" in text


def test_a_wrong_scenario_is_exit_2() -> None:
    result = CliRunner().invoke(command, ["--print-scenario", "x"])
    assert result.exit_code == 2
    assert "no print scenario x; posd simulate --list" in result.stderr


MARGIN = "\n" + " " * 24 + "|"
CREATED = {"kind": "print", "access_mode": "local", "http_status": 202, "code": None, "scenario": "completes"}
PRINTED = {"kind": "printed", "status": "COMPLETED", "error_code": None}
WEBHOOK = {"kind": "print_webhook", "status": "COMPLETED"}
#: An entry of the ledger, and the end of the lines that a person reads; None: nothing.
TOLD: list[tuple[dict[str, Any], str | None]] = [
    (CREATED, "receipt-  print receipt-0001 answered 202, scenario completes"),
    (
        CREATED | {"http_status": None, "access_mode": "cloud"},
        "print receipt-0001 over the cloud path not answered, connection closed, scenario completes",
    ),
    (CREATED | {"http_status": 422, "code": "PRINT_REFUSED"}, "print receipt-0001 answered 422, PRINT_REFUSED"),
    (
        CREATED | {"http_status": 400, "code": "MALFORMED_JSON", "print_job_id": None},
        "  print of no job answered 400, MALFORMED_JSON",
    ),
    (PRINTED | {"text": "MY SHOP\n\nTotal 1"}, f"printed: receipt-0001{MARGIN} MY SHOP{MARGIN}{MARGIN} Total 1"),
    (PRINTED | {"text": "\n".join("x" * (MAX_PAPER_LINES + 2))}, f"x{MARGIN} ... and 2 more lines"),
    (PRINTED | {"status": "FAILED", "error_code": "PAPER_JAM", "text": None}, "not printed: receipt-0001, PAPER_JAM"),
    (WEBHOOK | {"call": 1, "result": 200}, "  told COMPLETED: 200"),
    (WEBHOOK | {"call": 2, "result": 204}, "  told COMPLETED once more: 204"),
    (WEBHOOK | {"call": 1, "result": 403}, "  told COMPLETED: 403, not tried again"),
    (WEBHOOK | {"call": 1, "result": "timeout"}, "  told COMPLETED: timeout, not tried again"),
    ({"kind": "print_poll", "http_status": 200, "status": "PENDING"}, None),
]


@pytest.mark.parametrize(("entry", "end"), TOLD, ids=range(len(TOLD)))
def test_what_a_person_is_told(entry: dict[str, Any], end: str | None) -> None:
    told = as_words({"at": "2026-11-01T10:00:00.000Z", "print_job_id": "receipt-0001"} | entry)
    assert told is None if end is None else unstyle(told or "").endswith(end)


def test_what_a_stranger_sends_does_not_steer_the_screen() -> None:
    told = as_words({"at": "2026-11-01T10:00:00.000Z", "print_job_id": "\x1b[2J\nx"} | CREATED)
    assert told is not None
    assert r" print \u001b[2J\nx answered" in unstyle(told)
