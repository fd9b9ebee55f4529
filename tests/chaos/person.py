"""Operator of the shop: compares payments that stay open with their terminal, and resolves those that will not end."""

import asyncio
import time
from typing import Any

from tests.chaos.ledgers import Tail
from tests.chaos.street import Away, Street, TerminalProcess

#: Seconds between two checks of open payments.
LOOK_SECONDS = 0.5
#: Seconds after which the person compares an open payment with its terminal. In this time posd can prove that the
#: payment did not start.
PATIENCE_SECONDS = {True: 4.0, False: 2.5}
#: Seconds after an outage in which a request can still arrive. The person resolves nothing before.
AFTER_OUTAGE_SECONDS = 1.0


class Paper:
    """The terminal's own record: ids that it started, and ids that ended."""

    def __init__(self, terminal: TerminalProcess) -> None:
        self.started: set[str] = set()
        self.ended: set[str] = set()
        self._tail = Tail(terminal.ledger)

    def read(self) -> None:
        """Read new lines."""
        for line in self._tail.read():
            if line["kind"] == "start" and line["runs"]:
                self.started.add(line["client_transaction_id"])
            elif line["kind"] == "final":
                self.ended.add(line["client_transaction_id"])


class Person:
    """The operator as a task."""

    def __init__(self, street: Street) -> None:
        #: Ids resolved by the operator, with the result.
        self.resolved: dict[str, str] = {}
        #: When the LAN last came back, by the monotonic clock; infinite during an outage.
        self.lan_up_since = 0.0
        self._street = street
        self._papers = {serial: Paper(terminal) for serial, terminal in street.terminals.items()}
        self._open_since: dict[str, float] = {}

    async def help(self) -> None:
        """Check open payments repeatedly."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look(await self._street.list("open=true&"))
            except (OSError, Away):
                continue  # the daemon does not respond

    async def _look(self, found: list[dict[str, Any]]) -> None:
        """Resolve payments that are open for long, and that their terminal neither runs nor has ended."""
        now = time.monotonic()
        opened = {item["client_transaction_id"]: item["terminal"] for item in found}
        self._open_since = {identity: self._open_since.get(identity, now) for identity in opened}
        if now - self.lan_up_since <= AFTER_OUTAGE_SECONDS:
            return
        for identity, serial in opened.items():
            terminal, paper = self._street.terminals[serial], self._papers[serial]
            if now - self._open_since[identity] <= PATIENCE_SECONDS[self._street.plan.confirmed]:
                continue
            if terminal.proxy.upstream is None or terminal.running == identity or terminal.lock.locked():
                continue
            paper.read()
            if identity not in paper.ended:
                await self._resolve(identity, "canceled" if identity in paper.started else "not_started")

    async def _resolve(self, identity: str, result: str) -> None:
        word = {"operator": "Person", "note": "as the terminal has it", "result": result}
        self.resolved[identity] = result  # stored before the call, because its response can be lost
        reply = await self._street.admin("POST", f"/transactions/{identity}/resolve", word)
        if reply.status != 200:
            del self.resolved[identity]
