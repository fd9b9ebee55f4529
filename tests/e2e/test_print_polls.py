"""Polling (spec 6.4: required): it finds what no webhook tells, stops at the end, and asks no terminal too often."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.prints import EAGER, Printer, knowing, one_by_one
from tests.support.shop import answering, hanging_up
from tests.support.terminal import Script, http, nowhere
from tests.support.webhooks import attention, faults

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: How often the printer of this file is asked for its jobs.
POLLING = EAGER


@pytest.fixture(scope="module", autouse=True)
def no_faults(printer: Printer) -> Iterator[None]:
    """After all that is done here to the daemon, its log tells of no fault."""
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
async def test_with_every_webhook_lost_a_poll_finds_the_end(
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


async def test_a_person_can_have_it_asked_for_also_when_it_has_ended(printer: Printer) -> None:
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


async def test_a_job_that_may_have_been_accepted_is_found_out_and_never_sent_twice(printer: Printer) -> None:
    job = printer.job(start=hanging_up)
    printer.terminal.print_poll = one_by_one(nowhere, nowhere, knowing(job, status="IN_PROGRESS"), hanging_up)
    assert (await job.put()).json["phase"] == "in_doubt"
    document = await job.until(lambda item: item["phase"] == "active")
    assert (document["status"], document["attention"]) == ("IN_PROGRESS", [])
    printer.terminal.print_poll = knowing(job, status="COMPLETED")
    assert (await job.outcome())["decided_by"] == "poll"
    assert len(job.requests) == 1


@pytest.mark.parametrize("answer", [nowhere, answering(200, {"printJobId": "other", "status": "COMPLETED"})])
async def test_what_is_no_answer_ends_nothing(printer: Printer, answer: Script) -> None:
    job = printer.job(start=hanging_up, poll=answer)
    await job.put()
    await job.polled(3)
    document = await job.get()
    assert (document["phase"], document["status"], attention(document)) == ("in_doubt", None, {"in_doubt"})
    assert (await job.resolve("FAILED")).json["decided_by"] == "operator"


async def test_the_terminal_is_asked_by_its_own_id(printer: Printer) -> None:
    own = f"T/{uuid4()}"
    job = printer.job(start=answering(202, {"id": own}))

    async def poll(request: Any, writer: asyncio.StreamWriter) -> None:
        assert request.path == f"/terminal/v1/print_job?print_job_id={own.replace('/', '%2F')}"
        writer.write(http(200, json.dumps([{"id": own, "status": "COMPLETED"}]).encode()))

    printer.terminal.print_poll = poll
    await job.started()
    assert (await job.outcome())["decided_by"] == "poll"
