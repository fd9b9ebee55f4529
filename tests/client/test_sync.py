"""The sync client against a real daemon, its terminal seen from the other side."""

import asyncio
import signal

from posd.client import Approved, Change, Outcome, Posd
from tests.client.conftest import approve
from tests.support.events import APPROVED
from tests.support.shop import Payment


async def test_a_wait_outlives_three_restarts_and_a_kill(alone: Payment) -> None:
    posd = alone.shop.daemon
    with Posd(posd.till_socket) as client:
        charge = await asyncio.to_thread(client.charge, alone.identity, "5.00")
        waiting = asyncio.create_task(asyncio.to_thread(charge.outcome))
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            await posd.stop(number)
            await posd.start()
        assert not waiting.done()
        await approve(alone)
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert len(alone.requests) == 1


async def test_watch_goes_over_a_restart_without_gap_or_repeat(alone: Payment) -> None:
    first = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> list[Change | Outcome]:
        seen: list[Change | Outcome] = []
        for change in client.transaction(alone.identity).watch():
            seen.append(change)
            loop.call_soon_threadsafe(first.set)
        return seen

    with Posd(alone.shop.daemon.till_socket) as client:
        await asyncio.to_thread(client.charge, alone.identity, 5)
        watching = asyncio.create_task(asyncio.to_thread(watch))
        await approve(alone, slice(0, 1))
        await first.wait()
        await alone.shop.daemon.restart()
        await approve(alone, slice(1, None))
        *steps, last = await watching
    assert [step.status for step in steps if isinstance(step, Change)] == [status for status, _ in APPROVED]
    assert isinstance(last, Approved)
