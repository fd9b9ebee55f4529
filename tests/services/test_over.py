"""What a callback of something that is over changes in memory: neither its terminal, nor budgets, nor currencies."""

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
from posd.config import load
from posd.payments.approval_checks import ApprovalChecks
from posd.payments.decide import Operators
from posd.payments.entries import Resolved
from posd.payments.inbox import Inbox
from posd.payments.model import Result
from posd.payments.start import Payments
from posd.printing.inbox import PrintInbox
from posd.printing.start import Printing
from posd.printing.turns import PrintTurns
from posd.records.callback_urls import CallbackUrls
from posd.records.inbox import CallbackReceipt
from posd.records.quotas import sender
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.support.daemon import toml
from tests.support.events import body
from tests.support.terminal import ScriptedTerminal, scripted_terminal

CALLS = count()
AMOUNT = json.dumps({"amount": {"iva": 1.20, "subtotal_iva": 10}}).encode()


@dataclass
class World:
    terminal: ScriptedTerminal
    store: Store
    fleet: Fleet
    inbox: Inbox
    payments: Payments
    operators: Operators
    printing: Printing
    print_inbox: PrintInbox
    approval_checks: ApprovalChecks

    async def started(self) -> str:
        identity = str(uuid4())
        await self.payments.start(identity, AMOUNT)
        return identity

    async def event(self, identity: str, status: str, **changes: Any) -> CallbackReceipt:
        content = body(identity, status, serial=self.terminal.serial, **changes)
        return await self.inbox.receive(identity, content, "peer")

    @property
    def last_seen(self) -> str | None:
        return self.fleet.of(self.terminal.serial).last_seen


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with scripted_terminal(tmp_path) as terminal:
        (tmp_path / "config.toml").write_text(toml(tmp_path, terminal.toml))
        config = load(tmp_path / "config.toml")
        store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
        fleet = Fleet(config.terminals, config.profiles)
        parts = ServiceParts(store, fleet, now)
        urls, approval_checks = CallbackUrls((b"k" * 32,), "", 1), ApprovalChecks("", lambda: True)
        yield World(
            terminal,
            store,
            fleet,
            Inbox(parts, "", approval_checks),
            Payments(parts, urls, UTC, approval_checks),
            Operators(parts),
            Printing(parts, urls, PrintTurns()),
            PrintInbox(parts),
            approval_checks,
        )
        await store.close()
        await fleet.close()


def now() -> datetime:
    """Return a moment that is another one at each call."""
    return datetime.now(UTC) + timedelta(seconds=next(CALLS))


async def test_only_a_payment_that_is_open_is_a_sign_of_life(world: World) -> None:
    identity = await world.started()
    seen = [world.last_seen]
    for status, is_open in (("CARD_PRESENTED", True), ("DECLINED", True), ("DECLINED", False), ("NEW", False)):
        receipt = await world.event(identity, status)
        seen.append(world.last_seen)
        assert (receipt.result.status, receipt.updates_terminal, seen[-1] != seen[-2]) == (200, is_open, is_open)
    receipt = await world.inbox.receive(identity, b"{", "peer")
    assert (receipt.result.status, receipt.updates_terminal, world.last_seen) == (400, False, seen[-1])


async def test_only_a_print_job_that_is_open_is_a_sign_of_life(world: World) -> None:
    job = str(uuid4())
    await world.printing.start(job, b'{"document": {"text": "x"}}')
    seen = [world.last_seen]
    for status, is_open in (("PENDING", True), ("COMPLETED", True), ("COMPLETED", False), ("FAILED", False)):
        content = json.dumps({"printJobId": job, "status": status}).encode()
        receipt = await world.print_inbox.receive(job, content, "peer")
        seen.append(world.last_seen)
        assert (receipt.result.status, receipt.updates_terminal, seen[-1] != seen[-2]) == (200, is_open, is_open)


async def test_what_is_over_uses_up_nothing_of_what_is_open(world: World) -> None:
    over = await world.started()
    assert (await world.event(over, "DECLINED")).result.status == 200
    for budget, keep in ((limits.EVENTS_OF_TERMINAL, "keep_event"), (limits.QUARANTINE_OF_TERMINAL, "keep_body")):
        getattr(world.inbox._quotas, keep)(sender(world.terminal.serial, updates_terminal=False), budget.value)
    identity = await world.started()
    for payment, event, broken in ((over, 429, 429), (identity, 200, 400)):
        assert (await world.event(payment, "CARD_PRESENTED")).result.status == 200, "the first event of a state"
        assert (await world.event(payment, "CARD_PRESENTED")).result.status == event
        assert (await world.inbox.receive(payment, b"{", "peer")).result.status == broken


async def test_an_approval_of_what_is_over_tells_no_currency(world: World) -> None:
    async def known(approval_checks: ApprovalChecks) -> frozenset[str]:
        return await world.store.read(partial(approval_checks.currencies, terminal=world.terminal.serial))

    identity = await world.started()
    await world.operators.decide(identity, Resolved("Ana", "seen", None, Result.DECLINED))
    operation = {"amount": {"currency": "JPY"}}
    assert (await world.event(identity, "APPROVAL", operation=operation)).result.status == 200
    assert await known(world.approval_checks) == await known(ApprovalChecks("", lambda: True)) == frozenset()
    identity = await world.started()
    assert (await world.event(identity, "APPROVAL", operation=operation)).result.status == 200
    assert await known(ApprovalChecks("", lambda: True)) == {"JPY"}
