"""A payment starts only on the device that has its serial."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from posd.base.problems import Problem
from posd.config import Config, load
from posd.payments import rows
from posd.payments.attentions import ApprovalChecks
from posd.payments.start import Payments
from posd.records.callback_urls import CallbackUrls
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.terminal import scripted_terminal

BODY = json.dumps({"amount": {"iva": 1.20, "subtotal_iva": 10}}).encode()


def now() -> datetime:
    return datetime.now(UTC)


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
