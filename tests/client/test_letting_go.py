"""Who stops waiting leaves the payment alone: cancellation, time-outs, Ctrl-C; and threads share a client."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.client import Approved, AsyncPayment, AsyncPosd, Canceled, Posd, StillOpen, TerminalBusy
from tests.client.both import approve
from tests.support.daemon import Daemon
from tests.support.events import body
from tests.support.https import deliver
from tests.support.shop import held
from tests.support.streams import PATIENCE_SECONDS
from tests.support.terminal import ScriptedTerminal


def connections(path: Path) -> int:
    """Return how many connections to a Unix socket this process has."""
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


async def until(what: Callable[[], bool]) -> None:
    """Wait until something holds in this process, for which there is no event."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not what():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("wait", WAITS)
async def test_a_cancelled_wait_leaves_the_payment_and_no_connection(
    posd: Daemon, terminal: ScriptedTerminal, identity: str, wait: str
) -> None:
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, "5.00")
        waiting = asyncio.ensure_future(WAITS[wait](payment))
        await until(lambda: connections(posd.till_socket) == 1)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()
        assert connections(posd.till_socket) == 0
        assert (await payment.state()).phase == "active"
        await approve(posd, terminal, identity)
        assert isinstance(await payment.outcome(), Approved)
    assert (len(terminal.requests), terminal.aborts) == (1, 0)


async def test_a_cancelled_charge_goes_on_and_is_found_by_its_id(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    terminal.start = slow = held(terminal.acknowledge)
    async with AsyncPosd(posd.till_socket) as client:
        charging = asyncio.ensure_future(client.charge(identity, "5.00"))
        await slow.arrived.wait()
        charging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await charging
        slow.release.set()
        payment = await client.charge(identity, "5.00")
        await approve(posd, terminal, identity)
        assert isinstance(await payment.outcome(), Approved)
    assert terminal.starts_of(identity) == 1


async def test_asyncio_timeouts_and_the_clients_own_leave_it_alone(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, "5.00")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await payment.outcome()
        with pytest.raises(StillOpen) as caught:
            await payment.outcome(timeout=0.3)
        assert caught.value.state is not None
        assert caught.value.state.status == "TERMINAL_ACKNOWLEDGED"
        assert connections(posd.till_socket) == 0
    assert len(terminal.requests) == 1


PROGRAM = """
import sys
from posd.client import Posd
with Posd(sys.argv[1]) as posd:
    payment = posd.charge(sys.argv[2], "5.00")
    for change in payment.watch():
        print(change.status, flush=True)
        if sys.argv[3] == "outcome":
            print(payment.outcome())
"""


@pytest.mark.parametrize("wait", ["watch", "outcome"])
async def test_ctrl_c_of_a_waiting_program_leaves_the_payment_alone(
    posd: Daemon, terminal: ScriptedTerminal, identity: str, wait: str
) -> None:
    till = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(posd.till_socket), identity, wait),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert till.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        await terminal.arrived.wait()
    await approve(posd, terminal, identity, slice(0, 1))
    assert await till.stdout.readline() == b"TERMINAL_ACKNOWLEDGED\n"
    till.send_signal(signal.SIGINT)
    _, said = await till.communicate()
    assert b"KeyboardInterrupt" in said
    assert b"ResourceWarning" not in said
    assert (await posd.transaction(identity))["phase"] == "active"
    await approve(posd, terminal, identity, slice(1, None))
    assert (await posd.outcome(identity))["result"] == "approved"
    assert (len(terminal.requests), terminal.aborts) == (1, 0)


async def test_a_till_that_was_killed_comes_back_and_asks_by_its_id(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    till = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, str(posd.till_socket), identity, "watch")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await terminal.arrived.wait()
    till.kill()
    await till.wait()
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, "5.00")
        await approve(posd, terminal, identity)
        assert isinstance(await payment.outcome(), Approved)
    assert terminal.starts_of(identity) == 1


async def test_threads_share_a_client(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    """One waits for the outcome, one watches, one charges again, one is refused, one aborts."""
    with Posd(posd.till_socket) as client, ThreadPoolExecutor(32) as threads:
        run = partial(asyncio.get_running_loop().run_in_executor, threads)
        payment = await run(client.charge, identity, "5.00")
        waiting = [run(payment.outcome) for _ in range(20)]
        watching = run(lambda: list(client.transaction(identity).watch()))
        again = await asyncio.gather(*(run(client.charge, identity, "5.00") for _ in range(5)))
        with pytest.raises(TerminalBusy) as caught:
            await run(client.charge, uuid4(), "5.00")
        await run(payment.abort)
        final = body(identity, "TERMINAL_CANCELED")
        assert await deliver(terminal.requests[0].callback, final, posd.ca) == 200
        outcomes = await asyncio.gather(*waiting)
        assert isinstance((await watching)[-1], Canceled)
    assert all(isinstance(each, Canceled) and each.charged is False for each in outcomes)
    assert {each.id for each in again} == {identity}
    assert caught.value.extra["blocking_transaction"] == identity
    assert (terminal.starts_of(identity), terminal.aborts) == (1, 1)


async def test_amounts_are_exact_to_the_terminals_wire(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(
            identity, {"iva": Decimal("0.10"), "subtotal_iva": "10.20", "extra_taxes": {"ice": Decimal("0.3000")}}
        )
        state = await payment.state()
    for digits in (b'"iva":0.10', b'"subtotal_iva":10.20', b'"ice":0.3000'):
        assert digits in terminal.requests[0].body.replace(b": ", b":")
    assert str(state.amount["iva"]) == "0.10"


async def test_a_watch_that_is_left_early_has_no_connection(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    async with AsyncPosd(posd.till_socket) as client:
        payment = await client.charge(identity, "5.00")
        await approve(posd, terminal, identity, slice(0, 1))
        changes: AsyncGenerator[Any, None] = payment.watch()
        await anext(changes)
        await changes.aclose()
        assert connections(posd.till_socket) == 0
