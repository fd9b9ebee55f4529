"""Searches for a payment, and contradicting final reports."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.rig.daemon import Daemon
from tests.rig.events import FINALS, RESULTS, event
from tests.rig.shop import Payment, Shop, acknowledging, answering, knowing, open_counters
from tests.rig.webhooks import attention

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]


def element(payment: Payment, status: str, previous: str | None = None) -> dict[str, Any]:
    """Return the element that a search finds for a payment in this state."""
    return event(payment.identity, status, previous, payment.serial)


# Replies that say nothing about the payment.


async def test_only_an_empty_list_means_nothing_found_and_alone_it_proves_nothing(shop: Shop) -> None:
    payment = await shop.in_doubt()
    shop.terminal.search = answering(200, b" [ ] \n")
    for _ in range(3):
        document = (await payment.post("reconcile")).json
        assert document["last_search"]["result"] == "none"
        assert (document["phase"], document["outcome"]) == ("in_doubt", None)
        assert attention(document) == {"in_doubt"}
    assert [item["result"] for item in await payment.history() if item["kind"] == "search"] == ["none"]
    assert document["last_search"]["at"] > document["updated_at"]


# Replies that contain the payment.


@pytest.mark.quick(3)
@pytest.mark.parametrize("status", FINALS)
@pytest.mark.parametrize("phase", ["in_doubt", "active"])
async def test_a_final_found_by_a_search_is_the_outcome(shop: Shop, status: str, phase: str) -> None:
    payment = await (shop.in_doubt() if phase == "in_doubt" else shop.started())
    waiting = asyncio.create_task(shop.daemon.outcome(payment.identity))
    final = element(payment, status)
    shop.terminal.search = knowing(final)
    document = (await payment.post("reconcile")).json
    assert (document["phase"], document["status"]) == ("final", status)
    assert document["next_step"] == ("done" if status == "APPROVAL" else "new_id_ok")
    assert (document["last_search"]["result"], document["attention"]) == ("found", [])
    outcome = document["outcome"]
    assert outcome["result"] == RESULTS[status]
    (evidence,) = outcome["evidence"]
    assert (evidence["kind"], evidence["event_id"]) == ("search", final["event_id"])
    assert json.loads(json.dumps(outcome["final_event"], default=float)) == final
    if status == "APPROVAL":
        response = final["raw_response"]
        assert outcome["transaction_reference"] == response["transaction_reference"]
        assert float(outcome["authorized_amount"]) == response["authorized_amount"]
    assert (await waiting).items() >= outcome.items()
    assert (await shop.daemon.call("GET", f"/terminals/{payment.serial}")).json["transaction"] is None
    request = payment.searches[0]
    assert (request.method, request.path) == ("POST", "/terminal/v1/transaction_search_online")
    assert request.json == {"client_transaction_id": payment.identity}


@pytest.mark.parametrize("status", ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED"])
async def test_a_state_found_by_a_search_ends_the_doubt_and_not_the_payment(shop: Shop, status: str) -> None:
    payment = await shop.in_doubt()
    shop.terminal.search = knowing(element(payment, status))
    document = (await payment.post("reconcile")).json
    assert (document["phase"], document["status"], document["outcome"]) == ("active", status, None)
    assert (document["attention"], document["next_step"]) == ([], "wait")
    await payment.event("APPROVAL", "APPROVAL_REQUESTED")
    assert (await payment.get())["outcome"]["result"] == "approved"


#: The configuration sets another method and path, a pointer deep into the reply, and one merchant.
ELSEWHERE = """
[merchant]
id = "M-1"
[profile.search]
method = "GET"
path = "/v2/{client_transaction_id}/transaction_search_online"
pointer = "/data/it~1em~0s"
[reconcile]
first_event_grace_seconds = 3600
"""


async def test_the_configuration_decides_how_a_search_is_made_and_read() -> None:
    async with open_counters(1, ELSEWHERE) as (counter,):
        payment = await counter.in_doubt()
        ours = element(payment, "APPROVAL")
        replies: list[tuple[Any, str]] = [
            ([ours], "no_answer"),
            ({"data": {"it/em~s": [ours | {"merchant_id": "M-2"}]}}, "no_answer"),
            ({"data": {"it/em~s": [ours | {"terminal": {"serial_number": "SN-STRANGER"}}]}}, "no_answer"),
            ({"data": {"it/em~s": []}}, "none"),
            ({"data": {"it/em~s": element(payment, "CARD_PRESENTED")}}, "found"),
            ({"data": {"it/em~s": [ours | {"merchant_id": "M-2", "status": "DECLINED"}, ours]}}, "found"),
            ({"data": {"it/em~s": [ours | {"merchant_id": ""}]}}, "found"),
        ]
        for reply, result in replies:
            counter.terminal.search = answering(200, json.dumps(reply).encode())
            document = (await payment.post("reconcile")).json
            assert document["last_search"]["result"] == result, reply
        assert document["outcome"]["result"] == "approved"
        # A person must see results that have posd's id and belong to another payment.
        assert attention(document) == {"quarantined_event", "serial_mismatch", "damaged_event"}
        assert {(item.method, item.path, item.body) for item in counter.terminal.searches} == {
            ("GET", f"/v2/{payment.identity}/transaction_search_online", b"")
        }


# Tests in which a search and a webhook report the same payment.


BY_ANA = {"operator": "Ana", "note": "the printer of the terminal says so"}


async def refused(shop: Shop) -> Payment:
    """Return a payment that the terminal refused and still ran."""
    payment = shop.payment()
    shop.terminal.start = answering(409, {"message": "busy"})
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    return payment


async def unsent(shop: Shop) -> Payment:
    """Return a payment that counts as not sent, because the connection was refused."""
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    number = int(payment.serial.removeprefix("SN-"))
    await shop.terminal.unplug(number)
    assert (await payment.put()).json["outcome"]["evidence"][0]["kind"] == "unsent"
    await shop.terminal.plug_in(number)
    return payment


async def resolved(shop: Shop) -> Payment:
    """Return a payment that an operator resolved as not started. posd still searches for it."""
    payment = await shop.in_doubt()
    seen = len(shop.daemon.lines)
    assert (await payment.post("resolve", BY_ANA | {"result": "not_started"}, admin=True)).status == 200
    await shop.daemon.log_line("payment.search", seen, transaction=payment.identity)
    return payment


async def by_event(payment: Payment, final: dict[str, Any]) -> None:
    """Deliver the final as an event. The event has a time of its own."""
    assert await payment.deliver(json.dumps(final).encode()) == 200


async def by_search(payment: Payment, final: dict[str, Any]) -> None:
    """Deliver the final as the result of a search."""
    payment.shop.terminal.search = knowing(final)
    assert (await payment.post("reconcile")).status == 200


def lasting(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return an outcome without its display and next step."""
    return {name: value for name, value in outcome.items() if name not in ("next_step", "display")}


Telling = Callable[[Payment, dict[str, Any]], Awaitable[None]]


#: How posd inferred the outcome, and how the terminal's report arrived. The terminal has no callback URL of an unsent
#: request.
CORRECTIONS: list[tuple[Callable[[Shop], Awaitable[Payment]], Telling]] = [
    (refused, by_event),
    (refused, by_search),
    (unsent, by_search),
    (resolved, by_event),
    (resolved, by_search),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("infer", "tell"), CORRECTIONS)
async def test_a_report_of_the_terminal_replaces_an_inferred_outcome(
    shop: Shop, infer: Callable[[Shop], Awaitable[Payment]], tell: Telling
) -> None:
    payment = await infer(shop)
    before = await payment.get()
    assert (before["next_step"], before["attention"]) == ("new_id_ok", [])
    seen, seq = len(shop.daemon.lines), await newest_change(shop.daemon)
    final = event(payment.identity, "APPROVAL", None, payment.serial)
    await tell(payment, final)

    document = await payment.get()
    outcome = document["outcome"]
    assert outcome["result"] == "approved"
    assert outcome["transaction_reference"] == final["raw_response"]["transaction_reference"]
    assert lasting(outcome["supersedes"]) == lasting(before["outcome"])
    assert (attention(document) - {"gap"}, document["next_step"]) == ({"outcome_corrected"}, "ask_person")
    line = await shop.daemon.log_line("payment.attention", seen, code="outcome_corrected")
    assert (line["level"], line["transaction"]) == ("error", payment.identity)
    await shop.daemon.log_line("payment.outcome", seen, transaction=payment.identity, result="approved")
    changes = (await shop.daemon.call("GET", f"/feed?after={seq}&limit=500")).json["changes"]
    corrected = [item for item in changes if item["id"] == payment.identity and item["result"] == "approved"]
    assert "outcome_corrected" in corrected[0]["attention"]

    reply = await payment.post("acknowledge", BY_ANA | {"code": "outcome_corrected"}, admin=True)
    assert (reply.json["next_step"], attention(reply.json) - {"gap"}) == ("done", set())


async def newest_change(posd: Daemon) -> int:
    """Return the number of the newest change."""
    after = 0
    while (page := (await posd.call("GET", f"/feed?after={after}&limit=500")).json)["changes"]:
        after = page["next_after"]
    return after
