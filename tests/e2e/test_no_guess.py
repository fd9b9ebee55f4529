"""posd concludes nothing without proof. Earlier replies and replies about other payments are not a proof."""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.e2e.test_proof import NONE, NOTHING_RUNNING, pay_before, settings
from tests.rig.events import event
from tests.rig.shop import QUIET, Held, Payment, Shop, acknowledging, answering, hanging_up, knowing, open_counters
from tests.rig.terminal import Request

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Seconds in which posd would find a proof.
LONG_ENOUGH = 3.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counters() -> AsyncIterator[list[Shop]]:
    """Yield the terminals of a daemon that does not search by itself. Each test pops a terminal."""
    async with open_counters(8, QUIET) as counters:
        yield counters


@pytest.fixture
def counter(counters: list[Shop]) -> Shop:
    """Yield a terminal for one test."""
    return counters.pop()


@pytest.mark.slow
async def test_replies_during_the_start_are_not_part_of_the_proof() -> None:
    async with open_counters(1, settings(settle=1, probe=False)) as [counter]:
        known = await pay_before(counter)
        payment = counter.payment()
        counter.terminal.start = script = Held(hanging_up)
        counter.terminal.search = knowing(known, otherwise=NONE)
        counter.terminal.abort = NOTHING_RUNNING
        starting = asyncio.create_task(payment.put())
        await script.arrived.wait()
        assert (await payment.post("abort")).json["code"] == "nothing_running"
        script.release.set()
        assert (await starting).json["phase"] == "in_doubt"
        counter.terminal.search = answering(503)
        await payment.post("abort")
        assert await counter.daemon.outcome(payment.identity, LONG_ENOUGH) is None


async def test_an_invalid_reply_of_a_terminal_is_not_logged(counter: Shop) -> None:
    payment = counter.payment()

    async def headless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(request.body + b"\r\n\r\n")

    counter.terminal.start = headless
    reply = await payment.put(metadata={"customer_email": "ana@example.org"})
    assert reply.json["phase"] == "in_doubt"
    await counter.daemon.log_line("payment.answered", transaction=payment.identity)
    token = payment.requests[0].callback.rsplit("/", 1)[1]
    told = json.dumps(counter.daemon.lines) + json.dumps(reply.json["attention"])
    assert "ana@example.org" not in told
    assert token not in told


async def test_an_end_out_of_sequence_during_a_search_causes_another_search(counter: Shop) -> None:
    payment = await counter.started()
    await payment.approve(3)
    slow = Held(knowing(event(payment.identity, "APPROVAL_REQUESTED", "CARD_PRESENTED", payment.serial)))
    counter.terminal.search = slow
    asking = asyncio.create_task(payment.post("reconcile"))
    await slow.arrived.wait()
    assert await payment.event("TERMINAL_CANCELED", "APPROVAL_REQUESTED") == 200
    counter.terminal.search = knowing(event(payment.identity, "APPROVAL", "APPROVAL_REQUESTED", payment.serial))
    slow.release.set()
    await asking
    document = await counter.daemon.wait_for(
        payment.identity, lambda it: "conflicting_final" in {item["code"] for item in it["attention"]}
    )
    assert (document["outcome"]["result"], document["next_step"]) == ("canceled", "ask_person")


async def test_a_refused_payment_that_reports_an_event_gets_its_lease_again(counter: Shop) -> None:
    payment = counter.payment()
    counter.terminal.start = answering(409, b"busy")
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
    shown = (await counter.daemon.call("GET", f"/terminals/{payment.serial}")).json
    assert shown["transaction"] == payment.identity
    other = Payment(counter, str(uuid4()), payment.serial)
    counter.terminal.start = acknowledging(payment.serial)
    assert (await other.put()).json["code"] == "terminal_busy"
