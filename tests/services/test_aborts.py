"""A refused abort leaves no data and no call."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from posd.base.problems import Problem
from posd.config import load
from posd.payments import rows
from posd.payments.abort import Aborts
from posd.payments.attentions import ApprovalChecks
from posd.payments.inbox import Inbox
from posd.payments.start import Payments
from posd.records.callback_urls import CallbackUrls
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.events import body
from tests.rig.terminal import scripted_terminal

BODY = json.dumps({"amount": {"iva": 1.20, "subtotal_iva": 10}}).encode()


def now() -> datetime:
    return datetime.now(UTC)


async def test_an_abort_refused_while_the_payment_ends_does_not_hold_the_terminal(tmp_path: Path) -> None:
    """The refusal and the end are in one commit.

    At the moment when the final event frees the terminal, the abort still counts as a call.
    """
    identity = str(uuid4())
    async with scripted_terminal(tmp_path) as terminal:
        (tmp_path / "config.toml").write_text(toml(tmp_path, terminal.toml))
        config = load(tmp_path / "config.toml")
        store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
        fleet = Fleet(config.terminals, config.profiles)
        parts, checks = ServiceParts(store, fleet, now), ApprovalChecks("", lambda: True)
        payments = Payments(parts, CallbackUrls((b"k" * 32,), "", 1), UTC, checks)
        inbox = Inbox(parts, "", checks)
        aborts = Aborts(parts)
        await payments.start(identity, BODY)
        asked = await inbox.receive(identity, body(identity, "APPROVAL_REQUESTED", "CARD_PRESENTED"), "peer")
        assert asked.result.status == 200

        with closing(sqlite3.connect(tmp_path / "posd.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the writer waits for this lock while the two functions queue
            busy = asyncio.create_task(store.write(lambda _unit: True))
            for _ in range(2):  # the call passes its function to the writer, and the writer accepts the function
                await asyncio.sleep(0)
            abort = asyncio.create_task(aborts.abort(identity, None))
            await asyncio.sleep(0)
            final = asyncio.create_task(
                inbox.receive(identity, body(identity, "APPROVAL", "APPROVAL_REQUESTED"), "peer")
            )
            await asyncio.sleep(0)
            assert len(store.writer._waiting) == 2
            other.execute("ROLLBACK")
        assert await busy
        assert (await final).result.status == 200
        with pytest.raises(Problem, match="the acquirer was already asked"):
            await abort
        assert await store.read(rows.leases) == {}
        assert terminal.aborts == 0
        await payments.drain(0)
        await fleet.close()
        await store.close()
