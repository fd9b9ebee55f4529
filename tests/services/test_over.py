"""Callbacks of ended payments and jobs have their own quota, and use no quota of open payments or jobs.

A refused body is kept if its row in `base.replies` says so.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.base import limits
from posd.base.replies import CallbackResult, RefusedBody
from posd.config import load
from posd.payments.attentions import ApprovalChecks
from posd.payments.inbox import Inbox
from posd.payments.start import Payments
from posd.records import quarantine
from posd.records.callback_urls import CallbackUrls
from posd.records.inbox import CallbackReceipt
from posd.records.quarantine import ReceivedCallback
from posd.records.quotas import sender
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.events import body
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

CALLS = count()
AMOUNT = json.dumps({"amount": {"iva": 1.20, "subtotal_iva": 10}}).encode()


@dataclass
class World:
    terminal: ScriptedTerminal
    store: Store
    fleet: Fleet
    inbox: Inbox
    payments: Payments

    async def started(self) -> str:
        identity = str(uuid4())
        await self.payments.start(identity, AMOUNT)
        return identity

    async def event(self, identity: str, status: str, **changes: Any) -> CallbackReceipt:
        content = body(identity, status, serial=self.terminal.serial, **changes)
        return await self.inbox.receive(identity, content, "peer")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with scripted_terminal(tmp_path) as terminal:
        (tmp_path / "config.toml").write_text(toml(tmp_path, terminal.toml))
        config = load(tmp_path / "config.toml")
        store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
        fleet = Fleet(config.terminals, config.profiles)
        parts = ServiceParts(store, fleet, now)
        urls, checks = CallbackUrls((b"k" * 32,), "", 1), ApprovalChecks("", lambda: True)
        yield World(terminal, store, fleet, Inbox(parts, "", checks), Payments(parts, urls, UTC, checks))
        await store.close()
        await fleet.close()


def now() -> datetime:
    """Return a different time at each call."""
    return datetime.now(UTC) + timedelta(seconds=next(CALLS))


async def test_ended_payments_use_no_quota_of_open_payments(world: World) -> None:
    over = await world.started()
    assert (await world.event(over, "DECLINED")).result.status == 200
    for budget, keep in ((limits.EVENTS_OF_TERMINAL, "keep_event"), (limits.QUARANTINE_OF_TERMINAL, "keep_body")):
        getattr(world.inbox._quotas, keep)(sender(world.terminal.serial, updates_terminal=False), budget.value)
    identity = await world.started()
    for payment, event, broken in ((over, 429, 429), (identity, 200, 400)):
        assert (await world.event(payment, "CARD_PRESENTED")).result.status == 200, "a state's first event is stored"
        assert (await world.event(payment, "CARD_PRESENTED")).result.status == event
        assert (await world.inbox.receive(payment, b"{", "peer")).result.status == broken


@pytest.mark.parametrize(("result", "kept"), [(CallbackResult.OTHER_ID, 1), (CallbackResult.EVENT_LIMIT, 0)])
async def test_each_result_decides_whether_a_refused_body_is_kept(
    world: World, result: CallbackResult, kept: int
) -> None:
    identity, came = await world.started(), ReceivedCallback(b"{", "peer", now())
    refusal = RefusedBody(result, "a reason")
    refuse = partial(world.inbox.callbacks.refuse, identity=identity, refusal=refusal, came=came)
    receipt = await world.store.write(refuse)
    assert (receipt.result, receipt.kept_of is not None) == (result, kept == 1)
    assert await world.store.read(quarantine.count) == kept
