"""When posd searches by itself: after a doubt, a silence, a gap, or the return of a terminal."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.events import APPROVED, event
from tests.rig.shop import (
    Held,
    Payment,
    Shop,
    acknowledging,
    answering,
    hanging_up,
    knowing,
    nothing_to_correct,
    open_counters,
)
from tests.rig.terminal import Request
from tests.rig.webhooks import attention

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]

#: Short limits of a daemon, in seconds. Each limit is different, so that tests can distinguish the limits.
GRACE, STALL, STALL_AFTER_REQUEST = 0.1, 1.5, 1.0
SHORT = f"""
[reconcile]
first_event_grace_seconds = {GRACE}
stall_seconds = {STALL}
stall_after_request_seconds = {STALL_AFTER_REQUEST}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counters() -> AsyncIterator[list[Shop]]:
    """Yield the terminals of a daemon with short limits. Each test pops a terminal."""
    async with open_counters(14, SHORT) as counters:
        daemon = counters[0].daemon
        yield counters
        await nothing_to_correct(daemon)


@pytest.fixture
def counter(counters: list[Shop]) -> Shop:
    """Yield a terminal of the daemon with short limits for one test."""
    return counters.pop()


def now() -> float:
    return asyncio.get_running_loop().time()


async def on_the_way(payment: Payment, status: str) -> None:
    """Deliver the events of an approved payment up to this state."""
    for item in APPROVED:
        assert await payment.event(*item) == 200
        if item[0] == status:
            return


async def attention_after(payment: Payment, reason: str) -> list[str]:
    """Return the attentions that were open after the newest change with this reason."""
    changes = (await payment.shop.daemon.call("GET", "/feed?limit=500")).json["changes"]
    mine = [item for item in changes if (item["id"], item["reason"]) == (payment.identity, reason)]
    return list(mine[-1]["attention"])


# Silence.


@pytest.mark.slow
async def test_a_payment_in_doubt_is_searched_for_in_growing_pauses(counter: Shop) -> None:
    arrivals: list[float] = []

    async def nothing(_request: Request, _writer: asyncio.StreamWriter) -> None:
        arrivals.append(now())

    payment = counter.payment()
    counter.terminal.start = hanging_up
    counter.terminal.search = nothing
    began = now()
    assert (await payment.put()).json["phase"] == "in_doubt"
    await payment.searched(5)
    pauses = [after - before for before, after in zip([began, *arrivals], arrivals, strict=False)]
    for number, pause in enumerate(pauses):
        assert pause >= GRACE * 2 ** max(0, number - 1)
    document = await payment.get()
    assert (document["phase"], document["next_step"]) == ("in_doubt", "ask_person")
    assert attention(document) == {"in_doubt"}
    assert (document["last_search"]["result"], document["outcome"]) == ("no_answer", None)


async def test_an_acknowledgement_without_an_event_raises_the_attention_no_callback(counter: Shop) -> None:
    payment = await counter.started()
    counter.terminal.search = answering(200, b"[]")
    document = await payment.until(lambda it: "no_callback" in attention(it))
    assert (document["phase"], document["next_step"], document["outcome"]) == ("active", "wait", None)
    document = await payment.until(lambda it: it["last_search"])
    assert (document["phase"], document["last_search"]["result"]) == ("active", "none")
    assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
    assert await attention_after(payment, "event:TERMINAL_ACKNOWLEDGED") == []
    kinds = [item["kind"] for item in await payment.history()]
    assert kinds[:4] == ["intent", "attempt", "no_callback", "search"]
    await on_the_way(payment, "APPROVAL")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("status", "seconds"),
    [("TERMINAL_ACKNOWLEDGED", STALL), ("CARD_PRESENTED", STALL), ("APPROVAL_REQUESTED", STALL_AFTER_REQUEST)],
)
async def test_a_silence_raises_stalled_and_causes_a_search(counter: Shop, status: str, seconds: float) -> None:
    payment = await counter.started()
    await on_the_way(payment, status)
    began = now()
    assert await payment.event(status, APPROVED[0][0]) == 200  # a late or repeated event ends the silence
    counter.terminal.search = script = Held(knowing(event(payment.identity, status, None, payment.serial)))
    document = await payment.until(lambda it: "stalled" in attention(it))
    assert (document["phase"], document["status"], document["next_step"]) == ("active", status, "wait")
    (silent,) = [item for item in await payment.history() if item["kind"] == "stalled"]
    assert silent["seconds"] == seconds
    # posd reports the silence before the search, so that a hanging terminal does not delay the report.
    await script.arrived.wait()
    assert now() - began >= seconds
    script.release.set()
    await payment.searched(len(payment.searches) + 1)
    document = await payment.get()
    assert (document["phase"], document["outcome"], document["last_search"]["result"]) == ("active", None, "found")
    assert attention(document) == {"stalled"}
    final = APPROVED[3] if status == "APPROVAL_REQUESTED" else ("TERMINAL_CANCELED", status)
    assert await payment.event(*final) == 200
    assert (await payment.get())["attention"] == []


# Tests of searches that start at once, with any limits.


@pytest.mark.parametrize(("status", "previous"), [("APPROVAL_REQUESTED", "CARD_PRESENTED"), ("NEW_STATE", None)])
async def test_an_event_that_reopens_a_payment_causes_a_search(shop: Shop, status: str, previous: str | None) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(409)
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    shop.terminal.search = knowing(event(payment.identity, "APPROVAL", None, payment.serial))
    assert await payment.event(status, previous) == 200
    document = await payment.until(lambda it: it["last_search"])
    assert (document["last_search"]["result"], document["outcome"]["result"]) == ("found", "approved")


async def test_a_terminal_that_is_reachable_again_gets_a_search_at_once(shop: Shop) -> None:
    payment = await shop.in_doubt()
    number = int(payment.serial.removeprefix("SN-"))
    await shop.terminal.unplug(number)
    assert (await payment.post("reconcile")).json["last_search"]["result"] == "no_answer"
    assert (await payment.post("release", {"operator": "Ana", "note": "it is broken"})).status == 200
    await shop.terminal.plug_in(number)
    shop.terminal.search = knowing(event(payment.identity, "APPROVAL", None, payment.serial))
    following = Payment(shop, str(uuid4()), payment.serial)
    shop.terminal.start = acknowledging(payment.serial)
    assert (await following.put()).status == 201
    assert (await shop.daemon.outcome(payment.identity))["result"] == "approved"
