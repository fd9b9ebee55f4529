"""Operator of the shop: compares payments that stay open with their terminal, and closes those that will not end."""

import asyncio
import time
from typing import Any

from tests.chaos.ledgers import Tail
from tests.chaos.street import Away, Street, TerminalProcess

#: Seconds between two checks of open payments.
LOOK_SECONDS = 0.5
#: How long a payment may be open before the person compares it with its terminal, in seconds. posd gets that
#: long to prove that the payment did not start.
PATIENCE_SECONDS = {True: 4.0, False: 2.5}
#: So long after an outage a request can still be on its way: nothing is closed before. Seconds.
AFTER_OUTAGE_SECONDS = 1.0


class Paper:
    """The terminal's own record: the ids that it started, and those that ended."""

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
    """Looks and helps."""

    def __init__(self, street: Street) -> None:
        #: Ids closed by the operator, with the result.
        self.resolved: dict[str, str] = {}
        #: When the LAN came back the last time, by the monotonic clock; infinite while it is out.
        self.lan_up_since = 0.0
        self._street = street
        self._papers = {serial: Paper(terminal) for serial, terminal in street.terminals.items()}
        self._open_since: dict[str, float] = {}

    async def help(self) -> None:
        """Check repeatedly."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look(await self._street.list("open=true&"))
            except (OSError, Away):
                continue  # the daemon is away

    async def _look(self, found: list[dict[str, Any]]) -> None:
        """Close payments that have been open for long, and that their terminal does not run and has no end of."""
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
        self.resolved[identity] = result  # before the call: its answer can be lost
        reply = await self._street.admin("POST", f"/transactions/{identity}/resolve", word)
        if reply.status != 200:
            del self.resolved[identity]
