"""Cancellation, time-out or Ctrl-C ends a wait, and does not affect the payment. Threads can share a client."""

import asyncio
import gc
import os
import signal
import socket
import sys
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from posd.client import Approved, AsyncPayment, AsyncPosd, Canceled, Paid, Posd, StillOpen, connection
from tests.client.conftest import refused
from tests.rig.shop import Held, Payment, acknowledging
from tests.rig.waits import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def connections(path: Path) -> int:
    """Return the number of connections of this process to a Unix socket."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if entry.readlink().name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as each:
                    found += each.family == socket.AF_UNIX and each.getpeername() == str(path)
    return found


async def watched(payment: AsyncPayment) -> None:
    async for _ in payment.watch():
        pass


WAITS: dict[str, Callable[[AsyncPayment], Awaitable[Any]]] = {
    "outcome": lambda payment: payment.outcome(),
    "outcome with a time-out": lambda payment: payment.outcome(timeout=3600),
    "watch": watched,
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("wait", WAITS)
async def test_a_cancelled_wait_leaves_the_payment_open_and_closes_its_connection(payment: Payment, wait: str) -> None:
    terminal, socket = payment.shop.terminal, payment.shop.daemon.till_socket
    aborts = terminal.aborts
    async with AsyncPosd(socket) as client:
        charge = await client.charge(payment.identity, "5.00", terminal=payment.serial)
        waiting = asyncio.ensure_future(WAITS[wait](charge))
        await until(lambda: connections(socket) == 1)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()
        assert connections(socket) == 0
        assert (await charge.state()).phase == "active"
        await payment.approve()
        assert isinstance(await charge.outcome(), Approved)
    assert (len(payment.requests), terminal.aborts - aborts) == (1, 0)


async def test_a_cancelled_charge_continues_and_is_found_by_its_id(payment: Payment) -> None:
    payment.shop.terminal.start = slow = Held(acknowledging(payment.serial))
    async with AsyncPosd(payment.shop.daemon.till_socket) as client:
        charging = asyncio.ensure_future(client.charge(payment.identity, "5.00", terminal=payment.serial))
        await slow.arrived.wait()
        charging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await charging
        slow.release.set()
        charge = await client.charge(payment.identity, "5.00", terminal=payment.serial)
        await payment.approve()
        assert isinstance(await charge.outcome(), Approved)
    assert len(payment.requests) == 1


async def test_time_outs_of_asyncio_and_of_the_client_do_not_affect_the_payment(payment: Payment) -> None:
    async with AsyncPosd(payment.shop.daemon.till_socket) as client:
        charge = await client.charge(payment.identity, "5.00", terminal=payment.serial)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await charge.outcome()
        with pytest.raises(StillOpen) as caught:
            await charge.outcome(timeout=0.3)
        assert caught.value.state is not None
        assert caught.value.state.status == "TERMINAL_ACKNOWLEDGED"
        assert connections(payment.shop.daemon.till_socket) == 0
    assert len(payment.requests) == 1


PROGRAM = """
import sys
from posd.client import Posd, State
_, socket, identity, terminal, wait = sys.argv
with Posd(socket) as posd:
    payment = posd.charge(identity, "5.00", terminal=terminal)
    for change in payment.watch():
        if isinstance(change, State):
            continue
        print(change.status, flush=True)
        if wait == "outcome":
            print(payment.outcome())
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize("wait", ["watch", "outcome"])
async def test_ctrl_c_in_a_waiting_program_does_not_affect_the_payment(payment: Payment, wait: str) -> None:
    posd, aborts = payment.shop.daemon, payment.shop.terminal.aborts
    arguments = (str(posd.till_socket), payment.identity, payment.serial, wait)
    till = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert till.stdout is not None
    await payment.shop.terminal.until(lambda: bool(payment.requests))
    await payment.approve(1)
    assert await till.stdout.readline() == b"TERMINAL_ACKNOWLEDGED\n"
    till.send_signal(signal.SIGINT)
    _, said = await till.communicate()
    assert b"KeyboardInterrupt" in said
    assert b"ResourceWarning" not in said
    assert (await payment.get())["phase"] == "active"
    await payment.approve(after=1)
    assert (await posd.outcome(payment.identity))["result"] == "approved"
    assert (len(payment.requests), payment.shop.terminal.aborts - aborts) == (1, 0)


async def test_threads_share_a_client(payment: Payment) -> None:
    """One thread waits for the outcome. Other threads watch, repeat the charge, get a refusal, and abort."""
    terminal, identity = payment.shop.terminal, payment.identity
    aborts = terminal.aborts
    with Posd(payment.shop.daemon.till_socket) as client, ThreadPoolExecutor(32) as threads:
        run = partial(asyncio.get_running_loop().run_in_executor, threads)
        charge = partial(client.charge, terminal=payment.serial)
        charged = await run(charge, identity, "5.00")
        waiting = [run(charged.outcome) for _ in range(20)]
        watching = run(lambda: list(client.transaction(identity).watch()))
        again = await asyncio.gather(*(run(charge, identity, "5.00") for _ in range(5)))
        with refused("terminal_busy") as caught:
            await run(charge, uuid4(), "5.00")
        await run(charged.abort)
        await payment.end()
        outcomes = await asyncio.gather(*waiting)
        assert isinstance((await watching)[-1], Canceled)
    assert all(isinstance(each, Canceled) and each.paid is Paid.NOT_PAID for each in outcomes)
    assert {each.id for each in again} == {identity}
    assert caught.value.extra["blocking_transaction"] == identity
    assert (len(payment.requests), terminal.aborts - aborts) == (1, 1)


async def test_a_watch_that_ends_early_closes_its_connection(payment: Payment) -> None:
    socket = payment.shop.daemon.till_socket
    async with AsyncPosd(socket) as client:
        charge = await client.charge(payment.identity, "5.00", terminal=payment.serial)
        await payment.approve(1)
        changes: AsyncGenerator[Any, None] = charge.watch()
        await anext(changes)
        await changes.aclose()
        assert connections(socket) == 0


async def test_a_socket_that_could_not_be_connected_is_closed(tmp_path: Path) -> None:
    """posd can end between the check of the socket and the call. In this case the HTTP client leaves the socket
    open.
    """
    path = str(tmp_path / "nobody.sock")
    with (
        warnings.catch_warnings(record=True) as caught,
        httpx2.Client(transport=httpx2.HTTPTransport(**connection.transport_options(path))) as client,
    ):
        warnings.simplefilter("always")
        with pytest.raises(httpx2.ConnectError) as raised:
            client.get("http://posd/v1/health")
        lost = connection.lost(path, raised.value)
        assert not lost.sent
        del raised, lost
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
