"""Changes of this machine's addresses while payments run.

A callback URL names the address from which this machine reaches the terminal. If that address is gone, the events of
the payment cannot arrive. The payment is marked, and the reconciler asks the terminal at its own intervals until the
outcome is known or the address is back. New payments name the present address. The daemon also checks at its start:
the address may have changed while no daemon ran.

Callback URLs that name no address of this machine are not checked: those with a configured `advertise_host`, and those
with the `public_url` for terminals in the cloud. Print jobs are polled whether their webhook arrives or not, so that a
lost address delays them by one pause at most.
"""

import asyncio
from functools import partial

import structlog

from posd.payments import rows
from posd.payments.entries import AddressBack, AddressLost
from posd.payments.record import record
from posd.records.model import Phase
from posd.records.service import RecordService, ServiceParts
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.writer import WriteTransaction
from posd.terminals.interfaces import Interfaces

#: While the disk is full, how often it is tried again, in seconds.
RETRY_STORING_SECONDS = 1.0

log = structlog.get_logger("posd.addresses")


class AddressChanges(RecordService):
    """Marks the payments whose callbacks cannot come. Run `run` as a task; cancel it to stop."""

    def __init__(self, parts: ServiceParts, interfaces: Interfaces) -> None:
        super().__init__(parts)
        self._interfaces = interfaces
        self._wake = asyncio.Event()

    def compare(self) -> None:
        """Compare the addresses of open payments with those of this machine, because these have changed."""
        self._wake.set()

    def called_back_at(self, host: str) -> None:
        """React to a recorded payment with that callback address, which may be gone since it was chosen."""
        if host not in self._interfaces.addresses:
            self._wake.set()

    async def run(self) -> None:
        """Check now, and again after each change, until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._look()
            except (StorageUnavailable, CommitUncertain) as error:
                log.warning("payment.not_recorded", error=str(error), retry_s=RETRY_STORING_SECONDS)
                await asyncio.sleep(RETRY_STORING_SECONDS)
                continue
            await self._wake.wait()

    async def _look(self) -> None:
        """Compare the addresses of open payments with those of this machine, and record what differs."""
        waiting = await self._store.read(rows.called_back)
        if not waiting:
            return
        try:
            # Read only now: every address in `waiting` was one of this machine before this.
            addresses = {address.partition("%")[0] for address in self._interfaces.read().addresses}
        except OSError as error:
            log.warning("interfaces.unreadable", error=str(error), detail="open payments are not compared with them")
            return
        for item in waiting:
            lost = item.callback_host not in addresses
            if lost is not item.callback_lost:
                identity = item.client_transaction_id
                await self._store.write(partial(self._record, identity=identity, lost=lost))

    def _record(self, unit: WriteTransaction, identity: str, lost: bool) -> None:
        before = rows.get(unit.db, identity)
        assert before is not None  # noqa: S101 - started ids are never removed
        if before.phase is Phase.FINAL or before.callback_host is None:
            return  # it ended meanwhile
        entry = AddressLost(before.callback_host) if lost else AddressBack(before.callback_host)
        record(unit, before, entry, self._now(), self._outstanding)
