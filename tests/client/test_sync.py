"""The sync client against a real daemon, its terminal seen from the other side."""

import asyncio
import signal

from posd.client import Approved, Change, Outcome, Posd
from tests.client.test_async import approve
from tests.support.daemon import Daemon
from tests.support.events import APPROVED
from tests.support.terminal import ScriptedTerminal


async def test_a_wait_outlives_three_restarts_and_a_kill(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    with Posd(posd.till_socket) as client:
        payment = await asyncio.to_thread(client.charge, identity, "5.00")
        waiting = asyncio.create_task(asyncio.to_thread(payment.outcome))
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            await posd.stop(number)
            await posd.start()
        assert not waiting.done()
        await approve(posd, terminal, identity)
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert terminal.starts_of(identity) == 1


async def test_watch_goes_over_a_restart_without_gap_or_repeat(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    first = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> list[Change | Outcome]:
        seen: list[Change | Outcome] = []
        for change in client.transaction(identity).watch():
            seen.append(change)
            loop.call_soon_threadsafe(first.set)
        return seen

    with Posd(posd.till_socket) as client:
        await asyncio.to_thread(client.charge, identity, 5)
        watching = asyncio.create_task(asyncio.to_thread(watch))
        await approve(posd, terminal, identity, slice(0, 1))
        await first.wait()
        await posd.restart()
        await approve(posd, terminal, identity, slice(1, None))
        *steps, last = await watching
    assert [step.status for step in steps if isinstance(step, Change)] == [status for status, _ in APPROVED]
    assert isinstance(last, Approved)
