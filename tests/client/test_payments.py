"""Payments by both clients with a real daemon that stops and dies, its terminal seen from the other side."""

import asyncio
import signal
from contextlib import aclosing
from decimal import Decimal

import pytest

from posd.client import Approved, AsyncPosd, Change, Outcome
from tests.client.both import Client, InThreads, approve
from tests.support.daemon import Daemon
from tests.support.events import APPROVED
from tests.support.terminal import ScriptedTerminal


@pytest.fixture(params=[AsyncPosd, InThreads], ids=["async", "sync"])
def client(request: pytest.FixtureRequest, posd: Daemon) -> Client:
    client: Client = request.param(posd.till_socket)
    return client


async def test_a_charge_ends_approved(client: Client, posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    async with client:
        payment = await client.charge(identity, {"iva": Decimal("1.20"), "subtotal_iva": "10.00"})
        waiting = asyncio.create_task(payment.outcome())
        await approve(posd, terminal, identity)
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert (outcome.id, outcome.charged, outcome.authorized_amount) == (identity, True, Decimal("11.20"))


async def test_a_wait_outlives_three_restarts_and_a_kill(
    client: Client, posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    async with client:
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
    client: Client, posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    async with client:
        await client.charge(identity, 5)
        async with aclosing(client.transaction(identity).watch()) as changes:
            await approve(posd, terminal, identity, slice(0, 1))
            seen: list[Change | Outcome] = [await anext(changes)]

            async def rest() -> None:
                seen.extend([change async for change in changes])

            watching = asyncio.create_task(rest())
            await posd.restart()
            await approve(posd, terminal, identity, slice(1, None))
            await watching
    *steps, last = seen
    assert [step.status for step in steps if isinstance(step, Change)] == [status for status, _ in APPROVED]
    assert isinstance(last, Approved)


async def test_abort_is_a_request(client: Client, terminal: ScriptedTerminal, identity: str) -> None:
    async with client:
        payment = await client.charge(identity, 5)
        state = await payment.abort()
    assert (state.phase, terminal.aborts) == ("active", 1)
