"""The parts of a daemon around a real database file, in this process, with a network that does what a test says.

`Network` stands for the devices: it counts what is sent to them and answers as told. `House` is one life of a daemon:
everything that works on the database, wired as `posd.daemon.build` wires it, without listeners and without a clock that
runs by itself. A crash is `leave_to` and `die`: the files as they are on disk at that instant are all that is left.
"""

import asyncio
import itertools
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from posd.base.ids import Channel
from posd.base.times import parse_iso
from posd.config import Config, load
from posd.payments import journal
from posd.payments import rows as transactions
from posd.payments.abort import Aborts
from posd.payments.approval_checks import ApprovalChecks
from posd.payments.decide import Operators
from posd.payments.entries import Entry, Unlikely, apply
from posd.payments.inbox import Inbox
from posd.payments.journal import Journaled, StoredEvent
from posd.payments.model import Transaction
from posd.payments.reconcile import Reconciler, ReconcileSettings
from posd.payments.record import TransactionChanged
from posd.payments.recovery import recover
from posd.payments.reprocess import TransactionReport, payment_records, report
from posd.payments.schedule import ReconcileLimits
from posd.payments.search import Searching
from posd.payments.start import Payments
from posd.payments.transitions import RepeatedEvent, advance, rebuild, recognise
from posd.payments.wire import read_event
from posd.records.callback_urls import CallbackUrls
from posd.records.model import Phase
from posd.records.quarantine import Reprocessing
from posd.records.quotas import Quotas
from posd.records.service import ServiceParts
from posd.storage import changes
from posd.storage.store import Store
from posd.storage.writer import RecordedChange
from posd.terminals.attempt import Attempt, NotSent, ReplyLost
from posd.terminals.fleet import Fleet

SERIALS = ("SN-0", "SN-1")
#: The certificate of each of them.
PINNED = "0" * 64
MERCHANT = "M-1"
CONFIG = f"""
[merchant]
id = "{MERCHANT}"
[local_api]
directory = "run"
[database]
path = "posd.db"
[profile.search]
confirmed = true
[profile.abort]
confirmed = true
""" + "".join(
    f'[[terminals]]\nserial = "{serial}"\nbase_url = "https://{serial}.invalid"\nfingerprint_sha256 = "{PINNED}"\n'
    for serial in SERIALS
)


@dataclass
class Network:
    """What the devices do. Starts are held back where `hold` names their id, until `reply` is called for it."""

    start: Attempt = field(default_factory=lambda: ReplyLost("reset"))
    hold: bool = False
    abort: Attempt = field(default_factory=lambda: ReplyLost("reset"))
    search: Callable[[str], Attempt] = lambda _identity: ReplyLost("reset")
    starts: Counter[str] = field(default_factory=Counter)
    aborts: int = 0
    held: dict[str, "asyncio.Future[Attempt]"] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(
        self,
        _method: str,
        url: str,
        body: bytes | None = None,
        written: Callable[[], None] = lambda: None,
        *,
        same_as: str | None = None,
        proven: bool = False,
        connected: Callable[[str | None], None] = lambda _certificate: None,
    ) -> Attempt:
        """Take a request, in the manner of `TerminalAccess.call`."""
        attempt = await self._take(url, body)
        if not isinstance(attempt, NotSent):
            connected(PINNED)
        return attempt

    async def _take(self, url: str, body: bytes | None) -> Attempt:
        if url.endswith("/abort"):
            self.aborts += 1
            return self.abort
        assert body is not None
        identity: str = json.loads(body)["client_transaction_id"]
        if url.endswith("/transaction_search_online"):
            return self.search(identity)
        self.starts[identity] += 1
        if not self.hold:
            return self.start
        self.held[identity] = asyncio.get_running_loop().create_future()
        self.arrived.set()
        return await self.held[identity]

    def reply(self, identity: str, attempt: Attempt) -> None:
        """End a call that was held back."""
        self.held.pop(identity).set_result(attempt)

    busy = False

    def judge_dates(self, _judged: bool) -> None:
        """Nothing has a date here."""

    def proves(self, _certificate: str | None) -> bool:
        return False

    def cancel_calls(self) -> None:
        """End all of them as `TerminalAccess.cancel_calls` does."""
        for identity in list(self.held):
            self.reply(identity, ReplyLost("posd was stopped before the terminal answered"))


class WiredFleet(Fleet):
    """A fleet that is called over the network of the test."""

    def __init__(self, config: Config, network: Network) -> None:
        super().__init__(config.terminals, config.profiles)
        for terminal in self:
            terminal.settings.device = network  # type: ignore[assignment]


class Clock:
    """A wall clock that goes on by a millisecond at each look: what is told apart by time can be told apart."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.at += timedelta(milliseconds=1)
        return self.at


class House:
    """One life of a daemon. Made by `House.open`, ended by `close` or `die`."""

    def __init__(self, home: Path, network: Network, clock: Clock, store: Store) -> None:
        config = load(home / "config.toml")
        self.home, self.network, self.clock, self.store = home, network, clock, store
        self.fleet = WiredFleet(config, network)
        urls = CallbackUrls((bytes(32),), "127.0.0.1", 1)
        # Each look at the limit of calls is an hour later: how much is asked for is not what is tried here.
        quotas = Quotas(clock=itertools.count(0.0, 3600.0).__next__)
        self.parts = ServiceParts(store, self.fleet, clock, quotas=quotas, chance=random.random)
        self.outstanding = self.parts.outstanding
        checks = ApprovalChecks("", lambda: True)
        self.payments = Payments(self.parts, urls, UTC, checks)
        self.inbox = Inbox(self.parts, config.merchant.id, checks)
        self.aborts = Aborts(self.parts)
        searching = Searching(self.parts, config.merchant.id, checks)
        settings = ReconcileSettings(ReconcileLimits(0.0, 0.0, 0.0), settle=0.0, probe_with_abort=True)
        self.reconciler = Reconciler(self.parts, searching, self.aborts, settings)
        store.hub.listen(self.reconciler.changed, TransactionChanged)
        self.operators = Operators(self.parts)
        self.heard: list[RecordedChange] = []
        store.hub.listen(self.heard.extend, RecordedChange)

    @classmethod
    async def open(cls, home: Path, network: Network, clock: Clock) -> "House":
        """Open or take over the database in that directory."""
        (home / "config.toml").write_text(CONFIG)
        store = await Store.open(home / "posd.db", home / "posd.db.lock")
        house = cls(home, network, clock, store)
        house.reconciler.adopt(await recover(store, clock))
        return house

    async def reprocess(self, merchant: str) -> TransactionReport:
        """Reprocess under a configuration with that merchant."""
        inbox = Inbox(self.parts, merchant, ApprovalChecks("", lambda: True))
        done, quarantined = await Reprocessing(self.store, [payment_records(inbox, self.outstanding)]).run()
        return report(done[Channel.TRANSACTION], quarantined)

    async def close(self) -> None:
        """Stop as a daemon that is told to."""
        await self.reconciler.close()
        await self.payments.drain(0)
        await self.fleet.close()
        await self.store.close()

    def leave_to(self, home: Path) -> None:
        """Copy what is on disk at this instant."""
        for file in ("posd.db", "posd.db-wal"):
            shutil.copyfile(self.home / file, home / file)

    async def die(self) -> None:
        """End without a goodbye."""
        tasks = list(self.payments._starts.running._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.network.held.clear()
        await self.fleet.close()
        await self.store.close()

    async def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every row of every table."""
        tables = ("transactions", "events", "journal", "changes", "leases", "quarantine", "proven_searches")
        return await self.store.read(
            lambda db: {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        )

    async def records(self) -> "Records":
        """Return what is recorded, read at one moment."""
        return await self.store.read(_records)


class Replayed(NamedTuple):
    """What follows from a record; how many steps changed it, and how many entries only tell what was done."""

    transaction: Transaction
    verdicts: list[str]
    changes: int
    notes: int


@dataclass
class Record:
    """One transaction with all that came for it."""

    row: Transaction
    events: list[StoredEvent]
    journal: list[Journaled]

    def replayed(self) -> "Replayed":
        """Derive it again from its beginning."""
        transaction = self.beginning()
        verdicts: list[str] = []
        bodies: list[tuple[str, bytes]] = []
        changes = notes = 0
        for at, item in self._in_order():
            before = transaction
            if isinstance(item, bytes):
                event = read_event(item)
                seen = recognise(item, [body for known, body in bodies if known == event.event_id])
                assert seen is not RepeatedEvent.REPEATED
                bodies.append((event.event_id, item))
                transaction, verdict = advance(transaction, event, seen=seen, now=at)
                verdicts.append(str(verdict))
            else:
                transaction = apply(transaction, item, at)
                notes += transaction == before
            # A check of an approval is recorded with its event, in one change.
            changes += transaction != before and not isinstance(item, Unlikely)
        return Replayed(transaction, verdicts, changes, notes)

    def beginning(self) -> Transaction:
        row = self.row
        if row.orphan:
            rebuilt = rebuild(read_event(self.events[0].body), row.client_transaction_id, parse_iso(row.created_at))
            return msgspec.structs.replace(rebuilt, answer_unit=row.answer_unit)
        kept = ("client_transaction_id", "terminal", "type", "created_at", "sale", "amount", "metadata", "options")
        fields = {name: getattr(row, name) for name in (*kept, "repeat", "sent_to", "answer_unit")}
        return Transaction(updated_at=row.created_at, phase=Phase.STARTING, **fields)

    def _in_order(self) -> Iterator[tuple[datetime, bytes | Entry]]:
        for count in range(len(self.events) + 1):
            for item in self.journal:
                if item.events_before == count:
                    yield parse_iso(item.at), item.entry
            if count < len(self.events):
                yield parse_iso(self.events[count].received_at), self.events[count].body


@dataclass
class Records:
    """All that is recorded."""

    transactions: dict[str, Record]
    leases: dict[str, str]
    feed: list[RecordedChange]


def _records(db: sqlite3.Connection) -> Records:
    rows = [row for _, row in transactions.by_rowid(db, 0, 1000)]
    return Records(
        {
            row.client_transaction_id: Record(
                row,
                journal.events(db, row.client_transaction_id),
                list(journal.entries(db, row.client_transaction_id)),
            )
            for row in rows
        },
        transactions.leases(db),
        changes.after(db, 0, 100_000),
    )
