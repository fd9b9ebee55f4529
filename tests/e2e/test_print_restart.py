"""Print jobs over crashes, restarts and storage trouble: sent at most once, found out by polling, nothing guessed."""

import asyncio
import signal
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio

from tests.e2e.conftest import some
from tests.support.prints import EAGER, Job, Printer, knowing
from tests.support.shop import held
from tests.support.streams import stream
from tests.support.tables import there
from tests.support.terminal import taking_print
from tests.support.webhooks import attention

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: How often the printer of this file is asked for its jobs.
POLLING = EAGER


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def all_ended(printer: Printer) -> AsyncIterator[None]:
    """A daemon that a test left dead runs again; a person closes what is open, so that posd does not ask for it."""
    yield
    if printer.daemon.process is None or printer.daemon.process.returncode is not None:
        if printer.daemon.process is not None:
            await printer.daemon.stop()
        printer.daemon.environment = {}
        await printer.daemon.start()
    for item in (await printer.daemon.call("GET", "/print-jobs?open=true")).json["print_jobs"]:
        assert (await Job(printer.daemon, printer.terminal, item["print_job_id"]).resolve()).status == 200


async def crash(printer: Printer, job: Job, point: str) -> None:
    """Run the daemon so that it dies at that point of this job, and wait until it has."""
    await printer.daemon.stop()
    printer.daemon.environment = {"POSD_CRASH": point}
    await printer.daemon.start()
    try:
        await job.put()
    except httpx2.TransportError:
        pass
    else:
        assert not point.startswith("print."), "it should have died before its answer"
    async with asyncio.timeout(30):
        await there(printer.daemon.process).wait()
    await printer.daemon.stop()
    printer.daemon.environment = {}


async def test_killed_between_acceptance_and_webhook_a_poll_finds_the_end(printer: Printer) -> None:
    job = await printer.job().started()
    await printer.daemon.kill()
    printer.terminal.print_poll = knowing(job, status="COMPLETED")
    await printer.daemon.start()
    document = await job.outcome()
    assert (document["status"], document["decided_by"], document["attention"]) == ("COMPLETED", "poll", [])
    assert len(job.requests) == 1


async def test_a_webhook_during_the_outage_is_lost_and_one_after_it_counts(printer: Printer) -> None:
    job = await printer.job().started()
    await printer.daemon.restart()
    assert await job.webhook() == 200
    assert (await job.outcome())["decided_by"] == "webhook"


#: Point -> how often the terminal saw the request.
POINTS = {
    "print.intended": 0,
    "print.before_send": 0,
    "print.written": 1,
    "print.replied": 1,
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("point", some(POINTS, "print.before_send", "print.written"))
async def test_a_crash_while_it_is_sent_leaves_it_in_doubt_and_it_is_never_sent_again(
    printer: Printer, point: str
) -> None:
    job = printer.job()
    await crash(printer, job, point)
    await printer.daemon.start()
    document = await job.get()
    assert (document["phase"], attention(document)) == ("in_doubt", {"in_doubt"})
    again = await job.put()
    assert (again.status, again.json["phase"]) == (200, "in_doubt")
    printer.terminal.print_poll = knowing(job, status="COMPLETED")
    assert (await job.outcome())["decided_by"] == "poll"
    # What was written may die with the process on its way.
    assert len(job.requests) <= POINTS[point]


async def in_line(printer: Printer, count: int) -> tuple[Job, list[Job], list[asyncio.Task[object]]]:
    """Return a job that is being sent to a terminal that hangs, and others behind it whose intents are recorded."""
    printer.terminal.print_start = hung = held(taking_print)
    first = printer.job(start=hung)
    behind = [Job(printer.daemon, printer.terminal, f"job-{uuid4()}") for _ in range(count)]
    missing = {job.identity for job in (first, *behind)}
    async with stream(printer.daemon.till_socket, "/feed") as messages:
        calls: list[asyncio.Task[object]] = [asyncio.create_task(first.put())]
        await hung.arrived.wait()
        calls += [asyncio.create_task(job.put()) for job in behind]
        async for message in messages:
            missing.discard(message.json["id"])
            if not missing:
                break
    return first, behind, calls


async def test_what_waited_in_line_at_a_crash_was_provably_not_sent(printer: Printer) -> None:
    first, behind, calls = await in_line(printer, 5)
    await printer.daemon.kill()
    await asyncio.gather(*calls, return_exceptions=True)
    await printer.daemon.start()
    assert (await first.get())["phase"] == "in_doubt"
    for job in behind:
        document = await job.get()
        assert (document["phase"], document["status"], document["decided_by"]) == ("final", None, "unsent")
        assert job.requests == []
    assert (await first.resolve()).status == 200


async def test_what_waits_in_line_at_a_stop_is_not_sent(printer: Printer) -> None:
    first, behind, calls = await in_line(printer, 5)
    assert await printer.daemon.stop(signal.SIGTERM) == 0
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert len(answers) == 6
    await printer.daemon.start()
    assert (await first.get())["phase"] == "in_doubt"
    assert {(await job.get())["decided_by"] for job in behind} == {"unsent"}
    assert sum(len(job.requests) for job in behind) == 0
