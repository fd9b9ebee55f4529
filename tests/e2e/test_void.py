"""Voids: the body, and the distinction between cancellation and refund (terminal API, Reversal). posd compares the
terminal's times of both approvals by the merchant's calendar.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio

from tests.rig.chains import AT, Operation, approved, operation, stored
from tests.rig.shop import QUIET, Shop, hanging_up, knowing, nothing_to_correct, open_counters
from tests.rig.simulated import configured_otherwise

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Approval time of an original, a time on the same day in Guayaquil, and a time on another day.
DAYS = (
    ("2025-11-20T10:42:03.120Z", "2025-11-21T04:59:59.999Z", "2025-11-21T05:00:00.000Z"),
    ("2024-12-31T23:59:59.999-05:00", "2024-12-31T10:00:00.000Z", "2025-12-31T10:00:00.000Z"),
)


@asynccontextmanager
async def merchant(timezone: str) -> AsyncIterator[Shop]:
    """Run a daemon with a merchant in this time zone and one terminal."""
    settings = f'[merchant]\ntimezone = "{timezone}"\n{QUIET}'
    async with open_counters(1, settings) as (counter,):
        yield counter
        await nothing_to_correct(counter.daemon)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counter() -> AsyncIterator[Shop]:
    """Yield a merchant in a time zone with a local time near noon, so that no test runs over midnight."""
    hours = 12 - datetime.now(UTC).hour
    async with merchant(f"Etc/GMT{-hours:+}" if hours else "UTC") as counter:
        yield counter


async def voided(counter: Shop, to: Operation, occurred_at: str, **request: Any) -> Operation:
    """Return an approved void of an original. `occurred_at`: the time of the void's approval."""
    void = await operation(counter, "void").begin(**{"original": to.identity} | request)
    return await void.finish(occurred_at=occurred_at)


async def reversal(void: Operation) -> Any:
    outcome = (await void.get())["outcome"]
    assert (outcome["result"], outcome["transaction_reference"]) == ("approved", void.reference)
    return outcome["reversal"]


async def test_a_void_is_a_cancellation_before_midnight_and_a_refund_after_midnight() -> None:
    async with merchant("America/Guayaquil") as counter:
        voids = []
        for kind, (at, last, first) in zip(("capture", "charge"), DAYS, strict=True):
            for moment, expected in ((last, "cancellation"), (first, "refund")):
                original = operation(counter, kind)
                await original.begin(**({"transaction_reference": str(uuid4())} if kind == "capture" else {}))
                await original.finish(occurred_at=at)
                assert (await original.get())["outcome"]["reversal"] is None
                void = await voided(counter, original, moment)
                assert await reversal(void) == expected, (at, moment)
                voids.append((void, expected))
        await counter.daemon.restart()
        await nothing_to_correct(counter.daemon)
        assert [await reversal(void) for void, _ in voids] == [expected for _, expected in voids]


# How posd receives the two approval times.


@pytest.mark.slow
async def test_an_original_reported_late_was_approved_at_the_terminals_time(counter: Shop) -> None:
    """The original arrives by a late event, by a search, or by both. A search also finds the void."""
    zone = stated_zone(counter)
    day = [datetime(2025, 11, 20, hour, tzinfo=zone).isoformat() for hour in (1, 23)]
    next_day = datetime(2025, 11, 21, tzinfo=zone).isoformat()
    for way in ("event", "search", "search, event"):
        for moment, expected in ((day[1], "cancellation"), (next_day, "refund")):
            assert await reversal(await voided(counter, await told_late(counter, way, day[0]), moment)) == expected, way
            void = operation(counter, "void")
            original = await told_late(counter, way, day[0])
            counter.terminal.start = hanging_up
            await void.put(original=original.identity)
            counter.terminal.search = knowing(void.states(occurred_at=moment))
            assert (await void.post("reconcile")).json["outcome"]["reversal"] == expected, way
            assert await void.deliver(json.dumps(void.states(occurred_at=moment)).encode()) == 200
            assert await reversal(void) == expected


async def told_late(counter: Shop, way: str, at: str) -> Operation:
    """Return a charge with this approval time. After a lost reply, posd received the approval in this way."""
    original = operation(counter, "charge")
    counter.terminal.start = hanging_up
    await original.put()
    element = original.states(occurred_at=at)
    if "search" in way:
        counter.terminal.search = knowing(element)
        assert (await original.post("reconcile")).json["outcome"]["result"] == "approved"
    if "event" in way:
        assert await original.deliver(json.dumps(element).encode()) == 200
    return original


def stated_zone(counter: Shop) -> ZoneInfo:
    """Return the zone of the merchant."""
    return ZoneInfo(counter.daemon.config.split('timezone = "')[1].split('"')[0])


async def test_a_void_by_reference_finds_its_original_or_has_no_reversal(counter: Shop) -> None:
    for written in (str, str.upper):
        original = await approved(counter, "charge")
        reference = written(original.reference)
        void = await voided(counter, original, AT, original=None, transaction_reference=reference)
        assert (await reversal(void), stored(void)["derives_from"]) == ("cancellation", original.identity)
    foreign = await voided(counter, original, AT, original=None, transaction_reference=str(uuid4()))
    assert (await reversal(foreign), stored(foreign)["same_day_until"]) == (None, None)


async def test_a_void_of_a_re_authorization_has_no_reversal(counter: Shop) -> None:
    """The pre-authorization reserved the money on another machine. posd does not know the day of the
    pre-authorization."""
    re_auth = await approved(counter, "re-auth")
    void = await voided(counter, re_auth, AT, original=None, transaction_reference=re_auth.reference)
    assert await reversal(void) is None


@pytest.mark.slow
async def test_the_kind_of_a_void_stays_after_a_change_of_the_time_zone(counter: Shop) -> None:
    original = await approved(counter, "charge")
    void = await voided(counter, original, AT)
    assert await reversal(void) == "cancellation"
    before = await void.get()
    zone = f'timezone = "{stated_zone(counter).key}"'
    await configured_otherwise(counter.daemon, {zone: 'timezone = "Pacific/Kiritimati"'})
    await nothing_to_correct(counter.daemon)
    assert await void.get() == before
    await configured_otherwise(counter.daemon, {'timezone = "Pacific/Kiritimati"': zone})
