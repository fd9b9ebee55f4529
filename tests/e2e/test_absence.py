"""A webhook listener that was down during open payments (terminal API, Delivery)."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from posd.base.times import iso
from posd.calls.streams import HEARTBEAT_SECONDS
from posd.payments.model import LONG_WAIT
from tests.e2e.test_metrics import families, value
from tests.rig.daemon import Daemon
from tests.rig.shop import QUIET, Payment, Shop, answering, open_counters
from tests.rig.streams import stream

#: Downtime in seconds. The downtime is longer than a terminal's retries.
LONG = 720


@pytest.fixture
async def counter() -> AsyncIterator[Shop]:
    async with open_counters(1, QUIET) as (counter,):
        counter.terminal.search = answering(200, b"[]")
        yield counter


async def waiting(counter: Shop) -> Payment:
    """Return a payment that waits for the PIN. All events up to this state have arrived."""
    payment = await counter.started()
    await payment.approve(2)
    return payment


def backdate(posd: Daemon, seconds: float) -> None:
    """Move the times of a stopped daemon back: the times in its records, and the time of the file that it touches."""
    at = datetime.now(UTC) - timedelta(seconds=seconds)
    with closing(sqlite3.connect(posd.database)) as db, db:
        db.execute("UPDATE changes SET at = ?", (iso(at),))
    alive = posd.database.with_name("posd.db.alive")
    os.utime(alive, (at.timestamp(), at.timestamp()))


async def away(counter: Shop, seconds: float) -> None:
    """Kill the daemon, and start it again after a simulated downtime."""
    await counter.daemon.kill()
    backdate(counter.daemon, seconds)
    await counter.daemon.start()


async def listener(posd: Daemon) -> tuple[str, str, str]:
    """Return the daemon's status, the listener's status, and the text of the listener's check."""
    health = (await posd.call("GET", "/health")).json
    check = health["checks"]["webhook_listener"]
    return health["status"], check["status"], f"{check['detail']}: {check['todo']}"


def told(posd: Daemon, event: str = "listener.was_away") -> list[dict[str, Any]]:
    return [line for line in posd.lines if line["event"] == event]


async def test_health_is_degraded_until_the_payment_has_ended(counter: Shop) -> None:
    payment = await waiting(counter)
    await away(counter, LONG)
    status, state, words = await listener(counter.daemon)
    assert (status, state) == ("degraded", "degraded")
    for part in (
        "for about 12 min",
        "posd was not running",
        "1 payment was open",
        f"posd reconcile {payment.identity}",
    ):
        assert part in words
    line = await counter.daemon.log_line("listener.was_away")
    assert (line["level"], line["count"], line["reason"]) == ("warning", 1, "stopped")
    assert LONG <= line["seconds"] < LONG + 60
    found = await families(counter.daemon)
    assert value(found, "posd_listener_away_payments") == value(found, "posd_listener_absences_total") == 1
    assert value(found, "posd_health", check="webhook_listener") == 1
    await payment.searched()  # posd searches at the start, and a search without a result changes nothing
    await counter.daemon.wait_for(payment.identity, lambda it: it["last_search"] is not None)
    assert (await listener(counter.daemon))[0] == "degraded"
    await payment.end()
    assert (await listener(counter.daemon))[:2] == ("ok", "ok")
    await counter.daemon.log_line("listener.caught_up")
    assert len(told(counter.daemon)) == len(told(counter.daemon, "listener.caught_up")) == 1
    assert value(await families(counter.daemon), "posd_listener_away_payments") == 0


async def test_a_terminal_that_accepted_a_payment_and_does_not_report_it_needs_a_person(counter: Shop) -> None:
    """posd asks a person only after the customer must have left. A search does not find a payment that still waits for
    the card.
    """
    payment = await waiting(counter)
    await counter.daemon.restart()
    before = await payment.until(lambda it: it["last_search"] is not None)
    assert (before["last_search"]["result"] != "found", before["next_step"]) == (True, "wait")
    with closing(sqlite3.connect(counter.daemon.database)) as db, db:
        at = datetime.now(UTC) - LONG_WAIT + timedelta(seconds=1)
        db.execute("UPDATE transactions SET created_at = ?", (iso(at),))
    path = f"/transactions/{payment.identity}/events"
    # The message arrives before a heartbeat is due, so only elapsed time can cause the message.
    async with asyncio.timeout(HEARTBEAT_SECONDS / 2), stream(counter.daemon.till_socket, path) as source:
        async for message in source:
            if message.event == "state" and message.json["next_step"] == "ask_person":
                assert message.json["display"]["code"] == "call_supervisor"
                assert message.json["phase"] == "active"
                break
    await payment.end()
    assert (await payment.get())["next_step"] == "new_id_ok"
