"""The async client against a real daemon, its terminal seen from the other side."""

import asyncio
import signal
from contextlib import aclosing
from decimal import Decimal

from posd.client import Approved, AsyncPosd, Change
from tests.support.daemon import Daemon
from tests.support.events import APPROVED, body
from tests.support.https import deliver
from tests.support.terminal import ScriptedTerminal


async def approve(posd: Daemon, terminal: ScriptedTerminal, identity: str, steps: slice = slice(None)) -> None:
    """Let the terminal report the steps of an approved payment."""
    for status, previous in APPROVED[steps]:
        assert await deliver(terminal.requests[0].callback, body(identity, status, previous), posd.ca) == 200


async def test_a_charge_ends_approved(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, {"iva": Decimal("1.20"), "subtotal_iva": "10.00"})
        waiting = asyncio.create_task(payment.outcome())
        await approve(posd, terminal, identity)
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert (outcome.id, outcome.charged, outcome.authorized_amount) == (identity, True, Decimal("11.20"))


async def test_a_wait_outlives_three_restarts_and_a_kill(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, "5.00")
        waiting = asyncio.create_task(payment.outcome())
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
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, 5)
        seen = []
        async with aclosing(payment.watch()) as changes:
            await approve(posd, terminal, identity, slice(0, 1))
            seen.append(await anext(changes))
            await posd.restart()
            await approve(posd, terminal, identity, slice(1, None))
            seen.extend([change async for change in changes])
    *steps, last = seen
    assert [step.status for step in steps if isinstance(step, Change)] == [status for status, _ in APPROVED]
    assert isinstance(last, Approved)


async def test_abort_is_a_request(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, 5)
        state = await payment.abort()
    assert (state.phase, terminal.aborts) == ("active", 1)
