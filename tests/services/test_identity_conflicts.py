"""posd stores a device's identity, even if the device reports another identity during the write."""

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from posd.base.times import iso
from posd.config import load
from posd.payments.attentions import IdentityConflicts
from posd.payments.record import TransactionChanged
from posd.records import terminals
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Proof, Trusted
from posd.terminals.terminal import AddressChange
from tests.rig.daemon import toml

SERIAL, OTHER, URL = "SN-1", "SN-2", "https://127.0.0.1:6869"


def now() -> datetime:
    return datetime.now(UTC)


async def test_a_change_of_identity_during_a_write_is_stored_too(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(toml(tmp_path, f'[[terminals]]\nserial = "{SERIAL}"\nbase_url = "{URL}"\n'))
    config = load(tmp_path / "config.toml")
    store = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    fleet, trusted = Fleet(config.terminals, config.profiles), Trusted(URL, Proof.NONE, iso(now()))
    await store.write(partial(terminals.put, terminal=SERIAL, trusted=trusted))
    fleet.remember({SERIAL: trusted}, {})
    conflicts = IdentityConflicts(ServiceParts(store, fleet, now))
    fleet.listen(conflicts.probed, AddressChange.PROBED)
    store.hub.listen(conflicts.changed, TransactionChanged)

    marking = asyncio.create_task(conflicts.run())
    await store.read(lambda _db: None)  # this connection has already read the open conflicts
    fleet.of(SERIAL).record_other_identity(URL, OTHER)
    await asyncio.sleep(0)  # posd is writing the device's identity
    await store.write(lambda _unit: fleet.of(SERIAL).record_other_identity(URL, None))
    async with asyncio.timeout(10):
        while (await store.read(terminals.trusted_ones))[SERIAL].other_serial is not None:
            await store.write(lambda _unit: None)
    marking.cancel()
    await asyncio.wait({marking})
    await store.close()
    await fleet.close()
