"""Abort: the request to the transaction's terminal, and the wait for the outcome."""

import asyncio
from uuid import uuid4

import pytest

from tests.rig.shop import Held, Payment, Shop, acknowledging, answering, nothing_to_correct, open_counters
from tests.rig.streams import Reply
from tests.rig.terminal import Request, Script

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def abort(payment: Payment) -> Reply:
    return await payment.shop.daemon.call("POST", f"/transactions/{payment.identity}/abort")


async def no_reply(_request: Request, _writer: asyncio.StreamWriter) -> None:
    """Close the connection without a reply."""


#: Replies of the terminal to an abort that the terminal accepted, or may have accepted.
TAKEN: dict[str, Script] = {"200": answering(200, {"code": "ABORTED"}), "500": answering(500), "no reply": no_reply}


@pytest.mark.parametrize("answer", TAKEN)
async def test_an_abort_that_the_terminal_may_have_accepted_is_answered_202(shop: Shop, answer: str) -> None:
    payment = await shop.started()
    shop.terminal.abort = TAKEN[answer]
    before = shop.terminal.aborts
    reply = await abort(payment)
    assert reply.status == 202
    assert (reply.json["phase"], reply.json["outcome"]) == ("active", None)
    assert shop.terminal.aborts == before + 1
    sent = shop.terminal.requests[-1]
    assert (sent.method, sent.path, sent.body) == ("GET", "/terminal/v1/abort", b"")
    await payment.end()
    outcome = (await payment.get())["outcome"]
    assert (outcome["result"], outcome["evidence"][0]["kind"]) == ("canceled", "event")
    feed = (await shop.daemon.call("GET", "/feed?limit=500")).json["changes"]
    reasons = [item["reason"] for item in feed if item["id"] == payment.identity]
    answered = "abort:taken" if answer.startswith("2") else "abort:unknown"
    assert reasons[2:5] == ["abort_requested", answered, "event:TERMINAL_CANCELED"]


@pytest.mark.parametrize(("answer", "code"), [(200, None), (409, "already_final")])
async def test_the_lease_lasts_until_the_abort_has_returned(shop: Shop, answer: int, code: str | None) -> None:
    payment = await shop.started()
    script = Held(answering(answer))
    shop.terminal.abort = script
    aborting = asyncio.create_task(abort(payment))
    await script.arrived.wait()
    await payment.end()
    assert (await payment.get())["phase"] == "final"
    following = Payment(shop, str(uuid4()), payment.serial)
    busy = await following.put()
    assert (busy.status, busy.json["blocking_transaction"]) == (409, payment.identity)
    script.release.set()
    reply = await aborting
    assert (reply.status, reply.json.get("code")) == ((409, code) if code else (202, None))
    assert (await shop.daemon.call("GET", f"/terminals/{payment.serial}")).json["transaction"] is None
    assert (await following.put()).status == 201
    known = (await shop.daemon.call("GET", f"/terminals/{payment.serial}")).json
    assert known["transaction"] == following.identity


async def test_a_payment_that_no_longer_holds_its_terminal_is_not_aborted(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(409)
    assert (await payment.put()).json["phase"] == "final"
    following = Payment(shop, str(uuid4()), payment.serial)
    shop.terminal.start = acknowledging(payment.serial)
    assert (await following.put()).status == 201
    assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200  # the terminal runs the refused payment
    assert (await payment.get())["phase"] == "active"
    before = shop.terminal.aborts
    reply = await abort(payment)
    assert (reply.status, reply.json["code"]) == (409, "not_abortable")
    assert shop.terminal.aborts == before


@pytest.mark.asyncio(loop_scope="function")
async def test_an_abort_is_not_sent_again_after_a_kill() -> None:
    async with open_counters(1) as (counter,):
        posd = counter.daemon
        payment = await counter.started()
        assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
        counter.terminal.abort = script = Held(answering(200))
        aborting = asyncio.create_task(abort(payment))
        await script.arrived.wait()
        await posd.kill()
        with pytest.raises(OSError):
            await aborting
        script.release.set()
        counter.terminal.abort = None
        await posd.start()
        document = await payment.get()
        assert (document["phase"], document["status"]) == ("active", "TERMINAL_ACKNOWLEDGED")
        assert (await posd.call("GET", f"/terminals/{payment.serial}")).json["transaction"] == payment.identity
        assert [item["kind"] for item in await payment.history()][:4] == [
            "intent",
            "attempt",
            "event",
            "abort_requested",
        ]
        assert await payment.event("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED") == 200
        assert (await payment.get())["outcome"]["result"] == "canceled"
        assert counter.terminal.aborts == 1
        await nothing_to_correct(posd)
