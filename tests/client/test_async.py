"""The async client against a real daemon, its terminal seen from the other side."""

import asyncio
import signal
from contextlib import aclosing
from decimal import Decimal

import pytest

from posd.client import Approved, AsyncPosd, Change
from tests.client.conftest import approve
from tests.support.events import APPROVED
from tests.support.shop import Payment


@pytest.mark.asyncio(loop_scope="module")
async def test_a_charge_ends_approved(payment: Payment) -> None:
    async with AsyncPosd(payment.shop.daemon.till_socket) as client:
        amount = {"iva": Decimal("1.20"), "subtotal_iva": "10.00"}
        charge = await client.charge(payment.identity, amount, terminal=payment.serial)
        waiting = asyncio.create_task(charge.outcome())
        await approve(payment)
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert (outcome.id, outcome.charged, outcome.authorized_amount) == (payment.identity, True, Decimal("11.20"))


async def test_a_wait_outlives_three_restarts_and_a_kill(alone: Payment) -> None:
    posd = alone.shop.daemon
    async with AsyncPosd(posd.till_socket) as client:
        charge = await client.charge(alone.identity, "5.00")
        waiting = asyncio.create_task(charge.outcome())
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            await posd.stop(number)
            await posd.start()
        assert not waiting.done()
        await approve(alone)
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert len(alone.requests) == 1


async def test_watch_goes_over_a_restart_without_gap_or_repeat(alone: Payment) -> None:
    async with AsyncPosd(alone.shop.daemon.till_socket) as client:
        charge = await client.charge(alone.identity, 5)
        seen = []
        async with aclosing(charge.watch()) as changes:
            await approve(alone, slice(0, 1))
            seen.append(await anext(changes))
            await alone.shop.daemon.restart()
            await approve(alone, slice(1, None))
            seen.extend([change async for change in changes])
    *steps, last = seen
    assert [step.status for step in steps if isinstance(step, Change)] == [status for status, _ in APPROVED]
    assert isinstance(last, Approved)


@pytest.mark.asyncio(loop_scope="module")
async def test_abort_is_a_request(payment: Payment) -> None:
    aborts = payment.shop.terminal.aborts
    async with AsyncPosd(payment.shop.daemon.till_socket) as client:
        charge = await client.charge(payment.identity, 5, terminal=payment.serial)
        state = await charge.abort()
    assert (state.phase, payment.shop.terminal.aborts - aborts) == ("active", 1)
