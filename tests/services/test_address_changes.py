"""Payments whose callback URL has an address that this machine has lost.

Such a payment has an attention until the address returns.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from structlog.testing import capture_logs
from structlog.typing import EventDict

from posd.payments import journal, record, rows
from posd.payments.attentions import AddressChanges
from posd.payments.model import AttentionCode, Result, Transaction
from posd.payments.record import Recorded, begin, move
from posd.payments.transitions import dismissed, resolved
from posd.records.model import Phase
from posd.records.service import CallsInFlight, ServiceParts
from posd.storage.batch import RecordedChange
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interfaces
from tests.rig.tables import there
from tests.rig.waits import until

#: An address of every machine, and an address of no machine (RFC 5737).
HERE, GONE = "127.0.0.1", "192.0.2.7"
PATIENCE_SECONDS = 60.0


def now() -> datetime:
    return datetime.now(UTC)


def payment(callback_host: str | None, phase: Phase = Phase.ACTIVE) -> Transaction:
    """Return an open payment with this address in the callback URL."""
    at = "2026-11-20T10:42:00.000Z"
    return Transaction(
        client_transaction_id=str(uuid4()),
        terminal="SN-TEST",
        type=None,
        created_at=at,
        updated_at=at,
        phase=phase,
        sent_to="https://terminal",
        callback_host=callback_host,
        acknowledged=phase is Phase.ACTIVE,
    )


@dataclass
class World:
    """A database, and the watch of addresses."""

    home: Path
    store: Store
    changes: AddressChanges
    news: asyncio.Event

    async def add(self, item: Transaction) -> str:
        """Record a payment. Return the id."""
        await self.store.write(lambda unit: begin(unit, item, "intent"))
        return item.client_transaction_id

    async def get(self, identity: str) -> Transaction:
        return there(await self.store.read(lambda db: rows.get(db, identity)))

    async def until(self, identity: str, what: Callable[[Transaction], bool]) -> Transaction:
        """Wait until a payment meets a condition. Return the payment."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                self.news.clear()
                if what(found := await self.get(identity)):
                    return found
                await self.news.wait()

    async def words(self, identity: str) -> list[str]:
        """Return the kinds of the entries in a payment's journal."""
        entries = await self.store.read(lambda db: list(journal.entries(db, identity)))
        return [str(item.entry.__struct_config__.tag) for item in entries]


@asynccontextmanager
async def world(home: Path) -> AsyncIterator[World]:
    """Open a database for the block."""
    store = await Store.open(home / "posd.db", home / "posd.db.lock")
    news = asyncio.Event()
    store.hub.listen(lambda _changes: news.set(), RecordedChange)
    store.hub.listen_later(record.tell, record.TransactionChanged)
    interfaces = Interfaces()
    try:
        yield World(home, store, AddressChanges(ServiceParts(store, Fleet(()), now), interfaces), news)
    finally:
        await store.close()


@asynccontextmanager
async def looking(here: World) -> AsyncIterator[None]:
    """Run the watch of addresses for the block."""
    task = asyncio.create_task(here.changes.run())
    yield
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
    assert done
    assert task.cancelled(), task.exception()


async def line_of(lines: list[EventDict], event: str, count: int = 1) -> list[EventDict]:
    """Wait for this many log lines of an event. The log lines follow the commit of the event. Return the lines."""

    def found() -> list[EventDict]:
        return [line for line in lines if line["event"] == event]

    await until(lambda: len(found()) >= count)
    return found()


def lost(item: Transaction) -> bool:
    return item.callback_lost


async def test_only_payments_whose_address_changed_get_the_attention_at_the_start(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        ended = resolved(payment(GONE), Result.DECLINED, "Ana", "slip", None, now())
        others = [await here.add(item) for item in (payment(HERE), payment(None), ended)]
        marked = [await here.add(payment(GONE, phase)) for phase in (Phase.ACTIVE, Phase.STARTING)]
        with capture_logs() as lines:
            async with looking(here):
                for identity in marked:
                    document = await here.until(identity, lost)
                    attention = there(document.attention_of(AttentionCode.ADDRESS_CHANGED))
                    assert GONE in attention.detail
                told = await line_of(lines, "payment.attention", count=len(marked))
        for identity in others:
            document = await here.get(identity)
            assert (document.callback_lost, document.attention) == (False, ())
        assert {line["transaction"] for line in told} == set(marked)
        assert {(line["code"], line["log_level"]) for line in told} == {("address_changed", "warning")}


async def test_the_return_of_the_address_clears_the_attention(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        identity = await here.add(payment(GONE))
        async with looking(here):
            await here.until(identity, lost)
        with closing(sqlite3.connect(tmp_path / "posd.db")) as db:
            db.execute("UPDATE transactions SET callback_host = ?", (HERE,))
            db.commit()
        async with looking(here):
            document = await here.until(identity, lambda item: not lost(item))
        assert document.attention == ()
        assert await here.words(identity) == ["address_changed", "address_back"]


async def test_an_acknowledged_attention_is_not_raised_again_for_the_same_address(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        marked = await here.add(payment(GONE))
        async with looking(here):
            before = await here.until(marked, lost)
        closed = dismissed(before, AttentionCode.ADDRESS_CHANGED, now())
        await here.store.write(lambda unit: move(unit, before, closed, Recorded("acknowledge"), CallsInFlight()))
        later = await here.add(payment(GONE))
        async with looking(here):
            await here.until(later, lost)  # posd has read the older payment before this one
        assert (await here.get(marked)).attention == ()
        assert await here.words(marked) == ["address_changed"]


async def test_a_payment_recorded_after_its_address_was_lost_is_still_marked(tmp_path: Path) -> None:
    async with world(tmp_path) as here, looking(here):
        first = await here.add(payment(GONE))
        here.changes.called_back_at(GONE)
        await here.until(first, lost)
        second = await here.add(payment(GONE))
        here.changes.called_back_at(GONE)
        await here.until(second, lost)
