"""The sending parts of a daemon in this process.

The disk of these parts can fail, or another process can lock their database.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import EventDict

from posd.base.problems import Problem
from posd.config import load
from posd.config.schema import AmountsConfig
from posd.payments import rows as transactions
from posd.payments.abort import Aborts
from posd.payments.amounts import NOTHING_MORE
from posd.payments.attentions import ApprovalChecks
from posd.payments.inbox import Inbox
from posd.payments.model import Transaction
from posd.payments.start import Payments
from posd.printing import rows
from posd.printing.model import PrintJob
from posd.printing.start import Printing, PrintTurns
from posd.records.callback_urls import CallbackUrls
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.announcements import Announcement
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.terminal import PATIENCE_SECONDS, ScriptedTerminal, scripted_terminal

CHARGE = json.dumps({"amount": {"iva": 1.20, "subtotal_iva": 10}}).encode()
URLS, CHECKS = CallbackUrls((b"k" * 32,), "", 1, "https://pos.example"), ApprovalChecks("", lambda: True)
RECEIPT = json.dumps({"document": {"text": "TOTAL 11.20"}}).encode()


async def code_of(call: Awaitable[object]) -> str:
    """Return the code of the Problem that a call raises, or an empty text."""
    try:
        await call
    except Problem as problem:
        return problem.code
    return ""


@dataclass
class Inside:
    """The parts of a daemon that pay and print, and a foreign lock on their database."""

    database: Path
    terminal: ScriptedTerminal
    fleet: Fleet
    store: Store
    payments: Payments
    aborts: Aborts
    inbox: Inbox
    turns: PrintTurns
    printing: Printing
    foreign: sqlite3.Connection
    #: This machine's addresses in the callback URLs of `till`'s starts.
    hosts: list[str] = field(default_factory=list)

    def lock(self) -> None:
        """Hold the write lock, as a backup tool or an administrator's shell would."""
        self.foreign.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        self.foreign.execute("ROLLBACK")

    async def get(self, identity: str) -> Transaction | None:
        return await self.store.read(lambda db: transactions.get(db, identity))

    async def get_job(self, identity: str) -> PrintJob | None:
        return await self.store.read(lambda db: rows.get(db, identity))

    def till(self, checks: ApprovalChecks = CHECKS, amounts: AmountsConfig = NOTHING_MORE, **parts: Any) -> Payments:
        """Return another `Payments` on the same store and fleet, with other parts."""
        parts = {"now": partial(datetime.now, UTC)} | parts
        made = ServiceParts(self.store, self.fleet, **parts)
        return Payments(made, URLS, UTC, checks, amounts, self.hosts.append)

    def reload(self, configuration: str) -> None:
        """Reload the terminals and the profile."""
        public = '[webhooks]\npublic_url = "https://pos.example"'  # terminals in the cloud need this URL
        text = toml(self.database.parent, configuration).replace("[webhooks]", public)
        (self.database.parent / "config.toml").write_text(text)
        config = load(self.database.parent / "config.toml")
        self.fleet.adopt(self.fleet.make_clients(config.terminals), config.profiles)

    def announce(self, port: int) -> None:
        """Announce the terminal only on one of its ports."""
        number = int(self.terminal.base_urls[port].rsplit(":", 1)[1])
        at = "2026-01-02T03:04:05.000Z"
        self.fleet.announce(Announcement("a", self.terminal.serial, ("127.0.0.1",), number, None, None, at))

    async def behind(self, identity: str) -> "asyncio.Task[tuple[PrintJob, bool]]":
        """Start a till's print while another job is being sent. Return the call when the intent is on disk."""
        with self.store.hub.subscribe(identity) as changed:
            calling = asyncio.create_task(self.printing.start(identity, RECEIPT))
            await asyncio.wait_for(changed.wait(), PATIENCE_SECONDS)
        return calling

    @contextmanager
    def locked_after(self, event: str) -> Iterator[None]:
        """Lock the database after the log line of a failed COMMIT, before posd can read the database again."""

        def lock_meanwhile(_logger: object, _method: str, line: EventDict) -> EventDict:
            if line["event"] == event:
                self.lock()
            raise structlog.DropEvent

        processors = structlog.get_config()["processors"]
        processors.insert(0, lock_meanwhile)
        try:
            yield
        finally:
            processors.remove(lock_meanwhile)


@asynccontextmanager
async def composed(home: Path, *, announced: bool = False, **device: Any) -> AsyncIterator[Inside]:
    """Build the parts. The terminal's address is configured, or announced. `device`: see `scripted_terminal`."""
    async with scripted_terminal(home, ports=2, **device) as terminal:
        address = f'base_url = "{terminal.base_url}"\n'
        (home / "config.toml").write_text(
            toml(home, terminal.toml.replace(address, "") if announced else terminal.toml)
        )
        config = load(home / "config.toml")
        store = await Store.open(home / "posd.db", home / "posd.db.lock")
        await store.write(lambda unit: unit.db.execute("PRAGMA busy_timeout = 20").close())
        fleet, turns = Fleet(config.terminals, config.profiles), PrintTurns()
        parts = ServiceParts(store, fleet, partial(datetime.now, UTC))
        payments = Payments(parts, URLS, UTC, CHECKS)
        aborts, inbox = Aborts(parts), Inbox(parts, "", CHECKS)
        printing = Printing(parts, URLS, turns)
        foreign = sqlite3.connect(home / "posd.db", isolation_level=None)
        inside = Inside(home / "posd.db", terminal, fleet, store, payments, aborts, inbox, turns, printing, foreign)
        if announced:
            inside.announce(0)
        try:
            yield inside
        finally:
            foreign.close()
            await payments.drain(0)
            await printing.drain(0)
            await fleet.close()
            await printing.close()
            await store.close()
