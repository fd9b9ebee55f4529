"""Payments that a restore lost. An operator records the slip, and posd replies to the till from this record."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_back_in_time import restored, seen
from tests.e2e.test_backup import back_up, lose
from tests.rig.shop import Payment, Shop
from tests.rig.webhooks import attention

BY_ANA = {"operator": "Ana", "note": "the slip of the terminal shows it"}
#: Amount of a slip, which shows only the sum.
SLIP = {"amount": {"subtotal_iva0": "11.20"}}


async def lost(shop: Shop, home: Path, count: int = 1, **request: Any) -> list[Payment]:
    """Start and approve payments. Restore an older backup without the newer database. Return the payments."""
    daemon = shop.daemon
    await back_up(daemon, home / "backup.db")
    payments = [await shop.started(**request) for _ in range(count)]
    for payment in payments:
        await payment.approve()
    await daemon.kill()
    lose(daemon.database, "", "-wal", "-shm", ".witness")
    await restored(daemon, str(home / "backup.db"))
    await daemon.start()
    return payments


def told(payment: Payment, result: str = "approved", **more: Any) -> dict[str, Any]:
    return BY_ANA | {"result": result, "terminal": payment.serial} | more


@pytest.mark.quick(1)
@pytest.mark.parametrize("looked", [False, True])
async def test_a_till_gets_the_recorded_slip_and_nothing_is_sent(own: Shop, home: Path, looked: bool) -> None:
    """posd replies alike before and after `posd restore --seen`. The till's body has data that is not on the slip."""
    paid, unpaid = await lost(own, home, 2, metadata={"till": 3})
    for payment in (paid, unpaid):
        problem = (await payment.put(metadata={"till": 3})).json
        assert (problem["code"], problem["next_step"]) == ("restore_unseen", "ask_person")
        assert problem["never_started"] is False
    if looked:
        await seen(own.daemon)
    for payment, result, step in ((paid, "approved", "done"), (unpaid, "declined", "new_id_ok")):
        assert (await payment.get())["never_started"] is False
        unnamed = await payment.post("resolve", told(payment, result), admin=True)
        assert (unnamed.status, unnamed.json["code"]) == (422, "invalid_request"), "the amount is not known"
        reply = await payment.post("resolve", told(payment, result, **SLIP), admin=True)
        assert (reply.status, reply.json["phase"], reply.json["next_step"]) == (200, "final", step), reply.body
        again = await payment.put(sale="basket-7", metadata={"till": 3})
        assert (again.status, again.json["outcome"]["result"], again.json["next_step"]) == (200, result, step)
        assert again.json["outcome"]["evidence"][0]["operator"] == "Ana"
        outcome = await own.daemon.call("GET", f"/transactions/{payment.identity}/outcome")
        assert (outcome.status, outcome.json["result"]) == (200, result)
        assert len(payment.requests) == 1, "posd sent nothing again"
        assert (await payment.history())[0]["kind"] == "resolve"


async def test_the_slip_survives_a_crash_and_reprocessing(own: Shop, home: Path) -> None:
    (paid,) = await lost(own, home)
    document = (await paid.post("resolve", told(paid, **SLIP), admin=True)).json
    await own.daemon.kill()
    await own.daemon.start()
    assert (await paid.get())["outcome"] == document["outcome"]
    reply = await own.daemon.call("POST", "/reprocess", socket=own.daemon.admin_socket)
    assert (reply.status, reply.json["differences"]) == (200, [])
    assert (await paid.put()).json["outcome"] == document["outcome"]


async def test_a_later_report_of_the_terminal_replaces_the_slip(own: Shop, home: Path) -> None:
    (paid,) = await lost(own, home)
    assert (await paid.post("resolve", told(paid, "canceled", **SLIP), admin=True)).status == 200
    assert await paid.event("APPROVAL", "APPROVAL_REQUESTED") == 200
    document = await paid.get()
    assert (document["outcome"]["result"], document["outcome"]["supersedes"]["result"]) == ("approved", "canceled")
    assert "outcome_corrected" in attention(document)
    reply = await own.daemon.call("POST", "/reprocess", socket=own.daemon.admin_socket)
    assert (reply.status, reply.json["differences"]) == (200, [])


async def test_a_lost_refund_counts_against_its_original(own: Shop, home: Path) -> None:
    charge = await own.started()
    await charge.approve()
    (refund,) = await lost(own, home)
    word = told(refund, type="refund", original=charge.identity, **SLIP)
    assert (await refund.post("resolve", word, admin=True)).status == 200
    await seen(own.daemon)
    more = own.payment()
    body = {"terminal": charge.serial, "type": "refund", "original": charge.identity, "additional": True}
    reply = await more.put(**body, amount={"subtotal_iva0": 1})
    assert (reply.status, reply.json["code"]) == (422, "amount_exceeds")
