"""Attentions of a payment that are not caused by the terminal's events.

Their causes are lost addresses of this machine, identity conflicts, approvals that no client has read, and approvals
that contradict their request.
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
    """Run a write, and repeat it until the store accepts it. `about`: fields of the log line about a failure."""
    while True:
        try:
            return await work()
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning("payment.not_recorded", **about, error=str(error), retry_s=RETRY_STORING_SECONDS)
            await asyncio.sleep(RETRY_STORING_SECONDS)


# Changes of this machine's addresses while payments run.
#
# A callback URL has the address of this machine that faces the terminal. If the machine loses that address, events of
# the payment cannot arrive. Then the payment gets an attention, and the reconciler searches at shorter intervals until
# the outcome is known or the address is back. The daemon also checks at its start, because the address may have changed
# while no daemon ran.
#
# Callback URLs from a configured `advertise_host` or `public_url` have no address of this machine and are not checked.
# Print jobs are polled in any case, so a lost address delays them by at most one pause between two polls.


class AddressChanges(RecordService):
    """Attention `address_changed` of payments whose callbacks cannot arrive. Run `run` as a task; cancel it to stop."""

    def __init__(self, parts: ServiceParts, interfaces: Interfaces) -> None:
        super().__init__(parts)
        self._interfaces = interfaces
        self._wake = asyncio.Event()

    def compare(self) -> None:
        """Request a comparison of callback addresses, because this machine's addresses have changed."""
        self._wake.set()

    def called_back_at(self, host: str) -> None:
        """Request a comparison if this machine has lost `host`, the callback address of a payment just recorded."""
        if host not in self._interfaces.addresses:
            self._wake.set()

    async def run(self) -> None:
        """Check now and after each change of addresses, until cancelled."""
        while True:
            self._wake.clear()
            await _until_stored(self._look)
            await self._wake.wait()

    async def _look(self) -> None:
        """Compare the callback addresses of open payments with this machine's addresses, and record changes."""
        waiting = await self._store.read(rows.called_back)
        if not waiting:
            return
        try:
            # Read this machine's addresses after the payments. In the other order, the address of a payment that was
            # recorded meanwhile could be missing.
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
        before = rows.PAYMENT.require(unit.db, identity)
        if before.phase is Phase.FINAL or before.callback_host is None:
            return  # the payment has ended meanwhile
        entry = AddressLost(before.callback_host) if lost else AddressBack(before.callback_host)
        record(unit, before, entry, self._now(), self._outstanding)


# Effect of an identity conflict on open payments: an attention while it lasts.
#
# During an identity conflict nothing is started on the terminal. The terminal's open payments get an attention. posd
# stores the serial that a device reports in an acknowledgement, an event or a search. If a device reported another
# serial, no payment is sent to its address until the right terminal answers there, or an operator decides.


class IdentityConflicts(RecordService):
    """Attention `identity_conflict` of open payments during a conflict. Run `run` as a task; cancel it to stop."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._looked: dict[str, None] = {}  # queue of the terminals whose payments have to be checked
        self._kept: dict[str, str | None] = {}  # terminal -> stored serial of another device at its address
        self._marked: set[str] = set()  # terminals with payments that have the attention
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """For each queued terminal, raise and clear the attention of its open payments. Run until cancelled."""
        found = await self._store.read(rows.open_ones)
        self._marked = {item.terminal for item in found if item.attention_of(AttentionCode.IDENTITY_CONFLICT)}
        while True:
            await _until_stored(self._mark)
            await self._wake.wait()
            self._wake.clear()

    def probed(self, terminal: str) -> None:
        """Queue a terminal after a probe, or after its identity conflict began or ended."""
        if terminal in self._marked or terminal in self._kept or self._fleet.conflict(terminal) is not None:
            self._looked[terminal] = None
            self._wake.set()

    def changed(self, changes: Sequence[TransactionChanged]) -> None:
        """Record in the fleet the serials that devices reported in these changes.

        Runs on the event loop after the COMMIT.
        """
        for change in changes:
            serial, sent_to = change.after.terminal, change.after.sent_to
            terminal = self._fleet.get(serial)
            trusted = terminal.addresses.trusted if terminal is not None else None
            if terminal is None or trusted is None or trusted.base_url != sent_to:
                continue
            if trusted.other_serial is None and not change.after.mismatched:
                continue  # usual case: no other device is known or reported
            if (said := said_it_is(change)) is None:
                continue
            other = said if said != serial else None
            told = other is not None and change.before is not None and change.before.mismatched
            if other != trusted.other_serial and not told:
                terminal.record_other_identity(sent_to, other)
                if other is None:  # the right device answered again
                    self._looked[serial] = None
                    self._wake.set()

    async def _mark(self) -> None:
        while self._looked:
            terminal = next(iter(self._looked))
            del self._looked[terminal]  # first, so that a change during the next step queues it again
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
            # In this conflict payments have `serial_mismatch`. posd searches for them at the device that received them.
            dispute = None
        # Until a probe has reached the terminal, the stored attention is kept.
        if dispute is not None or known is None or known.addresses.reachable is True:
            detail = dispute.detail if dispute is not None else None
            await self._store.write(partial(self._record, terminal=terminal, detail=detail))
            (self._marked.discard if detail is None else self._marked.add)(terminal)

    async def _keep(self, terminal: str) -> None:
        """Store the other serial that the device at a terminal's address reports, or None if it reports no other."""
        known = self._fleet.get(terminal)
        trusted = known.addresses.trusted if known is not None else None
        if trusted is None or self._kept.get(terminal, "") == trusted.other_serial:
            return
        self._kept[terminal] = ""  # the stored value is unknown until the write has ended
        base_url, other = trusted.base_url, trusted.other_serial
        await self._store.write(lambda unit: terminals.record_other_identity(unit, terminal, base_url, other))
        self._kept[terminal] = other

    def _record(self, unit: WriteTransaction, terminal: str, detail: str | None) -> None:
        for before in list(rows.open_on(unit.db, terminal)):
            marked = before.attention_of(AttentionCode.IDENTITY_CONFLICT) is not None
            if marked is (detail is None):
                entry = Undisputed() if detail is None else Disputed(detail)
                record(unit, before, entry, self._now(), self._outstanding)


# Unread approvals. After ten minutes each has the attention `outcome_unread`, until a client reads the approval.
#
# The commit that records an approval adds it to the table of unread approvals. After a client has received a response
# with the approval, the next commit of another change removes it from the table. So a read needs no sync of its own.
# After a power cut, an approval that was read just before is unread again, but no unread approval is lost. After a
# restart the ten minutes start again, measured by the monotonic clock.

#: Seconds in which a till should read an approval, even if the till restarts meanwhile.
UNREAD_SECONDS = 600.0


class UnreadApprovals(RecordService):
    """Approvals that no client has read.

    Call `begin` at the start, then run `run` as a task. Use it on the event loop only.
    """

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        #: Unread approvals, each with the timer that ends its ten minutes.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._changing: asyncio.Queue[str] = asyncio.Queue()  # payments whose attention is to be raised or cleared
        self._read: set[str] = set()  # read approvals, to be removed from the table by the next commit
        self._any_read = asyncio.Event()

    async def begin(self) -> None:
        """Load the approvals that were unread when the earlier daemon stopped. Raise StorageUnavailable."""
        for identity, told in (await self._store.read(rows.unread)).items():
            self._wait(identity, 0.0 if told else UNREAD_SECONDS)

    def read(self, identities: Iterable[str]) -> None:
        """Mark these approvals as read, because a client received them."""
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
        """Raise and clear the attentions, and remove read approvals from the table, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._change())
            tasks.create_task(self._forget())

    def changed(self, changes: Sequence[TransactionChanged]) -> None:
        """Process the changes of a commit. Runs on the event loop."""
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
        """Raise the attention of an approval if it is still unread, else clear it."""
        found = rows.get(unit.db, identity)
        unread = identity in self._timers and found is not None and approved(found)
        if not unread:
            rows.remove_unread(unit, [identity])
        if found is not None:
            record(unit, found, OutcomeUnread() if unread else OutcomeRead(), self._now(), self._outstanding)

    async def _forget(self) -> None:
        """Remove read approvals from the table."""
        while True:
            await self._any_read.wait()
            self._any_read.clear()
            try:
                self._read.difference_update(await self._store.ride(self._remove))
            except (StorageUnavailable, CommitUncertain):
                self._any_read.set()  # try again with the next commit

    def _remove(self, unit: WriteTransaction) -> frozenset[str]:
        read = frozenset(self._read)
        rows.remove_unread(unit, read)
        return read


# Data for the checks of approvals (`payments.outcomes`): the currencies of a terminal, and trust in the clock.


class ApprovalChecks:
    """Check of approvals against their requests. The check remembers the currencies of each terminal."""

    def __init__(self, currency: str, clock_sure: Callable[[], bool]) -> None:
        """`currency`: the merchant's currency.

        If it is empty, the currencies of the terminal's earlier approvals are expected.
        """
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
        """Return how an event that approves the payment contradicts the request, or None.

        `came_at`: time of arrival; None if it is unknown, or posd did not trust the clock.
        """
        if not _approves(before, after, event):
            return None
        currencies = self._currencies(db, after, event.currency, remembers=before.updates_terminal)
        found = unlikely(after, event, currencies, came_at, chains.another_with_reference(db, after))
        return Unlikely(*found) if found is not None else None

    def believed(self, event: TransactionEvent, at: datetime) -> datetime | None:
        """Return the arrival time of an event, or None if posd does not trust the clock or no check needs the time."""
        return at if event.status == APPROVAL and self._clock_sure() else None

    def known_currencies(self, terminal: str) -> frozenset[str] | None:
        """Return the merchant's currency, else those of the terminal's earlier approvals.

        Return None if these must be read from the database first.
        """
        return frozenset({self._currency}) if self._currency else self._seen.get(terminal)

    def read_currencies(self, db: sqlite3.Connection, terminal: str) -> frozenset[str]:
        """Read the currencies of the terminal's earlier approvals."""
        return self._seen.setdefault(terminal, _of_approvals(db, terminal))

    def _currencies(
        self, db: sqlite3.Connection, transaction: Transaction, said: str | None, *, remembers: bool
    ) -> frozenset[str]:
        """Return the currencies that are expected from the terminal; empty: any.

        Read the database at the first approval of the terminal, and for a new currency.
        """
        if said is None or self._currency:
            return frozenset({self._currency} - {""})
        seen = self._seen.get(transaction.terminal, frozenset())
        if said.upper() not in seen:
            seen = _of_approvals(db, transaction.terminal, but=transaction.client_transaction_id)
            if seen or remembers:
                self._seen[transaction.terminal] = seen or frozenset({said.upper()})
        return seen


def _approves(before: Transaction, after: Transaction, event: TransactionEvent) -> bool:
    """Whether this event is an approval, and new evidence for the payment's outcome."""
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
