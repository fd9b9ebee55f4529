"""How the answers and the webhook of a print job go wrong, over raw HTTPS; what posd makes of it, the
catalogue tells.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import PATIENCE, QUICK_SPEED, Receiver
from tests.simulator.printers import PrintTill

OK = 200


@pytest.fixture
async def printer(settings: Callable[..., Settings], client: httpx2.AsyncClient) -> AsyncIterator[PrintTill]:
    async with Simulator(settings(speed=QUICK_SPEED)) as terminal:
        yield PrintTill(terminal, client)


#: Scenario -> the answer's status, the beginning of its body, the ledger's code, and whether it is printed.
ANSWERS: dict[str, tuple[int, str, str | None, bool]] = {
    "html-reply": (200, "<html>", None, True),
    "error": (500, '{"code":"INTERNAL_ERROR"', "INTERNAL_ERROR", False),
    "error-but-prints": (500, '{"code":"INTERNAL_ERROR"', "INTERNAL_ERROR", True),
    "refuses-unauthorized": (401, '{"code":"UNAUTHORIZED"', "UNAUTHORIZED", False),
    "spool-full": (429, '{"code":"SPOOL_FULL"', "SPOOL_FULL", False),
    "refuses-but-prints": (422, '{"code":"PRINT_REFUSED"', "PRINT_REFUSED", True),
    "slow-reply": (202, '{"printJobId":"job-1"', None, True),
}


@pytest.mark.parametrize("scenario", ANSWERS)
async def test_how_a_creation_is_answered(printer: PrintTill, scenario: str) -> None:
    status, begins, code, printed = ANSWERS[scenario]
    answer = await printer.create("job-1", scenario)
    assert answer.status_code == status
    assert answer.text.startswith(begins)
    assert answer.headers["content-type"].startswith("text/html" if begins == "<html>" else "application/json")
    await printer.create("after", "completes")
    await printer.ended("after")
    assert await printer.prints() == ["job-1"] * printed + ["after"]
    assert (await printer.status("job-1")).status_code == (200 if printed else 404)
    (entry,) = printer.terminal.ledger.of("print", print_job_id="job-1")
    assert (entry["http_status"], entry["code"], entry["scenario"]) == (status, code, scenario)


@pytest.mark.parametrize(
    ("scenario", "seen", "error"),
    [
        ("loses-reply", None, httpx2.RemoteProtocolError),
        ("cut-reply", 202, httpx2.RemoteProtocolError),
        ("silent-reply", None, httpx2.ReadTimeout),
    ],
)
async def test_an_answer_that_does_not_come_whole_is_that_of_a_job_that_is_printed(
    settings: Callable[..., Settings],
    client: httpx2.AsyncClient,
    scenario: str,
    seen: int | None,
    error: type[Exception],
) -> None:
    async with Simulator(settings(speed=QUICK_SPEED)) as terminal:
        printer = PrintTill(terminal, client)
        client.timeout = httpx2.Timeout(PATIENCE, read=0.5 if error is httpx2.ReadTimeout else PATIENCE)
        with pytest.raises(error):
            await printer.create("job-1", scenario)
        client.timeout = httpx2.Timeout(PATIENCE)
        await printer.ended("job-1")
        (entry,) = terminal.ledger.of("print")
        assert (entry["http_status"], entry["code"]) == (seen, None)


#: Scenario -> what the first questions for a job that is printed are answered with, one after the other; the last one
#: stays. A member that is changed, or the status.
POLLS: dict[str, list[dict[str, Any] | int | None]] = {
    "poll-error": [500, 500, {"status": "COMPLETED"}, {"status": "COMPLETED"}],
    "poll-lost": [None, None, {"status": "COMPLETED"}, {"status": "COMPLETED"}],
    "poll-stale": [{"status": "PENDING"}] * 4,
    "poll-another": [{"printJobId": "another-job", "status": "COMPLETED"}] * 4,
    "poll-unknown-status": [{"status": "SPOOLED"}] * 4,
}


@pytest.mark.parametrize("scenario", POLLS)
async def test_how_a_question_is_answered(printer: PrintTill, receiver: Receiver, scenario: str) -> None:
    await printer.create("job-1", scenario, webhookUrl=receiver.url)
    await printer.ended("job-1")
    seen: list[int | None] = []
    for expected in POLLS[scenario]:
        if expected is None:
            with pytest.raises(httpx2.RemoteProtocolError):
                await printer.status("job-1")
        elif isinstance(expected, int):
            assert (await printer.status("job-1")).status_code == expected
        else:
            answer = await printer.status("job-1")
            assert answer.status_code == OK
            assert expected.items() <= answer.json().items()
        seen.append(OK if isinstance(expected, dict) else expected)
    polls = printer.terminal.ledger.of("print_poll")
    assert [line["http_status"] for line in polls] == seen
    assert {line["status"] for line in polls} == {"COMPLETED"}  # what it really is
    assert receiver.deliveries == []


#: Scenario -> what the webhook tells, call by call.
BASIC = {"printJobId": "job-1", "status": "COMPLETED"}
CALLS: dict[str, list[dict[str, Any]]] = {
    "two-ends": [BASIC, BASIC | {"status": "FAILED", "errorCode": "OUT_OF_PAPER", "errorMessage": "There is no paper"}],
    "late-call": [BASIC],
    "calls-too-early": [BASIC | {"status": "IN_PROGRESS"}],
    "unknown-status": [BASIC | {"status": "PRINTED_PARTIALLY"}],
    "call-without-status": [{"printJobId": "job-1"}],
    "fails-without-code": [BASIC | {"status": "FAILED"}],
    "wrong-id": [BASIC | {"printJobId": "unknown-job"}],
    "silent": [],
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("scenario", CALLS)
async def test_what_the_webhook_tells(printer: PrintTill, receiver: Receiver, scenario: str) -> None:
    expected = CALLS[scenario]
    await printer.create("job-1", scenario, webhookUrl=receiver.url)
    await printer.ended("job-1", "FAILED" if scenario == "fails-without-code" else "COMPLETED")
    await printer.create("after", webhookUrl=receiver.url)
    await printer.told("after")
    if expected:
        await printer.told("job-1", len(expected))
    told = [item.event for item in receiver.deliveries if item.event["externalReference"]]
    assert told == [event | {"externalReference": f"print:{scenario}"} for event in expected]


async def test_a_terminal_that_trusts_no_ca_tells_nothing(printer: PrintTill, receiver: Receiver) -> None:
    await printer.create("job-1", "distrusted", webhookUrl=receiver.url)
    assert (await printer.told("job-1"))["result"] == "tls_failure"
    await printer.create("job-2", webhookUrl=receiver.url)
    assert (await printer.told("job-2"))["result"] == OK
    assert [item.event["printJobId"] for item in receiver.deliveries] == ["job-2"]


async def test_what_failed_can_have_come_out_on_paper(printer: PrintTill, receiver: Receiver) -> None:
    await printer.create("job-1", "fails-after-printing", webhookUrl=receiver.url)
    await printer.told("job-1")
    (line,) = printer.terminal.ledger.of("printed")
    assert (line["status"], line["error_code"], line["text"][:7]) == ("FAILED", "CUTTER_JAM", "MY SHOP")
    assert await printer.prints() == ["job-1"]
