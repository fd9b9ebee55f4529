"""One scenario on a real daemon: the actions of the till and the terminal, and posd's state afterwards."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from posd.simulator import Simulator
from posd.simulator.ledger import Entry, Ledger
from posd.simulator.scenario import Scenario, payments
from tests.catalogue.expected import expect_of, till_of
from tests.support.daemon import Daemon
from tests.support.streams import stream

#: Amount of payments whose scenario is not chosen by amount.
ANY_AMOUNT = 12.34
#: Seconds until a payment is read again without a change.
LOOK_AGAIN_SECONDS = 2.0
#: Maximum duration of a wait, in seconds.
PATIENCE_SECONDS = 150.0


@dataclass(frozen=True)
class Said:
    """State of a payment in the form of `Expect`, with sets in place of lists."""

    result: str | None
    phase: str
    status: str | None
    attention: frozenset[str]
    evidence: str | None
    next_step: str | None
    supersedes: str | None

    @classmethod
    def expected(cls, scenario: Scenario) -> "Said":
        """Return the content of a scenario's file."""
        it = expect_of(scenario)
        attention = frozenset(it.attention)
        return cls(it.result, it.phase, it.status, attention, it.evidence, it.next_step, it.supersedes)

    @classmethod
    def of(cls, document: Any, scenario: Scenario) -> "Said":
        """Return the local API's state.

        If a payment has several kinds of evidence, return the kind that the scenario names.
        """
        outcome = document["outcome"] or {"evidence": []}
        kinds = [item["kind"] for item in outcome["evidence"]]
        expected = expect_of(scenario).evidence
        return cls(
            outcome.get("result"),
            document["phase"],
            outcome["status"] if kinds else document["status"],
            frozenset(item["code"] for item in document["attention"]),
            expected if expected in kinds else next(iter(kinds), None),
            document["next_step"],
            (outcome.get("supersedes") or {}).get("result"),
        )


@dataclass
class Played:
    """Result of one scenario."""

    name: str
    identity: str
    chosen_by: str
    start: int | str
    abort: int | str | None
    document: Any
    #: Ends in the terminal's ledger at which the acquirer approved. Each such end moved money once.
    charges: list[Entry]
    #: Number of starts and number of aborts that reached the terminal.
    starts: int
    aborts: int


@dataclass
class News:
    """Reader of the feed: records the attentions of each id, and wakes waiters at a change."""

    passed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _changed: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def follow(self, socket: Path) -> None:
        """Follow until cancelled."""
        last = 0
        while True:
            with suppress(TimeoutError):  # posd reported no change for a while
                async with stream(socket, "/feed", last_event_id=last) as messages:
                    async for message in messages:
                        change = json.loads(message.data)
                        last = change["seq"]
                        self.passed[change["id"]].update(change["attention"])
                        self._changed[change["id"]].set()

    async def of(self, identity: str) -> None:
        """Wait for the next change of this id since the last wait, with a short time limit.

        After some time a doubt needs an operator. posd reports no change at this moment.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                await self._changed[identity].wait()
        self._changed[identity].clear()


class Play:
    """One scenario on its terminal."""

    def __init__(self, daemon: Daemon, news: News, name: str, simulator: Simulator) -> None:
        self._daemon = daemon
        self._news = news
        self._name = name
        self._scenario = payments()[name]
        self._simulator = simulator
        self._identity = str(uuid4())

    async def run(self) -> Played:
        """Play the scenario, and wait for the expected state or for the longest time."""
        serial = self._simulator.settings.serial
        if self._simulator.settings.mdns:
            await self._daemon.log_line("discovery.found", terminal=serial)
        aborting = asyncio.create_task(self._abort())
        reply = await self._call("PUT", "", self._request(serial))
        start = reply.json.get("code") or reply.status
        abort = await aborting
        await self._over()
        if till_of(self._scenario).reconcile:
            await self._call("POST", "/reconcile")
        document = await self._settled()
        of = self._simulator.ledger.of
        return Played(
            self._name,
            self._identity,
            self._chosen_by(),
            start,
            abort,
            document,
            charges=of("final", charged=True),
            starts=len(of("start")),
            aborts=len(of("abort")),
        )

    def _request(self, serial: str) -> dict[str, Any]:
        request: dict[str, Any] = {"terminal": serial, "amount": {"subtotal_iva0": ANY_AMOUNT}}
        if self._scenario.amount is not None:
            request["amount"] = {"subtotal_iva0": self._scenario.amount}
        elif not self._scenario.out_of_reach:
            request["metadata"] = {"scenario": self._name}
        return request

    async def _call(self, method: str, call: str, body: Any = None) -> Any:
        return await self._daemon.call(method, f"/transactions/{self._identity}{call}", body)

    async def _abort(self) -> int | str | None:
        """Abort the payment at the status that the scenario names. Return the status or the problem's code.

        Return None if the scenario has no abort.
        """
        known = till_of(self._scenario).abort
        if known is None:
            return None
        if known == "started":  # the state that posd has after the call
            await self._until(lambda document: document["phase"] != "starting")
        else:
            await self._until(lambda document: document["status"] == known)
        reply = await self._call("POST", "/abort")
        return str(reply.json["code"]) if reply.status >= 400 else int(reply.status)

    async def _until(self, what: Callable[[Any], bool]) -> Any:
        """Wait until the condition holds for the local API's state. Return the state."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                document = await self._daemon.transaction(self._identity)
                if "phase" in document and what(document):
                    return document
                await self._news.of(self._identity)

    async def _over(self) -> None:
        """Wait until the terminal has run and sent everything."""
        if self._scenario.out_of_reach:
            return
        told = _tells_all(self._scenario)
        done = {"kind": "over", "client_transaction_id": self._identity}
        ledger, switchboard = self._simulator.ledger, self._simulator.switchboard
        await until(ledger, lambda: bool(ledger.of(**done)) and not (told and switchboard.waiting_events))

    async def _settled(self) -> Any:
        """Wait for the expected state. Return the last state, expected or not."""
        expected = Said.expected(self._scenario)
        document: Any = None

        def settled(now: Any) -> bool:
            nonlocal document
            document = now
            asked = now["phase"] == "final" or now["last_search"] is not None
            passed = self._news.passed[self._identity] >= set(expect_of(self._scenario).passed)
            return asked and passed and Said.of(now, self._scenario) == expected

        with suppress(TimeoutError):
            await self._until(settled)
        return document

    def _chosen_by(self) -> str:
        starts = self._simulator.ledger.of("start", client_transaction_id=self._identity)
        assert [start["scenario"] for start in starts] in ([], [self._name]), starts
        return starts[0]["chosen_by"] if starts else "option"


async def until(ledger: Ledger, what: Callable[[], bool]) -> None:
    """Wait until a condition is true, checked at each line of the ledger."""
    news = asyncio.Event()
    ledger.listen(lambda _entry: news.set())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not what():
            news.clear()
            await news.wait()


def _tells_all(scenario: Scenario) -> bool:
    """Return whether every event reaches posd, or the terminal soon stops sending it."""
    deeds = [step.do for step in scenario.steps if step.do in ("unplug", "plug")]
    stays_unplugged = bool(deeds) and deeds[-1] == "unplug"
    return not stays_unplugged and not any(step.deliver.distrusted for step in scenario.steps)
