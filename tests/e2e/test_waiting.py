"""Waits for the outcome by long-poll, streams and the feed. Many clients wait at once, disconnect, or keep waiting over
restarts.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CHARGE
from tests.rig.daemon import Daemon
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.shop import Shop
from tests.rig.streams import ask
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal
from tests.rig.waits import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def sockets(posd: Daemon) -> int:
    """Return the number of sockets of the daemon. All sockets except the listening sockets are connections."""
    count = 0
    for entry in Path(f"/proc/{there(posd.process).pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(entry.readlink()).startswith("socket:")
    return count


async def settles(posd: Daemon, count: int) -> None:
    """Wait until the daemon has at most this many connections."""
    await until(lambda: sockets(posd) <= count)


@pytest.mark.parametrize(("timeout", "least"), [("0", 0.0), ("0.2", 0.2)])
async def test_a_wait_that_times_out_returns_the_open_payment(shop: Shop, timeout: str, least: float) -> None:
    payment = await shop.started()
    began = asyncio.get_running_loop().time()
    reply = await shop.daemon.call("GET", f"/transactions/{payment.identity}/outcome?timeout={timeout}")
    assert reply.status == 202
    assert reply.json == await payment.get()
    assert least <= asyncio.get_running_loop().time() - began < least + 30
    await payment.end()
    reply = await shop.daemon.call("GET", f"/transactions/{payment.identity}/outcome?timeout={timeout}")
    assert (reply.status, reply.json["result"]) == (200, "canceled")


async def test_closed_streams_leave_nothing_behind(shop: Shop) -> None:
    payment = await shop.started()
    before = sockets(shop.daemon)
    places = (f"/transactions/{payment.identity}/events", "/feed", f"/transactions/{payment.identity}/outcome")
    streams = [
        await ask(shop.daemon.till_socket, path, "accept: text/event-stream\r\n") for path in places for _ in range(10)
    ]
    for item in streams[:20]:
        await item.reader.readuntil(b"\r\n\r\n")
    for item in streams:
        item.hang_up()
    await settles(shop.daemon, before)
    await payment.end()


async def page(posd: Daemon, after: int, limit: int = 500) -> Any:
    """Return a page of the feed."""
    return (await posd.call("GET", f"/feed?after={after}&limit={limit}")).json


@pytest.mark.asyncio(loop_scope="function")
async def test_a_wait_over_a_restart_repeats_its_call(terminal: ScriptedTerminal, posd: Daemon, identity: str) -> None:
    assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
    waiting = await ask(posd.till_socket, f"/transactions/{identity}/outcome")
    await posd.restart()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await waiting.reply()
    waiting.hang_up()
    again = await ask(posd.till_socket, f"/transactions/{identity}/outcome")
    assert await deliver(terminal.requests[0].callback, body(identity, "APPROVAL"), posd.ca) == 200
    assert (await again.reply())[1]["result"] == "approved"
    again.hang_up()
