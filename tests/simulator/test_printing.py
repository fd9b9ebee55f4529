"""Printing over raw HTTPS: accepted and refused requests, the paper, and the single webhook of a job.

The catalogue has the scenarios. Source: terminal API, Printing.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.printer import MAX_CALLS, on_paper
from tests.simulator.conftest import QUICK_SPEED, Receiver, Till

PRINT = "/terminal/v1/print"
PRINT_JOB = "/terminal/v1/print_job"
RECEIPT = {"text": "MY SHOP\n\nTotal   11.20\nThank you"}


def creation(print_job_id: str, scenario: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return the body of a print request. The body omits a field that is None."""
    reference = {} if scenario is None else {"externalReference": f"print:{scenario}"}
    body = {"printJobId": print_job_id, "document": RECEIPT} | reference | fields
    return {name: value for name, value in body.items() if value is not None}


class PrintTill(Till):
    """A till that requests prints on one terminal."""

    async def create(self, print_job_id: str, scenario: str | None = None, **fields: Any) -> httpx2.Response:
        return await self.post(json.dumps(creation(print_job_id, scenario, **fields)).encode(), PRINT)

    async def status(self, print_job_id: str) -> httpx2.Response:
        return await self.get(f"{PRINT_JOB}?print_job_id={print_job_id}")

    def prints(self) -> list[str]:
        """Return the ids of the printed jobs."""
        return [item["print_job_id"] for item in self.terminal.printer.prints()]

    async def ended(self, print_job_id: str, status: str = "COMPLETED") -> dict[str, Any]:
        return await self.terminal.ledger.wait_for("printed", print_job_id=print_job_id, status=status)

    async def told(self, print_job_id: str, call: int = 1) -> dict[str, Any]:
        return await self.terminal.ledger.wait_for("print_webhook", print_job_id=print_job_id, call=call)


@pytest.fixture
async def printer(settings: Callable[..., Settings], client: httpx2.AsyncClient) -> AsyncIterator[PrintTill]:
    async with Simulator(settings(speed=QUICK_SPEED)) as terminal:
        yield PrintTill(terminal, client)


async def test_a_job_is_printed_and_reported(printer: PrintTill, receiver: Receiver) -> None:
    answer = await printer.create("job-1", externalReference="ticket 1042", webhookUrl=receiver.url)
    job = {"printJobId": "job-1", "externalReference": "ticket 1042"}
    assert (answer.status_code, answer.json()) == (202, job | {"status": "PENDING"})
    (delivery,) = await receiver.wait_for(1)
    assert delivery.event == job | {"status": "COMPLETED"}
    assert delivery.headers["content-type"] == "application/json"
    found = await printer.status("job-1")
    assert (found.status_code, found.json()) == (200, job | {"status": "COMPLETED"})
    (shown,) = printer.terminal.printer.prints()
    assert (shown["document"], shown["text"]) == (RECEIPT, RECEIPT["text"])
    await printer.told("job-1")
    kinds = [entry["kind"] for entry in printer.terminal.ledger if entry["kind"] != "print_poll"]
    assert kinds == ["print", "printing", "printed", "print_webhook"]


@pytest.mark.parametrize("outcome", [200, 302, 404, 503, "connection_reset"], ids=str)
async def test_the_webhook_is_called_once_even_if_it_fails(
    printer: PrintTill, receiver: Receiver, outcome: int | str
) -> None:
    receiver.location = receiver.url + "/elsewhere"  # the terminal does not follow redirects
    receiver.answer = lambda _: outcome if isinstance(outcome, int) else None
    await printer.create("job-1", webhookUrl=receiver.url)
    assert (await printer.told("job-1"))["result"] == outcome
    await printer.create("job-2", webhookUrl=receiver.url)  # the terminal has continued
    await printer.told("job-2")
    assert [item.event["printJobId"] for item in receiver.deliveries] == ["job-1", "job-2"]
    assert (await printer.status("job-1")).json()["status"] == "COMPLETED"


async def test_a_receiver_that_does_not_reply_delays_neither_printer_nor_stop(
    printer: PrintTill, receiver: Receiver
) -> None:
    receiver.silent = True
    for number in range(MAX_CALLS + 2):
        await printer.create(f"job-{number}", webhookUrl=receiver.url)
    await printer.ended(f"job-{MAX_CALLS + 1}")
    await receiver.wait_for(MAX_CALLS)
    assert printer.terminal.ledger.of("print_webhook") == []  # the fixture stops the terminal during the calls


async def test_an_id_sent_twice_is_printed_twice(printer: PrintTill) -> None:
    for _ in range(2):
        assert (await printer.create("job-1")).status_code == 202
    await printer.create("job-2")
    await printer.ended("job-2")
    assert printer.prints() == ["job-1", "job-1", "job-2"]
    assert len(printer.terminal.ledger.of("print", print_job_id="job-1")) == 2


REFUSED: list[tuple[bytes, int, str]] = [
    (b"", 400, "not JSON"),
    (b"[]", 400, "not a JSON object"),
    (b"{}", 422, "printJobId"),
    *(
        (json.dumps(creation("job-1", **fields)).encode(), 422, named)
        for fields, named in [
            ({"printJobId": ""}, "printJobId"),
            ({"printJobId": "x" * 129}, "printJobId"),
            ({"externalReference": "print:nonsense"}, "--list"),
            ({"webhookUrl": "ftp://127.0.0.1/x"}, "webhookUrl"),
            ({"document": None}, "document"),
        ]
    ),
]


@pytest.mark.parametrize(("body", "status", "named"), REFUSED, ids=range(len(REFUSED)))
async def test_an_unprintable_document_is_refused(printer: PrintTill, body: bytes, status: int, named: str) -> None:
    answer = await printer.post(body, PRINT)
    assert answer.status_code == status
    assert named in answer.json()["message"]
    (entry,) = printer.terminal.ledger.of("print")
    assert (entry["http_status"], entry["scenario"]) == (status, None)


#: Document -> text on paper.
PAPER: list[tuple[Any, str]] = [
    ({"text": "a\nb\tc \r\nd"}, "a\nb       c\nd"),
    ({"text": "\x1b[31mred\x07\u202e"}, "[31mred"),
    (
        {
            "commands": [
                {"type": "text", "text": "TOTAL ", "bold": True},
                {"type": "text", "text": "12.000\n", "size": 24},
                {"type": "columns", "columns": [{"text": "Bread", "weight": 2}, {"text": "1.50"}, 7]},
                {"type": "divider", "dividerType": "SOLID"},
                {"type": "divider", "dividerType": "EMPTY"},
                {"type": "qr", "content": "https://shop.example", "dotSize": 6},
                {"type": "feed", "lines": 2},
                {"type": "space", "pixels": 10},
                {"type": "barcode", "content": "1"},
                {"type": "cut"},
            ],
            "skipIfBusy": False,
        },
        f"TOTAL 12.000\nBread  1.50\n{'-' * 32}\n\n[QR: https://shop.example]\n\n\n\n[barcode]\n",
    ),
]


@pytest.mark.parametrize(("document", "text"), PAPER, ids=range(len(PAPER)))
def test_a_document_prints_its_text(document: Any, text: str) -> None:
    assert on_paper(document) == text
