"""Approvals that no program has read: after ten minutes each has the attention `outcome_unread`, until one reads it.

An approval is in the table of the unread ones from the commit that records it until an answer that shows it was handed
to a client. It leaves the table with the next commit of something else, so that reading asks for no sync. After a
restart the table counts: what was read just before the power failed is unread again, nothing unread is read. The ten
minutes begin again then, by the monotonic clock: a wrong wall clock changes nothing.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

import structlog

from posd.payments import rows
from posd.payments.entries import Dismissed, OutcomeRead, OutcomeUnread
from posd.payments.model import AttentionCode, approved
from posd.payments.record import TransactionChanged, approval_came, record
from posd.records.service import RecordService, ServiceParts
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.writer import WriteTransaction

#: How long a till may take until it reads an approval, over its own restart too, in seconds.
UNREAD_SECONDS = 600.0
#: While the disk is full, how often it is tried again, in seconds.
RETRY_STORING_SECONDS = 1.0

log = structlog.get_logger("posd.payments")


class UnreadApprovals(RecordService):
    """Approvals that no program has read. `begin` at the start, `run` as a task; on the loop only."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        #: What is unread, each with the timer that ends its ten minutes.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._changing: asyncio.Queue[str] = asyncio.Queue()  # whose attention is to be raised or cleared
        self._read: set[str] = set()  # what leaves the table with the next commit
        self._any_read = asyncio.Event()

    async def begin(self) -> None:
        """Load what an earlier daemon left unread. Raise StorageUnavailable."""
        for identity, told in (await self._store.read(rows.unread)).items():
            self._wait(identity, 0.0 if told else UNREAD_SECONDS)

    def read(self, identities: Iterable[str]) -> None:
        """Mark these approvals as read: a client was handed them."""
        for identity in identities:
            if (timer := self._timers.pop(identity, None)) is None:
                continue
            if timer.when() <= asyncio.get_running_loop().time():
                self._changing.put_nowait(identity)
            else:
                timer.cancel()
                self._read.add(identity)
                self._any_read.set()

    async def run(self) -> None:
        """Record what is unread and what was read, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._change())
            tasks.create_task(self._forget())

    def changed(self, changes: Sequence[TransactionChanged]) -> None:
        """Process the changes of a commit, on the loop."""
        for change in changes:
            if approval_came(change.before, change.after, change.cause):
                self._wait(change.id, UNREAD_SECONDS)
            elif isinstance(change.cause, Dismissed) and change.cause.code is AttentionCode.OUTCOME_UNREAD:
                self.read([change.id])

    def _wait(self, identity: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[identity] = loop.call_later(seconds, self._changing.put_nowait, identity)

    async def _change(self) -> None:
        """Raise and clear attentions."""
        while True:
            identity = await self._changing.get()
            try:
                await self._store.write(partial(self._settle, identity=identity))
            except (StorageUnavailable, CommitUncertain) as error:
                seconds = RETRY_STORING_SECONDS
                log.warning("payment.not_recorded", transaction=identity, error=str(error), retry_s=seconds)
                self._changing.put_nowait(identity)
                await asyncio.sleep(seconds)

    def _settle(self, unit: WriteTransaction, identity: str) -> None:
        """Record whether it is unread, as it is known now."""
        found = rows.get(unit.db, identity)
        unread = identity in self._timers and found is not None and approved(found)
        if not unread:
            rows.remove_unread(unit, [identity])
        if found is not None:
            record(unit, found, OutcomeUnread() if unread else OutcomeRead(), self._now(), self._outstanding)

    async def _forget(self) -> None:
        """Record what was read."""
        while True:
            await self._any_read.wait()
            self._any_read.clear()
            try:
                self._read.difference_update(await self._store.ride(self._remove))
            except (StorageUnavailable, CommitUncertain):
                self._any_read.set()  # with the commit after that one

    def _remove(self, unit: WriteTransaction) -> frozenset[str]:
        read = frozenset(self._read)
        rows.remove_unread(unit, read)
        return read
