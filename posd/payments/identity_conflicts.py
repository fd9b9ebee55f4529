"""What devices that contradict each other mean for open payments: an attention while it lasts.

While it is not sure which device is a terminal, nothing is sent to it: the open payments there are neither searched for
nor aborted, and say so. What a device says it is, in an acknowledgement, an event or the answer of a search, is kept:
an address at which another terminal answers is not used again until the right one answers there, or a person decides.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from posd.payments import rows
from posd.payments.entries import Disputed, Undisputed
from posd.payments.model import AttentionCode
from posd.payments.record import TransactionChanged, record, said_it_is
from posd.records import terminals
from posd.records.service import RecordService, ServiceParts
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.writer import WriteTransaction
from posd.terminals.identity import AddressConflict

#: While the disk is full, how often it is tried again, in seconds.
RETRY_STORING_SECONDS = 1.0

log = structlog.get_logger("posd.identity")


class IdentityConflicts(RecordService):
    """Marks the open payments of terminals in a conflict. Run `run` as a task; cancel it to stop."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._looked: dict[str, None] = {}  # terminals that were looked at, or about which a conflict began or ended
        self._right: dict[str, str] = {}  # terminal -> address at which it answered rightly after all
        self._kept: dict[str, str | None] = {}  # terminal -> other serial, as it is on disk
        self._marked: set[str] = set()  # terminals with payments that have the attention
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Mark what is to be marked, until cancelled."""
        found = await self._store.read(rows.open_ones)
        self._marked = {item.terminal for item in found if item.attention_of(AttentionCode.IDENTITY_CONFLICT)}
        while True:
            try:
                await self._record_right()
                await self._mark()
            except (StorageUnavailable, CommitUncertain) as error:
                log.warning("payment.not_recorded", error=str(error), retry_s=RETRY_STORING_SECONDS)
                await asyncio.sleep(RETRY_STORING_SECONDS)
                continue
            await self._wake.wait()
            self._wake.clear()

    def probed(self, terminal: str) -> None:
        """Mark the payments of a terminal after its probes, and after a conflict began or ended."""
        if terminal in self._marked or terminal in self._kept or self._fleet.conflict(terminal) is not None:
            self._looked[terminal] = None
            self._wake.set()

    def changed(self, changes: Sequence[TransactionChanged]) -> None:
        """Process on the loop which devices reported an identity, after the COMMIT."""
        for change in changes:
            serial, sent_to = change.after.terminal, change.after.sent_to
            terminal = self._fleet.get(serial)
            trusted = terminal.trusted if terminal is not None else None
            if terminal is None or trusted is None or trusted.base_url != sent_to:
                continue
            if trusted.other_serial is None and not change.after.mismatched:
                continue  # as nearly always: what it says need not be read
            if (said := said_it_is(change)) is None:
                continue
            other = said if said != serial else None
            told = other is not None and change.before is not None and change.before.mismatched
            if other != trusted.other_serial and not told:
                terminal.record_other_identity(sent_to, other)
                if other is None:
                    self._right[serial] = sent_to
                    self._wake.set()

    async def _record_right(self) -> None:
        while self._right:
            terminal, base_url = self._right.popitem()
            try:
                await self._write_identity(terminal, base_url, None)
            except (StorageUnavailable, CommitUncertain):
                self._right.setdefault(terminal, base_url)
                raise

    async def _mark(self) -> None:
        while self._looked:
            terminal = next(iter(self._looked))
            del self._looked[terminal]  # now: what changes meanwhile is looked at once more
            try:
                await self._mark_payments_of(terminal)
            except (StorageUnavailable, CommitUncertain):
                self._looked[terminal] = None
                raise

    async def _mark_payments_of(self, terminal: str) -> None:
        known = self._fleet.get(terminal)
        dispute = self._fleet.conflict(terminal)
        await self._keep(terminal)
        if dispute is not None and dispute.kind is AddressConflict.SERIAL:
            dispute = None  # its payments are asked for where they were sent to, and say `serial_mismatch`
        # Where it was not looked at since the start, what was seen before counts.
        if dispute is not None or known is None or known.reachable is True:
            detail = dispute.detail if dispute is not None else None
            await self._store.write(partial(self._record, terminal=terminal, detail=detail))
            (self._marked.discard if detail is None else self._marked.add)(terminal)

    async def _keep(self, terminal: str) -> None:
        """Persist which identity the device at a terminal's address reports in an error, or that it reports none."""
        known = self._fleet.get(terminal)
        trusted = known.trusted if known is not None else None
        if trusted is None or self._kept.get(terminal) == trusted.other_serial:
            return
        self._kept[terminal] = ""  # what is on disk is not known until this is
        await self._write_identity(terminal, trusted.base_url, trusted.other_serial)
        self._kept[terminal] = trusted.other_serial

    async def _write_identity(self, terminal: str, base_url: str, other: str | None) -> None:
        await self._store.write(lambda unit: terminals.record_other_identity(unit, terminal, base_url, other))

    def _record(self, unit: WriteTransaction, terminal: str, detail: str | None) -> None:
        for before in list(rows.open_on(unit.db, terminal)):
            marked = before.attention_of(AttentionCode.IDENTITY_CONFLICT) is not None
            if marked is (detail is None):
                entry = Undisputed() if detail is None else Disputed(detail)
                record(unit, before, entry, self._now(), self._outstanding)
