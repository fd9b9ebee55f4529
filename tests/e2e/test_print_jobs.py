"""Print jobs in the local API: the call, the proof of each reply, lists, the feed, an operator's decision."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from posd.printing.request import MAX_DOCUMENT_BYTES
from tests.e2e.conftest import CHARGE
from tests.rig.daemon import running
from tests.rig.prints import RECEIPT, SILENT, Counting, Job, Printer, one_by_one
from tests.rig.shop import OFFLINE, Held, hanging_up
from tests.rig.streams import ask, stream
from tests.rig.terminal import scripted_terminal, taking_print
from tests.rig.webhooks import attention, everything, faults

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Configuration of the polls in this file.
POLLING = SILENT


@pytest.fixture(scope="module", autouse=True)
def no_faults(printer: Printer) -> Iterator[None]:
    """Check after all these tests that the daemon's log has no internal fault."""
    yield
    assert faults(printer.daemon) == []


async def test_the_request_and_the_job_have_all_their_members(printer: Printer) -> None:
    job = printer.job()
    document = b'{"lines": ["caf\\u00e9", 1.10],  "n":1e2, "commands": [{"type": 7}]}'
    content = b'{"document":' + document + b',"external_reference":"ticket 7"}'
    reply = await printer.daemon.call("PUT", f"/print-jobs/{job.identity}", content)
    assert reply.status == 201
    (request,) = job.requests
    assert (request.method, request.path) == ("POST", "/terminal/v1/print")
    assert list(request.json) == ["printJobId", "externalReference", "webhookUrl", "document"]
    assert request.json["externalReference"] == "ticket 7"
    assert request.print_callback == f"https://127.0.0.1:{printer.daemon.port}{job.address}"
    assert b'"document":' + document + b"}" in request.body, "posd shows the metadata as the till wrote it"
    shown = reply.json
    assert shown == await job.get()
    assert (shown["external_reference"], shown["status"], shown["phase"]) == ("ticket 7", "PENDING", "active")


async def test_calls_about_a_job_wait_until_the_job_is_recorded(printer: Printer) -> None:
    job = printer.job()
    content = json.dumps({"document": RECEIPT}).encode()
    path, fields = f"/print-jobs/{job.identity}", "content-type: application/json\r\n"
    with closing(sqlite3.connect(printer.daemon.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # the commit of the intent waits for this transaction
        start = await ask(printer.daemon.till_socket, path, fields, method="PUT", content=content)
        calls = [await ask(printer.daemon.till_socket, f"{path}{rest}") for rest in ("", "/outcome?timeout=0")]
        for _ in range(20):  # posd serves other callers at the same time
            assert (await printer.daemon.call("GET", "/version")).status == 200
        other.execute("ROLLBACK")
    assert [(await item.answer()).status for item in (start, *calls)] == [201, 200, 202]
    for item in (start, *calls):
        item.hang_up()


async def test_a_repeated_call_prints_nothing_and_a_different_call_is_refused(printer: Printer) -> None:
    job = await printer.job().started(external_reference="t7")
    before = everything(printer.daemon)
    again = await job.put(external_reference="t7", terminal="SN-TEST", document=dict(reversed(RECEIPT.items())))
    assert (again.status, again.json) == (200, await job.get())
    for changes, fields in (
        ({"document": {}}, ["document", "external_reference"]),
        ({"external_reference": "t8"}, ["external_reference"]),
        ({"external_reference": "t7", "reprint_of": "x"}, ["reprint_of"]),
        ({"external_reference": "t7", "terminal": "SN-2"}, ["terminal"]),
    ):
        refused = await job.put(**changes)
        assert (refused.status, refused.json["code"], refused.json["fields"]) == (409, "id_reused", fields)
    half = await printer.daemon.call("PUT", f"/print-jobs/{job.identity}", b"{")
    assert (half.status, half.json["fields"]) == (409, ["body"])
    assert everything(printer.daemon) == before
    assert len(job.requests) == 1


async def test_an_unsent_job_is_final(printer: Printer) -> None:
    job = printer.job()
    await printer.terminal.unplug()
    try:
        reply = await job.put()
    finally:
        await printer.terminal.plug_in()
    assert (reply.status, reply.json["phase"], reply.json["decided_by"]) == (201, "final", "unsent")
    assert "was not sent: cannot connect" in reply.json["reason"]
    assert (await job.put()).json["decided_by"] == "unsent"
    assert job.requests == [], "only a new id can print the document again"


@pytest.mark.parametrize(
    ("content", "status", "code", "paths"),
    [
        (b"{", 400, "malformed_json", None),
        (b'{"document": "x", "copies": 2}', 422, "invalid_request", ["/copies", "/document"]),
        (b'{"document": {}, "terminal": "SN-9"}', 422, "unknown_terminal", None),
        (b'{"document": {}, "reprint_of": "nobody-knows"}', 422, "unknown_original", None),
        (b'{"document": {"x": "' + b"y" * MAX_DOCUMENT_BYTES + b'"}}', 422, "invalid_request", ["/document"]),
        (b'{"document": {"x": "' + b"y" * 300_000 + b'"}}', 413, "payload_too_large", None),
    ],
    ids=["cut off", "faults", "terminal", "reprint", "document", "body"],
)
async def test_a_refused_call_records_nothing(
    printer: Printer, content: bytes, status: int, code: str, paths: list[str] | None
) -> None:
    job = printer.job()
    before = everything(printer.daemon)
    reply = await printer.daemon.call("PUT", f"/print-jobs/{job.identity}", content)
    assert (reply.status, reply.json["code"]) == (status, code), reply.body
    assert paths is None or [item["path"] for item in reply.json["errors"]] == paths
    assert everything(printer.daemon) == before
    assert job.requests == []
    assert (await printer.daemon.call("GET", f"/print-jobs/{job.identity}")).status == 404


async def test_an_id_in_upper_case_is_the_same_job(printer: Printer) -> None:
    job, other = (replace(printer.job(), identity=f"{word}-{uuid4()}") for word in ("Receipt", "Reprint"))
    letters = [replace(job, identity=change(job.identity)) for change in (str.upper, str.lower, str.swapcase)]
    replies = await asyncio.gather(*(item.put() for item in (job, *letters)))
    assert sorted(reply.status for reply in replies) == [200] * 3 + [201]
    (identity,) = {reply.json["print_job_id"] for reply in replies}
    (first,) = (item for item in (job, *letters) if item.identity == identity)
    assert len(first.requests) == 1
    assert sum(len(item.requests) for item in (job, *letters)) == 1
    for item in letters:
        assert await item.get() == await first.get()
        assert (await item.put(document={})).json["code"] == "id_reused"
        assert await item.history() == await first.history()
        listed = await printer.daemon.call("GET", f"/print-jobs?id={item.identity}")
        assert [found["print_job_id"] for found in listed.json["print_jobs"]] == [identity]
    for item in (letters[0], letters[0], first):
        assert (await other.put(reprint_of=item.identity)).json["reprint_of"] == identity
    assert (await first.get())["reprints"] == [other.identity]
    waiting = [asyncio.create_task(item.outcome()) for item in letters]
    assert await first.webhook() == 200
    for task in waiting:
        assert (await task)["status"] == "COMPLETED"
    late = replace(other, identity=other.identity.upper())
    assert (await late.resolve()).json["print_job_id"] == other.identity


async def test_a_call_that_waits_returns_the_end_of_the_job(printer: Printer) -> None:
    job = await printer.job().started()
    waiting = asyncio.create_task(job.outcome())
    early = await printer.daemon.call("GET", f"/print-jobs/{job.identity}/outcome?timeout=0")
    assert (early.status, early.json["phase"]) == (202, "active")
    assert await job.webhook() == 200
    assert await waiting == await job.get()
    assert (await printer.daemon.call("GET", "/print-jobs/nobody/outcome?timeout=1")).json["code"] == "not_found"
    assert (await printer.daemon.call("GET", f"/print-jobs/{job.identity}/outcome?timeout=x")).status == 422


async def test_the_list_has_all_jobs_in_pages(printer: Printer) -> None:
    mark = f"list-{uuid4()}"
    jobs = [await printer.job().started(external_reference=mark) for _ in range(3)]
    doubtful = printer.job(start=hanging_up)
    await doubtful.put(external_reference=mark)
    assert await jobs[0].webhook() == 200

    async def ids(query: str) -> list[str]:
        reply = await printer.daemon.call("GET", f"/print-jobs?external_reference={mark}{query}")
        assert reply.status == 200, reply.body
        return [item["print_job_id"] for item in reply.json["print_jobs"]]

    everyone = [doubtful.identity, *(job.identity for job in reversed(jobs))]
    assert sorted(await ids("")) == sorted(everyone)
    assert await ids("&phase=final") == [jobs[0].identity]
    assert sorted(await ids("&open=true")) == sorted(set(everyone) - {jobs[0].identity})
    assert await ids("&attention=true") == [doubtful.identity]
    assert await ids("&terminal=SN-9") == []
    assert len(await ids("&terminal=SN-TEST&since=2000-01-01T00:00:00Z")) == 4
    assert await ids("&until=2000-01-01T00:00:00Z") == []
    paged, cursor = [], ""
    while True:
        page = (await printer.daemon.call("GET", f"/print-jobs?external_reference={mark}&limit=3{cursor}")).json
        paged += [item["print_job_id"] for item in page["print_jobs"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert paged == await ids("")
    refused = await printer.daemon.call("GET", "/print-jobs?phase=done&limit=0&cursor=x&sale=1")
    assert refused.status == 422
    refused = await printer.daemon.call("GET", "/print-jobs?phase=done&limit=0&cursor=x")
    assert [item["path"] for item in refused.json["errors"]] == ["limit", "phase", "cursor"]


async def test_a_persons_decision_is_replaced_by_the_terminals_report(printer: Printer) -> None:
    job = printer.job(start=hanging_up)
    await job.put()
    reply = await job.resolve("COMPLETED")
    assert (reply.status, reply.json["status"], reply.json["decided_by"]) == (200, "COMPLETED", "operator")
    assert reply.json["attention"] == []
    again = await job.resolve("FAILED")
    assert (again.status, again.json["code"], again.json["outcome"]["status"]) == (409, "already_final", "COMPLETED")
    assert await job.webhook("FAILED", errorCode="E-7") == 200
    document = await job.get()
    assert (document["status"], document["decided_by"], document["error_code"]) == ("FAILED", "webhook", "E-7")
    assert attention(document) == {"outcome_corrected"}
    await printer.daemon.log_line("print.operator", print_job=job.identity, result="COMPLETED")


async def test_a_payment_runs_on_a_terminal_that_hangs_while_printing(printer: Printer) -> None:
    """A print job does not delay a payment, and a payment does not delay a print job."""
    printer.terminal.print_start = hung = Held(taking_print)
    first = printer.job(start=hung)
    calling = asyncio.create_task(first.put())
    await hung.arrived.wait()
    more = [Job(printer.daemon, printer.terminal, f"job-{uuid4()}") for _ in range(20)]
    waiting = [asyncio.create_task(job.put()) for job in more]
    identity = str(uuid4())
    started = await printer.daemon.call("PUT", f"/transactions/{identity}", CHARGE)
    assert (started.status, started.json["phase"]) == (201, "active")
    await printer.daemon.approve(printer.terminal.requests[-1].callback, identity)
    assert (await printer.daemon.outcome(identity))["result"] == "approved"
    assert not calling.done()
    hung.release.set()
    assert {(await task).json["phase"] for task in (calling, *waiting)} == {"active"}


async def recorded(jobs: list[Job]) -> None:
    """Wait until the intents of these jobs are on disk."""
    missing = {job.identity for job in jobs}
    async with stream(jobs[0].daemon.till_socket, "/feed") as messages:
        async for message in messages:
            missing.discard(message.json["id"])
            if not missing:
                return


async def test_a_terminal_gets_one_job_at_a_time(printer: Printer) -> None:
    counting = Counting(printer.daemon, taking_print)
    jobs = [printer.job(start=counting) for _ in range(20)]
    replies = await asyncio.gather(*(job.put() for job in jobs))
    assert {reply.json["phase"] for reply in replies} == {"active"}
    assert [len(job.requests) for job in jobs] == [1] * 20
    assert counting.most == 1


async def test_after_a_failed_connection_the_waiting_jobs_are_not_tried_one_by_one(printer: Printer) -> None:
    """The terminal disappears at the end of a job. posd tries one of the waiting jobs, and sends none."""
    hung = Held(hanging_up)
    first = printer.job(start=one_by_one(hung, taking_print))
    calling = asyncio.create_task(first.put())
    await hung.arrived.wait()
    behind = [Job(printer.daemon, printer.terminal, f"job-{uuid4()}") for _ in range(5)]
    waiting = [asyncio.create_task(job.put()) for job in behind]
    await recorded(behind)
    await printer.terminal.unplug()
    try:
        hung.release.set()
        assert (await calling).json["phase"] == "in_doubt"
        ended = [(await task).json for task in waiting]
    finally:
        await printer.terminal.plug_in()
    assert {(item["phase"], item["decided_by"]) for item in ended} == {("final", "unsent")}
    assert sum("for an earlier print job" in item["reason"] for item in ended) == 4
    assert [len(job.requests) for job in behind] == [0] * 5


async def test_with_two_terminals_a_job_must_name_a_reachable_terminal(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        async with scripted_terminal(home) as terminal:
            terminals = terminal.entry("SN-1", terminal.base_url) + f'[[terminals]]\nserial = "{OFFLINE}"\n'
            extra = SILENT + 'document_member = ""\n'
            async with running(home, terminals, extra) as daemon:
                job = Job(daemon, terminal, "job-1")
                unnamed = await job.put()
                assert (unnamed.status, unnamed.json["code"]) == (422, "unknown_terminal")
                assert unnamed.json["fleet"] == ["SN-1", OFFLINE]
                offline = await job.put(terminal=OFFLINE)
                assert (offline.status, offline.json["code"]) == (503, "terminal_offline")
                assert (await job.put(terminal="SN-1", document=RECEIPT | {"webhookUrl": "x"})).status == 201
                (request,) = terminal.prints
                assert list(request.json) == ["printJobId", "externalReference", "webhookUrl", *RECEIPT]
                assert request.print_callback.startswith("https://127.0.0.1:")
