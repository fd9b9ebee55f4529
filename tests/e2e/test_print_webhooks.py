"""Every row of the reply table for print webhooks, tested by raw HTTPS: the reply and the stored data."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.rig.https import connect, post
from tests.rig.prints import SILENT, Printer, knowing
from tests.rig.shop import Held
from tests.rig.terminal import Request, http
from tests.rig.webhooks import attention, deliver, everything, faults, quarantined

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Configuration of the polls in this file.
POLLING = SILENT


@pytest.fixture(scope="module", autouse=True)
def no_faults(printer: Printer) -> Iterator[None]:
    """Check after all tests of the file that the log has only two expected faults: contradicting final reports."""
    yield
    assert [line for line in faults(printer.daemon) if line.get("code") != "conflicting_final"] == []


@pytest.mark.parametrize(
    ("damaged", "shown"),
    [(b"01", None), (b'"table \xff7"', "table \N{REPLACEMENT CHARACTER}7")],
    ids=["number", "utf-8"],
)
async def test_a_damaged_webhook_is_kept_verbatim_and_its_history_is_json(
    printer: Printer, damaged: bytes, shown: str | None
) -> None:
    job = await printer.job().started()
    content = job.words(externalReference="t7").replace(b'"t7"', damaged)
    assert (await job.call(content)).status == 200
    assert job.kept == [content]
    history = (await printer.daemon.call("GET", f"/print-jobs/{job.identity}/history")).json["history"]
    (said,) = (line["body"] for line in history if line["kind"] == "webhook")
    assert (said["status"], said["externalReference"]) == ("COMPLETED", shown)


async def test_a_repeated_webhook_adds_nothing(printer: Printer) -> None:
    job = await printer.job().started()
    assert await job.webhook() == 200
    before = everything(printer.daemon)
    assert [await job.webhook() for _ in range(3)] == [200, 200, 200]
    assert await job.webhook(externalReference="other words, the same job and end") == 200
    assert everything(printer.daemon) == before


async def test_two_simultaneous_equal_webhooks_count_once(printer: Printer) -> None:
    job = await printer.job().started()
    assert await asyncio.gather(*(job.webhook() for _ in range(8))) == [200] * 8
    assert len(job.kept) == 1
    assert [line["reason"] for line in await job.changes()].count("webhook:COMPLETED") == 1


async def test_an_unknown_job_is_rebuilt_from_its_webhook(printer: Printer) -> None:
    job = printer.job()
    assert await job.webhook("FAILED", externalReference="t7", errorCode="E-7") == 200
    document = await job.get()
    assert (document["status"], document["decided_by"], document["terminal"]) == ("FAILED", "webhook", None)
    assert (document["external_reference"], attention(document)) == ("t7", {"orphan"})
    assert job.kept == [job.words("FAILED", externalReference="t7", errorCode="E-7")]
    assert [line["reason"] for line in await job.changes()] == ["orphan", "webhook:FAILED"]
    repeated = await job.put(terminal="SN-TEST")
    assert (repeated.status, repeated.json["status"]) == (200, "FAILED"), "posd sends nothing for a later call"
    assert job.requests == []
    listed = (await printer.daemon.call("GET", "/print-jobs?attention=true&limit=500")).json["print_jobs"]
    assert job.identity in [item["print_job_id"] for item in listed]


@pytest.mark.parametrize(
    "content",
    [b"", b"paper jam", b"[]", b"{}", b'{"printJobId": "x"}', b'{"printJobId":"x","status":["COMPLETED"]}'],
    ids=["empty", "text", "list", "object", "without a status", "a list as status"],
)
async def test_an_invalid_webhook_is_quarantined_and_the_job_polled_at_once(printer: Printer, content: bytes) -> None:
    job = printer.job()
    printer.terminal.print_poll = knowing(job, status="COMPLETED")
    await job.started()
    assert (await job.call(content)).status == 400
    assert [body for _, body in quarantined(printer.daemon, job.identity)] == [content]
    document = await job.outcome()
    assert (document["status"], document["decided_by"]) == ("COMPLETED", "poll"), "posd polls at once"
    assert job.kept == []


async def test_the_webhook_of_another_job_is_refused_and_shown(printer: Printer) -> None:
    job, other = await printer.job().started(), await printer.job().started()
    assert (await job.call(other.words())).status == 400
    document = await job.get()
    assert (document["phase"], attention(document)) == ("active", {"quarantined_event"})
    assert (await other.get())["phase"] == "active"
    await job.polled()
    listed = (await printer.daemon.call("GET", "/quarantine?limit=500", socket=printer.daemon.admin_socket)).json
    (entry,) = [item for item in listed["quarantine"] if item["print_job_id"] == job.identity]
    assert (entry["channel"], entry["client_transaction_id"]) == ("print-jobs", None)
    assert await job.webhook() == 200
    assert (await job.get())["attention"] == []


async def test_an_interrupted_webhook_causes_a_poll(printer: Printer) -> None:
    job = await printer.job().started()
    _, writer = await connect(printer.daemon.port, printer.daemon.ca)
    writer.write(post(f"https://127.0.0.1{job.address}", job.words())[:-9])
    await writer.drain()
    writer.close()
    await job.polled()
    assert (await job.get())["phase"] == "active"


@pytest.mark.slow
async def test_a_webhook_that_the_disk_cannot_store_is_found_by_a_poll(printer: Printer) -> None:
    job = printer.job()
    printer.terminal.print_poll = poll = Held(knowing(job, status="COMPLETED"))
    await job.started()
    with closing(sqlite3.connect(printer.daemon.database, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        answer = await job.call(job.words())
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        await poll.arrived.wait()
        foreign.execute("ROLLBACK")
    assert job.kept == []
    poll.release.set()
    document = await job.outcome()
    assert (document["status"], document["decided_by"]) == ("COMPLETED", "poll")
    line = await printer.daemon.log_line("webhook.not_stored", print_job=job.identity)
    assert "does not send it again" in line["detail"]


async def test_a_quarantined_webhook_can_be_applied_later(printer: Printer) -> None:
    """A callback has the terminal's own id. posd has stored another id, from a reply to an earlier version."""
    job = printer.job()

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        assert (
            await deliver(printer.daemon, request.print_callback, job.words("PENDING", printJobId="T-1"))
        ).status == 200
        assert (await deliver(printer.daemon, request.print_callback, job.words(printJobId="T-2"))).status == 400
        writer.write(http(202, json.dumps({"printJobId": "T-2"}).encode()))

    printer.terminal.print_start = script
    document = (await job.put()).json
    assert (document["phase"], attention(document)) == ("active", {"quarantined_event", "id_mismatch"})
    report = (await printer.daemon.call("POST", "/reprocess", socket=printer.daemon.admin_socket)).json["printing"]
    assert [item["print_job_id"] for item in report["applied"]] == [job.identity]
    document = await job.get()
    assert (document["status"], document["decided_by"]) == ("COMPLETED", "webhook")
    assert quarantined(printer.daemon, job.identity) == []
