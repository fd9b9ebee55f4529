"""Both clients against a real daemon and a scripted terminal."""

import asyncio
import signal
from contextlib import aclosing
from decimal import Decimal

import pytest

from posd.client import Approved, AsyncPosd, Change, Outcome, Paid, State
from tests.client.both import InThreads
from tests.rig.events import APPROVED
from tests.rig.shop import Payment, Shop

pytestmark = pytest.mark.parametrize("client", [AsyncPosd, InThreads], ids=["async", "sync"])

Client = type[AsyncPosd | InThreads]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_charge_ends_approved(client: Client, payment: Payment) -> None:
    async with client(payment.shop.daemon.till_socket) as till:
        amount = {"iva": Decimal("1.20"), "subtotal_iva": "10.00"}
        charge = await till.charge(payment.identity, amount, terminal=payment.serial)
        waiting = asyncio.create_task(charge.outcome())
        await payment.approve()
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert (outcome.id, outcome.paid, outcome.authorized_amount) == (payment.identity, Paid.PAID, Decimal("11.20"))


@pytest.mark.quick(1)
async def test_a_wait_outlives_three_restarts_and_a_kill(client: Client, alone: Payment) -> None:
    posd = alone.shop.daemon
    async with client(posd.till_socket) as till:
        charge = await till.charge(alone.identity, "5.00")
        waiting = asyncio.create_task(charge.outcome())
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            await posd.stop(number)
            await posd.start()
        assert not waiting.done()
        await alone.approve()
        outcome = await waiting
    assert isinstance(outcome, Approved)
    assert len(alone.requests) == 1


@pytest.mark.quick(1)
async def test_watch_continues_over_a_restart_without_gap_or_repeat(client: Client, alone: Payment) -> None:
    async with client(alone.shop.daemon.till_socket) as till:
        await till.charge(alone.identity, 5)
        async with aclosing(till.transaction(alone.identity).watch()) as changes:
            await alone.approve(1)
            seen: list[Change | State | Outcome] = [await anext(changes)]

            async def rest() -> None:
                seen.extend([change async for change in changes])

            watching = asyncio.create_task(rest())
            await alone.shop.daemon.restart()
            await alone.approve(after=1)
            await watching
    *steps, last = seen
    assert [step.status for step in steps if isinstance(step, Change)] == [status for status, _ in APPROVED]
    assert isinstance(last, Approved)


@pytest.mark.asyncio(loop_scope="module")
async def test_each_step_has_a_text_for_the_cashier_in_the_chosen_language(client: Client, payment: Payment) -> None:
    async with client(payment.shop.daemon.till_socket, language="es") as till:
        charge = await till.charge(payment.identity, "5.00", terminal=payment.serial)
        async with aclosing(charge.watch()) as changes:
            for code, (status, previous) in zip(("present_card", "card_read", "asking_bank"), APPROVED, strict=False):
                assert await payment.event(status, previous) == 200
                async for change in changes:
                    if isinstance(change, State) and change.display.code == code:
                        break
            assert (change.display.text, change.next_step) == ("Consultando al banco. Espere, por favor", "wait")
            await payment.approve(after=3)
            *_, last = [change async for change in changes]
    assert isinstance(last, Approved)
    assert last.display is not None
    assert (last.display.code, last.display.text[:6]) == ("paid", "PAGADO")


@pytest.mark.asyncio(loop_scope="module")
async def test_after_a_call_to_abort_the_payment_is_still_open(client: Client, payment: Payment) -> None:
    aborts = payment.shop.terminal.aborts
    async with client(payment.shop.daemon.till_socket) as till:
        charge = await till.charge(payment.identity, 5, terminal=payment.serial)
        state = await charge.abort()
    assert (state.phase, payment.shop.terminal.aborts - aborts) == ("active", 1)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wait_for_the_outcome_reports_each_text_only_once(client: Client, payment: Payment) -> None:
    shown: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    async with client(payment.shop.daemon.till_socket) as till:
        charge = await till.charge(payment.identity, "5.00", terminal=payment.serial)
        waiting = asyncio.create_task(
            charge.outcome(show=lambda text: loop.call_soon_threadsafe(shown.put_nowait, text) and None)
        )
        assert await shown.get() == "Present the card"
        assert await payment.event("TERMINAL_ACKNOWLEDGED", None) == 200
        assert await payment.event("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED") == 200
        assert await shown.get() == "Card read, please wait"
        await payment.approve(after=2)
        assert isinstance(await waiting, Approved)
    if (last := await shown.get()) == "Asking the bank, please wait":
        last = await shown.get()
    assert (last, shown.empty()) == ("PAID 11.20", True)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wait_reports_that_a_person_must_act(client: Client, shop: Shop) -> None:
    payment, told = await shop.in_doubt(), ""
    shown: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    async with client(shop.daemon.till_socket) as till, AsyncPosd(shop.daemon.admin_socket) as admin:
        waiting = asyncio.create_task(
            till.transaction(payment.identity).outcome(
                show=lambda text: loop.call_soon_threadsafe(shown.put_nowait, text) and None
            )
        )
        await admin.transaction(payment.identity).release("Ana", "the display is dark")
        while not told.startswith("CALL THE SUPERVISOR."):
            told = await shown.get()
        assert not waiting.done()
        await admin.transaction(payment.identity).resolve("declined", "Ana", "slip")
        assert await shown.get() == "NOT PAID"
        assert (await waiting).paid is Paid.NOT_PAID
