"""Errors in the terminal's answers, as integrators have met them (terminal API, Refusals): to a start, a search, an
abort and a print job. The profile says that a pre-auth with an error under 2xx was not started, and that searches are
pages of a list.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.support.events import event
from tests.support.shop import Shop, answering, open_shop
from tests.support.webhooks import attention

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]

PROFILE = """
[profile.pre-auth]
errors_in_2xx = true
[profile.search]
paged = true
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """A shop with that profile."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_shop(Path(directory), PROFILE) as shop:
            yield shop


def error(type_: str, code: str, **more: object) -> dict[str, Any]:
    return {"type": type_, "code": code, "message": "as the terminal says it"} | more


async def test_a_busy_terminal_is_named_and_asked_once(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(409, error("TERMINAL", "TER-003"))
    document = (await payment.put()).json
    outcome = document["outcome"]
    assert (outcome["result"], document["next_step"]) == ("not_started", "new_id_ok")
    assert outcome["failure_reason"]["message"].startswith(
        "the terminal refused the request (HTTP 409, TERMINAL TER-003): it is busy"
    )
    own = {"type": "TERMINAL", "code": "TER-003", "message": "as the terminal says it"}
    assert outcome["failure_reason"]["terminal"] == own
    line = await shop.daemon.log_line("payment.answered", transaction=payment.identity)
    assert (line["judgement"], line["reason"]) == ("refused", "TERMINAL TER-003")
    assert len(payment.requests) == 1


async def test_a_cancellation_in_the_answer_until_the_terminal_says_otherwise(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(200, error("TERMINAL-SUNMI", "-1"))
    document = (await payment.put()).json
    outcome = document["outcome"]
    assert (outcome["result"], outcome["status"], outcome["evidence"][0]["kind"]) == ("canceled", None, "refusal")
    assert (document["next_step"], document["display"]["code"]) == ("new_id_ok", "not_paid")
    assert outcome["failure_reason"]["terminal"]["code"] == "-1"
    assert [line.get("judgement") for line in await payment.history()] == [None, "canceled"]
    assert await payment.deliver(json.dumps(event(payment.identity, "APPROVAL", None, payment.serial)).encode()) == 200
    corrected = await payment.get()
    assert (corrected["outcome"]["result"], corrected["outcome"]["supersedes"]["result"]) == ("approved", "canceled")
    assert "outcome_corrected" in attention(corrected)


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, error("TERMINAL", "TER-004")),
        (200, {"approved": True, "rawResponse": {"transaction_status": "APPROVAL"}}),
        (200, {"code": "00", "message": "APPROVED"}),
        (422, error("ACQUIRER", "51")),
        (422, {"failure": error("ACQUIRER", "51")}),
    ],
    ids=["error", "approved", "zeros", "acquirer", "failure"],
)
async def test_what_is_neither_leaves_doubt(shop: Shop, status: int, content: dict[str, Any]) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(status, content)
    document = (await payment.put()).json
    assert (document["phase"], document["outcome"]) == ("in_doubt", None)
    named = " ".join(content.get("failure", content).get(name, "") for name in ("type", "code")).strip()
    assert named in document["attention"][0]["detail"]


async def test_an_error_under_200_is_a_refusal_where_the_profile_says_so(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(200, error("PARAMETER", "PAR-003", param="amount"))
    outcome = (await payment.put(type="pre-auth")).json["outcome"]
    assert (outcome["result"], outcome["evidence"][0]["status"]) == ("not_started", 200)
    assert outcome["failure_reason"]["message"].endswith("(HTTP 200, PARAMETER PAR-003): the field amount")
    asked = shop.payment()
    shop.terminal.start = answering(200, error("ACQUIRER", "51"))
    assert (await asked.put(type="pre-auth")).json["phase"] == "in_doubt"


async def test_a_page_of_a_search_counts_only_where_it_states_how_the_payment_stands(shop: Shop) -> None:
    payment = await shop.in_doubt()
    bare = {"client_transaction_id": payment.identity, "transaction_status": "INITIALIZED"}

    async def found(page: object) -> Any:
        shop.terminal.search = answering(200, json.dumps(page).encode())
        return (await payment.post("reconcile")).json

    for page, result in (
        ({"data": [], "total": 0}, "none"),
        ({"data": [], "total": 3}, "no_answer"),
        ({"data": [bare]}, "no_answer"),
    ):
        assert (await found(page))["last_search"]["result"] == result
    closed = await payment.post("resolve", {"operator": "Ana", "note": "idle", "result": "not_started"}, admin=True)
    assert closed.status == 200
    still = await found({"data": [bare]})
    assert (still["outcome"]["result"], still["outcome"]["evidence"][0]["kind"]) == ("not_started", "operator")
    corrected = await found({"data": [bare | {"transaction_status": "APPROVAL"}]})
    assert (corrected["outcome"]["result"], corrected["last_search"]["result"]) == ("approved", "found")
    assert {"outcome_corrected", "missing_reference"} <= attention(corrected)


async def test_an_abort_is_taken_by_an_empty_object_and_not_by_an_error(shop: Shop) -> None:
    for status, content, answer, http in (
        (200, {}, "taken", 202),
        (200, error("TERMINAL", "TER-004"), "unknown", 202),
        (409, error("TERMINAL", "TER-002"), "nothing_running", 409),
        (409, error("TERMINAL", "TER-003"), "unknown", 202),
    ):
        payment = await shop.started()
        shop.terminal.abort = answering(status, content)
        assert (await payment.post("abort")).status == http
        assert [line["answer"] for line in await payment.history() if "answer" in line] == [answer]
        await payment.end()


async def test_a_print_job_with_an_error_in_its_answer_is_in_doubt(shop: Shop) -> None:
    shop.terminal.print_start = answering(202, error("TERMINAL-PRINTER", "7"))
    job = {"terminal": next(shop.serials), "document": {"lines": ["ACME"]}}
    made = (await shop.daemon.call("PUT", f"/print-jobs/{uuid4()}", job)).json
    assert (made["phase"], made["status"]) == ("in_doubt", None)
    assert "TERMINAL-PRINTER 7" in made["attention"][0]["detail"]
