"""Start of a payment. posd draws one conclusion from each reply of the terminal. posd never sends more than one
request."""

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from posd.payments import journal
from posd.payments.entries import Attempted
from posd.terminals.attempt import Replied
from tests.rig.shop import AMOUNT, Held, Payment, Shop, acknowledging, answering
from tests.rig.streams import Connection, ask
from tests.rig.terminal import Request, http
from tests.rig.webhooks import disk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]
#: Number of terminals in the quick suite.
TERMINALS = 50


async def no_reply(_request: Request, _writer: asyncio.StreamWriter) -> None:
    """Close the connection without a reply."""


async def test_a_payment_that_may_run_stays_in_doubt(shop: Shop) -> None:
    """The catalogue has the other replies that leave a doubt."""
    payment = shop.payment()
    shop.terminal.start = no_reply
    await assert_in_doubt(payment)


async def assert_in_doubt(payment: Payment, requests: int = 1) -> None:
    reply = await payment.put()
    assert reply.status == 201
    document = reply.json
    assert (document["phase"], document["status"], document["outcome"]) == ("in_doubt", None, None)
    assert document["next_step"] == "wait"
    assert [item["code"] for item in document["attention"]] == ["in_doubt"]
    assert payment.serial in document["attention"][0]["detail"]
    repeated = await payment.put()
    assert (repeated.status, repeated.json["phase"]) == (200, "in_doubt")
    waited = await payment.shop.daemon.call("GET", f"/transactions/{payment.identity}/outcome?timeout=0")
    assert (waited.status, waited.json["phase"]) == (202, "in_doubt")
    other = await Payment(payment.shop, str(uuid4()), payment.serial).put()
    assert (other.status, other.json["blocking_transaction"]) == (409, payment.identity)
    assert len(payment.requests) == requests


async def test_a_connection_cut_before_the_request_was_read_leaves_doubt(shop: Shop) -> None:
    payment = shop.payment()

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    shop.terminal.instead = hang_up
    await assert_in_doubt(payment, requests=0)


@pytest.mark.parametrize("status", [302, 409])
async def test_a_refusal_is_final_and_keeps_the_terminals_reply(shop: Shop, status: int) -> None:
    payment = shop.payment()
    content = json.dumps({"code": f"NO-{status}"})

    async def refuse(_request: Request, writer: asyncio.StreamWriter) -> None:
        elsewhere = f"location: {shop.terminal.base_url}/elsewhere\r\ncontent-length".encode()
        writer.write(http(status, content.encode()).replace(b"content-length", elsewhere))

    shop.terminal.start = refuse
    seen = len(shop.terminal.requests)
    reply = await payment.put()
    assert reply.status == 201
    document = reply.json
    outcome = document["outcome"]
    assert (document["phase"], document["status"], document["next_step"]) == ("final", None, "new_id_ok")
    assert (outcome["result"], outcome["status"], outcome["reached_acquirer"]) == ("not_started", None, False)
    (evidence,) = outcome["evidence"]
    assert (evidence["kind"], evidence["status"], evidence["body"]) == ("refusal", status, content)
    assert outcome["failure_reason"]["terminal"] == {"type": None, "code": f"NO-{status}", "message": None}
    assert outcome["failure_reason"]["type"] == "posd"
    assert document["attention"] == []
    assert (await payment.put()).status == 200
    assert len(shop.terminal.requests) == seen + 1  # posd follows no redirect, and sends nothing for a repeated call
    shop.terminal.start = acknowledging(payment.serial)
    assert (await Payment(shop, str(uuid4()), payment.serial).put()).json["phase"] == "active"


@pytest.mark.parametrize("status", [200, 409, 503])
async def test_the_reply_of_the_terminal_is_kept_verbatim(shop: Shop, status: int) -> None:
    payment, content = shop.payment(), b"<html>not for posd</html> \xff"
    shop.terminal.start = answering(status, content)
    assert (await payment.put()).status == 201
    with disk(shop.daemon) as db:
        (item,) = journal.entries(db, payment.identity)
        assert item.entry == Attempted(Replied(status, content), errors_in_2xx=False)


async def test_a_final_frees_the_terminal_only_after_the_call_has_returned(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = script = Held(acknowledging(payment.serial))
    running = asyncio.create_task(payment.put())
    await script.arrived.wait()
    assert await payment.event("TERMINAL_CANCELED") == 200
    assert (await shop.daemon.outcome(payment.identity))["result"] == "canceled"
    busy = await Payment(shop, str(uuid4()), payment.serial).put()
    assert (busy.status, busy.json["blocking_transaction"]) == (409, payment.identity)
    script.release.set()
    assert (await running).json["phase"] == "final"
    shop.terminal.start = acknowledging(payment.serial)
    assert (await Payment(shop, str(uuid4()), payment.serial).put()).status == 201


@pytest.mark.parametrize("count", [2, 20])
async def test_simultaneous_equal_calls_are_one_request(shop: Shop, count: int) -> None:
    payment = shop.payment()
    shop.terminal.start = script = Held(acknowledging(payment.serial))
    running = [asyncio.create_task(payment.put()) for _ in range(count)]
    await script.arrived.wait()
    script.release.set()
    replies = await asyncio.gather(*running)
    assert sorted(reply.status for reply in replies) == [200] * (count - 1) + [201]
    assert {reply.json["phase"] for reply in replies} == {"active"}
    assert len(payment.requests) == 1


async def test_another_request_under_the_same_id_is_refused(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = script = Held(acknowledging(payment.serial))
    first = asyncio.create_task(payment.put(amount={"iva": 10.10, "subtotal_iva": 1}, metadata={"b": 1, "a": 2}))
    await script.arrived.wait()
    joined = asyncio.create_task(payment.put())
    script.release.set()
    assert (await first).status == 201
    refused = await joined
    assert (refused.status, refused.json["code"]) == (409, "id_reused")
    assert refused.json["fields"] == ["amount", "metadata"]

    # The request is the same in another notation and without the terminal.
    text = b'{"amount": {"iva": 1010e-2, "subtotal_iva": 1}, "metadata": {"a": 2, "b": 1}}'
    for identity in (payment.identity, payment.identity.upper()):
        assert (await shop.daemon.call("PUT", f"/transactions/{identity}", text)).status == 200
    assert (await shop.daemon.call("PUT", f"/transactions/{payment.identity}", b"{")).json["code"] == "id_reused"
    assert len(payment.requests) == 1


async def test_only_one_of_two_simultaneous_payments_on_a_terminal_starts(shop: Shop) -> None:
    one = shop.payment()
    two = Payment(shop, str(uuid4()), one.serial)
    shop.terminal.start = acknowledging(one.serial)
    replies = await asyncio.gather(one.put(), two.put())
    by_status = {reply.status: (payment, reply) for payment, reply in zip((one, two), replies, strict=True)}
    assert set(by_status) == {201, 409}
    started, (refused, problem) = by_status[201][0], by_status[409]
    assert problem.json["code"] == "terminal_busy"
    assert problem.json["blocking_transaction"] == started.identity
    assert (await shop.daemon.call("GET", f"/transactions/{refused.identity}")).status == 404
    assert refused.requests == []
    assert await started.event("TERMINAL_CANCELED") == 200
    assert (await refused.put()).status == 201  # the refused payment may start under its id right after the outcome


async def test_a_till_that_hangs_up_changes_nothing(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = script = Held(acknowledging(payment.serial))
    content = json.dumps({"terminal": payment.serial, "amount": AMOUNT}).encode()
    _reader, writer = await asyncio.open_unix_connection(str(shop.daemon.till_socket))
    head = f"PUT /v1/transactions/{payment.identity} HTTP/1.1\r\nhost: posd\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await script.arrived.wait()
    writer.transport.abort()
    script.release.set()
    document = await shop.daemon.wait_for(payment.identity, lambda document: document["phase"] == "active")
    assert document["status"] == "TERMINAL_ACKNOWLEDGED"
    assert len(payment.requests) == 1


#: Name of a call about a payment -> method, rest of the path, body, and the status for a recorded payment.
ABOUT = {
    "get": ("GET", "", None, 200),
    "outcome": ("GET", "/outcome?timeout=0", None, 202),
    "events": ("GET", "/events", None, 200),
    "history": ("GET", "/history", None, 200),
    "abort": ("POST", "/abort", None, 202),
    "reconcile": ("POST", "/reconcile", None, 200),
    # a call to the terminal is under way
    "release": ("POST", "/release", {"operator": "Ana", "note": "it hangs"}, 409),
}


async def asking(shop: Shop, payment: Payment, method: str, rest: str = "", content: Any = None) -> Connection:
    """Send a call about a payment without waiting for the response."""
    fields = "" if content is None else "content-type: application/json\r\n"
    body = None if content is None else json.dumps(content).encode()
    return await ask(
        shop.daemon.till_socket, f"/transactions/{payment.identity}{rest}", fields, method=method, content=body
    )


@pytest.mark.parametrize("name", ABOUT)
async def test_a_call_about_an_unrecorded_start_waits_for_its_record(shop: Shop, name: str) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    method, rest, content, status = ABOUT[name]
    with closing(sqlite3.connect(shop.daemon.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # the commit of the intent waits for this transaction
        start = await asking(shop, payment, "PUT", content={"terminal": payment.serial, "amount": AMOUNT})
        call = await asking(shop, payment, method, rest, content)
        for _ in range(20):  # posd serves other callers at the same time
            assert (await shop.daemon.call("GET", "/version")).status == 200
        other.execute("ROLLBACK")
    assert (await start.answer()).status == 201
    answer = await call.answer()
    assert answer.status == status, answer.body
    start.hang_up()
    call.hang_up()
    await payment.end()


async def test_a_call_about_a_refused_start_says_that_the_payment_never_started(shop: Shop) -> None:
    payment = shop.payment()
    with closing(sqlite3.connect(shop.daemon.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # posd gives up the commit of the intent
        start = await asking(shop, payment, "PUT", content={"terminal": payment.serial, "amount": AMOUNT})
        call = await asking(shop, payment, "GET", "/outcome")
        status, refused = await start.reply()
    assert (status, refused["code"]) == (503, "storage_unavailable")
    status, answer = await call.reply()
    assert (status, answer["code"], answer["never_started"]) == (404, "not_found", True)
    assert payment.requests == []
    start.hang_up()
    call.hang_up()


async def test_a_refusal_proves_nothing_about_an_id_that_another_call_may_start(shop: Shop) -> None:
    paid, payment = shop.payment(), shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    assert (await paid.put(sale="one basket")).status == 201
    request = {"terminal": payment.serial, "amount": AMOUNT}
    with closing(sqlite3.connect(shop.daemon.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = await asking(shop, payment, "PUT", content=request | {"sale": "one basket"})
        accepted = await asking(shop, payment, "PUT", content=request)
        for _ in range(20):  # posd serves other callers at the same time
            assert (await shop.daemon.call("GET", "/version")).status == 200
        other.execute("ROLLBACK")
    status, problem = await refused.reply()
    assert (status, problem["code"]) == (409, "sale_conflict")
    assert problem.get("never_started") is not True
    assert (await accepted.answer()).status == 201
    refused.hang_up()
    accepted.hang_up()
    await payment.end()
    await paid.end()
