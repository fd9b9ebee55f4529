"""After a restart posd searches for every open payment, a few at a time. A stop waits for no search."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from posd.payments.reconcile import MAX_CALLS
from tests.rig.events import event
from tests.rig.shop import QUIET, Held, Shop, answering, knowing, nothing_to_correct, open_counters
from tests.rig.streams import Connection
from tests.rig.terminal import PATIENCE_SECONDS
from tests.rig.webhooks import attention, faults

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Limit of a stop in seconds. The promise is 3 seconds on an idle machine. A fault would delay the stop by 20 seconds
#: or more.
STOP_SECONDS = 12.0
#: A probe that times out on a busy machine would cause a search later. The time-out is therefore long.
PATIENT = "[terminal_defaults]\nconnect_timeout_seconds = 30\n"


@pytest_asyncio.fixture(loop_scope="module")
async def counter() -> AsyncIterator[Shop]:
    """Yield the terminal of a daemon for one test. The test can stop and restart the daemon."""
    async with open_counters(1, QUIET + PATIENT) as (counter,):
        yield counter
        await nothing_to_correct(counter.daemon)


@pytest.mark.asyncio(loop_scope="function")
async def test_after_a_restart_only_a_few_searches_run_at_once_and_an_operators_search_does_not_wait() -> None:
    async with open_counters(MAX_CALLS + 1, f"{PATIENT}reply_timeout_seconds = 600\n") as counters:
        posd, scripts = counters[0].daemon, [Held(answering(200, b"[]")) for _ in counters]
        payments = [await counter.in_doubt() for counter in counters]
        await posd.kill()
        for counter, script in zip(counters, scripts, strict=True):
            counter.terminal.search = script
        await posd.start()
        while len(waiting := [script for script in scripts if not script.arrived.is_set()]) > 1:
            assert (await posd.call("GET", "/health")).status == 200
        for _ in range(20):  # a search above the maximum would arrive during these calls
            assert (await posd.call("GET", "/health")).status == 200
        assert not waiting[0].arrived.is_set()
        asking = asyncio.create_task(payments[scripts.index(waiting[0])].post("reconcile"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await waiting[0].arrived.wait()
        for script in scripts:
            script.release.set()
        assert (await asking).json["last_search"]["result"] == "none"


async def test_an_unusual_final_causes_one_search_even_after_a_kill(counter: Shop) -> None:
    payment = await counter.started()
    await payment.approve(3)
    counter.terminal.search = script = Held(answering(200, b"[]"))
    assert await payment.event("TERMINAL_CANCELED", "APPROVAL_REQUESTED") == 200
    await script.arrived.wait()
    await counter.daemon.kill()
    counter.terminal.search = answering(200, b"[]")
    await counter.daemon.start()
    document = await payment.until(lambda it: it["last_search"])
    assert (attention(document), document["next_step"]) == ({"illegal_transition"}, "ask_person")
    assert len(payment.searches) == 2
    script.release.set()
    await counter.daemon.restart()
    assert (await payment.get())["last_search"] == document["last_search"]
    doubt = await counter.in_doubt()
    assert (await doubt.post("reconcile")).json["last_search"]["result"] == "no_answer"
    assert len(payment.searches) == 2


async def test_a_removed_terminal_with_an_open_payment_does_not_prevent_a_start(counter: Shop) -> None:
    posd = counter.daemon
    payment = await counter.started()
    assert await posd.stop() == 0
    posd.config = posd.config.replace('serial = "SN-0"', 'serial = "SN-NEW"')
    await posd.start()
    await posd.log_line("payment.search", transaction=payment.identity, result="no_answer")
    assert (await payment.post("reconcile")).json["last_search"]["result"] == "no_answer"
    assert payment.searches == []
    assert (await payment.post("abort")).json["code"] == "terminal_offline"
    await payment.approve()  # the payment started while the terminal was in the fleet
    assert (await payment.get())["outcome"]["result"] == "approved"


# A stop during a search.


async def test_a_stop_does_not_wait_for_a_search(counter: Shop) -> None:
    posd = counter.daemon
    payment = await counter.in_doubt()
    counter.terminal.search = script = Held(answering(200, b"[]"))
    reader, writer = await asyncio.open_unix_connection(str(posd.till_socket))
    writer.write(f"POST /v1/transactions/{payment.identity}/reconcile HTTP/1.1\r\nhost: posd\r\n\r\n".encode())
    till = Connection(reader, writer)
    await script.arrived.wait()
    loop = asyncio.get_running_loop()
    began = loop.time()
    code, (status, problem) = await asyncio.gather(posd.stop(signal.SIGTERM), till.reply())
    assert loop.time() - began < STOP_SECONDS
    till.hang_up()
    assert (code, status, problem["code"]) == (0, 503, "draining")
    assert faults(posd) == []
    script.release.set()
    # The next daemon searches for the payment by itself.
    counter.terminal.search = knowing(event(payment.identity, "TERMINAL_REJECTED", None, payment.serial))
    await posd.start()
    assert (await posd.outcome(payment.identity))["result"] == "rejected"
