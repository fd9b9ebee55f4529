"""Finals that disagree, devices that were not asked, payments that the database does not know (design 4 to 6)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.events import APPROVED, event
from tests.support.shop import Payment, Shop, acknowledging, answering, held, knowing
from tests.support.webhooks import attention

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]

BY_ANA = {"operator": "Ana", "note": "the printer of the terminal says so"}


async def refused(shop: Shop) -> Payment:
    """The terminal refused it, and ran it all the same."""
    payment = shop.payment()
    shop.terminal.start = answering(409, {"message": "busy"})
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    return payment


async def unsent(shop: Shop) -> Payment:
    """It was never sent, as far as posd could see; a middleman had it."""
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    number = int(payment.serial.removeprefix("SN-"))
    await shop.terminal.unplug(number)
    assert (await payment.put()).json["outcome"]["evidence"][0]["kind"] == "unsent"
    await shop.terminal.plug_in(number)
    # No terminal knows its callback address; a payment of the same id elsewhere would have it.
    return payment


async def resolved(shop: Shop) -> Payment:
    """A person said that it did not start, and posd has asked the terminal all the same."""
    payment = await shop.in_doubt()
    seen = len(shop.daemon.lines)
    assert (await payment.post("resolve", BY_ANA | {"result": "not_started"}, admin=True)).status == 200
    await shop.daemon.log_line("payment.search", seen, transaction=payment.identity)
    return payment


async def by_event(payment: Payment, final: dict[str, Any]) -> None:
    """Have the terminal say it in its own time."""
    assert await payment.deliver(json.dumps(final).encode()) == 200


async def by_search(payment: Payment, final: dict[str, Any]) -> None:
    """Have the terminal say it when it is asked."""
    payment.shop.terminal.search = knowing(final)
    assert (await payment.post("reconcile")).status == 200


def lasting(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return an outcome without what it says of the payment now."""
    return {name: value for name, value in outcome.items() if name not in ("next_step", "display")}


Telling = Callable[[Payment, dict[str, Any]], Awaitable[None]]

#: What was inferred, and how the terminal's word came; an unsent request has no callback address to be told at.
CORRECTIONS: list[tuple[Callable[[Shop], Awaitable[Payment]], Telling]] = [
    (refused, by_event),
    (refused, by_search),
    (unsent, by_search),
    (resolved, by_event),
    (resolved, by_search),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("infer", "tell"), CORRECTIONS)
async def test_what_the_terminal_says_beats_what_was_inferred(
    shop: Shop, infer: Callable[[Shop], Awaitable[Payment]], tell: Telling
) -> None:
    payment = await infer(shop)
    before = await payment.get()
    assert (before["next_step"], before["attention"]) == ("new_id_ok", [])
    seen, seq = len(shop.daemon.lines), await newest_change(shop.daemon)
    final = event(payment.identity, "APPROVAL", None, payment.serial)
    await tell(payment, final)

    document = await payment.get()
    outcome = document["outcome"]
    assert (outcome["result"], outcome["transaction_reference"]) == (
        "approved",
        final["raw_response"]["transaction_reference"],
    )
    assert lasting(outcome["supersedes"]) == lasting(before["outcome"])
    assert (attention(document) - {"gap"}, document["next_step"]) == ({"outcome_corrected"}, "ask_person")
    line = await shop.daemon.log_line("payment.attention", seen, code="outcome_corrected")
    assert (line["level"], line["transaction"]) == ("error", payment.identity)
    await shop.daemon.log_line("payment.outcome", seen, transaction=payment.identity, result="approved")
    changes = (await shop.daemon.call("GET", f"/feed?after={seq}&limit=500")).json["changes"]
    corrected = [item for item in changes if item["id"] == payment.identity and item["result"] == "approved"]
    assert "outcome_corrected" in corrected[0]["attention"]

    reply = await payment.post("acknowledge", BY_ANA | {"code": "outcome_corrected"}, admin=True)
    assert (reply.json["next_step"], attention(reply.json) - {"gap"}) == ("done", set())


async def newest_change(posd: Daemon) -> int:
    """Return the end of the feed."""
    after = 0
    while (page := (await posd.call("GET", f"/feed?after={after}&limit=500")).json)["changes"]:
        after = page["next_after"]
    return after


async def test_an_abort_that_lost_the_race_ends_with_what_the_terminal_says(shop: Shop) -> None:
    payment = await shop.started()
    shop.terminal.abort = script = held(answering(200))
    aborting = asyncio.create_task(payment.post("abort"))
    await script.arrived.wait()
    for item in APPROVED:
        assert await payment.event(*item) == 200
    script.release.set()
    reply = await aborting
    assert (reply.status, reply.json["outcome"]["result"]) == (202, "approved")
    document = await payment.get()
    assert (document["attention"], document["next_step"]) == ([], "done")


# The wrong device


# Orphans
