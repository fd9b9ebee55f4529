"""Reprocessing. posd derives records again."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from tests.rig.daemon import Daemon
from tests.rig.shop import QUIET, Payment, Shop, nothing_to_correct, open_counters
from tests.rig.webhooks import recorded

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDS = {"APPROVAL": "approved", "DECLINED": "declined"}


@pytest_asyncio.fixture(loop_scope="module")
async def counters() -> AsyncIterator[list[Shop]]:
    """Yield the terminals of a daemon for one test. The test can stop and reconfigure the daemon."""
    async with open_counters(4, QUIET) as counters:
        yield counters
        await nothing_to_correct(counters[0].daemon)


async def reprocess(posd: Daemon) -> Any:
    """Run the reprocessing. Return the report."""
    reply = await posd.call("POST", "/reprocess", socket=posd.admin_socket)
    assert reply.status == 200
    return reply.json


# Changes of the file that posd has not made.


async def whole(counter: Shop, end: str) -> Payment:
    """Run a payment to this end. Return the payment."""
    payment = await counter.started()
    await payment.approve(3)
    assert await payment.event(end, "APPROVAL_REQUESTED") == 200
    return payment


#: Change to the row of an approved payment -> the reported fields.
TAMPERING = {
    "another outcome": (
        """UPDATE transactions SET outcome = json_set(outcome, '$.result', 'declined', '$.status', 'DECLINED')""",
        ["outcome"],
    ),
    "another reference": (
        """UPDATE transactions SET outcome = json_set(outcome, '$.transaction_reference', 'R')""",
        ["outcome"],
    ),
    "open again": ("UPDATE transactions SET phase = 'active', outcome = NULL", ["phase", "outcome"]),
    "another trail": ("""UPDATE transactions SET trail = '{"position":"CARD_PRESENTED"}'""", ["trail"]),
    "an attention": (
        """UPDATE transactions SET attention = '[{"code":"gap","since":"2026-11-20T10:00:00.000Z","detail":"x"}]'""",
        ["attention"],
    ),
    "a reading type": ("UPDATE transactions SET reading_type = 'CHIP', acknowledged = 0", ["acknowledged"]),
    "a verdict": ("UPDATE events SET verdict = 'late'", ["events"]),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tampered() -> AsyncIterator[dict[str, tuple[Payment, Any, Any]]]:
    """Change payments in the file of a stopped daemon. Yield each payment with the earlier document and the report."""
    async with open_counters(len(TAMPERING) + 1, QUIET) as counters:
        posd = counters[0].daemon
        payments = [await whole(counter, "APPROVAL") for counter in counters]
        before = [await payment.get() for payment in payments]
        assert await posd.stop() == 0
        with closing(sqlite3.connect(posd.database)) as db:
            for payment, (statement, _) in zip(payments, TAMPERING.values(), strict=False):
                db.execute(f"{statement} WHERE client_transaction_id = ?", (payment.identity,))
            db.commit()
        await posd.start()
        waiting = asyncio.create_task(posd.outcome(payments[list(TAMPERING).index("open again")].identity))
        report = await reprocess(posd)
        assert (await waiting)["result"] == "approved"
        assert report["differing"] == len(report["differences"]) == len(TAMPERING)
        differences = {item["client_transaction_id"]: item for item in report["differences"]}
        assert payments[-1].identity not in differences
        named = [*TAMPERING, "untouched"]
        yield {
            name: (payment, old, differences.get(payment.identity))
            for name, payment, old in zip(named, payments, before, strict=True)
        }
        await nothing_to_correct(posd)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", TAMPERING)
async def test_data_that_does_not_follow_from_the_record_is_corrected_and_reported(
    tampered: dict[str, tuple[Payment, Any, Any]], name: str
) -> None:
    payment, before, difference = tampered[name]
    posd = payment.shop.daemon
    assert set(TAMPERING[name][1]) <= set(difference["fields"])
    assert difference["before"].keys() == difference["after"].keys() == set(difference["fields"])
    line = await posd.log_line("store.difference", transaction=payment.identity)
    assert (line["level"], line["detail"]) == ("error", ", ".join(difference["fields"]))
    after = await payment.get()
    for item in (before, after):
        item.pop("last_search")  # posd's searches at the start change `last_search`
    assert after == before
    assert [verdict for verdict, _ in recorded(posd, payment.identity)] == ["applied"] * 4
    changes = (await posd.call("GET", "/feed?limit=500")).json["changes"]
    mine = [item["reason"] for item in changes if item["id"] == payment.identity]
    mine = [reason for reason in mine if not reason.startswith("search:")]  # leave out posd's searches at the start
    assert mine[-1] == "reprocessed" or name == "a verdict"


async def test_a_damaged_input_hides_no_other_difference(counters: list[Shop]) -> None:
    posd = counters[0].daemon
    damaged, other = [await whole(counter, "APPROVAL") for counter in counters[:2]]
    with closing(sqlite3.connect(posd.database)) as db:
        bodies = db.execute(
            "SELECT rowid, body FROM events WHERE client_transaction_id = ?", (damaged.identity,)
        ).fetchall()
        db.execute("UPDATE events SET body = zeroblob(9) WHERE client_transaction_id = ?", (damaged.identity,))
        db.execute("UPDATE transactions SET acknowledged = 0 WHERE client_transaction_id = ?", (other.identity,))
        db.commit()
    report = await reprocess(posd)
    assert [(item["client_transaction_id"], item["fields"]) for item in report["differences"]] == [
        (damaged.identity, ["record"]),
        (other.identity, ["acknowledged"]),
    ]
    assert "cannot be derived, and stays unchanged" in report["differences"][0]["after"]["record"]
    assert [(await payment.get())["outcome"]["result"] for payment in (damaged, other)] == ["approved"] * 2
    with closing(sqlite3.connect(posd.database)) as db:
        for rowid, content in bodies:
            db.execute("UPDATE events SET body = ? WHERE rowid = ?", (content, rowid))
        db.commit()


# Tests while the shop is open.


@pytest.mark.slow
async def test_reprocessing_finds_nothing_to_correct_and_disturbs_no_running_payment(counters: list[Shop]) -> None:
    posd = counters[0].daemon
    over = False

    async def till(counter: Shop, end: str) -> None:
        while not over:
            payment = await whole(counter, end)
            assert (await posd.outcome(payment.identity))["result"] == ENDS[end]

    working = [asyncio.create_task(till(*each)) for each in zip(counters, ENDS, strict=False)]
    for _ in range(10):
        await nothing_to_correct(posd)
    over = True
    await asyncio.gather(*working)
    report = await reprocess(posd)
    assert report["transactions"] >= 2
    assert (report["skipped"], report["applied"], report["differing"]) == (0, [], 0)
