"""Texts for the cashier, in every document and stream of a payment, and in the requested language."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from posd.calls.streams import HEARTBEAT_SECONDS
from tests.e2e.test_reconcile import BY_ANA
from tests.rig.events import APPROVED, event
from tests.rig.shop import Held, Payment, Shop, knowing, open_counters, open_shop
from tests.rig.streams import collect, stream
from tests.rig.terminal import nowhere
from tests.rig.webhooks import attention

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]

#: Grace of the daemon with short limits, in seconds. A doubt may end by itself during the grace.
GRACE = 0.5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counters() -> AsyncIterator[list[Shop]]:
    """Yield the terminals of a daemon with short limits. Each test pops a terminal."""
    async with open_counters(7, f"[reconcile]\nfirst_event_grace_seconds = {GRACE}\n") as counters:
        yield counters


@pytest.fixture
def counter(counters: list[Shop]) -> Shop:
    """Yield a terminal of the daemon with short limits for one test."""
    return counters.pop()


def asking(language: str) -> dict[str, str]:
    return {"accept-language": language}


async def shown(payment: Payment, path: str, headers: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """Return the display in the reply to a call about a payment, and the language of the reply."""
    reply = await payment.shop.daemon.call("GET", f"/transactions/{payment.identity}{path}", headers=headers)
    return reply.json["display"], reply.headers["content-language"]


# The documents


async def test_every_document_of_a_payment_has_its_display(shop: Shop) -> None:
    payment = shop.payment()
    started = await payment.put()
    assert (started.status, started.json["display"]["code"]) == (201, "present_card")
    assert (await payment.put()).json["display"] == started.json["display"]
    for status, code in (("CARD_PRESENTED", "card_read"), ("APPROVAL_REQUESTED", "asking_bank")):
        assert await payment.event(status) == 200
        said, _ = await shown(payment, "")
        assert said["code"] == code
        assert await shown(payment, "/outcome?timeout=0") == (said, "en")
        listed = (await shop.daemon.call("GET", f"/transactions?terminal={payment.serial}")).json["transactions"]
        assert [item["display"] for item in listed] == [said]
    await payment.end("APPROVAL")
    document = await payment.get()
    outcome = await shop.daemon.outcome(payment.identity)
    assert (outcome["next_step"], outcome["display"]) == ("done", {"code": "paid", "text": "PAID 11.20"})
    for found in (document, document["outcome"]):
        assert (found["next_step"], found["display"]) == (outcome["next_step"], outcome["display"])


# The language


@pytest.mark.parametrize(
    ("asked", "language"),
    [("es", "es"), ("", "en"), ("es" + ";q=9" * 2000, "es"), ("\xff;q=\xff,=;,;q=nan", "en")],
    ids=range(4),
)
async def test_the_display_has_the_language_that_a_call_requests(shop: Shop, asked: str, language: str) -> None:
    payment = await shop.started()
    text = {"en": "Present the card", "es": "Presente la tarjeta"}[language]
    headers = asking(asked)
    for path in ("", "/outcome?timeout=0"):
        assert await shown(payment, path, headers) == ({"code": "present_card", "text": text}, language)
    listed = await shop.daemon.call("GET", f"/transactions?terminal={payment.serial}", headers=headers)
    assert listed.headers["content-language"] == language
    assert [item["display"]["text"] for item in listed.json["transactions"]] == [text]
    await payment.end()


async def test_the_display_has_the_language_of_the_configuration_by_default(home: Path) -> None:
    async with open_shop(home) as shop:
        config = shop.daemon.config.replace("[local_api]\n", '[local_api]\nlanguage = "es"\n')
        await shop.daemon.stop()
        shop.daemon.config = config
        await shop.daemon.start()
        payment = await shop.started()
        assert await shown(payment, "") == ({"code": "present_card", "text": "Presente la tarjeta"}, "es")
        assert await shown(payment, "", asking("fr, *;q=0.5")) == await shown(payment, "")
        assert (await shown(payment, "", asking("en")))[0]["text"] == "Present the card"
        state = await state_of(payment)
        assert state["display"]["text"] == "Presente la tarjeta"
        await payment.end()


# The stream


async def state_of(payment: Payment) -> dict[str, Any]:
    """Return the first display in the stream of a payment."""
    async with stream(payment.shop.daemon.till_socket, f"/transactions/{payment.identity}/events") as source:
        first = await anext(source)
    assert first.event == "state"
    return first.json


async def test_a_stream_sends_the_display_at_its_start_and_at_each_change(shop: Shop) -> None:
    payment = await shop.started()
    path = f"/transactions/{payment.identity}/events"
    async with stream(shop.daemon.till_socket, path) as source:
        first = await anext(source)
        found = [first]
        for status, previous in APPROVED:
            assert await payment.event(status, previous) == 200
            found += await collect(source, lambda message, status=status: message.event == status)
        found += [message async for message in source]
    document = await payment.get()
    assert set(first.json) == {"phase", "next_step", "display", "missing_proof", "attention"}
    assert [(message.id is None, message.event) for message in found] == [
        (True, "state"),
        *((False, "TERMINAL_ACKNOWLEDGED"), (False, "CARD_PRESENTED"), (True, "state")),
        *((False, "APPROVAL_REQUESTED"), (True, "state"), (False, "APPROVAL"), (True, "state"), (True, "outcome")),
    ]
    told = [message.json for message in found if message.event == "state"]
    assert [item["display"]["code"] for item in told] == ["present_card", "card_read", "asking_bank", "paid"]
    assert [(item["phase"], item["next_step"]) for item in told] == [("active", "wait")] * 3 + [("final", "done")]
    assert told[-1] == {name: document[name] for name in told[-1]}
    assert (found[-1].json["next_step"], found[-1].json["display"]) == ("done", told[-1]["display"])


async def test_a_stream_reports_attentions_and_decisions_of_a_person(shop: Shop) -> None:
    payment = await shop.started()
    async with stream(shop.daemon.till_socket, f"/transactions/{payment.identity}/events") as source:
        before = await anext(source)
        assert (await payment.post("release", BY_ANA)).status == 200
        after = await anext(source)
        await payment.end("DECLINED")
    assert (before.json["attention"], before.json["display"]["code"]) == ([], "present_card")
    assert (after.event, attention(after.json)) == ("state", {"released"})
    assert (after.json["next_step"], after.json["display"]["code"]) == ("ask_person", "call_supervisor")


async def test_a_stream_reports_when_a_long_doubt_needs_a_person(counter: Shop) -> None:
    """Only elapsed time can cause the message. No event arrives, and the running search has no reply."""
    payment = await counter.in_doubt()
    counter.terminal.search = search = Held(nowhere)
    clock = asyncio.get_running_loop().time
    began = clock()
    async with stream(counter.daemon.till_socket, f"/transactions/{payment.identity}/events") as source:
        told = [(await anext(source)).json for _ in range(2)]
    # The end of the grace causes this message, because a heartbeat is due only after 15 s.
    assert clock() - began < HEARTBEAT_SECONDS / 2
    assert [(item["next_step"], item["display"]["code"]) for item in told] == [
        ("wait", "looking"),
        ("ask_person", "call_supervisor"),
    ]
    assert {**told[0], "next_step": "", "display": {}} == {**told[1], "next_step": "", "display": {}}
    assert (await payment.get())["last_search"] is None
    search.release.set()
    await payment.end()


async def test_no_customer_is_asked_for_a_card_while_posd_cannot_record_the_end(counter: Shop) -> None:
    payment = await counter.started()
    assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
    counter.terminal.search = knowing(event(payment.identity, "APPROVAL", serial=payment.serial))
    with closing(sqlite3.connect(counter.daemon.database, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        assert await payment.event("CARD_PRESENTED") == 503
        blind = await payment.get()
        foreign.execute("ROLLBACK")
    assert (blind["next_step"], blind["display"]["code"]) == ("ask_person", "call_supervisor")
    # The terminal does not repeat the event, so posd searches for the payment.
    outcome = await counter.daemon.outcome(payment.identity)
    assert (outcome["evidence"][0]["kind"], outcome["display"]["code"]) == ("search", "paid")
