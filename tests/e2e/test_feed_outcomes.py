"""What the feed adds with `with=outcome`: how a payment had ended by each change, and what it comes to."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.support.events import APPROVED, event
from tests.support.shop import Payment, Shop, answering
from tests.support.streams import stream

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

OPERATION = {"type": "CHARGE", "amount": {"currency": "USD", "tip": 0}}


async def lines(payment: Payment, adds: str = "&with=outcome") -> list[dict[str, Any]]:
    """Return the changes of a payment."""
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        reply = await payment.shop.daemon.call("GET", f"/feed?after={after}&limit=500{adds}")
        page = json.loads(reply.body, parse_float=Decimal)
        if not page["changes"]:
            return found
        found += [change for change in page["changes"] if change["id"] == payment.identity]
        after = page["next_after"]


async def approve(payment: Payment) -> dict[str, Any]:
    """Have the terminal tell all its steps up to its approval; return the last event."""
    for status, previous in APPROVED[:-1]:
        assert await payment.event(status, previous) == 200
    final = event(payment.identity, *APPROVED[-1], payment.serial, operation=OPERATION)
    assert await payment.deliver(json.dumps(final).encode()) == 200
    return final


async def test_a_change_has_the_outcome_once_there_is_one(shop: Shop) -> None:
    payment = await shop.started(sale="basket 7", metadata={"ticket": 7})
    final = await approve(payment)
    document = await payment.get()
    *before, last = await lines(payment)
    assert before
    assert not any("outcome" in change for change in before)
    assert last["outcome"] == {
        "result": "approved",
        "status": "APPROVAL",
        "decided_by": "event",
        "corrected": False,
        "type": "charge",
        "sale": "basket 7",
        "original": None,
        "amount": {"iva": Decimal("1.2"), "subtotal_iva": Decimal("10.0"), "subtotal_iva0": 0},
        "authorized_amount": Decimal("11.20"),
        "tip": 0,
        "currency": "USD",
        "of": "payment",
        "counted": Decimal("11.20"),
        "transaction_reference": final["raw_response"]["transaction_reference"],
        "ticket_number": "000123",
        "reversal": None,
        "created_at": document["created_at"],
        "occurred_at": final["occurred_at"],
        "decided_at": document["outcome"]["decided_at"],
    }


async def test_each_change_has_the_outcome_of_its_time(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(409, {"message": "busy"})
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    await approve(payment)
    told = [change["outcome"] for change in await lines(payment) if "outcome" in change]
    assert [(item["result"], item["corrected"], item["decided_by"]) for item in (told[0], told[-1])] == [
        ("not_started", False, "refusal"),
        ("approved", True, "event"),
    ]
    assert (told[0]["authorized_amount"], told[0]["transaction_reference"]) == (None, None)
    assert told[0]["decided_at"] < told[-1]["decided_at"]


async def test_an_outcome_that_was_withdrawn_is_told_of_the_changes_that_had_it(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(409, {"message": "busy"})
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200  # it runs all the same
    assert (await payment.get())["outcome"] is None
    *before, last = await lines(payment)
    assert [change["outcome"]["result"] for change in before if change["result"]] == ["not_started"]
    assert (last["result"], "outcome" in last) == (None, False)


async def test_a_stream_has_it_too(shop: Shop) -> None:
    payment = await shop.started()
    start = (await shop.daemon.call("GET", "/feed?limit=500")).json["next_after"]
    await approve(payment)
    async with stream(shop.daemon.till_socket, f"/feed?after={start}&with=outcome") as found:
        last = await anext(
            message.json async for message in found if payment.identity in message.data and '"approved"' in message.data
        )
    assert last["outcome"]["transaction_reference"]


async def test_the_end_of_the_feed_says_what_is_open_and_needs_a_person(shop: Shop) -> None:
    async def page(limit: int, adds: str = "&with=outcome") -> dict[str, Any]:
        found: dict[str, Any] = (await shop.daemon.call("GET", f"/feed?after={after}&limit={limit}{adds}")).json
        return found

    payment = await shop.started()
    after = (await shop.daemon.call("GET", "/feed?limit=500")).json["next_after"]
    before = await page(500)
    await approve(payment)
    ended = await page(500)
    assert (before["open"] - ended["open"], ended["attention"]) == (1, before["attention"])
    assert await payment.event("SOMETHING_NEW") == 200
    assert (await page(500))["attention"] == before["attention"] | {"unknown_status": 1}
    assert (ended["databases"][-1]["last_seq"], len(ended["databases"])) == (ended["next_after"], 1)
    assert not {"open", "attention"} & (await page(1)).keys(), "more follows"
    assert not {"open", "attention"} & (await page(500, "")).keys()
