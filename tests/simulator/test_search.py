"""The online search: what the terminal knows, at every moment, over restarts."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import Till

MakeSettings = Callable[..., Settings]
#: Letters in it, so that upper and lower case differ.
UUID = "7f3cabcd-0000-4000-8000-00000000000f"
#: One scenario for each final.
ENDINGS = {
    "approve-contactless": "APPROVAL",
    "decline": "DECLINED",
    "reject-after-card": "TERMINAL_REJECTED",
    "cancel-by-cardholder": "TERMINAL_CANCELED",
}


async def pay(till: Till, scenario: str = "approve-contactless", **fields: Any) -> str:
    """Run a payment to its end, return its id."""
    answer = await till.charge(metadata={"scenario": scenario}, **fields)
    transaction = str(answer.json()["operation"]["client_transaction_id"])
    await till.terminal.ledger.wait_for("final", client_transaction_id=transaction)
    return transaction


async def test_what_was_never_started_is_an_explicit_none(till: Till) -> None:
    answer = await till.search(UUID)
    assert (answer.status_code, answer.content) == (200, b"[]")
    (line,) = till.terminal.ledger.of("search")
    assert (line["client_transaction_id"], line["http_status"], line["found"]) == (UUID, 200, 0)


REFUSED: list[tuple[bytes, int, str, str | None]] = [
    (b"", 400, "not JSON", None),
    (b"{", 400, "not JSON", None),
    (b"[]", 400, "not a JSON object", None),
    (b"{}", 422, "client_transaction_id", None),
    (b'{"client_transaction_id": 7}', 422, "client_transaction_id", None),
    (b'{"client_transaction_id": "7f3c"}', 422, "client_transaction_id", "7f3c"),
]


@pytest.mark.parametrize(("body", "status", "named", "claimed"), REFUSED)
async def test_a_search_that_cannot_be_is_refused(
    till: Till, body: bytes, status: int, named: str, claimed: str | None
) -> None:
    answer = await till.search_for(body)
    assert answer.status_code == status
    assert named in answer.json()["message"]
    (line,) = till.terminal.ledger.of("search")
    assert (line["client_transaction_id"], line["http_status"], line["found"]) == (claimed, status, 0)


async def test_starts_and_searches_are_kept_apart(till: Till) -> None:
    transaction = await pay(till)
    await till.search(transaction)
    await till.search_for(b"{")
    (start,) = (await till.get("/simulator/requests")).json()
    assert json.loads(start)["client_transaction_id"] == transaction
    assert (await till.get("/simulator/searches")).json() == [json.dumps({"client_transaction_id": transaction}), "{"]
    assert (till.terminal.requests, len(till.terminal.searches)) == ([start], 2)
    assert (await till.get("/simulator/nothing")).status_code == 404


async def test_finals_are_known_after_a_restart_and_the_payment_in_progress_is_not(
    settings: MakeSettings, client: httpx2.AsyncClient
) -> None:
    told: dict[str, bytes] = {}
    async with Simulator(settings()) as terminal:
        till = Till(terminal, client)
        for scenario in ENDINGS:
            transaction = await pay(till, scenario)
            told[transaction] = (await till.search(transaction)).content
    async with Simulator(settings(scenario="approve-chip-pin", speed=1.0)) as terminal:
        till = Till(terminal, client)
        assert (await till.charge(client_transaction_id=UUID)).status_code == 200
    async with Simulator(settings()) as terminal:
        till = Till(terminal, client)
        assert {transaction: (await till.search(transaction)).content for transaction in told} == told
        assert (await till.search(UUID)).content == b"[]"
        assert terminal.ledger.of("final") == []  # a ledger in memory has what happens in its time
