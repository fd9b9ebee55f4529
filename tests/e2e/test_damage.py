"""An approval is not lost to one bad byte (design 13.5): what is needed of it is read, the rest is said."""

import json
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.support.events import APPROVED, event
from tests.support.shop import Payment, Shop, knowing
from tests.support.webhooks import attention, quarantined, recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]


def reference(payment: Payment) -> str:
    """Return the acquirer's reference of a payment: no other bears it."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, payment.identity))


def approval(payment: Payment, **changes: Any) -> dict[str, Any]:
    """Return the approval of a payment."""
    given = event(payment.identity, "APPROVAL", "APPROVAL_REQUESTED", payment.serial, **changes)
    given["raw_response"]["transaction_reference"] = reference(payment)
    given["raw_response"]["card_data"] = {"bank": "Banco del Pacifico"}
    return given


async def asked(shop: Shop) -> Payment:
    """Return a payment of which everything but the end has come."""
    payment = await shop.started()
    for item in APPROVED[:3]:
        assert await payment.event(*item) == 200
    return payment


def without(*names: str) -> Callable[[bytes], bytes]:
    """Return what removes members from an event."""
    return lambda body: json.dumps(
        {name: value for name, value in json.loads(body).items() if name not in names}
    ).encode()


def put(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return what replaces a part of an event."""

    def damage(body: bytes) -> bytes:
        assert body.count(old) == 1
        return body.replace(old, new)

    return damage


#: What is damaged -> how, and what the attention names.
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a byte of a name is no UTF-8": (put(b"Banco", b"B\xe1nco"), "raw_response.card_data.bank"),
    "NaN": (put(b"11.2,", b"NaN,"), "raw_response.authorized_amount"),
    "two ticket numbers": (put(b'"000123"', b'"000123", "ticket_number": "7"'), "raw_response.ticket_number"),
    "no client_transaction_id": (without("client_transaction_id"), "client_transaction_id"),
    "no terminal": (without("terminal"), "terminal.serial_number"),
    "a byte order mark": (lambda body: b"\xef\xbb\xbf" + body, "what stands around it"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_approval_is_an_approval(shop: Shop, damage: str) -> None:
    payment = await asked(shop)
    spoil, place = DAMAGES[damage]
    body = spoil(json.dumps(approval(payment)).encode())
    assert await payment.deliver(body) == 200
    document = await payment.get()
    outcome = document["outcome"]
    assert (outcome["result"], outcome["transaction_reference"]) == ("approved", reference(payment))
    assert document["next_step"] == "done"
    (said,) = (item for item in document["attention"] if item["code"] == "damaged_event")
    assert place in said["detail"]
    # Its bytes stay as they came, and every answer that shows them is JSON.
    assert recorded(shop.daemon, payment.identity)[-1] == ("applied", body)
    assert quarantined(shop.daemon, payment.identity) == []
    assert outcome["final_event"]["raw_response"]["transaction_reference"] == reference(payment)
    listed = (await shop.daemon.call("GET", f"/transactions/{payment.identity}/events")).json["events"]
    assert listed[-1]["event"] == outcome["final_event"] == (await shop.daemon.outcome(payment.identity))["final_event"]
    # The terminal sends it again: nothing new.
    assert await payment.deliver(body) == 200
    assert len(recorded(shop.daemon, payment.identity)) == 4


async def test_a_damaged_final_is_asked_for_once_and_completed_by_the_answer(shop: Shop) -> None:
    payment = await asked(shop)
    whole = approval(payment)
    shop.terminal.search = knowing(whole)
    body = json.dumps(whole).encode().replace(reference(payment).encode(), reference(payment)[:-1].encode() + b"\xff")
    assert await payment.deliver(body) == 200
    document = await payment.until(lambda it: it["outcome"] and it["outcome"]["transaction_reference"])
    assert (document["outcome"]["result"], document["outcome"]["transaction_reference"]) == (
        "approved",
        reference(payment),
    )
    assert attention(document) == {"damaged_event"}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda body: body[:-1], id="cut off"),
        pytest.param(put(b'"APPROVAL"', b'"APPR\xffVAL"'), id="a byte of the status is damaged"),
        pytest.param(put(b'"APPROVAL"', b'"APPROWAL"'), id="a letter of the status is another one"),
        pytest.param(put(b'"status": ', b'"status" '), id="a colon is missing"),
    ],
)
async def test_what_cannot_be_read_is_kept_and_asked_for_at_once(shop: Shop, spoil: Callable[[bytes], bytes]) -> None:
    """The silence after which posd would ask is an hour here."""
    payment = await asked(shop)
    whole = approval(payment)
    shop.terminal.search = knowing(whole)
    body = spoil(json.dumps(whole).encode())
    status = await payment.deliver(body)
    kept = [content for _, content in quarantined(shop.daemon, payment.identity)]
    kept += [content for verdict, content in recorded(shop.daemon, payment.identity) if verdict == "unknown_status"]
    assert (status in (200, 400), kept) == (True, [body])
    document = await payment.until(lambda it: it["phase"] == "final")
    assert (document["outcome"]["result"], document["outcome"]["transaction_reference"]) == (
        "approved",
        reference(payment),
    )


async def test_a_damaged_answer_of_a_search_ends_a_payment(shop: Shop) -> None:
    payment = await shop.in_doubt()
    found = json.dumps([approval(payment)]).encode().replace(b"VISA", b"VI\xffA")

    async def damaged(request: Any, writer: Any) -> None:
        assert request.json["client_transaction_id"] == payment.identity
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n" % len(found) + found)

    shop.terminal.search = damaged
    document = (await payment.post("reconcile")).json
    assert (document["outcome"]["result"], document["outcome"]["transaction_reference"]) == (
        "approved",
        reference(payment),
    )
    assert "damaged_event" in attention(document)


async def test_what_an_earlier_version_quarantined_is_applied_by_reprocessing(shop: Shop) -> None:
    payment = await asked(shop)
    body = json.dumps(approval(payment)).encode().replace(b"VISA", b"VI\xffA")
    row = ("2026-11-20T10:42:03.120Z", "transactions", payment.identity, "it is not UTF-8", "127.0.0.1", body)
    with closing(sqlite3.connect(shop.daemon.database, timeout=30)) as db, db:
        insert = "INSERT INTO quarantine (received_at, channel, subject, reason, peer, body) VALUES (?,?,?,?,?,?)"
        db.execute(insert, row)
    report = (await shop.daemon.call("POST", "/reprocess", socket=shop.daemon.admin_socket)).json
    assert [item["client_transaction_id"] for item in report["applied"]] == [payment.identity]
    document = await payment.get()
    assert (document["outcome"]["result"], attention(document)) == ("approved", {"damaged_event"})
    assert quarantined(shop.daemon, payment.identity) == []
