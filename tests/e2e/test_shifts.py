"""Shifts with the real daemon. Each payment counts in exactly one shift, even if it is late, repeated or between two
shifts.
"""

import asyncio
import json
from datetime import UTC as UTC_ZONE
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_backup import back_up, posd_command
from tests.rig.daemon import Daemon
from tests.rig.shop import Payment, Shop
from tests.rig.streams import Reply

UTC = ("--timezone", "UTC")
PAID = Decimal("11.20")
#: Earliest date at which a report can begin.
LONG_AGO = (datetime.now(UTC_ZONE).date() - timedelta(days=360)).isoformat()


async def report(posd: Daemon, *arguments: str) -> Any:
    """Return a report as JSON."""
    code, said, beside = await posd_command(posd, "report", *UTC, *arguments, "--json")
    assert code == 0, said + beside
    return json.loads(said, parse_float=Decimal)


async def close(posd: Daemon, operator: str = "Ana") -> Any:
    return await report(posd, "--close", "--operator", operator)


async def shifts(posd: Daemon) -> list[Any]:
    """Return the shifts, oldest first."""
    page = (await posd.call("GET", "/shifts?limit=20")).json
    assert page["next_before"] is None
    return page["shifts"][::-1]


async def post(posd: Daemon, **body: Any) -> Reply:
    return await posd.call("POST", "/shifts", {"operator": "Ben", **body}, socket=posd.admin_socket)


async def resolved(payment: Payment, result: str) -> None:
    body = {"result": result, "operator": "Ana", "note": "asked the bank"}
    assert (await payment.post("resolve", body, admin=True)).status == 200


async def test_each_payment_counts_in_exactly_one_shift_however_late_its_outcome_comes(own: Shop) -> None:
    posd = own.daemon
    assert (await report(posd, "--since", "last"))["total"]["total"] == 0
    paid, declined, waiting = await own.started(), await own.started(), await own.started()
    doubtful = await own.in_doubt()
    await paid.approve()
    await declined.end("DECLINED")

    first = await close(posd)
    assert (first["shift"]["number"], first["shift"]["operator"], first["total"]["total"]) == (1, "Ana", PAID)
    assert set(first["shift"]["open"]) == {waiting.identity, doubtful.identity}
    # A repeated close changes nothing.
    code, said, beside = await posd_command(posd, "report", *UTC, "--close", "--operator", "Ben")
    assert (code, "Nothing has changed since Ana closed shift 1" in beside) == (0, True), said + beside
    assert len(await shifts(posd)) == 1

    # A payment counts in the shift in which its outcome arrives. Earlier reports mark the payment as open.
    await waiting.approve()
    await resolved(doubtful, "approved")
    late = await own.started()
    await late.approve()
    since = await report(posd, "--since", "last")
    assert (since["total"]["total"], since["shift"]["closed_at"]) == (3 * PAID, None)
    assert set(since["shift"]["open_before"]) == {waiting.identity, doubtful.identity}
    assert (await close(posd, "Ben"))["total"]["total"] == 3 * PAID

    # An operator recorded a wrong outcome, and the terminal reports declined. The next shift has the correction.
    assert await doubtful.event("DECLINED") == 200
    code, said, _ = await posd_command(posd, "report", *UTC, "--since", "last")
    assert (code, "shift 2 counted 11.20; the amount is now 0.00" in " ".join(said.split())) == (0, True), said
    third = await close(posd)
    (correction,) = third["shift"]["corrections"]
    assert correction == {
        "client_transaction_id": doubtful.identity,
        "terminal": doubtful.serial,
        "currency": None,
        "shift": 2,
        "was": PAID,
        "now": 0,
        "difference": -PAID,
    }
    assert third["total"]["total"] == -PAID

    # The shifts add up to the charged amount. Each shift can be printed again unchanged.
    whole = await report(posd, "--from", LONG_AGO)
    assert sum(item["total"] for item in await shifts(posd)) == whole["total"]["total"] == 3 * PAID
    counted = [line["client_transaction_id"] for item in await shifts(posd) for line in item["payments"]]
    assert set(counted) == {item.identity for item in (paid, declined, waiting, doubtful, late)}
    for number, total in ((1, PAID), (2, 3 * PAID), (3, -PAID)):
        printed = await report(posd, "--shift", str(number))
        assert printed["total"]["total"] == total
    assert set((await report(posd, "--shift", "1"))["shift"]["open"]) == {waiting.identity, doubtful.identity}

    # The report compares the terminal's own total, and names the causes of a difference.
    code, said, _ = await posd_command(posd, "report", *UTC, "--shift", "2", "--expect", "22.40")
    assert (code, "the terminal has 11.20 less" in said, doubtful.identity in said) == (1, True, True), said
    code, said, _ = await posd_command(posd, "report", *UTC, "--shift", "2", "--expect", "33.60")
    assert (code, "they are equal" in said) == (0, True), said

    # Retention removes the payments, and no total changes.
    seen = {"code": "outcome_corrected", "operator": "Ana", "note": "seen"}
    assert (await doubtful.post("acknowledge", seen, admin=True)).status == 200
    assert (await posd_command(posd, "prune", "--older-than", "0", "--yes"))[0] == 0
    assert (await paid.get())["code"] == "pruned"
    for number, total, gone in ((1, PAID, True), (2, 3 * PAID, True), (3, -PAID, False)):
        printed = await report(posd, "--shift", str(number))
        assert (printed["total"]["total"], printed["shift"]["removed"] > 0) == (total, gone)


async def test_two_simultaneous_closes_make_one_shift_and_both_return_that_shift(own: Shop) -> None:
    posd = own.daemon
    paid = await own.started()
    await paid.approve()
    replies = await asyncio.gather(*(post(posd, after=0, note=text) for text in "abc"))
    assert sorted(reply.status for reply in replies) == [200, 200, 201]
    assert len({reply.json["note"] for reply in replies}) == 1, "each call gets the closed shift"
    (shift,) = await shifts(posd)
    assert (shift["total"], shift["totals"]["by_currency"][0]["total"]) == (PAID, PAID)
    assert (shift["after"], shift["payments"][0]["counted"]) == (0, PAID)
    # After a lost response the same call returns the closed shift. A call with another `after` closes nothing.
    await (await own.started()).approve()
    assert (await post(posd, after=0)).status == 200
    assert (await post(posd, begin=True)).status == 200
    assert (await post(posd, after=shift["up_to"])).status == 201
    for wrong in ({"after": -1}, {"after": "x"}, {"after": 1.5}, {"begin": 1}, {"note": 5}):
        reply = await post(posd, **wrong)
        assert (reply.status, reply.json["code"]) == (422, "invalid_request"), reply.body


async def test_a_payment_is_not_removed_before_a_shift_has_counted_it(own: Shop) -> None:
    posd = own.daemon

    async def prune() -> tuple[int, bool]:
        reply = await posd.call("POST", "/prune", {"older_than_days": 0}, socket=posd.admin_socket)
        return reply.json["removed"]["transactions"], reply.json["kept_for_shift"]

    first, second = await own.started(), await own.started()
    await first.approve()
    await close(posd)
    await second.approve()
    assert await prune() == (1, True)  # retention removes the payment that the shift has counted
    assert (await close(posd, "Ben"))["total"]["total"] == PAID
    assert await prune() == (1, False)
    assert [item["total"] for item in await shifts(posd)] == [PAID, PAID]


@pytest.mark.slow
async def test_a_restore_keeps_the_shifts_of_the_replaced_database(own: Shop, home: Path) -> None:
    posd = own.daemon
    await back_up(posd, home / "backup.db")
    first, waiting = await own.started(), await own.started()
    await first.approve()
    await close(posd)
    await (await own.started()).approve()
    await waiting.approve()
    await close(posd, "Ben")
    await (await own.started()).approve()
    await close(posd, "Cyd")
    totals = [("Ana", PAID), ("Ben", 2 * PAID), ("Cyd", PAID)]
    await posd.kill()
    code, _, said = await posd_command(posd, "restore", str(home / "backup.db"), "--json")
    assert code == 0, said
    await posd.start()
    assert [(item["operator"], item["total"]) for item in await shifts(posd)] == totals
    # Payments that the restore took over are in the feed again. An earlier shift has counted these payments.
    assert (await report(posd, "--since", "last"))["payments"] == []
    await (await own.started()).approve()
    assert (await close(posd, "Dan"))["total"]["total"] == PAID
    assert (
        sum(item["total"] for item in await shifts(posd)) == (await report(posd, "--from", LONG_AGO))["total"]["total"]
    )
