"""A refused abort leaves no data and no call."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
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
from posd.records import terminals
from posd.records.callback_urls import CallbackUrls
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.events import body
from tests.rig.terminal import ScriptedTerminal, scripted_terminal
from tests.services.inside import CHARGE, composed

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


def same(terminal: ScriptedTerminal) -> str:
    return terminal.toml


def removed(_terminal: ScriptedTerminal) -> str:
    return '[[terminals]]\nserial = "SN-OTHER"\n'


def without_address(terminal: ScriptedTerminal) -> str:
    return f'[[terminals]]\nserial = "SN-TEST"\nfingerprint_sha256 = "{terminal.fingerprint}"\n'


def moved(terminal: ScriptedTerminal) -> str:
    return terminal.toml.replace(terminal.base_url, terminal.base_urls[1])


def without_abort(terminal: ScriptedTerminal) -> str:
    return f"{terminal.toml}[profile.charge]\nabortable = false\n"


@pytest.mark.parametrize(
    ("code", "reason", "configuration", "acknowledged", "reported"),
    [
        ("", "", same, "SN-TEST", None),
        ("identity_conflict", "says that it is", same, "SN-TEST", "SN-OTHER"),
        ("not_abortable", "another device", same, "SN-OTHER", None),
        ("not_abortable", "abortable = false", without_abort, "SN-TEST", None),
        ("terminal_offline", "cannot be reached", removed, "SN-TEST", None),
        ("terminal_offline", "cannot be reached", without_address, "SN-TEST", None),
        ("terminal_offline", "cannot be reached", moved, "SN-TEST", None),
    ],
)
async def test_an_abort_is_sent_only_to_the_device_that_got_the_start(
    tmp_path: Path,
    code: str,
    reason: str,
    configuration: Callable[[ScriptedTerminal], str],
    acknowledged: str,
    reported: str | None,
) -> None:
    """An abort carries no id. On another device it would cancel the payment of another customer.

    `configuration`: the configuration after a restart. `acknowledged`: the serial in the reply to the start.
    `reported`: another serial that the device has reported since then.
    """
    identity = str(uuid4())
    async with composed(tmp_path) as inside:
        terminal = inside.terminal
        (tmp_path / "config.toml").write_text(toml(tmp_path, configuration(terminal)))
        terminal.serial = acknowledged
        await inside.payments.start(identity, CHARGE)
        config = load(tmp_path / "config.toml")
        fleet = Fleet(config.terminals, config.profiles)
        if reported is not None:
            fleet.remember(await inside.store.read(terminals.trusted_ones), {})
            fleet.of("SN-TEST").record_other_identity(terminal.base_url, reported)
        with pytest.raises(Problem, match=reason) if code else nullcontext() as refused:
            await Aborts(ServiceParts(inside.store, fleet, now)).abort(identity, None)
        assert (refused.value.code if refused else "") == code
        assert terminal.aborts == (not code)
        await fleet.close()
