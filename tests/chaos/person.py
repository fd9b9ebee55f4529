"""The person of the shop: looks at what is open, helps where a payment will not end by itself, is hasty at times."""

import asyncio
import time
from collections.abc import Collection
from random import Random
from typing import Any

import httpx2

from tests.chaos.books import RESULTS
from tests.chaos.ledgers import Line, Tail
from tests.chaos.street import Away, Street, TerminalProcess
from tests.support.daemon import Reply

#: The person looks this often at what is open, in seconds.
LOOK_SECONDS = 0.5
#: How long a payment may be open before the person compares it with its terminal, in seconds. Where posd can prove that
#: it did not start, it has the time to.
PATIENCE_SECONDS = {True: 4.0, False: 2.5}
#: The same of a payment that has ended at its terminal, which does not tell. Seconds.
SILENT_SECONDS = 8.0
#: So long after an outage a request can still be on its way: nothing is closed before. Seconds.
AFTER_OUTAGE_SECONDS = 1.0
#: How many of the payments that the person takes in hand are closed; of the rest the terminal is freed alone.
RESOLVED_SHARE = 0.3
#: So long after its terminal was freed a payment is looked up on paper and closed, in seconds; and how many of them.
PAPER_SECONDS = 10.0
PAPER_SHARE = 0.97
#: How often a look ends with a payment closed by a guess, with a search asked for, or with an abort of anything that is
#: open (released, and so without its terminal, it must not be sent).
HASTY_SHARE = 0.04
ASKED_SHARE = 0.15
ABORTED_SHARE = 0.15
#: Once for so many payments everything is derived again, and at most so often in a run: it takes the longer the more
#: there is.
PAYMENTS_FOR_ONE_REPROCESS = 40
MOST_REPROCESSED = 20


class Paper:
    """What a terminal has printed for itself: the ids that it started, and how they ended."""

    def __init__(self, terminal: TerminalProcess) -> None:
        self.started: set[str] = set()
        self._finals: dict[str, Line] = {}
        self._tail = Tail(terminal.ledger)

    def final(self, identity: str) -> Line | None:
        """The newest end of a payment, None where there is none."""
        for line in self._tail.read():
            if line["kind"] == "start" and line["runs"]:
                self.started.add(line["client_transaction_id"])
            elif line["kind"] == "final":
                self._finals[line["client_transaction_id"]] = line
        return self._finals.get(identity)


class Person:
    """Looks and helps until `patient` is set: from then on nothing is done that would not help."""

    def __init__(self, street: Street, silent: Collection[str]) -> None:
        """`silent` are the ids whose terminal can keep their end to itself."""
        #: Ids that were closed by a person, with the word.
        self.resolved: dict[str, str] = {}
        #: All words that were said of an id.
        self.words: dict[str, set[str]] = {}
        #: Those of them that were closed by a guess.
        self.guessed: set[str] = set()
        self.released: set[str] = set()
        self.patient = False
        #: When the LAN came back the last time, by the monotonic clock; infinite while it is out.
        self.lan_up_since = 0.0
        self._street = street
        self._silent = silent
        self._papers = {serial: Paper(terminal) for serial, terminal in street.terminals.items()}
        self._rng = Random(f"person/{street.plan.seed}")
        self._open_since: dict[str, float] = {}
        #: Those that are looked up on paper, and from when on.
        self._looked_up: dict[str, float] = {}

    async def help(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                found = await self._street.list("open=true&")
                await self._look(found)
                if not self.patient:
                    await self._meddle(found)
            except (httpx2.TransportError, Away):
                continue  # the daemon is away

    async def unattended(self) -> list[dict[str, Any]]:
        """Return what is open and has not been taken in hand."""
        return [item for item in await self._street.list("open=true&") if not item["released"]]

    async def _look(self, found: list[dict[str, Any]]) -> None:
        """Take in hand what has been open for long and what its terminal will not tell of."""
        now = time.monotonic()
        self._open_since = {
            item["client_transaction_id"]: self._open_since.get(item["client_transaction_id"], now) for item in found
        }
        if now - self.lan_up_since <= AFTER_OUTAGE_SECONDS:
            return
        for item in found:
            identity, serial = item["client_transaction_id"], item["terminal"]
            if item["released"]:
                if now > self._looked_up.get(identity, float("inf")):
                    await self._resolve_by_paper(identity, serial)
            elif self._will_not_tell(identity, serial, now - self._open_since[identity]):
                await self._take_in_hand(identity, serial)

    def _will_not_tell(self, identity: str, serial: str, waited: float) -> bool:
        """Whether the terminal is there, does not run it, and knows of no end of it, or keeps it to itself."""
        terminal = self._street.terminals[serial]
        if waited <= PATIENCE_SECONDS[self._street.plan.confirmed]:
            return False
        if terminal.proxy.upstream is None or terminal.running == identity or terminal.lock.locked():
            return False
        if self._papers[serial].final(identity) is None:
            return True
        return identity in self._silent and waited > SILENT_SECONDS and not terminal.waiting()

    async def _take_in_hand(self, identity: str, serial: str) -> None:
        """Release it; now and then close it by what the terminal's own ledger says."""
        if self._rng.random() < RESOLVED_SHARE:
            await self._resolve_by_paper(identity, serial)
            return
        word = {"operator": "Person", "note": f"{serial} does not tell of it"}
        reply = await self._street.admin("POST", f"/transactions/{identity}/release", word)
        if reply.status == 200:
            self.released.add(identity)
            if self._rng.random() < PAPER_SHARE:
                self._looked_up[identity] = time.monotonic() + PAPER_SECONDS

    async def _resolve_by_paper(self, identity: str, serial: str) -> None:
        paper = self._papers[serial]
        final = paper.final(identity)
        if final is not None:
            await self._resolve(identity, RESULTS[final["status"]], final["transaction_reference"])
        else:
            await self._resolve(identity, "canceled" if identity in paper.started else "not_started")

    async def _resolve(self, identity: str, result: str, reference: str | None = None) -> Reply:
        word = {"operator": "Person", "note": "as the terminal has it", "result": result}
        if reference is not None:
            word["transaction_reference"] = reference
        self.resolved[identity] = result  # before the call: its answer can be lost
        self.words.setdefault(identity, set()).add(result)
        reply = await self._street.admin("POST", f"/transactions/{identity}/resolve", word)
        if reply.status != 200:
            del self.resolved[identity]
        return reply

    async def _meddle(self, found: list[dict[str, Any]]) -> None:
        """Do, now and then, what a person can do at any time."""
        unattended = [item for item in found if not item["released"]]
        alone = [item for item in unattended if item["sale"] is None]  # else a basket could be charged twice
        if alone and self._rng.random() < HASTY_SHARE:
            identity = self._rng.choice(alone)["client_transaction_id"]
            if (await self._resolve(identity, self._rng.choice(("canceled", "not_started")))).status == 200:
                self.guessed.add(identity)
        if unattended and self._rng.random() < ASKED_SHARE:
            identity = self._rng.choice(unattended)["client_transaction_id"]
            await self._street.daemon.call("POST", f"/transactions/{identity}/reconcile")
        if found and self._rng.random() < ABORTED_SHARE:
            identity = self._rng.choice(found)["client_transaction_id"]
            await self._street.daemon.call("POST", f"/transactions/{identity}/abort")
        if self._reprocess_is_due():
            await self._street.reprocess()

    def _reprocess_is_due(self) -> bool:
        payments = len(self._street.plan.payments)
        each = max(PAYMENTS_FOR_ONE_REPROCESS, payments // MOST_REPROCESSED)
        return self._street.happenings.begun // each > self._street.reprocessed
