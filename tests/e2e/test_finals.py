"""Finals that disagree, devices that were not asked, payments that the database does not know (design 4 to 6)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest

from tests.support.daemon import Daemon
from tests.support.events import APPROVED, event
from tests.support.shop import (
    ANOTHER,
    Payment,
    Shop,
    acknowledging,
    answering,
    held,
    knowing,
    nothing_to_correct,
    open_counters,
)
from tests.support.webhooks import attention, faults

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


@pytest.mark.parametrize("infer", [refused, resolved])
async def test_a_terminal_that_agrees_corrects_nothing(shop: Shop, infer: Callable[[Shop], Awaitable[Payment]]) -> None:
    payment = await infer(shop)
    shop.terminal.search = answering(200, b"[]")
    document = (await payment.post("reconcile")).json
    assert (document["outcome"]["result"], document["attention"]) == ("not_started", [])


async def newest_change(posd: Daemon) -> int:
    """Return the end of the feed."""
    after = 0
    while (page := (await posd.call("GET", f"/feed?after={after}&limit=500")).json)["changes"]:
        after = page["next_after"]
    return after


#: The first final of a payment and another one, and whether they state the same.
SECOND: dict[str, tuple[str, str, bool]] = {
    "declined after approved": ("APPROVAL", "DECLINED", False),
    "approved after declined": ("DECLINED", "APPROVAL", False),
    "canceled after approved": ("APPROVAL", "TERMINAL_CANCELED", False),
    "approved twice, with two references": ("APPROVAL", "APPROVAL", False),
    "declined twice": ("DECLINED", "DECLINED", True),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("tell", [by_event, by_search])
async def test_of_two_finals_of_the_terminal_the_first_stands(shop: Shop, name: str, tell: Telling) -> None:
    first, second, same = SECOND[name]
    payment = await shop.started()
    for item in APPROVED[:3]:
        assert await payment.event(*item) == 200
    one = event(payment.identity, first, "APPROVAL_REQUESTED", payment.serial)
    two = event(payment.identity, second, "APPROVAL_REQUESTED", payment.serial)
    await by_event(payment, one)
    before = await payment.get()
    seen = len(shop.daemon.lines)
    await tell(payment, two)
    document = await payment.get()
    assert lasting(document["outcome"]) | {"evidence": None} == lasting(before["outcome"]) | {"evidence": None}
    if same:
        assert (document["attention"], document["next_step"]) == ([], before["next_step"])
        return
    (conflict,) = [item for item in document["attention"] if item["code"] == "conflicting_final"]
    for final in (one, two):
        assert final["status"] in conflict["detail"]
        if final["status"] == "APPROVAL":
            assert final["raw_response"]["transaction_reference"] in conflict["detail"]
    assert "void" in conflict["detail"]
    assert document["next_step"] == "ask_person"
    line = await shop.daemon.log_line("payment.attention", seen, code="conflicting_final")
    assert (line["level"], line["transaction"], line["detail"]) == ("error", payment.identity, conflict["detail"])
    reply = await payment.post("acknowledge", BY_ANA | {"code": "conflicting_final"}, admin=True)
    assert (reply.json["next_step"], reply.json["attention"]) == (before["next_step"], [])


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


async def test_the_acknowledgement_of_another_device(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging("SN-STRANGER")
    seen = len(shop.daemon.lines)
    document = (await payment.put()).json
    assert (document["phase"], attention(document)) == ("active", {"serial_mismatch"})
    assert "SN-STRANGER" in document["attention"][0]["detail"]
    line = await shop.daemon.log_line("payment.attention", seen, code="serial_mismatch")
    assert line["level"] == "warning"
    aborts = shop.terminal.aborts
    assert (document["abortable"], (await payment.post("abort")).json["code"]) == (False, "not_abortable")
    assert shop.terminal.aborts == aborts
    await by_event(payment, event(payment.identity, "TERMINAL_CANCELED", None, payment.serial))
    assert (await payment.get())["outcome"]["result"] == "canceled"


@pytest.mark.parametrize("tell", [by_event, by_search])
async def test_another_device_of_the_fleet_has_the_payment(shop: Shop, tell: Telling) -> None:
    payment = await shop.in_doubt()
    await tell(payment, event(payment.identity, "CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED", ANOTHER))
    document = await payment.get()
    assert (document["phase"], document["status"]) == ("active", "CARD_PRESENTED")
    assert "serial_mismatch" in attention(document)
    aborts = shop.terminal.aborts
    assert (document["abortable"], (await payment.post("abort")).json["code"]) == (False, "not_abortable")
    assert shop.terminal.aborts == aborts
    await tell(payment, event(payment.identity, "DECLINED", "APPROVAL_REQUESTED", ANOTHER))
    assert (await payment.get())["outcome"]["result"] == "declined"


async def test_a_device_outside_the_fleet_is_not_believed(shop: Shop) -> None:
    payment = await shop.in_doubt()
    final = event(payment.identity, "APPROVAL", None, "SN-STRANGER")
    shop.terminal.search = knowing(final)
    assert await payment.deliver(json.dumps(final).encode()) == 403
    document = (await payment.post("reconcile")).json
    assert (document["phase"], document["last_search"]["result"]) == ("in_doubt", "no_answer")
    assert attention(document) == {"in_doubt", "quarantined_event", "serial_mismatch"}


# Orphans


@pytest.mark.slow
async def test_payments_that_the_database_does_not_know_are_rebuilt_from_their_events() -> None:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_counters(Path(directory), 3) as counters:
            daemon = counters[0].daemon
            await daemon.stop()
            backup = daemon.database.read_bytes()
            await daemon.start()
            payments = [await counter.started() for counter in counters]
            for payment in payments:
                assert await payment.event(*APPROVED[0]) == 200
            await daemon.kill()
            for suffix in ("-wal", "-shm", ".witness"):  # log and witness know what the backup does not
                daemon.database.with_name(f"posd.db{suffix}").unlink(missing_ok=True)
            daemon.database.write_bytes(backup)
            await daemon.start()

            for payment in payments:
                assert (await daemon.call("GET", f"/transactions/{payment.identity}")).status == 404
                assert await payment.event(*APPROVED[1]) == 200
            ends, asked, decided = payments
            for payment in payments:
                document = await payment.get()
                assert (document["phase"], document["status"], document["terminal"]) == (
                    "active",
                    "CARD_PRESENTED",
                    payment.serial,
                )
                assert attention(document) == {"orphan", "gap"}
                assert document["type"] is None
                assert (await payment.post("abort")).json["code"] == "not_abortable"
                assert payment.shop.terminal.aborts == 0
                assert (await payment.put()).status == 200  # the till repeats its call, and nothing is sent again
                assert len(payment.requests) == 1

            operation = {"type": "CHARGE", "client_transaction_id": ends.identity}
            assert await ends.event(*APPROVED[2]) == 200
            assert await ends.event(*APPROVED[3], operation=operation) == 200
            document = await ends.get()
            assert (document["outcome"]["result"], document["type"], document["next_step"]) == (
                "approved",
                "charge",
                "done",
            )
            asked.shop.terminal.search = knowing(event(asked.identity, "DECLINED", None, asked.serial))
            assert (await asked.post("reconcile")).json["outcome"]["result"] == "declined"
            word = BY_ANA | {"result": "canceled"}
            assert (await decided.post("resolve", word, admin=True)).json["outcome"]["result"] == "canceled"
            word = BY_ANA | {"code": "orphan"}
            assert attention((await decided.post("acknowledge", word, admin=True)).json) == {"gap"}
            following = Payment(ends.shop, str(uuid4()), ends.serial)
            assert (await following.put()).status == 201
            await nothing_to_correct(daemon)
            assert faults(daemon) == []
