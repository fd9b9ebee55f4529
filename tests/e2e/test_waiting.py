"""Waiting for the outcome: long-poll, streams and the feed; many at once, gone in between, over restarts."""

import asyncio
import json
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CHARGE, some
from tests.support.daemon import Daemon
from tests.support.events import APPROVED, body, event
from tests.support.https import deliver
from tests.support.senders import ask_on, crowd
from tests.support.shop import AMOUNT, Shop, acknowledging, held, quiet
from tests.support.streams import ask, collect, stream, told
from tests.support.terminal import ScriptedTerminal

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: So many tills at once; a connection each.
MANY = 1000


def sockets(posd: Daemon) -> int:
    """Count the sockets of the daemon: what is above those that it listens on is its connections."""
    assert posd.process is not None
    count = 0
    for entry in Path(f"/proc/{posd.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(entry.readlink()).startswith("socket:")
    return count


async def settles(posd: Daemon, count: int) -> None:
    """Wait until the daemon has no more connections than that."""
    async with asyncio.timeout(30):
        while sockets(posd) > count:  # noqa: ASYNC110 - the kernel has no event for it
            await asyncio.sleep(0.005)


async def test_two_tills_wait_and_one_is_killed(shop: Shop) -> None:
    payment = await shop.started()
    before = sockets(shop.daemon)
    path = f"/transactions/{payment.identity}/outcome"
    killed, patient = [await ask(shop.daemon.till_socket, path) for _ in range(2)]
    killed.hang_up()
    await settles(shop.daemon, before + 1)
    await payment.end()
    status, outcome = await patient.reply()
    assert (status, outcome["result"]) == (200, "canceled")
    patient.hang_up()
    await settles(shop.daemon, before)


@pytest.mark.parametrize("count", some((100, MANY), 100))
async def test_a_thousand_wait_at_once(shop: Shop, count: int) -> None:
    payment = await shop.started()
    before = sockets(shop.daemon)
    path = f"/transactions/{payment.identity}/outcome"
    with crowd(shop.daemon.till_socket, count) as connections:
        waiting = [await ask_on(item, path) for item in connections]
        began = asyncio.get_running_loop().time()
        other = await shop.daemon.call("GET", "/version")
        assert other.status == 200
        for index in range(0, count, 10):
            waiting[index].hang_up()
            connections[index].close()
        await payment.end()
        patient = [item for index, item in enumerate(waiting) if index % 10]
        replies = await asyncio.gather(*(item.reply() for item in patient))
        took = asyncio.get_running_loop().time() - began
        print(f"{len(replies)} tills had the outcome {took:.2f} s after the last one had asked")
        assert {(status, outcome["result"]) for status, outcome in replies} == {(200, "canceled")}
        assert took < 60
        for item in patient:
            item.hang_up()
    await settles(shop.daemon, before)


@pytest.mark.parametrize(("timeout", "least"), [("0", 0.0), ("0.2", 0.2)])
async def test_a_wait_that_is_cut_short_says_still_open(shop: Shop, timeout: str, least: float) -> None:
    payment = await shop.started()
    began = asyncio.get_running_loop().time()
    reply = await shop.daemon.call("GET", f"/transactions/{payment.identity}/outcome?timeout={timeout}")
    assert reply.status == 202
    assert reply.json == await payment.get()
    assert least <= asyncio.get_running_loop().time() - began < least + 30
    await payment.end()
    reply = await shop.daemon.call("GET", f"/transactions/{payment.identity}/outcome?timeout={timeout}")
    assert (reply.status, reply.json["result"]) == (200, "canceled")


async def test_the_events_of_a_payment_live_until_the_outcome(shop: Shop) -> None:
    payment = await shop.started()
    before = sockets(shop.daemon)
    path = f"/transactions/{payment.identity}/events"
    sent = [event(payment.identity, status, previous, payment.serial) for status, previous in APPROVED]
    async with stream(shop.daemon.till_socket, path) as source:
        live, read = told(source), []
        for item in sent:
            # As a person would print it: the body spans lines, and has its own kinds of line ends.
            content = json.dumps(item, indent=2).replace("\n", "\r\n" if item is sent[1] else "\n").encode()
            assert await deliver(payment.requests[0].callback, content, shop.daemon.ca) == 200
            read.append(await anext(live))
        last = await anext(live)
        with pytest.raises(StopAsyncIteration):
            await anext(live)
    assert [message.event for message in read] == [item["status"] for item in sent]
    assert [message.json["event"]["event_id"] for message in read] == [item["event_id"] for item in sent]
    assert [message.id for message in read] == [message.json["seq"] for message in read]
    assert [message.json["verdict"] for message in read] == ["applied"] * 4
    assert (last.event, last.id) == ("outcome", None)
    state = await payment.get()
    asked = {name: state[name] for name in ("client_transaction_id", "terminal", "type", "sale", "amount")}
    awaited = await shop.daemon.call("GET", f"/transactions/{payment.identity}/outcome")
    assert last.json == awaited.json == state["outcome"] | asked  # who holds the outcome alone need not ask twice
    assert last.json["authorized_amount"] == Decimal("11.2")
    for index in (1, 4):
        async with stream(shop.daemon.till_socket, path, last_event_id=read[index - 1].id) as rest:
            again = [message async for message in told(rest)]
        assert [message.event for message in again] == [*[item["status"] for item in sent[index:]], "outcome"]
    listed = (await shop.daemon.call("GET", path)).json["events"]
    assert listed == [message.json for message in read]
    await settles(shop.daemon, before)


async def test_a_status_with_a_line_break_stays_one_message(shop: Shop) -> None:
    payment = await shop.started()
    async with stream(shop.daemon.till_socket, f"/transactions/{payment.identity}/events") as source:
        live = told(source)
        assert await payment.event("ODD\nevent: outcome\ndata: {}") == 200
        message = await anext(live)
        assert message.json["verdict"] == "unknown_status"
        assert message.event == "ODD event: outcome data: {}"
        await payment.end()
        assert (await anext(live)).event == "TERMINAL_CANCELED"


async def test_streams_that_are_hung_up_leave_nothing(shop: Shop) -> None:
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


async def test_a_till_that_hangs_up_during_its_start_leaves_nothing(shop: Shop) -> None:
    payment = shop.payment()
    before = sockets(shop.daemon)
    shop.terminal.start = script = held(acknowledging(payment.serial))
    content = json.dumps({"terminal": payment.serial, "amount": AMOUNT}).encode()
    _, writer = await asyncio.open_unix_connection(str(shop.daemon.till_socket))
    head = f"PUT /v1/transactions/{payment.identity} HTTP/1.1\r\nhost: posd\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await script.arrived.wait()
    writer.transport.abort()
    script.release.set()
    await shop.daemon.wait_for(payment.identity, lambda document: document["phase"] == "active")
    await settles(shop.daemon, before)
    await payment.end()


async def page(posd: Daemon, after: int, limit: int = 500) -> Any:
    """Return a page of the feed."""
    return (await posd.call("GET", f"/feed?after={after}&limit={limit}")).json


async def test_the_feed_in_pages_and_live_says_the_same(shop: Shop) -> None:
    await quiet(shop.daemon)
    start = (await page(shop.daemon, 0))["next_after"]
    last = await page(shop.daemon, start)
    assert (last["changes"], last["next_after"], last["notices"]) == ([], start, [])
    async with stream(shop.daemon.till_socket, f"/feed?after={start}") as live:
        payment = await shop.started()
        await payment.event("TERMINAL_ACKNOWLEDGED")
        await payment.end()
        read = await collect(live, lambda message: message.json["result"] == "canceled")
    changes, after = [], start
    while (some := await page(shop.daemon, after, limit=2))["changes"]:
        assert len(some["changes"]) <= 2
        changes += some["changes"]
        after = some["next_after"]
        assert after == changes[-1]["seq"]
    assert [message.json for message in read] == changes
    assert [message.id for message in read] == [change["seq"] for change in changes]
    assert {message.event for message in read} == {"transaction"}
    assert [change["phase"] for change in changes] == ["starting", "active", "active", "final"]
    assert {change["id"] for change in changes} == {payment.identity}
    resumed = read[1].id
    async with stream(shop.daemon.till_socket, "/feed", last_event_id=resumed) as rest:
        assert [await anext(rest) for _ in read[2:]] == read[2:]


@pytest.mark.asyncio(loop_scope="function")
async def test_a_till_waits_over_a_restart_by_asking_again(
    terminal: ScriptedTerminal, posd: Daemon, identity: str
) -> None:
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
