"""What raises and clears an attention of a payment beside what the terminal says of it.

Addresses of this machine that are gone, devices that contradict each other, approvals that no program has read, and
approvals that contradict their request.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

import structlog

from posd.payments import chains, rows
from posd.payments.entries import (
    AddressBack,
    AddressLost,
    Dismissed,
    Disputed,
    OutcomeRead,
    OutcomeUnread,
    Undisputed,
    Unlikely,
)
from posd.payments.lifecycle import APPROVAL
from posd.payments.model import AttentionCode, Result, Transaction, approved
from posd.payments.outcomes import unlikely
from posd.payments.record import TransactionChanged, record, said_it_is
from posd.payments.wire import NotAnEvent, TransactionEvent, read_event
from posd.records import terminals
from posd.records.model import Phase
from posd.records.service import RecordService, ServiceParts
from posd.records.start import RETRY_STORING_SECONDS
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals.identity import AddressConflict
from posd.terminals.interfaces import Interfaces, addresses_of

log = structlog.get_logger("posd.payments")


async def _until_stored(work: Callable[[], Awaitable[None]], **about: str) -> None:
    """Do what writes, and again while the store does not take it; `about` is what the log names."""
    while True:
        try:
            return await work()
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning("payment.not_recorded", **about, error=str(error), retry_s=RETRY_STORING_SECONDS)
            await asyncio.sleep(RETRY_STORING_SECONDS)


# Changes of this machine's addresses while payments run.
#
# A callback URL names the address from which this machine reaches the terminal. If that address is gone, the events of
# the payment cannot arrive. The payment is marked, and the reconciler asks the terminal at its own intervals until the
# outcome is known or the address is back. New payments name the present address. The daemon also checks at its start:
# the address may have changed while no daemon ran.
#
# Callback URLs that name no address of this machine are not checked: those with a configured `advertise_host`, and
# those with the `public_url` for terminals in the cloud. Print jobs are polled whether their webhook arrives or not, so
# that a lost address delays them by one pause at most.


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
            await _until_stored(self._look)
            await self._wake.wait()

    async def _look(self) -> None:
        """Compare the addresses of open payments with those of this machine, and record what differs."""
        waiting = await self._store.read(rows.called_back)
        if not waiting:
            return
        try:
            # Read only now: every address in `waiting` was one of this machine before this.
            addresses = {address.partition("%")[0] for address in addresses_of(self._interfaces.read())}
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


# What devices that contradict each other mean for open payments: an attention while it lasts.
#
# While it is not sure which device is a terminal, nothing is sent to it: the open payments there are neither searched
# for nor aborted, and say so. What a device says it is, in an acknowledgement, an event or the answer of a search, is
# kept: an address at which another terminal answers is not used again until the right one answers there, or a person
# decides.


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
            await _until_stored(self._record_right)
            await _until_stored(self._mark)
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


# Approvals that no program has read: after ten minutes each has the attention `outcome_unread`, until one reads it.
#
# An approval is in the table of the unread ones from the commit that records it until an answer that shows it was
# handed to a client. It leaves the table with the next commit of something else, so that reading asks for no sync.
# After a restart the table counts: what was read just before the power failed is unread again, nothing unread is read.
# The ten minutes begin again then, by the monotonic clock: a wrong wall clock changes nothing.

#: How long a till may take until it reads an approval, over its own restart too, in seconds.
UNREAD_SECONDS = 600.0


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
            if change.approval_came:
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
            write = partial(self._store.write, partial(self._settle, identity=identity))
            await _until_stored(write, transaction=identity)

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


# What approvals are held against as they come (`payments.outcomes`): the currencies of a terminal, and the clock.


class ApprovalChecks:
    """Holds approvals against their requests as they come, and remembers the currencies of each terminal."""

    def __init__(self, currency: str, clock_sure: Callable[[], bool]) -> None:
        """`currency` of the merchant; empty: those that the terminal's approvals have had so far."""
        self._currency = currency
        self._clock_sure = clock_sure
        self._seen: dict[str, frozenset[str]] = {}

    def about(
        self,
        db: sqlite3.Connection,
        before: Transaction,
        after: Transaction,
        event: TransactionEvent,
        came_at: datetime | None,
    ) -> Unlikely | None:
        """Return what contradicts the request, if by the event the payment is approved since now; else None.

        `came_at` is None if posd did not trust the clock at arrival, or if not known.
        """
        if not _approves(before, after, event):
            return None
        currencies = self._currencies(db, after, event.currency, remembers=before.updates_terminal)
        found = unlikely(after, event, currencies, came_at, chains.another_with_reference(db, after))
        return Unlikely(*found) if found is not None else None

    def believed(self, event: TransactionEvent, at: datetime) -> datetime | None:
        """Return the arrival time of an event, None if posd does not trust the clock or no rule asks."""
        return at if event.status == APPROVAL and self._clock_sure() else None

    def currencies(self, db: sqlite3.Connection, terminal: str) -> frozenset[str]:
        """Return the merchant's currency, or else those that the terminal's approvals have had so far."""
        if self._currency:
            return frozenset({self._currency})
        if terminal not in self._seen:
            self._seen[terminal] = _of_approvals(db, terminal)
        return self._seen[terminal]

    def _currencies(
        self, db: sqlite3.Connection, transaction: Transaction, said: str | None, *, remembers: bool
    ) -> frozenset[str]:
        """Return those that an approval may have. The database is asked at the first one, and where it has another."""
        if said is None or self._currency:
            return frozenset({self._currency} - {""})
        seen = self._seen.get(transaction.terminal, frozenset())
        if said.upper() not in seen:
            seen = _of_approvals(db, transaction.terminal, but=transaction.client_transaction_id)
            if seen or remembers:
                self._seen[transaction.terminal] = seen or frozenset({said.upper()})
        return seen


def _approves(before: Transaction, after: Transaction, event: TransactionEvent) -> bool:
    """Whether an outcome rests on this approval since now."""
    if event.status != APPROVAL or after.outcome is None or after.outcome.result is not Result.APPROVED:
        return False
    known = {item.event_id for item in before.outcome.evidence} if before.outcome else set()
    return event.event_id in {item.event_id for item in after.outcome.evidence} - known


def _of_approvals(db: sqlite3.Connection, terminal: str, but: str = "") -> frozenset[str]:
    found = (_currency(body) for body in rows.approvals(db, terminal, but=but))
    return frozenset(currency.upper() for currency in found if currency is not None)


def _currency(body: bytes) -> str | None:
    try:
        return read_event(body).currency
    except NotAnEvent:
        return None
