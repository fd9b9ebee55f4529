"""Print jobs with lost webhooks, restarts and kills. A poll finds the end, and posd sends no job twice."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.prints import EAGER, Job, Printer, knowing, one_by_one
from tests.rig.shop import Held, answering, hanging_up
from tests.rig.streams import stream
from tests.rig.terminal import http, nowhere, taking_print
from tests.rig.webhooks import faults

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Configuration of the polls in this file.
POLLING = EAGER


@pytest.fixture(scope="module", autouse=True)
def no_faults(printer: Printer) -> Iterator[None]:
    """Check after all these tests that the daemon's log has no internal fault."""
    yield
    assert faults(printer.daemon) == []


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        ({"status": "COMPLETED"}, "COMPLETED", (None, None)),
        ({"status": "FAILED", "errorCode": "E-7", "errorMessage": "paper"}, "FAILED", ("E-7", "paper")),
    ],
    ids=["completed", "failed"],
)
async def test_without_any_webhook_a_poll_finds_the_end(
    printer: Printer, answer: dict[str, Any], status: str, error: tuple[str | None, str | None]
) -> None:
    job = printer.job()
    printer.terminal.print_poll = knowing(job, **answer)
    await job.started()
    document = await job.outcome()
    assert (document["status"], document["decided_by"], document["attention"]) == (status, "poll", [])
    assert (document["error_code"], document["error_message"]) == error
    assert job.polls[0].method == "GET"
    assert job.polls[0].path == f"/terminal/v1/print_job?print_job_id={job.identity}"
    await printer.daemon.log_line("print.poll", print_job=job.identity, status=status)


async def test_a_person_can_request_a_poll_even_after_the_end(printer: Printer) -> None:
    job = await printer.job().started()
    assert await job.webhook() == 200
    count = len(job.polls)
    printer.terminal.print_poll = knowing(job, status="COMPLETED")
    posd, at = printer.daemon, f"/print-jobs/{job.identity}"
    asked = await posd.call("POST", f"{at}/reconcile", socket=posd.admin_socket)
    assert (asked.status, asked.json["status"], asked.json["reason"]) == (200, "COMPLETED", None)
    assert (asked.json["print_job"]["decided_by"], asked.json["print_job"]["attention"]) == ("webhook", [])
    assert len(job.polls) > count
    printer.terminal.print_poll = nowhere
    asked = await posd.call("POST", f"{at}/reconcile", socket=posd.admin_socket)
    assert (asked.json["status"], asked.json["print_job"]["status"]) == (None, "COMPLETED")
    assert "404" in asked.json["reason"]
    assert (await posd.call("POST", f"{at}/reconcile")).json["code"] == "forbidden"


async def test_a_possibly_accepted_job_is_found_and_never_sent_twice(printer: Printer) -> None:
    job = printer.job(start=hanging_up)
    printer.terminal.print_poll = one_by_one(nowhere, nowhere, knowing(job, status="IN_PROGRESS"), hanging_up)
    assert (await job.put()).json["phase"] == "in_doubt"
    document = await job.until(lambda item: item["phase"] == "active")
    assert (document["status"], document["attention"]) == ("IN_PROGRESS", [])
    printer.terminal.print_poll = knowing(job, status="COMPLETED")
    assert (await job.outcome())["decided_by"] == "poll"
    assert len(job.requests) == 1


async def test_a_poll_uses_the_id_that_the_terminal_gave_the_job(printer: Printer) -> None:
    own = f"T/{uuid4()}"
    job = printer.job(start=answering(202, {"id": own}))

    async def poll(request: Any, writer: asyncio.StreamWriter) -> None:
        assert request.path == f"/terminal/v1/print_job?print_job_id={own.replace('/', '%2F')}"
        writer.write(http(200, json.dumps([{"id": own, "status": "COMPLETED"}]).encode()))

    printer.terminal.print_poll = poll
    await job.started()
    assert (await job.outcome())["decided_by"] == "poll"


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def all_ended(printer: Printer) -> AsyncIterator[None]:
    """Resolve the open jobs as an operator, so that posd does not poll them."""
    yield
    for item in (await printer.daemon.call("GET", "/print-jobs?open=true")).json["print_jobs"]:
        assert (await Job(printer.daemon, printer.terminal, item["print_job_id"]).resolve()).status == 200


async def in_line(printer: Printer, count: int) -> tuple[Job, list[Job], list[asyncio.Task[object]]]:
    """Return a job under way on a hanging terminal, and jobs that wait for this job. The intents of all jobs are
    recorded."""
    printer.terminal.print_start = hung = Held(taking_print)
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


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_job_that_waits_when_posd_stops_is_never_sent(printer: Printer, end: signal.Signals) -> None:
    first, behind, calls = await in_line(printer, 5)
    await printer.daemon.stop(end)
    await asyncio.gather(*calls, return_exceptions=True)
    await printer.daemon.start()
    assert (await first.get())["phase"] == "in_doubt"
    for job in behind:
        document = await job.get()
        assert (document["phase"], document["status"], document["decided_by"]) == ("final", None, "unsent")
        assert job.requests == []
    assert (await first.resolve()).status == 200
