"""The person of the shop: looks at what is open, helps where a payment will not end by itself, is hasty at times."""

import asyncio
import time
from random import Random
from typing import Any

import httpx2

from tests.chaos.street import Street
from tests.support.daemon import Reply

#: The person looks this often at what is open, in seconds.
LOOK_SECONDS = 0.5
#: How long a payment may be open before the person compares it with its terminal, in seconds. Where posd can prove that
#: it did not start, it has the time to.
PATIENCE_SECONDS = {True: 4.0, False: 2.5}
#: So long after an outage a request can still be on its way: nothing is closed before. Seconds.
AFTER_OUTAGE_SECONDS = 1.0
#: How many of the payments that a terminal has forgotten the person closes; of the rest the terminal is freed alone.
RESOLVED_SHARE = 0.3
#: How often a look ends with a payment closed by a guess, with a search asked for, with an abort of anything that is
#: open (released, and so without its terminal, it must not be sent), or with everything derived again.
HASTY_SHARE = 0.04
ASKED_SHARE = 0.15
ABORTED_SHARE = 0.15
REPROCESSED_SHARE = 0.04


class Person:
    """Looks and helps until `patient` is set: from then on nothing is done that would not help."""

    def __init__(self, street: Street) -> None:
        #: Ids that were closed by a person, with the word.
        self.resolved: dict[str, str] = {}
        #: Those of them that were closed by a guess.
        self.guessed: set[str] = set()
        self.released: set[str] = set()
        self.patient = False
        #: When the LAN came back the last time, by the monotonic clock; infinite while it is out.
        self.lan_up_since = 0.0
        self._street = street
        self._rng = Random(f"person/{street.plan.seed}")
        self._open_since: dict[str, float] = {}

    async def help(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
                if not self.patient:
                    await self._meddle()
            except httpx2.TransportError:
                continue  # the daemon is away

    async def unattended(self) -> list[dict[str, Any]]:
        """Return what is open and has not been taken in hand."""
        return [item for item in await self._street.list("open=true&") if not item["released"]]

    async def _look(self) -> None:
        """Take in hand what has been open for long and what its terminal has forgotten."""
        found = await self.unattended()
        now = time.monotonic()
        self._open_since = {
            item["client_transaction_id"]: self._open_since.get(item["client_transaction_id"], now) for item in found
        }
        for item in found:
            identity = item["client_transaction_id"]
            waited = now - self._open_since[identity] > PATIENCE_SECONDS[self._street.plan.confirmed]
            settled = now - self.lan_up_since > AFTER_OUTAGE_SECONDS
            if waited and settled and self._forgotten(item["terminal"], identity):
                await self._take_in_hand(identity, item["terminal"])

    def _forgotten(self, serial: str, identity: str) -> bool:
        """Whether the terminal is there, does not run it, and knows of no end of it."""
        terminal = self._street.terminals[serial]
        if terminal.proxy.upstream is None or terminal.running == identity or terminal.lock.locked():
            return False
        return not any(
            f'"{identity}"' in line and '"final"' in line for line in terminal.ledger.read_text().split("\n")
        )

    async def _take_in_hand(self, identity: str, serial: str) -> None:
        """Release it; now and then close it by what the terminal's own ledger says."""
        if self._rng.random() < RESOLVED_SHARE:
            ledger = self._street.terminals[serial].ledger.read_text()
            await self._resolve(identity, "canceled" if identity in ledger else "not_started")
        else:
            word = {"operator": "Person", "note": f"{serial} has forgotten it"}
            reply = await self._street.admin("POST", f"/transactions/{identity}/release", word)
            if reply.status == 200:
                self.released.add(identity)

    async def _resolve(self, identity: str, result: str) -> Reply:
        word = {"operator": "Person", "note": "as the terminal has it", "result": result}
        self.resolved[identity] = result  # before the call: its answer can be lost
        reply = await self._street.admin("POST", f"/transactions/{identity}/resolve", word)
        if reply.status != 200:
            del self.resolved[identity]
        return reply

    async def _meddle(self) -> None:
        """Do, now and then, what a person can do at any time."""
        found = await self.unattended()
        alone = [item for item in found if item["sale"] is None]  # else a wrong word lets the basket be charged twice
        if alone and self._rng.random() < HASTY_SHARE:
            identity = self._rng.choice(alone)["client_transaction_id"]
            if (await self._resolve(identity, self._rng.choice(("canceled", "not_started")))).status == 200:
                self.guessed.add(identity)
        if found and self._rng.random() < ASKED_SHARE:
            identity = self._rng.choice(found)["client_transaction_id"]
            await self._street.daemon.call("POST", f"/transactions/{identity}/reconcile")
        everything = await self._street.list("open=true&")
        if everything and self._rng.random() < ABORTED_SHARE:
            identity = self._rng.choice(everything)["client_transaction_id"]
            await self._street.daemon.call("POST", f"/transactions/{identity}/abort")
        if self._rng.random() < REPROCESSED_SHARE:
            await self._street.reprocess()
