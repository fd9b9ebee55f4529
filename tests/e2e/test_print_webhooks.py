"""Every row of the print channel's reply table, by raw HTTPS to a daemon: the answer, and what is on the disk."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest

from posd.api.webhooks import MAX_PRINT_BYTES
from posd.base import ids
from posd.base.ids import Channel
from tests.support.events import body as event_body
from tests.support.https import connect, post
from tests.support.prints import SILENT, Printer, calling_before, knowing
from tests.support.shop import answering, held
from tests.support.terminal import Request, http
from tests.support.webhooks import attention, chunked, deliver, everything, faults, key_file, quarantined

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: How often the printer of this file is asked for its jobs.
POLLING = SILENT


@pytest.fixture(scope="module", autouse=True)
def no_faults(printer: Printer) -> Iterator[None]:
    """After all that is done here to the daemon, its log tells of no fault but two finals that differ."""
    yield
    assert [line for line in faults(printer.daemon) if line.get("code") != "conflicting_final"] == []


async def test_a_completed_job_is_kept_verbatim_and_has_its_end(printer: Printer) -> None:
    job = await printer.job().started()
    content = b"  " + job.words().replace(b", ", b" ,\n")
    answer = await job.call(content)
    assert (answer.status, answer.body) == (200, b"")
    assert job.kept == [content]
    document = await job.outcome()
    assert (document["status"], document["phase"], document["decided_by"]) == ("COMPLETED", "final", "webhook")
    assert document["attention"] == []


async def test_a_failed_job_has_its_error(printer: Printer) -> None:
    job = await printer.job().started()
    assert await job.webhook("FAILED", errorCode="E-7", errorMessage="out of paper", more={"x": [1]}) == 200
    document = await job.outcome()
    assert (document["status"], document["error_code"], document["error_message"]) == ("FAILED", "E-7", "out of paper")


async def test_the_same_again_adds_nothing(printer: Printer) -> None:
    job = await printer.job().started()
    assert await job.webhook() == 200
    before = everything(printer.daemon)
    assert [await job.webhook() for _ in range(3)] == [200, 200, 200]
    assert await job.webhook(externalReference="other words, the same job and end") == 200
    assert everything(printer.daemon) == before


async def test_twice_at_the_same_time_is_once(printer: Printer) -> None:
    job = await printer.job().started()
    assert await asyncio.gather(*(job.webhook() for _ in range(8))) == [200] * 8
    assert len(job.kept) == 1
    assert [line["reason"] for line in await job.changes()].count("webhook:COMPLETED") == 1


async def test_another_final_is_kept_and_the_first_stands(printer: Printer) -> None:
    job = await printer.job().started()
    assert [await job.webhook(), await job.webhook("FAILED", errorCode="E-7")] == [200, 200]
    document = await job.get()
    assert (document["status"], document["error_code"]) == ("COMPLETED", None)
    assert attention(document) == {"conflicting_final"}
    assert job.kept == [job.words(), job.words("FAILED", errorCode="E-7")]


@pytest.mark.parametrize("status", ["PENDING", "IN_PROGRESS"])
async def test_a_state_that_is_never_delivered_is_no_end(printer: Printer, status: str) -> None:
    job = await printer.job(start=answering(202)).started()
    assert await job.webhook(status) == 200
    document = await job.get()
    assert (document["phase"], document["status"], document["attention"]) == ("active", status, [])
    assert len(job.kept) == 1


async def test_an_unknown_state_is_kept_and_no_end(printer: Printer) -> None:
    job = await printer.job().started()
    assert await job.webhook("JAMMED") == 200
    document = await job.get()
    assert (document["phase"], document["status"], attention(document)) == ("active", "PENDING", {"unknown_status"})
    assert await job.webhook() == 200
    document = await job.get()
    assert (document["status"], document["attention"]) == ("COMPLETED", [])


async def test_of_a_job_that_is_not_known_it_is_rebuilt(printer: Printer) -> None:
    job = printer.job()
    assert await job.webhook("FAILED", externalReference="t7", errorCode="E-7") == 200
    document = await job.get()
    assert (document["status"], document["decided_by"], document["terminal"]) == ("FAILED", "webhook", None)
    assert (document["external_reference"], attention(document)) == ("t7", {"orphan"})
    assert job.kept == [job.words("FAILED", externalReference="t7", errorCode="E-7")]
    assert [line["reason"] for line in await job.changes()] == ["orphan", "webhook:FAILED"]
    repeated = await job.put(terminal="SN-TEST")
    assert (repeated.status, repeated.json["status"]) == (200, "FAILED"), "a till's later call sends nothing"
    assert job.requests == []
    listed = (await printer.daemon.call("GET", "/print-jobs?attention=true&limit=500")).json["print_jobs"]
    assert job.identity in [item["print_job_id"] for item in listed]


@pytest.mark.parametrize(
    "content",
    [b"", b"paper jam", b"[]", b"{}", b'{"printJobId": "x"}', b'{"printJobId":"x","status":["COMPLETED"]}'],
    ids=["empty", "text", "list", "object", "half", "kinds"],
)
async def test_what_is_no_print_webhook_is_kept_apart_and_asked_for_at_once(printer: Printer, content: bytes) -> None:
    job = printer.job()
    printer.terminal.print_poll = knowing(job, status="COMPLETED")
    await job.started()
    assert (await job.call(content)).status == 400
    assert [body for _, body in quarantined(printer.daemon, job.identity)] == [content]
    document = await job.outcome()
    assert (document["status"], document["decided_by"]) == ("COMPLETED", "poll"), "the poll comes at once"
    assert job.kept == []


async def test_that_of_another_job_is_refused_and_shown(printer: Printer) -> None:
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


async def test_the_terminals_own_id_is_mapped(printer: Printer) -> None:
    own = f"T-{uuid4()}"
    job = await printer.job(start=answering(202, {"printJobId": own})).started()
    assert (await job.get())["terminal_job_id"] == own
    assert await job.webhook(printJobId="T-0") == 400
    assert await job.webhook(printJobId=own) == 200
    assert (await job.get())["status"] == "COMPLETED"
    ours = await printer.job(start=answering(202, {"printJobId": own})).started()
    assert await ours.webhook() == 200, "ours is right too"


async def test_a_terminal_that_calls_before_its_reply(printer: Printer) -> None:
    job = printer.job()
    printer.terminal.print_start = calling_before(job, job.words)
    reply = await job.put()
    assert (reply.status, reply.json["phase"], reply.json["status"]) == (201, "final", "COMPLETED")
    assert (reply.json["decided_by"], reply.json["attention"]) == ("webhook", [])


@pytest.mark.parametrize("reply", [{"printJobId": "T-9"}, {}], ids=["mapped", "unnamed"])
async def test_before_its_reply_and_with_an_id_of_its_own(printer: Printer, reply: dict[str, str]) -> None:
    job = printer.job()
    printer.terminal.print_start = calling_before(job, lambda: job.words(printJobId="T-9"), then=answering(202, reply))
    document = (await job.put()).json
    assert (document["status"], document["terminal_job_id"], document["attention"]) == ("COMPLETED", "T-9", [])


async def test_an_id_before_the_reply_that_the_reply_contradicts_is_shown(printer: Printer) -> None:
    job = printer.job()
    printer.terminal.print_start = calling_before(job, lambda: job.words(printJobId="other"))
    document = (await job.put()).json
    assert (document["status"], attention(document)) == ("COMPLETED", {"id_mismatch"})


async def test_a_callback_disproves_a_refusal(printer: Printer) -> None:
    job = printer.job(start=answering(409, b"no"))
    assert (await job.put()).json["decided_by"] == "refusal"
    assert await job.webhook() == 200
    document = await job.get()
    assert (document["status"], document["decided_by"], attention(document)) == (
        "COMPLETED",
        "webhook",
        {"outcome_corrected"},
    )


async def test_a_body_over_the_limit(printer: Printer) -> None:
    job = await printer.job().started()
    for headers in ("", "transfer-encoding: chunked\r\n"):
        content = b'{"printJobId": "' + b"x" * MAX_PRINT_BYTES + b'"}'
        if headers:
            raw = post(f"https://127.0.0.1{job.address}", b"", headers=headers).replace(b"content-length: 0\r\n", b"")
            reader, writer = await connect(printer.daemon.port, printer.daemon.ca)
            writer.write(raw + chunked(content))
            await writer.drain()
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 413")
        else:
            assert (await job.call(content)).status == 413
    document = await job.get()
    assert (document["phase"], attention(document)) == ("active", {"quarantined_event"})
    await job.polled()
    assert quarantined(printer.daemon, job.identity) == []


async def test_a_body_that_breaks_off_is_asked_for(printer: Printer) -> None:
    job = await printer.job().started()
    _, writer = await connect(printer.daemon.port, printer.daemon.ca)
    writer.write(post(f"https://127.0.0.1{job.address}", job.words())[:-9])
    await writer.drain()
    writer.close()
    await job.polled()
    assert (await job.get())["phase"] == "active"


def forged(printer: Printer, identity: str) -> dict[str, str]:
    """Return addresses that a stranger on the LAN could try for a print job."""
    key = bytes.fromhex(key_file(printer.daemon).read_text().split()[0])
    real = ids.token(key, Channel.PRINT, identity)
    return {
        "no token": f"/webhooks/print-jobs/{identity}/",
        "half a token": ids.path(Channel.PRINT, identity, real[:-1]),
        "another's": ids.path(Channel.PRINT, identity, ids.token(key, Channel.PRINT, "other")),
        "of the other channel": ids.path(Channel.PRINT, identity, ids.token(key, Channel.TRANSACTION, identity)),
        "on the other channel": ids.path(Channel.TRANSACTION, identity, real),
        "another key": ids.path(Channel.PRINT, identity, ids.token(b"x" * 32, Channel.PRINT, identity)),
        "no such channel": f"/webhooks/prints/{identity}/{real}",
        "more": f"{ids.path(Channel.PRINT, identity, real)}/",
        "dots": ids.path(Channel.PRINT, "..", ids.token(key, Channel.PRINT, "..")),
    }


async def test_a_wrong_token_leaves_nothing_on_disk(printer: Printer) -> None:
    job = await printer.job().started()
    before = everything(printer.daemon)
    for name, address in forged(printer, job.identity).items():
        assert (await deliver(printer.daemon, address, job.words())).status == 403, name
    assert everything(printer.daemon) == before


async def test_the_channels_do_not_take_each_others_payload(printer: Printer) -> None:
    job = await printer.job().started()
    assert (await job.call(event_body(str(uuid4()), "APPROVAL"))).status == 400
    identity = str(uuid4())
    key = bytes.fromhex(key_file(printer.daemon).read_text().split()[0])
    address = ids.path(Channel.TRANSACTION, identity, ids.token(key, Channel.TRANSACTION, identity))
    assert (await deliver(printer.daemon, address, job.words(printJobId=identity))).status == 400
    assert (await printer.daemon.call("GET", f"/transactions/{identity}")).status == 404


async def test_another_method_is_told_the_right_one(printer: Printer) -> None:
    job = await printer.job().started()
    answer = await job.call(b"", method="GET")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.slow
async def test_what_the_disk_does_not_take_is_found_by_a_poll(printer: Printer) -> None:
    job = printer.job()
    printer.terminal.print_poll = poll = held(knowing(job, status="COMPLETED"))
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


async def test_a_webhook_and_a_poll_at_once_give_one_end(printer: Printer) -> None:
    """The poll's answer is under way while the webhook comes; each says something else."""
    job = printer.job()
    printer.terminal.print_poll = poll = held(knowing(job, status="FAILED", errorCode="E-7"))
    await job.started()
    assert (await job.call(b"no JSON")).status == 400  # so that it is asked for at once
    await poll.arrived.wait()
    assert await job.webhook() == 200
    poll.release.set()
    document = await job.until(lambda item: "conflicting_final" in attention(item))
    assert (document["status"], document["decided_by"], document["error_code"]) == ("COMPLETED", "webhook", None)
    ends = {(line["status"], line["phase"]) for line in await job.changes() if line["phase"] == "final"}
    assert ends == {("COMPLETED", "final")}


async def test_a_mended_body_can_be_applied(printer: Printer) -> None:
    """A callback with the terminal's own id comes when posd holds another one: the reply of an earlier software."""
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
