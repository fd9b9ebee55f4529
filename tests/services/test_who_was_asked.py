"""A reply counts for the device that sent it, even if another device is announced before the judgement."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from posd.base.problems import Problem
from posd.base.times import iso
from posd.config import Config, load
from posd.config.schema import ReconcileConfig
from posd.payments import rows
from posd.payments.abort import Aborts
from posd.payments.attentions import ApprovalChecks
from posd.payments.reconcile import Reconciler
from posd.payments.record import TransactionChanged
from posd.payments.search import Searching
from posd.payments.start import Payments
from posd.records.callback_urls import CallbackUrls
from posd.records.model import Phase
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.shop import answering, hanging_up
from tests.rig.terminal import Request, ScriptedTerminal, scripted_terminal

BODY = json.dumps({"amount": {"iva": 1.20, "subtotal_iva": 10}}).encode()
SERIAL = "SN-1"
CONFIRMED = "[profile.search]\nconfirmed = true\n[profile.abort]\nconfirmed = true\n"


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize(("first", "count"), [("right", 2), ("other", 3)])
async def test_a_search_on_another_device_than_the_one_that_got_the_start_proves_nothing(
    tmp_path: Path, first: str, count: int
) -> None:
    """Reloads move the address of the serial between two devices.

    Each abort goes to the device that got the start, and the search after the abort goes to the other one.
    `first`: the device that gets the search before the abort. `count`: requests that would complete the proof if each
    reply counted.
    """
    identity = str(uuid4())
    async with scripted_terminal(tmp_path, "right") as right, scripted_terminal(tmp_path, "other") as other:
        devices = {"right": right, "other": other}
        (tmp_path / "both.pem").write_text(right.ca_file.read_text() + other.ca_file.read_text())

        def config(device: ScriptedTerminal) -> Config:
            entry = f'[[terminals]]\nserial = "{SERIAL}"\nca_file = "{tmp_path}/both.pem"\n'
            (tmp_path / "config.toml").write_text(toml(tmp_path, f'{CONFIRMED}{entry}base_url = "{device.base_url}"\n'))
            return load(tmp_path / "config.toml")

        def reload(device: ScriptedTerminal) -> None:
            fleet.adopt(fleet.make_clients(config(device).terminals), old.profiles)

        old = config(right)
        store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
        fleet = Fleet(old.terminals, old.profiles)
        parts, checks = ServiceParts(store, fleet, now), ApprovalChecks("", lambda: True)
        payments = Payments(parts, CallbackUrls((b"k" * 32,), "", 1), UTC, checks)
        searching = Searching(parts, "", checks)
        aborts = Aborts(parts)
        settings = ReconcileConfig(3600, 3600, 3600, settle_seconds=0, probe_with_abort=True)
        reconciler = Reconciler(parts, searching, aborts, settings)
        store.hub.listen(reconciler.changed, TransactionChanged)

        async def nothing_runs(request: Request, writer: asyncio.StreamWriter) -> None:
            reload(other)
            await answering(409)(request, writer)

        async def knows_nothing(request: Request, writer: asyncio.StreamWriter) -> None:
            reload(right)
            await answering(200, b"[]")(request, writer)

        right.start, right.abort, right.search = hanging_up, nothing_runs, answering(200, b"[]")
        other.search = knows_nothing
        search = "POST /terminal/v1/transaction_search_online"
        await store.write(lambda unit: rows.remember_search(unit, SERIAL, search, str(uuid4()), iso(now())))
        started, _ = await payments.start(identity, BODY)
        assert (started.phase, started.sent_to) == (Phase.IN_DOUBT, right.base_url)

        after = started
        for _ in range(count):
            reload(devices[first])
            after = await reconciler.reconcile(identity)
        assert other.searches
        assert (after.phase, after.outcome) == (Phase.IN_DOUBT, None)
        await reconciler.close()
        await payments.drain(0)
        await fleet.close()
        await store.close()


async def test_a_start_is_not_sent_if_a_reload_has_given_its_device_another_serial(tmp_path: Path) -> None:
    """While posd determines the callback address of the start, a reload gives the device another serial.

    A payment of the new serial starts on the device.
    """
    async with scripted_terminal(tmp_path) as device:

        def config(serial: str) -> Config:
            entry = (
                f'[[terminals]]\nserial = "{serial}"\nbase_url = "{device.base_url}"\nca_file = "{device.ca_file}"\n'
            )
            (tmp_path / "config.toml").write_text(toml(tmp_path, entry))
            return load(tmp_path / "config.toml")

        old = config("SN-OLD")
        store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
        fleet = Fleet(old.terminals, old.profiles)
        waiting, reloaded = asyncio.Event(), asyncio.Event()

        async def facing(_: str) -> str:
            if not waiting.is_set():
                waiting.set()
                await reloaded.wait()
            return "127.0.0.1"

        urls = CallbackUrls((b"k" * 32,), "", 1, facing=facing)
        payments = Payments(ServiceParts(store, fleet, now), urls, UTC, ApprovalChecks("", lambda: True))
        overtaken, first = str(uuid4()), str(uuid4())
        late = asyncio.create_task(payments.start(overtaken, BODY))
        await waiting.wait()
        new = config("SN-NEW")
        fleet.adopt(fleet.make_clients(new.terminals), new.profiles)
        device.serial = "SN-NEW"
        await payments.start(first, BODY)
        reloaded.set()
        with pytest.raises(Problem) as refused:
            await late
        assert refused.value.code == "terminal_offline"
        assert (device.starts_of(first), device.starts_of(overtaken)) == (1, 0)
        assert await store.read(lambda db: rows.get(db, overtaken)) is None
        await payments.drain(0)
        await fleet.close()
        await store.close()
