"""Two editions of the vendor's documents: refusals, units of amounts, and calls that must be signed."""

import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.rig.signing import Signer
from tests.simulator.conftest import QUICK_SPEED, request

BASE = "/terminal/v1"
CODE = "5f1e0c8a7b3d49e2a6c4d80f9b2e7135"
PRINT = {"printJobId": "job-1", "document": {"text": "TOTAL"}}
ASK = {"client_transaction_id": "c5a3f3be-9d6f-4d39-8af5-58dbb589af79"}


class Caller:
    """A caller of a terminal over plain HTTP. The caller signs calls if required."""

    def __init__(self, terminal: Simulator, client: httpx2.AsyncClient) -> None:
        self.terminal = terminal
        settings = terminal.settings
        self.signer = Signer(settings.auth, settings.business_code, settings.serial)
        self._client = client

    async def call(self, way: str, body: Any = None, *, ahead: float = 0.0, **headers: str) -> httpx2.Response:
        """Make a call. `json()` of the result is the decrypted reply.

        `ahead`: seconds by which the caller's clock is ahead.
        """
        method, path = way.split(" ")
        signed = self.signer.sign(body, time.time() + ahead)
        url = self.terminal.base_url + BASE + path
        answer = await self._client.request(method, url, content=signed.content, headers=signed.headers | headers)
        answer._content = signed.read(answer.content)
        return answer

    async def charge(self, **fields: Any) -> Any:
        """Run a charge to its end. Return the entry in the ledger."""
        body = request(**fields)
        answer = await self.call("POST /async/charge", body)
        assert answer.status_code == 200, answer.text
        identity = body["client_transaction_id"]
        return await self.terminal.ledger.wait_for("final", client_transaction_id=identity)

    async def found(self, identity: str) -> Any:
        """Return the event that a search finds. Numbers keep their written form."""
        answer = await self.call("POST /transaction_search_online", {"client_transaction_id": identity})
        (event,) = json.loads(answer.content, parse_float=str, parse_int=str)
        return event


Calling = Callable[..., Any]


@pytest.fixture
def calling(tmp_path: Path, client: httpx2.AsyncClient) -> Calling:
    numbers = itertools.count()

    @asynccontextmanager
    async def run(**changes: Any) -> AsyncIterator[Caller]:
        state = tmp_path / str(next(numbers))
        state.mkdir()
        async with Simulator(Settings(state=state, mdns=False, speed=QUICK_SPEED, **changes)) as terminal:
            yield Caller(terminal, client)

    return run


REFUSALS: list[tuple[str, Any, int, dict[str, Any]]] = [
    ("POST /async/charge", {}, 422, {"type": "PARAMETER", "code": "PAR-", "param": "client_transaction_id"}),
    (
        "POST /async/charge",
        ASK | {"amount": {"iva": "x"}},
        422,
        {"type": "PARAMETER", "code": "PAR-", "param": "amount.iva"},
    ),
    (
        "POST /async/charge",
        ASK | {"amount": {"iva": 0}},
        422,
        {"type": "PARAMETER", "code": "PAR-003", "param": "amount", "message": "the amount must be above 0"},
    ),
    ("POST /async/void", ASK | {"transaction_reference": ASK["client_transaction_id"]}, 422, {"code": "PAR-"}),
    ("POST /transaction_search_online", {}, 422, {"type": "PARAMETER", "code": "PAR-"}),
    ("GET /async/abort", None, 409, {"type": "TERMINAL", "code": "TER-"}),
    ("GET /print_job?print_job_id=x", None, 404, {"type": "NOT_FOUND", "code": "NF-"}),
    ("GET /print_job", None, 422, {"type": "PARAMETER", "code": "PAR-", "param": "print_job_id"}),
    ("POST /print/job", {}, 422, {"type": "PARAMETER", "code": "PAR-", "param": "printJobId"}),
    ("POST /SN-0002/async/charge", {}, 404, {"type": "NOT_FOUND", "code": "NF-"}),
    ("POST /nothing", {}, 404, {"type": "NOT_FOUND", "code": "NF-"}),
    ("GET /async/charge", None, 405, {"type": "PARAMETER", "code": "PAR-"}),
]


async def test_a_refusal_of_the_newer_edition_has_the_form_of_its_documents(calling: Calling) -> None:
    async with calling(edition="2026") as caller:
        answers = [(await caller.call(way, body), row) for row in REFUSALS for way, body in [row[:2]]]
        waiting = await caller.call("POST /async/charge", request(metadata={"scenario": "by-hand"}))
        busy = await caller.call("POST /async/charge", request())
        scenario = await caller.call("POST /print/job", PRINT | {"externalReference": "print:spool-full"})
    device = waiting.json()["terminal"]
    for answer, (way, body, status, said) in answers:
        link = answer.json()
        assert answer.status_code == status, way
        assert said.items() <= link.items(), link
        assert set(link) <= {"type", "code", "message", "param", "object"}
        about = {"terminal_id": device["terminal_id"], "serial_number": "SN-0001"}
        sent = (body or {}).get("client_transaction_id")
        assert link["object"] == about | ({"client_transaction_id": sent} if sent else {})
    assert (busy.status_code, busy.json()["type"], busy.json()["code"]) == (409, "TERMINAL", "TER-003")
    assert (scenario.status_code, scenario.json()["code"]) == (429, "TER-")


@pytest.mark.parametrize(("edition", "status"), [("classic", "APPROVED"), ("2026", "APPROVAL")])
async def test_an_approval_has_the_status_of_its_edition(calling: Calling, edition: str, status: str) -> None:
    async with calling(edition=edition) as caller:
        event = await caller.found((await caller.charge())["client_transaction_id"])
    assert event["raw_response"]["transaction_status"] == status


UNITS: list[tuple[dict[str, str], Any, str, str, str]] = [
    # Settings, sent subtotal, main units in the ledger, and the two amounts in the reply (authorized_amount, subtotal).
    ({}, Decimal("10.20"), "10.2", "10.2", "10.2"),
    ({"amount_unit": "whole"}, 43890, "43890", "43890", "43890"),
    ({"amount_unit": "hundredths"}, 43890, "438.90", "43890", "43890"),
    ({"amount_unit": "hundredths", "answer_amount_unit": "main"}, 43890, "438.90", "438.90", "438.90"),
    ({"answer_amount_unit": "hundredths"}, Decimal("10.20"), "10.20", "1020", "1020"),
]


async def test_amounts_are_in_the_terminals_unit(calling: Calling) -> None:
    for changes, sent, ledger, authorized, subtotal in UNITS:
        async with calling(**changes) as caller:
            final = await caller.charge(amount={"subtotal_iva0": json.loads(str(sent))})
            event = await caller.found(final["client_transaction_id"])
        told = event["raw_response"]
        assert Decimal(final["amount"]) == Decimal(ledger), changes
        assert told["authorized_amount"] == told["additional_amounts"]["amount"] == authorized, changes
        assert event["operation"]["amount"]["subtotal_iva0"] == subtotal, changes


@pytest.mark.parametrize("auth", ["hash-encrypt", "hmac"])
async def test_a_call_without_valid_authentication_has_no_effect(calling: Calling, auth: str) -> None:
    async with calling(auth=auth, business_code=CODE) as caller:
        wrong = Signer(auth, CODE[::-1], "SN-0001")
        good, caller.signer = caller.signer, wrong
        ways = [("POST /async/charge", request()), ("GET /abort", None), ("POST /print", PRINT)]
        answers = [await caller.call(way, body) for way, body in ways]
        caller.signer = good
        # A timestamp that is ahead becomes valid with time, so it is a minute outside the window.
        answers += [await caller.call(*ways[0], ahead=ahead) for ahead in (-301, 360)]
        answers += [await caller.call(*ways[0], **{header: ""}) for header in ("Authorization", "timestamp")]
        caller.signer = Signer("none", "", "")
        answers += [await caller.call(*ways[0]), await caller.call("GET /abort")]
        ledger = caller.terminal.ledger
        assert {entry["kind"] for entry in ledger} == {"unauthorized"}
        assert len(ledger) == len(answers)
        assert (caller.terminal.terminal.requests, caller.terminal.printer.requests) == ([], [])
        assert CODE not in json.dumps(list(ledger))
        caller.signer = good
        assert (await caller.call(*ways[0])).status_code == 200
    for answer in answers:
        link = answer.json()
        assert (answer.status_code, link["type"], link["code"]) == (401, "AUTHENTICATION", "AUTH-001")
        assert CODE not in answer.text
        assert set(link) == {"type", "code", "message", "param", "object"}
