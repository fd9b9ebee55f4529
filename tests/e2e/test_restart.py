"""After a restart posd searches for every open payment, floods no terminal, and loses no till."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.daemon import Daemon
from tests.rig.events import event
from tests.rig.shop import QUIET, Held, Payment, Shop, answering, knowing, nothing_to_correct, open_counters
from tests.rig.streams import Connection
from tests.rig.terminal import Request, http
from tests.rig.webhooks import attention, faults

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Number of terminals with an open payment at the kill. RELEASED: how many of these terminals also have a released
#: payment.
OPEN = 24
RELEASED = 5
#: Maximum of simultaneous searches over the whole fleet.
MAX_CALLS = 8
#: Limit of a stop in seconds. The promise is 3 seconds on an idle machine. A fault would delay the stop by 20 seconds
#: or more.
STOP_SECONDS = 12.0
#: A probe that times out on a busy machine would cause a search later. The time-out is therefore long.
PATIENT = "[terminal_defaults]\nconnect_timeout_seconds = 30\n"
BY_ANA = {"operator": "Ana", "note": "the display says so"}


@pytest_asyncio.fixture(loop_scope="module")
async def counter() -> AsyncIterator[Shop]:
    """Yield the terminal of a daemon for one test. The test can stop and restart the daemon."""
    async with open_counters(1, QUIET + PATIENT) as (counter,):
        yield counter
        await nothing_to_correct(counter.daemon)


async def patient(posd: Daemon, identity: str, again: asyncio.Event) -> Any:
    """Wait for the outcome as a disconnected till does. The till repeats the call when posd runs again."""
    path = f"/transactions/{identity}/outcome"
    with suppress(OSError):
        return (await posd.call("GET", path)).json
    await again.wait()
    return (await posd.call("GET", path)).json


@pytest.mark.slow
async def test_posd_searches_for_every_open_payment_a_few_at_a_time(shop: Shop) -> None:
    posd = shop.daemon
    payments = []
    for number in range(OPEN):
        payment = await shop.started()
        payments.append(payment)
        if number < RELEASED:
            assert (await payment.post("release", BY_ANA)).status == 200
            another = Payment(shop, str(uuid4()), payment.serial)
            assert (await another.put()).status == 201
            payments.append(another)
    again = asyncio.Event()
    tills = [asyncio.create_task(patient(posd, payment.identity, again)) for payment in payments]

    finals = {payment.identity: event(payment.identity, "DECLINED", None, payment.serial) for payment in payments}
    serials = {payment.identity: payment.serial for payment in payments}
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()
    full, go_on = asyncio.Event(), asyncio.Event()

    async def search(request: Request, writer: asyncio.StreamWriter) -> None:
        identity = request.json["client_transaction_id"]
        under_way[serials[identity]] += 1
        most["fleet"] = max(most["fleet"], under_way.total())
        most["terminal"] = max(most["terminal"], under_way[serials[identity]])
        if under_way.total() >= MAX_CALLS:
            full.set()
        await go_on.wait()
        under_way[serials[identity]] -= 1
        writer.write(http(200, json.dumps(finals[identity]).encode()))

    await posd.kill()
    shop.terminal.search = search
    await posd.start()
    again.set()
    await full.wait()
    for _ in range(10):  # a search above the maximum would be under way after these calls
        assert (await posd.call("GET", "/health")).status == 200
    assert under_way.total() == MAX_CALLS
    go_on.set()
    outcomes = await asyncio.gather(*tills)
    assert {outcome["result"] for outcome in outcomes} == {"declined"}
    assert {outcome["evidence"][0]["kind"] for outcome in outcomes} == {"search"}
    assert dict(most) == {"fleet": MAX_CALLS, "terminal": 1}
    assert [len(payment.searches) for payment in payments] == [1] * len(payments)
    assert [len(payment.requests) for payment in payments] == [1] * len(payments)
    await nothing_to_correct(posd)


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
