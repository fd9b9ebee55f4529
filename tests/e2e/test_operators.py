"""Decisions of people: release, resolve, acknowledge. posd records each decision, and no decision is a proof (local
API).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.rig.events import body, event
from tests.rig.shop import Payment, Shop, acknowledging, knowing
from tests.rig.webhooks import address, attention, deliver

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]
#: Number of terminals in the quick suite.
TERMINALS = 40

BY_ANA = {"operator": "Ana", "note": "the printer of the terminal says so"}
REFERENCE = "6f1d7f2c-4d31-4a0e-9a58-0a8b7b0f5a11"


async def next_on(payment: Payment) -> Payment:
    """Start the next payment on the same terminal. Return the accepted payment."""
    payment.shop.terminal.start = acknowledging(payment.serial)
    return Payment(payment.shop, str(uuid4()), payment.serial)


async def holder(payment: Payment) -> str | None:
    """Return the transaction that holds the terminal."""
    return (await payment.shop.daemon.call("GET", f"/terminals/{payment.serial}")).json["transaction"]  # type: ignore[no-any-return]


def line_of(history: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (line,) = [item for item in history if item["kind"] == kind]
    return line


# Release.


@pytest.mark.quick(1)
@pytest.mark.parametrize("phase", ["in_doubt", "active"])
async def test_release_frees_the_terminal_and_leaves_the_payment_open(shop: Shop, phase: str) -> None:
    payment = await (shop.in_doubt() if phase == "in_doubt" else shop.started())
    following = await next_on(payment)
    busy = await following.put()
    assert (busy.status, busy.json["code"]) == (409, "terminal_busy")
    assert busy.json["blocking_transaction"] == payment.identity
    reply = await payment.post("release", BY_ANA)
    assert (reply.status, reply.json["phase"], reply.json["released"]) == (200, phase, True)
    assert "released" in attention(reply.json)
    assert (reply.json["next_step"], reply.json["abortable"], reply.json["outcome"]) == ("ask_person", False, None)
    assert await holder(payment) is None
    assert (await following.put()).status == 201
    assert await holder(payment) == following.identity
    # posd still searches for the released payment. The end of the released payment does not affect the next payment on
    # the terminal.
    waiting = asyncio.create_task(shop.daemon.outcome(payment.identity))
    shop.terminal.search = knowing(event(payment.identity, "CARD_PRESENTED", None, payment.serial))
    document = (await payment.post("reconcile")).json
    assert (document["last_search"]["result"], document["status"]) == ("found", "CARD_PRESENTED")
    assert attention(document) == {"released"}
    assert (document["next_step"], document["abortable"]) == ("ask_person", False)
    assert await payment.event("TERMINAL_REJECTED", "CARD_PRESENTED") == 200
    assert (await waiting)["result"] == "rejected"
    document = await payment.get()
    assert (attention(document) - {"gap"}, document["next_step"], document["released"]) == (set(), "new_id_ok", True)
    assert await holder(payment) == following.identity
    audit = line_of(await payment.history(), "release")
    assert audit | BY_ANA == audit
    assert audit["uid"] == os.getuid()


async def test_a_repeated_release_does_not_free_the_next_payment(shop: Shop) -> None:
    payment = await shop.in_doubt()
    assert (await payment.post("release", BY_ANA)).status == 200
    following = await next_on(payment)
    assert (await following.put()).status == 201
    assert (await payment.post("release", BY_ANA)).status == 200
    assert await holder(payment) == following.identity


@pytest.mark.parametrize("call", ["release", "resolve"])
async def test_an_ended_payment_cannot_be_settled(shop: Shop, call: str) -> None:
    payment = await shop.started()
    await payment.approve()
    before = await payment.get()
    word = BY_ANA | ({"result": "canceled"} if call == "resolve" else {})
    reply = await payment.post(call, word, admin=True)
    assert (reply.status, reply.json["code"]) == (409, "already_final")
    assert reply.json["outcome"].items() >= before["outcome"].items()
    assert await payment.get() == before


# Resolve.


@pytest.mark.quick(5)
@pytest.mark.parametrize("reference", [None, REFERENCE.upper()])
@pytest.mark.parametrize("result", ["approved", "declined", "rejected", "canceled", "not_started"])
async def test_resolve_records_a_persons_decision(shop: Shop, result: str, reference: str | None) -> None:
    payment = await shop.in_doubt()
    word = BY_ANA | {"result": result, "transaction_reference": reference}
    seen = len(shop.daemon.lines)
    reply = await payment.post("resolve", word, admin=True)
    if reference is not None and result != "approved":
        assert (reply.status, reply.json["code"]) == (422, "invalid_request")
        assert [item["path"] for item in reply.json["errors"]] == ["/transaction_reference"]
        assert (await payment.get())["phase"] == "in_doubt"
        return
    document = reply.json
    outcome = document["outcome"]
    assert (reply.status, document["phase"], document["attention"]) == (200, "final", [])
    assert (outcome["result"], outcome["status"], outcome["final_event"]) == (result, None, None)
    assert outcome["transaction_reference"] == (reference and REFERENCE)
    assert outcome["reached_acquirer"] is (False if result == "not_started" else None)
    (evidence,) = outcome["evidence"]
    assert (evidence["kind"], evidence["operator"], evidence["note"]) == ("operator", "Ana", BY_ANA["note"])
    assert document["next_step"] == ("done" if result == "approved" else "new_id_ok")
    assert await holder(payment) is None
    assert line_of(await payment.history(), "resolve") == {
        "at": evidence["at"],
        "kind": "resolve",
        "uid": os.getuid(),
        "result": result,
        "transaction_reference": reference and REFERENCE,
        **BY_ANA,
    }
    line = await shop.daemon.log_line("payment.operator", seen, transaction=payment.identity)
    assert (line["kind"], line["uid"], line["result"]) == ("resolve", os.getuid(), result)
    assert "Ana" not in str(line)


async def test_a_payment_known_only_from_events_never_holds_a_terminal(shop: Shop) -> None:
    orphan = shop.payment()

    async def told(status: str) -> None:
        content = body(orphan.identity, status, None, orphan.serial)
        assert (await deliver(shop.daemon, address(shop.daemon, orphan.identity), content)).status == 200

    await told("TERMINAL_ACKNOWLEDGED")
    word = BY_ANA | {"result": "not_started"}
    assert (await orphan.post("resolve", word, admin=True)).json["phase"] == "final"
    await told("CARD_PRESENTED")
    assert (await orphan.get())["phase"] == "active"
    assert await holder(orphan) is None
    assert (await orphan.post("abort")).json["code"] == "not_abortable"
    assert "intent" not in {line["kind"] for line in await orphan.history()}, "no till has started the payment"
    assert (await (await next_on(orphan)).put()).status == 201


# Acknowledge.

Bringing = Callable[[Shop], Awaitable[Payment]]


async def a_doubt(shop: Shop) -> Payment:
    return await shop.in_doubt()


async def an_illegal_transition(shop: Shop) -> Payment:
    payment = await shop.started()
    await payment.approve(3)
    assert await payment.event("TERMINAL_CANCELED", "APPROVAL_REQUESTED") == 200
    return payment


async def a_conflict(shop: Shop) -> Payment:
    payment = await shop.started()
    await payment.approve()
    assert await payment.event("DECLINED", "APPROVAL_REQUESTED") == 200
    return payment


#: Attention -> the cause, and the till's next step before and after an operator acknowledges the attention.
ATTENTIONS: dict[str, tuple[Bringing, str, str]] = {
    "in_doubt": (a_doubt, "wait", "ask_person"),
    "illegal_transition": (an_illegal_transition, "ask_person", "new_id_ok"),
    "conflicting_final": (a_conflict, "ask_person", "done"),
}


def told_now(outcome: Any, now: Any) -> Any:
    """Return an earlier outcome, with the next step and display of the present outcome."""
    return outcome and outcome | now | {"supersedes": told_now(outcome["supersedes"], now)}


@pytest.mark.parametrize("code", ATTENTIONS)
async def test_a_person_acknowledges_an_attention(shop: Shop, code: str) -> None:
    bring, before, after = ATTENTIONS[code]
    payment = await bring(shop)
    document = await payment.get()
    assert (code in attention(document), document["next_step"]) == (True, before)
    reply = await payment.post("acknowledge", BY_ANA | {"code": code}, admin=True)
    assert reply.status == 200
    assert attention(reply.json) == attention(document) - {code}
    assert (reply.json["next_step"], reply.json["phase"]) == (after, document["phase"])
    now = {name: reply.json[name] for name in ("next_step", "display")}
    assert reply.json["outcome"] == told_now(document["outcome"], now)
    audit = line_of(await payment.history(), "acknowledge")
    assert audit | BY_ANA | {"code": code, "uid": os.getuid()} == audit
    again = await payment.post("acknowledge", BY_ANA | {"code": code}, admin=True)
    assert (again.status, again.json["code"]) == (404, "not_found")
    listed = (await shop.daemon.call("GET", "/transactions?attention=true&limit=500")).json["transactions"]
    still = {item["client_transaction_id"] for item in listed}
    assert (payment.identity in still) == bool(attention(reply.json))
