"""A daemon that starts on a machine with another address: what was open is marked, asked for, and taken back.

What happens to addresses while the daemon runs is in `tests/lan`: it takes a network of one's own.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.events import APPROVED, event
from tests.support.shop import Payment, Shop, answering, knowing, nothing_to_correct, open_counters
from tests.support.webhooks import attention

#: Much patience with a silent terminal; the rhythm of what cannot call back follows the grace.
SHORT = """
[reconcile]
first_event_grace_seconds = 0.1
stall_seconds = 3600
stall_after_request_seconds = 3600
"""
#: An address of no machine (RFC 5737), as that of this one before it got its present one.
BEFORE, NOW = "192.0.2.7", "127.0.0.1"


@pytest.fixture
async def counter(home: Path) -> AsyncIterator[Shop]:
    async with open_counters(home, 1, SHORT) as (counter,):
        yield counter


async def start_elsewhere(counter: Shop, address: str) -> None:
    """Kill the daemon and start it again; the callbacks of what was open went to that address."""
    await counter.daemon.kill()
    with closing(sqlite3.connect(counter.daemon.database)) as db:
        db.execute("UPDATE transactions SET callback_host = ? WHERE phase <> 'final'", (address,))
        db.commit()
    await counter.daemon.start()


async def waiting(counter: Shop) -> Payment:
    """Return a payment that waits for the PIN, of which every event so far has come."""
    payment = await counter.started()
    for status, previous in APPROVED[:2]:
        assert await payment.event(status, previous) == 200
    return payment


async def kinds(payment: Payment) -> list[str]:
    return [item["kind"] for item in await payment.history()]


@pytest.mark.slow
async def test_it_is_marked_and_asked_for_again_and_again_until_the_outcome_is_known(counter: Shop) -> None:
    payment = await waiting(counter)
    counter.terminal.search = answering(200, b"[]")
    await start_elsewhere(counter, BEFORE)
    document = await payment.until(lambda it: "address_changed" in attention(it))
    assert (document["phase"], document["status"], document["next_step"]) == ("active", "CARD_PRESENTED", "wait")
    (marked,) = document["attention"]
    assert BEFORE in marked["detail"]
    assert "posd asks the terminal by itself" in marked["detail"]
    await payment.searched(len(payment.searches) + 4)  # though each is answered, and nothing is overdue
    await counter.daemon.restart()  # it is known by then
    await payment.searched(len(payment.searches) + 4)
    counter.terminal.search = knowing(event(payment.identity, "APPROVAL", None, payment.serial))
    outcome = await counter.daemon.outcome(payment.identity)
    assert (outcome["result"], [item["kind"] for item in outcome["evidence"]]) == ("approved", ["search"])
    assert (await payment.get())["attention"] == []
    assert (await kinds(payment)).count("address_changed") == 1
    assert len(payment.requests) == 1
    await nothing_to_correct(counter.daemon)


async def test_new_payments_name_the_address_that_there_is(counter: Shop) -> None:
    await (await waiting(counter)).end()
    await start_elsewhere(counter, BEFORE)
    payment = await waiting(counter)
    assert payment.requests[0].callback.startswith(f"https://{NOW}:{counter.daemon.port}/")
    assert (await payment.get())["attention"] == []
    await payment.end()
