"""Asking a terminal by search what became of a payment: what counts as an answer, and what it changes (design 6)."""

import asyncio
import json
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest

from tests.support.events import APPROVED, FINALS, event
from tests.support.shop import (
    Payment,
    Shop,
    acknowledging,
    answering,
    hanging_up,
    held,
    knowing,
    open_counters,
)
from tests.support.streams import Connection
from tests.support.terminal import Request, Script, acknowledgement, http
from tests.support.webhooks import attention

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]

#: A final that another payment on the same terminal had.
OTHERS = event(str(uuid4()), "APPROVAL")
RESULTS = {
    "APPROVAL": "approved",
    "DECLINED": "declined",
    "TERMINAL_REJECTED": "rejected",
    "TERMINAL_CANCELED": "canceled",
}


def element(payment: Payment, status: str, previous: str | None = None) -> dict[str, Any]:
    """Return what a search shows of a payment in that state."""
    return event(payment.identity, status, previous, payment.serial)


def raw(content: bytes) -> Script:
    """Return the script that writes these bytes."""

    async def script(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(content)

    return script


async def never(_request: Request, writer: asyncio.StreamWriter) -> None:
    """Read the request and say nothing for as long as the caller stays."""
    await writer.wait_closed()


# What is no answer

#: Replies that say nothing about our payment: neither that it is there nor that it is not.
NO_ANSWERS: dict[str, Script] = {
    "404": answering(404, b"not found"),
    "404 with an empty list": answering(404, b"[]"),
    "400": answering(400, {"message": "unknown transaction"}),
    "500": answering(500),
    "503": answering(503, b"[]"),
    "302": answering(302),
    "time-out": never,
    "no reply": hanging_up,
    "no HTTP": raw(b"\x00\x01\x02 what?\r\n\r\n"),
    "HTML": raw(http(200, b"<html><body>Sign in to the guest network</body></html>", "text/html")),
    "half JSON": answering(200, b'[{"client_transaction_id": "'),
    "half a body": raw(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n[]"),
    "empty body": answering(200, b""),
    "null": answering(200, b"null"),
    "a number": answering(200, b"0"),
    "a text": answering(200, b'"none"'),
    "an empty object": answering(200, b"{}"),
    "an object about the search": answering(200, {"transactions": [], "total": 0}),
    "a list of nothing of use": answering(200, b"[null, 1, {}]"),
    "another payment": answering(200, OTHERS),
    "a list of other payments": answering(200, json.dumps([OTHERS, OTHERS | {"status": "DECLINED"}]).encode()),
    "too long": answering(200, b"[" + b" " * 300_000 + b"]"),
}


@pytest.mark.quick(5)
@pytest.mark.parametrize("reply", NO_ANSWERS)
async def test_what_says_nothing_about_the_payment_is_no_answer(shop: Shop, reply: str) -> None:
    payment = shop.payment(quick=reply == "time-out")
    shop.terminal.start = hanging_up
    before = (await payment.put()).json
    assert (before["phase"], before["last_search"]) == ("in_doubt", None)
    shop.terminal.search = NO_ANSWERS[reply]
    answer = await payment.post("reconcile")
    assert answer.status == 200
    assert answer.json["last_search"]["result"] == "no_answer"
    changes = {name for name in before if before[name] != answer.json[name]}
    assert changes == {"last_search"}


async def test_nothing_is_no_answer_either_where_the_terminal_cannot_be_reached(shop: Shop, tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_counters(Path(directory), 1) as (counter,):
            payment = await counter.in_doubt()
            await counter.terminal.unplug()
            answer = await payment.post("reconcile")
            assert (answer.json["last_search"]["result"], answer.json["phase"]) == ("no_answer", "in_doubt")
            known = (await counter.daemon.call("GET", f"/terminals/{payment.serial}")).json
            assert (known["reachable"], known["transaction"]) == (False, payment.identity)


async def test_none_is_said_by_an_empty_list_alone_and_proves_nothing_alone(shop: Shop) -> None:
    payment = await shop.in_doubt()
    shop.terminal.search = answering(200, b" [ ] \n")
    for _ in range(3):
        document = (await payment.post("reconcile")).json
        assert document["last_search"]["result"] == "none"
        assert (document["phase"], document["outcome"]) == ("in_doubt", None)
        assert attention(document) == {"in_doubt"}
    assert [item["result"] for item in await payment.history() if item["kind"] == "search"] == ["none"]
    assert document["last_search"]["at"] > document["updated_at"]


# What is an answer


@pytest.mark.quick(3)
@pytest.mark.parametrize("status", FINALS)
@pytest.mark.parametrize("phase", ["in_doubt", "active"])
async def test_a_final_that_search_finds_is_the_outcome(shop: Shop, status: str, phase: str) -> None:
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
async def test_a_state_that_search_finds_ends_the_doubt_and_not_the_payment(shop: Shop, status: str) -> None:
    payment = await shop.in_doubt()
    shop.terminal.search = knowing(element(payment, status))
    document = (await payment.post("reconcile")).json
    assert (document["phase"], document["status"], document["outcome"]) == ("active", status, None)
    assert (document["attention"], document["next_step"]) == ([], "wait")
    await payment.event("APPROVAL", "APPROVAL_REQUESTED")
    assert (await payment.get())["outcome"]["result"] == "approved"


#: How replies that hold our final, and more, can look.
SHAPES: dict[str, Any] = {
    "one object": lambda ours: ours,
    "a list": lambda ours: [ours],
    "among others": lambda ours: [OTHERS, ours, OTHERS | {"status": "DECLINED"}],
    "after an earlier state of it": lambda ours: [ours | {"status": "CARD_PRESENTED", "event_id": str(uuid4())}, ours],
    "before an earlier state of it": lambda ours: [ours, ours | {"status": "CARD_PRESENTED", "event_id": str(uuid4())}],
    "the id in upper case": lambda ours: [ours | {"client_transaction_id": ours["client_transaction_id"].upper()}],
    "beside what is no transaction": lambda ours: [None, 7, ours],
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_shapes_of_a_reply(shop: Shop, shape: str) -> None:
    payment = await shop.in_doubt()
    ours = element(payment, "APPROVAL")
    shop.terminal.search = answering(200, json.dumps(SHAPES[shape](ours)).encode())
    document = (await payment.post("reconcile")).json
    assert (document["last_search"]["result"], document["attention"]) == ("found", [])
    assert document["outcome"]["transaction_reference"] == ours["raw_response"]["transaction_reference"]


async def test_our_payment_in_a_form_that_cannot_be_used_is_for_a_person(shop: Shop) -> None:
    payment = await shop.in_doubt()
    shop.terminal.search = answering(200, {"client_transaction_id": payment.identity, "state": "PAID"})
    document = (await payment.post("reconcile")).json
    assert (document["phase"], document["last_search"]["result"]) == ("in_doubt", "no_answer")
    assert attention(document) == {"in_doubt", "quarantined_event"}


#: Another method, another path, the transactions deep in the reply, and events of one merchant alone.
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


async def test_another_method_path_and_place_and_the_merchant_by_configuration() -> None:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_counters(Path(directory), 1, ELSEWHERE) as (counter,):
            payment = await counter.in_doubt()
            ours = element(payment, "APPROVAL")
            replies: list[tuple[Any, str]] = [
                ([ours], "no_answer"),
                ({"data": None}, "no_answer"),
                ({"data": {"it/em~s": None}}, "no_answer"),
                ({"data": {}}, "no_answer"),
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
            # What bore our id and was not ours is for a person to see.
            assert attention(document) == {"quarantined_event", "serial_mismatch", "damaged_event"}
            assert {(item.method, item.path, item.body) for item in counter.terminal.searches} == {
                ("GET", f"/v2/{payment.identity}/transaction_search_online", b"")
            }


# Search and webhook


@pytest.mark.quick(2)
@pytest.mark.parametrize("status", ["APPROVAL", "TERMINAL_CANCELED"])
@pytest.mark.parametrize("order", ["event, search", "search, event", "event while searching"])
async def test_search_and_event_in_any_order_make_the_same_outcome(shop: Shop, status: str, order: str) -> None:
    payment = await shop.in_doubt()
    way = APPROVED[:3] if status in ("APPROVAL", "DECLINED") else APPROVED[:2]
    for item in way:
        assert await payment.event(*item) == 200
    final = element(payment, status, way[-1][0])
    content = json.dumps(final).encode()
    shop.terminal.search = script = held(knowing(final))
    reconciling = None
    if order != "event, search":
        reconciling = asyncio.create_task(payment.post("reconcile"))
        await script.arrived.wait()
    if order == "search, event":
        script.release.set()
        assert (await reconciling).json["outcome"]["evidence"][0]["kind"] == "search"
    assert await payment.deliver(content) == 200
    if order != "search, event":
        assert (await payment.get())["outcome"]["evidence"][0]["kind"] == "event"
        script.release.set()
    document = (await (reconciling or asyncio.create_task(payment.post("reconcile")))).json
    if order == "search, event":
        document = await payment.get()
    outcome = document["outcome"]
    assert (document["phase"], outcome["result"], document["attention"]) == ("final", RESULTS[status], [])
    assert {item["kind"] for item in outcome["evidence"]} == {"event", "search"}
    assert {item["event_id"] for item in outcome["evidence"]} == {final["event_id"]}
    assert json.loads(json.dumps(outcome["final_event"], default=float)) == final
    assert outcome["transaction_reference"] == final.get("raw_response", {}).get("transaction_reference")
    assert outcome["supersedes"] is None
    listed = (await shop.daemon.call("GET", f"/transactions/{payment.identity}/events")).json["events"]
    assert [item["event"]["status"] for item in listed] == [*(name for name, _ in way), status]


@pytest.mark.parametrize("stale", ["TERMINAL_ACKNOWLEDGED", "APPROVAL_REQUESTED", "none"])
async def test_a_search_that_is_behind_the_events_changes_nothing(shop: Shop, stale: str) -> None:
    payment = await shop.started()
    answer = answering(200, b"[]") if stale == "none" else knowing(element(payment, stale))
    shop.terminal.search = script = held(answer)
    reconciling = asyncio.create_task(payment.post("reconcile"))
    await script.arrived.wait()
    for status, previous in APPROVED:
        assert await payment.event(status, previous) == 200
    before = await payment.get()
    script.release.set()
    after = (await reconciling).json
    assert after == before | {"last_search": after["last_search"]}
    assert after["outcome"]["result"] == "approved"


async def reconciling_by(payment: Payment) -> Connection:
    """Ask for a search on a connection of its own, and do not wait for the answer."""
    reader, writer = await asyncio.open_unix_connection(str(payment.shop.daemon.till_socket))
    writer.write(f"POST /v1/transactions/{payment.identity}/reconcile HTTP/1.1\r\nhost: posd\r\n\r\n".encode())
    return Connection(reader, writer)


async def test_one_search_answers_all_who_ask_meanwhile(shop: Shop) -> None:
    payment = await shop.in_doubt()
    shop.terminal.search = script = held(knowing(element(payment, "DECLINED")))
    asking = [await reconciling_by(payment)]
    await script.arrived.wait()
    asking += [await reconciling_by(payment) for _ in range(3)]
    for _ in range(5):
        assert (await payment.get())["phase"] == "in_doubt"  # each of these comes after the calls above
    script.release.set()
    for connection in asking:
        status, document = await connection.reply()
        assert (status, document["outcome"]["result"]) == (200, "declined")
        connection.hang_up()
    assert len(payment.searches) == 1


async def test_a_till_that_hangs_up_while_posd_asks_changes_nothing(shop: Shop) -> None:
    payment = await shop.in_doubt()
    shop.terminal.search = script = held(knowing(element(payment, "APPROVAL")))
    till = await reconciling_by(payment)
    await script.arrived.wait()
    till.hang_up()
    script.release.set()
    assert (await shop.daemon.outcome(payment.identity))["result"] == "approved"


# Ends of a doubt

#: Answers to a start after which it is not known whether it runs.
DOUBTS: dict[str, Script] = {
    "no reply": hanging_up,
    "500": answering(500),
    "503": answering(503),
    "408": answering(408),
    "HTML": answering(200, b"<html></html>"),
    "half an acknowledgement": answering(200, b'{"status": "TERMINAL_ACKN'),
    "another status": answering(200, {"status": "APPROVAL"}),
}


async def acknowledging_another(request: Request, writer: asyncio.StreamWriter) -> None:
    """Acknowledge another payment."""
    other = {"type": "charge", "client_transaction_id": str(uuid4())}
    writer.write(http(200, acknowledgement(request, "SN", operation=other)))


DOUBTS["another's acknowledgement"] = acknowledging_another


@pytest.mark.quick(5)
@pytest.mark.parametrize(("doubt", "end"), list(zip(DOUBTS, cycle(["event", "search", "operator"]), strict=False)))
async def test_a_doubt_ends_by_a_proof(shop: Shop, doubt: str, end: str) -> None:
    payment = shop.payment()
    shop.terminal.start = DOUBTS[doubt]
    document = (await payment.put()).json
    assert (document["phase"], document["next_step"]) == ("in_doubt", "wait")
    assert attention(document) == {"in_doubt"}
    assert document["abortable"]
    if end == "event":
        assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
        assert await payment.event("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED") == 200
    elif end == "search":
        shop.terminal.search = knowing(element(payment, "TERMINAL_CANCELED"))
        assert (await payment.post("reconcile")).status == 200
    else:
        word = {"result": "canceled", "operator": "Ana", "note": "the display says so"}
        assert (await payment.post("resolve", word, admin=True)).status == 200
    document = await payment.get()
    assert (document["phase"], document["outcome"]["result"], document["attention"]) == ("final", "canceled", [])
    assert [item["kind"] for item in document["outcome"]["evidence"]] == [end]
    assert document["next_step"] == "new_id_ok"
    shop.terminal.start = acknowledging(payment.serial)
    following = Payment(shop, str(uuid4()), payment.serial)
    assert (await following.put()).status == 201
