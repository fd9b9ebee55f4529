"""An approval that no program has read within ten minutes has `outcome_unread`, until a program reads it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import pytest_asyncio

from posd.payments.attentions import UNREAD_SECONDS
from tests.e2e.conftest import CHARGE
from tests.rig import ahead
from tests.rig.daemon import Daemon, running
from tests.rig.events import event
from tests.rig.shop import Payment, Shop, acknowledging, hanging_up, knowing
from tests.rig.streams import ask, stream
from tests.rig.terminal import scripted_terminal
from tests.rig.webhooks import disk

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODE = "outcome_unread"

Read = Callable[[Shop, str], Awaitable[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """Yield a daemon with one terminal. The tests move the daemon's clock."""
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        async with (
            scripted_terminal(home) as terminal,
            running(home, terminal.toml, program=ahead.program(home / "ahead")) as daemon,
        ):
            yield Shop(daemon, terminal, repeat(terminal.serial))


async def approved(shop: Shop, **request: Any) -> Payment:
    """Return an approved payment. No program has read the payment since the start."""
    payment = await shop.started(**request)
    await payment.approve()
    return payment


async def unread(shop: Shop) -> set[str]:
    """Advance the clock by ten minutes. Return all payments with the attention, also of earlier tests."""
    sentinel = await approved(shop)
    ahead.move(shop.daemon, UNREAD_SECONDS)
    await shop.daemon.log_line("payment.attention", transaction=sentinel.identity, code=CODE)
    return marked(shop.daemon) - {sentinel.identity}


def marked(daemon: Daemon) -> set[str]:
    """Return the payments with the attention in the database file."""
    with disk(daemon) as db:
        found = db.execute("SELECT client_transaction_id FROM transactions WHERE instr(attention, ?)", (CODE,))
        return {row[0] for row in found}


def last_seq(daemon: Daemon) -> int:
    with disk(daemon) as db:
        return int(db.execute("SELECT max(seq) FROM changes").fetchone()[0])


def calling(path: str, method: str = "GET", body: Any = None) -> Read:
    """Return a reader that makes a call of the API. `{id}` is the payment's id."""

    async def read(shop: Shop, identity: str) -> None:
        socket = shop.daemon.admin_socket
        await shop.daemon.call(method, path.replace("{id}", identity), body, socket=socket)

    return read


def following(path: str, until: str) -> Read:
    """Return a reader of a stream. The reader stops at the first message about the payment that has this text."""

    async def read(shop: Shop, identity: str) -> None:
        async with stream(shop.daemon.till_socket, path.replace("{id}", identity)) as messages:
            async for message in messages:
                if until in message.data and identity in message.data:
                    return

    return read


READERS: Mapping[str, Read] = {
    "outcome": calling("/transactions/{id}/outcome"),
    "show": calling("/transactions/{id}"),
    "list": calling("/transactions?limit=500"),
    "list with totals": calling("/transactions?totals=true"),
    "repeated start": calling("/transactions/{id}", "PUT", CHARGE),
    "late abort": calling("/transactions/{id}/abort", "POST"),
    "events": calling("/transactions/{id}/events"),
    "stream of events": following("/transactions/{id}/events", "transaction_reference"),
    "feed": calling("/feed?limit=500"),
    "feed with outcomes": calling("/feed?limit=500&with=outcome"),
    "stream of the feed": following("/feed", '"result":"approved"'),
}
#: Calls whose responses do not show the outcome.
OTHERS: Mapping[str, Read] = {
    "list of attentions": calling("/transactions?attention=true"),
    "HEAD request": calling("/transactions/{id}", "HEAD"),
    "later part of the feed": calling("/feed?after=1000000"),
    "history": calling("/transactions/{id}/history"),
    "status": calling("/status"),
}


async def test_an_approval_found_by_a_search_counts_as_unread_only_after_ten_minutes(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = hanging_up
    await payment.put()
    ahead.move(shop.daemon, 2 * UNREAD_SECONDS)
    await shop.daemon.wait_for(payment.identity, lambda shown: shown["last_search"])  # posd has planned the next search
    shop.terminal.search = knowing(event(payment.identity, "APPROVAL", serial=payment.serial))
    ahead.move(shop.daemon, 60)
    await shop.daemon.log_line("payment.outcome", transaction=payment.identity, result="approved")
    shop.terminal.start = acknowledging(payment.serial)
    assert payment.identity not in marked(shop.daemon)
    assert payment.identity in await unread(shop)


async def test_each_way_to_read_the_outcome_prevents_the_attention(shop: Shop) -> None:
    for name, read in READERS.items():
        payment = await approved(shop)
        await read(shop, payment.identity)
        assert payment.identity not in await unread(shop), name


async def test_each_way_to_read_the_outcome_clears_the_attention(shop: Shop) -> None:
    for name, read in READERS.items():
        payment = await approved(shop)
        assert payment.identity in await unread(shop), name
        after = last_seq(shop.daemon)
        async with stream(shop.daemon.till_socket, f"/feed?after={after}") as messages:
            await read(shop, payment.identity)
            async for message in messages:
                if message.json["id"] == payment.identity:
                    assert (message.json["reason"], message.json["attention"]) == ("outcome_read", []), name
                    break
        assert payment.identity not in marked(shop.daemon), name


async def test_a_response_without_the_outcome_clears_nothing(shop: Shop) -> None:
    payment = await approved(shop)
    for read in OTHERS.values():
        await read(shop, payment.identity)
    assert payment.identity in await unread(shop)
    for name, read in OTHERS.items():
        await read(shop, payment.identity)
        assert payment.identity in marked(shop.daemon), name
    listed = (await shop.daemon.call("GET", "/transactions?attention=true")).json["transactions"]
    assert payment.identity in {item["client_transaction_id"] for item in listed}


async def test_a_till_disconnected_before_the_response_has_not_read_the_outcome(shop: Shop) -> None:
    payment = await shop.started()
    waiting = await ask(shop.daemon.till_socket, f"/transactions/{payment.identity}/outcome")
    shown = await ask(shop.daemon.till_socket, f"/transactions/{payment.identity}")
    await shown.reply()  # the later call has its reply, so posd has received the earlier call
    waiting.hang_up()
    shown.hang_up()
    await payment.approve()
    assert payment.identity in await unread(shop)


async def test_an_unread_outcome_stays_unread_after_a_kill(shop: Shop) -> None:
    payment = await approved(shop)
    await shop.daemon.restart()
    assert payment.identity in await unread(shop)
    await shop.daemon.restart()
    assert payment.identity in marked(shop.daemon)
    async with stream(shop.daemon.till_socket, f"/feed?after={last_seq(shop.daemon)}") as messages:
        await calling("/transactions/{id}")(shop, payment.identity)
        assert (await anext(messages)).json["reason"] == "outcome_read"


async def test_a_read_outcome_stays_read_after_a_kill_once_another_change_was_recorded(shop: Shop) -> None:
    payment = await approved(shop)
    await calling("/transactions/{id}")(shop, payment.identity)
    other = await approved(shop)
    await shop.daemon.restart()
    found = await unread(shop)
    assert other.identity in found
    assert payment.identity not in found
