"""Every row of the reply table, tested by raw HTTPS: the reply and the stored data."""

import asyncio
import json
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from posd.httpd.admission import PLACES_OF_KNOWN
from tests.e2e.conftest import CHARGE
from tests.rig.daemon import Daemon
from tests.rig.events import APPROVED, body
from tests.rig.https import connect, post, status_of
from tests.rig.shop import Payment, Shop, answering, quiet
from tests.rig.streams import Reply
from tests.rig.tables import every, there
from tests.rig.terminal import Script, ScriptedTerminal
from tests.rig.webhooks import address, attention, chunked, deliver, everything, faults, parse, quarantined, recorded

pytestmark = pytest.mark.asyncio(loop_scope="module")
#: Number of terminals in the quick suite.
TERMINALS = 50

ACK = "TERMINAL_ACKNOWLEDGED"


@pytest.fixture(scope="module", autouse=True)
def no_faults(shop: Shop) -> Iterator[None]:
    """Check after all these tests that the daemon's log has no internal fault."""
    yield
    assert faults(shop.daemon) == []


async def send(payment: Payment, content: bytes, **options: Any) -> Reply:
    """Deliver bytes to the payment's own callback URL."""
    return await deliver(payment.shop.daemon, payment.requests[0].callback, content, **options)


async def test_a_new_event_is_kept_verbatim_and_has_its_effect(shop: Shop) -> None:
    payment = await shop.started()
    content = b"  " + body(payment.identity, ACK, None, payment.serial).replace(b", ", b" ,\n")
    answer = await send(payment, content)
    assert (answer.status, answer.body) == (200, b"")
    assert "server" not in answer.headers, "a response to the LAN does not name the software"
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]
    document = await payment.get()
    assert (document["phase"], document["status"], document["attention"]) == ("active", ACK, [])
    in_pieces = body(payment.identity, "CARD_PRESENTED", ACK, payment.serial)
    assert (await send(payment, chunked(in_pieces, 7), headers="transfer-encoding: chunked\r\n")).status == 200
    assert recorded(shop.daemon, payment.identity)[1:] == [("applied", in_pieces)]


async def test_the_same_event_again_adds_nothing_even_with_other_formatting(shop: Shop) -> None:
    payment = await shop.started()
    content = body(payment.identity, ACK, None, payment.serial, extra={"size": "y" * 20_000})
    anew = [content, *(json.dumps(json.loads(content) | {"attempt": n}, sort_keys=True).encode() for n in range(2))]
    assert (await send(payment, content)).status == 200
    before = everything(shop.daemon)
    assert [(await send(payment, other)).status for other in anew] == [200, 200, 200]
    assert everything(shop.daemon) == before
    assert attention(await payment.get()) == set()


async def test_an_event_id_is_unique_only_within_its_transaction(shop: Shop) -> None:
    for payment in (await shop.started(), await shop.started()):
        content = body(payment.identity, ACK, None, payment.serial, event_id="the-same")
        assert (await send(payment, content)).status == 200
        assert recorded(shop.daemon, payment.identity) == [("applied", content)]
        assert attention(await payment.get()) == set()


async def test_an_event_after_the_final_is_kept_and_does_not_change_the_outcome(shop: Shop) -> None:
    payment = await shop.started()
    final = body(payment.identity, "TERMINAL_CANCELED", ACK, payment.serial)
    late = body(payment.identity, ACK, None, payment.serial)
    assert [(await send(payment, content)).status for content in (final, late)] == [200, 200]
    assert recorded(shop.daemon, payment.identity) == [("applied", final), ("after_final", late)]
    assert (await payment.get())["outcome"]["final_event"] == json.loads(final)


async def test_an_event_of_an_unknown_transaction_rebuilds_the_transaction(shop: Shop) -> None:
    payment = shop.payment()
    content = body(payment.identity, "CARD_PRESENTED", ACK, payment.serial)
    assert (await deliver(shop.daemon, address(shop.daemon, payment.identity), content)).status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]
    document = await payment.get()
    assert (document["phase"], document["terminal"]) == ("active", payment.serial)
    assert document["status"] == "CARD_PRESENTED"
    assert "orphan" in attention(document)
    repeated = await payment.put()
    assert (repeated.status, repeated.json["phase"]) == (200, "active")
    assert payment.requests == []
    final = body(payment.identity, "APPROVAL", "APPROVAL_REQUESTED", payment.serial)
    assert (await deliver(shop.daemon, address(shop.daemon, payment.identity), final)).status == 200
    assert (await payment.get())["outcome"]["result"] == "approved"


async def test_a_terminal_outside_the_fleet_that_runs_a_payment_gets_no_second_payment(shop: Shop) -> None:
    """The acknowledgement has no serial, so posd detects the other device by the first event."""
    payment = shop.payment()
    shop.terminal.start = answering(202, {"status": ACK, "previous_status": ""})
    assert (await payment.put()).json["attention"] == []
    assert (await send(payment, body(payment.identity, "APPROVAL", ACK, "SN-FOREIGN"))).status == 403
    document = await payment.get()
    assert (document["phase"], document["outcome"]) == ("active", None)
    (said,) = (item["detail"] for item in document["attention"] if item["code"] == "serial_mismatch")
    how = "SN-FOREIGN, another device, has the payment (an event of it arrived from there)"
    assert said == f"terminal {payment.serial} was asked, but {how}"
    assert (await payment.post("abort")).json["code"] == "not_abortable"
    await payment.post("release", {"operator": "Ana", "note": "it runs elsewhere"})
    reply = await shop.daemon.call(
        "PUT", f"/transactions/{uuid4()}", {"terminal": payment.serial, "amount": {"subtotal_iva0": 5}}
    )
    assert (reply.status, reply.json["code"]) == (503, "identity_conflict")
    assert "says that it is terminal SN-FOREIGN" in reply.json["detail"]
    assert len(payment.requests) == 1


@pytest.mark.parametrize("name", ["serial_number", "serialNumber"])
async def test_an_error_that_names_another_serial_blocks_further_starts(shop: Shop, name: str) -> None:
    """posd detects the other device before a payment runs there. The right device ends the conflict."""
    payment = await shop.started()

    def error(serial: str) -> Script:
        said = {"type": "NOT_FOUND", "code": "NF-001", "message": "", "object": {name: serial}}
        return answering(404, said)

    async def conflict() -> bool:
        known = (await shop.daemon.call("GET", f"/terminals/{payment.serial}")).json
        return bool(known["identity"]["conflict"])

    shop.terminal.search = error("SN-NEW")
    await payment.post("reconcile")
    assert await conflict()
    assert attention(await payment.get()) == set()  # the payment may have run on the earlier device
    await payment.post("release", {"operator": "Ana", "note": "another terminal is there"})
    request = {"terminal": payment.serial, "amount": {"subtotal_iva0": 5}}
    reply = await shop.daemon.call("PUT", f"/transactions/{uuid4()}", request)
    assert (reply.status, reply.json["code"]) == (503, "identity_conflict")
    assert "says that it is terminal SN-NEW" in reply.json["detail"]
    shop.terminal.search = error(payment.serial)
    await payment.post("reconcile")
    assert not await conflict()


REFUSED: dict[str, tuple[Callable[[Payment], bytes], int, str]] = {
    "not JSON": (lambda _: b"<html>ACK</html>", 400, "not JSON"),
    "another id": (lambda payment: body(str(uuid4()), ACK, None, payment.serial), 400, "client_transaction_id"),
    "foreign serial": (lambda payment: body(payment.identity, ACK, None, "SN-FOREIGN"), 403, "not in the fleet"),
}


@every("case", REFUSED)
async def test_an_unusable_event_is_refused_permanently_and_kept(shop: Shop, case: str) -> None:
    make, status, reason = REFUSED[case]
    payment = await shop.started()
    content = make(payment)
    assert [(await send(payment, content)).status for _ in range(2)] == [status, status]
    ((why, kept),) = quarantined(shop.daemon, payment.identity)
    assert (reason in why, kept) == (True, content)
    assert recorded(shop.daemon, payment.identity) == []
    document = await payment.get()
    assert (document["phase"], document["status"]) == ("active", ACK)
    assert attention(document) == {"quarantined_event"} | ({"serial_mismatch"} if status == 403 else set())


@pytest.mark.parametrize("way", ["content-length", "chunked"])
async def test_a_body_over_the_limit_is_recorded(shop: Shop, way: str) -> None:
    payment = await shop.started()
    content = body(payment.identity, "TERMINAL_CANCELED", ACK, payment.serial, extra="x" * 65_536)
    if way == "content-length":
        answer = await send(payment, content)
    else:
        answer = await send(payment, chunked(content), headers="transfer-encoding: chunked\r\n")
    assert answer.status == 413
    assert recorded(shop.daemon, payment.identity) == quarantined(shop.daemon, payment.identity) == []
    document = await payment.get()
    assert (document["phase"], attention(document)) == ("active", {"quarantined_event"})
    (item,) = document["attention"]
    assert "65536 bytes" in item["detail"]


async def test_another_http_method_is_refused(shop: Shop) -> None:
    payment = await shop.started()
    await quiet(shop.daemon)
    before = everything(shop.daemon)
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"):
        answer = await send(payment, body(payment.identity, ACK, None, payment.serial), method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "POST"), method
    assert everything(shop.daemon) == before


@pytest.mark.slow
async def test_with_a_locked_database_the_reply_is_503_and_the_next_delivery_is_accepted(shop: Shop) -> None:
    payment, large = await shop.started(), await shop.started()
    content = body(payment.identity, "TERMINAL_CANCELED", ACK, payment.serial)
    with closing(sqlite3.connect(shop.daemon.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answers = await asyncio.gather(send(payment, content), send(payment, b"<html>"), send(large, b" " * 65_537))
        assert [answer.status for answer in answers] == [503, 503, 503]
        assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
    assert recorded(shop.daemon, payment.identity) == quarantined(shop.daemon, payment.identity) == []
    assert (await send(payment, content)).status == 200
    assert (await send(large, b" " * 65_537)).status == 413
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]
    assert (await payment.get())["phase"] == "final"
    assert attention(await large.get()) == {"quarantined_event"}


async def test_the_200_comes_after_the_commit(shop: Shop) -> None:
    payment = await shop.started()
    content = body(payment.identity, "TERMINAL_CANCELED", ACK, payment.serial)
    with closing(sqlite3.connect(shop.daemon.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        delivery = asyncio.create_task(send(payment, content))
        for _ in range(20):  # posd serves other callers at the same time
            assert (await deliver(shop.daemon, "/webhooks/nobody")).status == 403
        assert not delivery.done()
        assert recorded(shop.daemon, payment.identity) == []
        other.execute("ROLLBACK")
    assert (await delivery).status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]


async def test_an_unusable_event_of_an_unknown_transaction_creates_no_transaction(shop: Shop) -> None:
    payment = shop.payment()
    answer = await deliver(shop.daemon, address(shop.daemon, payment.identity), b"junk")
    assert answer.status == 400
    assert [kept for _, kept in quarantined(shop.daemon, payment.identity)] == [b"junk"]
    assert (await shop.daemon.call("GET", f"/transactions/{payment.identity}")).status == 404


#: Number of simultaneous deliveries.
AT_ONCE = 30


async def test_simultaneous_copies_of_one_event_are_stored_once(shop: Shop) -> None:
    payment = await shop.started()
    content = body(payment.identity, "TERMINAL_CANCELED", ACK, payment.serial)
    answers = await asyncio.gather(*(send(payment, content) for _ in range(AT_ONCE)))
    assert {answer.status for answer in answers} == {200}
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]


async def test_repeated_events_use_no_budget_of_their_callback_url(shop: Shop) -> None:
    payment = await shop.started()
    content = body(payment.identity, ACK, None, payment.serial)
    assert (await send(payment, content)).status == 200
    await payment.end()
    for _ in range(8):
        answers = await asyncio.gather(*(send(payment, content) for _ in range(PLACES_OF_KNOWN // 2)))
        assert {answer.status for answer in answers} == {200}


async def test_all_events_of_a_burst_are_stored(shop: Shop) -> None:
    payment = await shop.started()
    contents = [body(payment.identity, "CARD_PRESENTED", ACK, payment.serial) for _ in range(AT_ONCE)]
    answers = await asyncio.gather(*(send(payment, content) for content in contents))
    assert {answer.status for answer in answers} == {200}
    assert sorted(kept for _, kept in recorded(shop.daemon, payment.identity)) == sorted(contents)


@pytest.mark.asyncio(loop_scope="function")
async def test_a_stop_finishes_current_requests_and_refuses_new_requests(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
    callback = terminal.requests[0].callback
    first, second = (body(identity, status, previous) for status, previous in APPROVED[:2])
    reader, writer = await connect(posd.port, posd.ca)
    data = post(callback, first)
    writer.write(data[:-1])
    await writer.drain()
    assert (await deliver(posd, "/webhooks/nobody")).status == 403  # posd is reading the request
    there(posd.process).send_signal(signal.SIGTERM)
    await posd.log_line("posd.stopping")
    writer.write(data[-1:])
    assert status_of(await reader.read()) == 200
    writer.close()
    assert await posd.ended() == 0
    with pytest.raises(OSError, match=r"refused|reset|Connect"):
        await deliver(posd, callback, second)
    await posd.start()
    assert (await deliver(posd, callback, second)).status == 200
    assert recorded(posd, identity) == [("applied", first), ("applied", second)]


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="function")
async def test_an_internal_fault_is_a_500_and_loses_nothing(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
    callback = terminal.requests[0].callback
    content = body(identity, "TERMINAL_CANCELED", ACK)
    with closing(sqlite3.connect(posd.database, isolation_level=None)) as other:
        other.execute("CREATE TRIGGER broken BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'broken'); END")
        reader, writer = await connect(posd.port, posd.ca)
        writer.write(post(callback, content))
        (answer,) = parse(await reader.readuntil(b"\r\n\r\n"))
        writer.close()
        assert (answer.status, answer.headers["retry-after"]) == (500, "2")
        assert (await posd.transaction(identity))["phase"] == "active"
        other.execute("DROP TRIGGER broken")
    await posd.log_line("posd.internal_error")
    (fault,) = faults(posd)
    assert (fault["event"], bool(fault["error_id"])) == ("posd.internal_error", True)
    assert callback.rsplit("/", 1)[1] not in json.dumps(fault)
    assert (await deliver(posd, callback, content)).status == 200
    assert recorded(posd, identity) == [("applied", content)]
    posd.lines.clear()  # the test caused this fault
