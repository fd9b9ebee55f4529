"""Damaged bodies and requests. posd reads the usable parts, and records the unreadable parts."""

import asyncio
import json
import re
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.rig.events import body, event
from tests.rig.prints import SILENT, Printer
from tests.rig.shop import Payment, Shop, knowing
from tests.rig.tables import every
from tests.rig.webhooks import answer_to, attention, disk, quarantined, recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]
#: Number of terminals in the quick suite.
TERMINALS = 40


def reference(payment: Payment) -> str:
    """Return a unique reference of the acquirer for a payment."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, payment.identity))


def approval(payment: Payment, **changes: Any) -> dict[str, Any]:
    """Return the approval of a payment."""
    given = event(payment.identity, "APPROVAL", "APPROVAL_REQUESTED", payment.serial, **changes)
    given["raw_response"]["transaction_reference"] = reference(payment)
    given["raw_response"]["card_data"] = {"bank": "Banco del Pacifico"}
    return given


async def asked(shop: Shop) -> Payment:
    """Return a payment with all events except the last."""
    payment = await shop.started()
    await payment.approve(3)
    return payment


def without(*names: str) -> Callable[[bytes], bytes]:
    """Return a function that removes members from an event."""
    return lambda body: json.dumps(
        {name: value for name, value in json.loads(body).items() if name not in names}
    ).encode()


def put(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return a function that replaces a part of an event."""

    def damage(body: bytes) -> bytes:
        assert body.count(old) == 1
        return body.replace(old, new)

    return damage


#: Damaged part -> the damage, and the text of the attention.
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a byte of a name is not UTF-8": (put(b"Banco", b"B\xe1nco"), "raw_response.card_data.bank"),
    "NaN": (put(b"11.2,", b"NaN,"), "raw_response.authorized_amount"),
    "no client_transaction_id": (without("client_transaction_id"), "client_transaction_id"),
    "a byte order mark": (lambda body: b"\xef\xbb\xbf" + body, "text around the document"),
}


@every("damage", DAMAGES)
async def test_a_damaged_approval_counts_as_an_approval(shop: Shop, damage: str) -> None:
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
    # The event's bytes stay unchanged, and every response that shows the event is JSON.
    assert recorded(shop.daemon, payment.identity)[-1] == ("applied", body)
    assert quarantined(shop.daemon, payment.identity) == []
    assert outcome["final_event"]["raw_response"]["transaction_reference"] == reference(payment)
    listed = (await shop.daemon.call("GET", f"/transactions/{payment.identity}/events")).json["events"]
    assert listed[-1]["event"] == outcome["final_event"] == (await shop.daemon.outcome(payment.identity))["final_event"]
    # A repeated delivery adds nothing.
    assert await payment.deliver(body) == 200
    assert len(recorded(shop.daemon, payment.identity)) == 4


async def test_a_damaged_final_is_completed_by_one_search(shop: Shop) -> None:
    payment = await asked(shop)
    whole = approval(payment)
    shop.terminal.search = knowing(whole)
    body = json.dumps(whole).encode().replace(reference(payment).encode(), reference(payment)[:-1].encode() + b"\xff")
    assert await payment.deliver(body) == 200
    document = await payment.until(lambda it: it["outcome"] and it["outcome"]["transaction_reference"])
    assert document["outcome"]["result"] == "approved"
    assert document["outcome"]["transaction_reference"] == reference(payment)
    assert attention(document) == {"damaged_event"}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda body: body[:-1], id="cut off"),
        pytest.param(put(b'"APPROVAL"', b'"APPR\xffVAL"'), id="a byte of the status is damaged"),
        pytest.param(put(b'"APPROVAL"', b'"APPROWAL"'), id="a letter of the status is wrong"),
        pytest.param(put(b'"status": ', b'"status" '), id="a colon is missing"),
    ],
)
async def test_an_unreadable_event_is_kept_and_causes_a_search(shop: Shop, spoil: Callable[[bytes], bytes]) -> None:
    """The configured silence is an hour, so it causes no search."""
    payment = await asked(shop)
    whole = approval(payment)
    shop.terminal.search = knowing(whole)
    body = spoil(json.dumps(whole).encode())
    status = await payment.deliver(body)
    kept = [content for _, content in quarantined(shop.daemon, payment.identity)]
    kept += [content for verdict, content in recorded(shop.daemon, payment.identity) if verdict == "unknown_status"]
    assert (status in (200, 400), kept) == (True, [body])
    document = await payment.until(lambda it: it["phase"] == "final")
    assert document["outcome"]["result"] == "approved"
    assert document["outcome"]["transaction_reference"] == reference(payment)


async def test_an_event_that_an_earlier_version_quarantined_is_applied_by_reprocessing(shop: Shop) -> None:
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


#: Interval of polls for the fixture `printer`. The interval is so long that only a lost webhook causes a poll.
POLLING = SILENT


ACK = "TERMINAL_ACKNOWLEDGED"


def request(target: str, content: bytes, *, line: str = "POST {} HTTP/1.1", fields: str = "host: posd\r\n") -> bytes:
    """Return the bytes of a request. `line` and `fields` may break HTTP."""
    head = f"{line.format(target)}\r\n{fields}content-length: {len(content)}\r\nconnection: close\r\n\r\n"
    return head.encode("latin-1") + content


def path(payment: Payment) -> str:
    """Return the path of the payment's callback URL."""
    return urlsplit(payment.requests[0].callback).path


@pytest.mark.parametrize("authority", ["https://localhost", "http://192.0.2.7:1", "HTTPS://user@other.example:99999"])
async def test_a_target_in_absolute_form_is_accepted_with_any_authority(shop: Shop, authority: str) -> None:
    payment = await shop.started()
    content = body(payment.identity, "TERMINAL_CANCELED", ACK, payment.serial)
    answer = await answer_to(shop.daemon, request(f"{authority}{path(payment)}?retry=1", content))
    assert answer.status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]


async def test_a_till_may_use_a_target_in_absolute_form_too(shop: Shop) -> None:
    reader, writer = await asyncio.open_unix_connection(str(shop.daemon.till_socket))
    writer.write(b"GET http://stranger.example/v1/version HTTP/1.1\r\nhost: posd\r\nconnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


#: Invalid HTTP request with the right path and token -> status of the reply, and kind of refusal in the metrics.
#: tests/web/test_requests.py has more faults.
BROKEN: dict[str, tuple[dict[str, Any], int, str]] = {
    "a space in a name": ({"fields": "host: posd\r\nx y: z\r\n"}, 400, "malformed_request"),
    "no Host": ({"fields": ""}, 400, "malformed_request"),
    "a method in small letters": ({"line": "post {} HTTP/1.1"}, 400, "malformed_request"),
    "a broken chunk": ({"fields": "host: posd\r\ntransfer-encoding: chunked\r\n"}, 400, "malformed_request"),
    "an unsupported coding": ({"fields": "host: posd\r\ntransfer-encoding: gzip\r\n"}, 501, "unsupported_request"),
    "a header of 20 KiB": ({"fields": f"host: posd\r\nx: {'y' * 20_000}\r\n"}, 431, "large_head"),
}


async def count(shop: Shop, kind: str) -> int:
    """Return how many requests of a kind the listener has refused."""
    found = re.search(rf'^posd_listener_noise_total{{kind="{kind}"}} (\d+)', await shop.daemon.metrics(), re.MULTILINE)
    return int(found[1]) if found else 0


@every("name", BROKEN)
async def test_a_refused_request_is_counted_and_causes_a_search(shop: Shop, name: str) -> None:
    broken, status, kind = BROKEN[name]
    payment = await shop.started()
    before = await count(shop, kind)
    searches = len(payment.searches)
    content = b"zz\r\n" if name == "a broken chunk" else body(payment.identity, "APPROVAL", ACK, payment.serial)
    answer = await answer_to(shop.daemon, request(path(payment), content, **broken))
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert await count(shop, kind) == before + 1
    document = await payment.get()
    assert (document["phase"], attention(document)) == ("active", {"quarantined_event"})
    await payment.searched(searches + 1)
    line = await shop.daemon.log_line("webhook.unreadable", transaction=payment.identity)
    assert (line["peer"], path(payment).rsplit("/", 1)[1] in json.dumps(shop.daemon.lines)) == ("127.0.0.1", False)


async def test_a_repeatedly_refused_request_is_recorded_once(shop: Shop) -> None:
    payment = await shop.started()

    def changes() -> int:
        with disk(shop.daemon) as db:
            return int(
                db.execute(
                    "SELECT count(*) FROM journal WHERE client_transaction_id = ?", (payment.identity,)
                ).fetchone()[0]
            )

    sent = [request(path(payment), b"", fields=fields) for fields in ("", "transfer-encoding: gzip\r\nhost: a\r\n")]
    assert [(await answer_to(shop.daemon, one)).status for one in sent] == [400, 501]
    before = changes()
    assert {(await answer_to(shop.daemon, one)).status for one in sent * 3} == {400, 501}
    assert changes() <= before + 1  # one search may have changed the database in between


async def test_an_invalid_request_of_a_stranger_is_only_counted(shop: Shop) -> None:
    before = await count(shop, "malformed_request")
    answer = await answer_to(shop.daemon, request("/webhooks/transactions/x/y", b"", fields=""))
    assert (answer.status, await count(shop, "malformed_request")) == (400, before + 1)


async def test_a_refused_print_webhook_is_followed_by_a_poll(printer: Printer) -> None:
    job = await printer.job().started()
    polls = len(job.polls)
    answer = await answer_to(printer.daemon, request(job.address, b"{}", fields="host : posd\r\n"))
    assert answer.status == 400
    await job.polled(polls + 1)
