"""The reconciler as a task. The task ends on request at every step."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from posd.config import load
from posd.config.schema import ReconcileConfig
from posd.payments import journal
from posd.payments.abort import Aborts
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import NothingHeard
from posd.payments.model import AttentionCode
from posd.payments.reconcile import Reconciler
from posd.payments.record import TransactionChanged, begin
from posd.payments.search import Searching
from posd.payments.transitions import interrupted, rebuild
from posd.payments.wire import read_event
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.events import body


def now() -> datetime:
    return datetime.now(UTC)


class House(NamedTuple):
    """A reconciler with payments in doubt."""

    reconciler: Reconciler
    store: Store
    identities: list[str]


@asynccontextmanager
async def asking(home: Path, address: str = "", payments: int = 1) -> AsyncIterator[House]:
    """Run a reconciler with payments in doubt on one terminal. `address`: lines of the terminal's configuration."""
    (home / "config.toml").write_text(toml(home, f'[[terminals]]\nserial = "SN-TEST"\n{address}'))
    config = load(home / "config.toml")
    store = await Store.open(home / "posd.db", home / "posd.db.lock")
    fleet = Fleet(config.terminals, config.profiles)
    parts = ServiceParts(store, fleet, now, chance=random.random)
    searching = Searching(parts, "", ApprovalChecks("", lambda: True))
    aborts = Aborts(parts)
    settings = ReconcileConfig(3600, 3600, 3600, settle_seconds=60, probe_with_abort=False)
    reconciler = Reconciler(parts, searching, aborts, settings)
    store.hub.listen(reconciler.changed, TransactionChanged)
    identities = [str(uuid4()) for _ in range(payments)]
    for identity in identities:
        event = read_event(body(identity, "TERMINAL_ACKNOWLEDGED"))
        payment = interrupted(rebuild(event, identity, now()), now())
        await store.write(partial(begin, transaction=payment, word="orphan"))
        reconciler.adopt([payment])
    try:
        yield House(reconciler, store, identities)
    finally:
        await reconciler.close()
        await fleet.close()
        await store.close()


@pytest.mark.parametrize("turns", range(8))
async def test_the_reconciler_ends_on_request_even_if_woken_at_the_same_moment(tmp_path: Path, turns: int) -> None:
    with capture_logs() as lines:
        async with asking(tmp_path) as house:
            reconciler = house.reconciler
            running = asyncio.create_task(reconciler.run())
            async with asyncio.timeout(30):
                while not lines:  # the first search
                    await some_turns(1)
            await some_turns(20)  # these turns end the first search
            reconciler.returned("SN-TEST")
            await some_turns(turns)
            running.cancel()
            done, _ = await asyncio.wait({running}, timeout=30)
            assert done


async def test_nothing_is_recorded_for_a_payment_removed_meanwhile(tmp_path: Path) -> None:
    async with asking(tmp_path) as house:
        gone = str(uuid4())
        await house.reconciler._record(gone, NothingHeard(AttentionCode.STALLED, 60.0))
        assert await house.store.read(lambda db: list(journal.entries(db, gone))) == []


async def some_turns(count: int) -> None:
    """Run the loop for this many turns."""
    for _ in range(count):
        await asyncio.sleep(0)
