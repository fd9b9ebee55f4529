"""A terminal that sends without end does not fill the disk. posd still stores the end of its payments
(posd.base.limits).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from posd.base import limits
from tests.e2e.test_limits_of_tills import metric
from tests.rig.daemon import Daemon
from tests.rig.events import APPROVED, body, event
from tests.rig.https import connect
from tests.rig.shop import Payment, Shop, answering, knowing, open_shop
from tests.rig.streams import PATIENCE_SECONDS
from tests.rig.terminal import Request
from tests.rig.webhooks import attention, disk

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = limits.MIB


@pytest.fixture
async def own(home: Path) -> AsyncIterator[Shop]:
    """Yield a shop that accepts bodies of 1 MiB. A few bodies of this size reach a terminal's limit."""
    (home / "config.d").mkdir()
    (home / "config.d" / "large.toml").write_text(f"[webhooks]\nmax_body_bytes = {MIB}\n")
    async with open_shop(home) as shop:
        yield shop


class Line:
    """A connection on which a terminal delivers events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.headers = ""

    async def deliver(self, payment: Payment, content: bytes) -> int:
        """Deliver these bytes to the callback URL of a payment. Return the HTTP status."""
        path = urlsplit(payment.requests[0].callback).path
        head = f"POST {path} HTTP/1.1\r\nhost: posd\r\ncontent-length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)
        async with asyncio.timeout(PATIENCE_SECONDS):
            self.headers = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        return int(self.headers.split(" ", 2)[1])

    async def all(self, payment: Payment, contents: Sequence[bytes]) -> list[int]:
        """Deliver these bodies in order. Return the statuses."""
        return [await self.deliver(payment, content) for content in contents]


@asynccontextmanager
async def line(posd: Daemon) -> AsyncIterator[Line]:
    reader, writer = await connect(posd.port, posd.ca)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def junk(payment: Payment, count: int, status: str = "CARD_PRESENTED") -> list[bytes]:
    """Return this many different events."""
    return [body(payment.identity, status, serial=payment.serial) for _ in range(count)]


def count(posd: Daemon, payment: Payment, table: str = "events") -> int:
    """Return the number of a payment's rows on disk."""
    with disk(posd) as db:
        query = f"SELECT count(*) FROM {table} WHERE client_transaction_id = ?"
        return int(db.execute(query, (payment.identity,)).fetchone()[0])


async def test_a_thousand_events_of_one_payment_are_stored_and_so_is_its_end(shop: Shop) -> None:
    payment = await shop.started()
    async with line(shop.daemon) as lane:
        assert set(await lane.all(payment, junk(payment, 1000))) == {200}
        assert await lane.all(payment, junk(payment, 1, "APPROVAL")) == [200]
    assert not attention(await payment.get()) & {"event_limit"}


def large(payment: Payment, status: str = "CARD_PRESENTED", serial: str = "") -> bytes:
    """Return an event of nearly the largest size."""
    return body(payment.identity, status, serial=serial or payment.serial, note="x" * (MIB - 2000))


def stored(posd: Daemon) -> int:
    """Return the size of the database and its WAL, in bytes."""
    return sum(item.stat().st_size for item in posd.database.parent.glob(f"{posd.database.name}*"))


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="function")
async def test_a_terminal_that_sends_large_events_without_end_does_not_fill_the_disk(own: Shop) -> None:
    posd, payment = own.daemon, await own.started()
    other = await own.started()
    before, most = stored(posd), limits.EVENTS_OF_TERMINAL.value
    async with line(posd) as lane:
        statuses = [await lane.deliver(payment, large(payment)) for _ in range(most // MIB + 8)]
        assert set(statuses) == {200, 429}
        assert statuses == sorted(statuses)
        assert statuses.count(429) > 4
        assert stored(posd) - before < most * 1.1
        for status, previous in APPROVED:
            content = body(other.identity, status, previous, other.serial)
            assert await lane.deliver(other, content) == 200  # another terminal has its own budget
        assert await lane.deliver(payment, large(payment, "APPROVAL")) == 200
        assert await lane.deliver(payment, large(payment, "APPROVAL")) == 200  # late events have their own budget
    assert (await payment.get())["outcome"]["result"] == "approved"
    assert "event_limit" in attention(await payment.get())
    assert await metric(posd, "events_of_terminal") >= 5


@pytest.mark.asyncio(loop_scope="function")
async def test_a_terminal_with_unusable_events_does_not_fill_the_quarantine(own: Shop) -> None:
    posd, payment = own.daemon, await own.started()
    before, most = stored(posd), limits.QUARANTINE_OF_TERMINAL.value
    async with line(posd) as lane:
        size = MIB - limits.EVENT_BYTES  # with the bytes that posd counts in addition, each body counts as 1 MiB
        bodies = [(b"x%d" % number).ljust(size) for number in range(most // MIB + 4)]
        statuses = await lane.all(payment, bodies)
        assert set(statuses) == {400, 429}
        assert statuses == [400] * (most // MIB) + [429] * 4
        assert stored(posd) - before < most * 1.2
        assert await lane.all(payment, junk(payment, 1, "APPROVAL")) == [200]
    assert (await payment.get())["outcome"]["result"] == "approved"
    assert await metric(posd, "quarantine_of_terminal") == statuses.count(429)


@pytest.mark.asyncio(loop_scope="function")
async def test_search_results_do_not_fill_the_disk_and_searches_continue(own: Shop) -> None:
    """The terminal replies to each search with as much new data as possible. A till requests searches without end."""
    posd, payment = own.daemon, await own.started()
    before = stored(posd)
    numbers = iter(range(10_000))

    async def liar(request: Request, writer: asyncio.StreamWriter) -> None:
        elements = [
            event(payment.identity, "CARD_PRESENTED", None, payment.serial, padding=f"{next(numbers)}{'x' * 20_000}")
            for _ in range(10)
        ]
        answer = elements if next(numbers) % 2 else []
        await answering(200, json.dumps(answer).encode())(request, writer)

    own.terminal.search = liar
    statuses = [(await payment.post("reconcile")).status for _ in range(100)]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= 2 * limits.CALLS_OF_TRANSACTION.value
    assert stored(posd) - before < 4 * MIB
    assert await metric(posd, "calls_of_transaction") == statuses.count(429)
    own.terminal.search = knowing(event(payment.identity, "APPROVAL", None, payment.serial))
    assert (await posd.outcome(payment.identity, 60))["result"] == "approved"
