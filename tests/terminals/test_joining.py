"""Two calls for one new id. A test through the API cannot cause the order of events in these tests."""

import asyncio
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from posd.config import load
from posd.payments.attentions import ApprovalChecks
from posd.payments.start import Payments
from posd.records.callback_urls import CallbackUrls
from posd.records.model import Phase
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.shop import AMOUNT, Held
from tests.rig.terminal import scripted_terminal


async def test_a_second_call_during_the_start_of_an_id_joins_that_start(tmp_path: Path) -> None:
    """No start is running when the second call arrives.

    The delayed look-up of the second call finds the start of the first call.
    """
    home, identity = tmp_path, str(uuid4())
    hurdle = threading.Event()
    async with scripted_terminal(home) as terminal:
        terminal.start = script = Held(terminal.acknowledge)
        (home / "config.toml").write_text(toml(home, terminal.toml))
        config = load(home / "config.toml")
        store = await Store.open(home / "posd.db", home / "posd.db.lock")
        fleet = Fleet(config.terminals, config.profiles)
        urls = CallbackUrls((b"k" * 32,), "", 1)
        payments = Payments(
            ServiceParts(store, fleet, lambda: datetime.now(UTC)), urls, UTC, ApprovalChecks("", lambda: True)
        )
        content = json.dumps({"amount": AMOUNT}).encode()
        calls = [asyncio.create_task(payments.start(identity, content))]
        await asyncio.sleep(0)  # the look-up of this call is the first in the reader's queue
        blocked = asyncio.create_task(store.read(lambda _db: hurdle.wait(30)))
        await asyncio.sleep(0)
        calls.append(asyncio.create_task(payments.start(identity, content)))
        await script.arrived.wait()
        hurdle.set()
        assert await blocked
        assert await store.read(lambda db: db.execute("SELECT phase FROM transactions").fetchall()) == [("starting",)]
        script.release.set()
        answers = await asyncio.gather(*calls)
        assert [(transaction.phase, created) for transaction, created in answers] == [
            (Phase.ACTIVE, True),
            (Phase.ACTIVE, False),
        ]
        assert terminal.starts_of(identity) == 1
        await fleet.close()
        await store.close()
