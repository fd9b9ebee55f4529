"""One scenario on a real daemon: the actions of the till and the terminal, and posd's state afterwards."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec

from posd.simulator.ledger import Entry
from posd.simulator.scenario import Scenario, payments
from tests.catalogue.expected import Till, expect_of, shown
from tests.catalogue.street import PATIENCE_SECONDS, Playing, Street
from tests.rig.simulated import settled

#: Amount of payments whose scenario is not chosen by amount.
ANY_AMOUNT = 12.34
_QUICK = """
approve-contactless decline wrong-clock lost-acknowledgement cut-acknowledgement refused-409 redirected
web-page-but-runs duplicated-events only-the-final missing-card-presented event-of-another-serial wait-for-abort
abort-refused power-cut-at-the-acquirer-remembered terminal-away two-approvals amount-differs search-contradicts-decline
certificate-expired certificate-self-signed-midway error-500 missing-status
"""
#: Scenarios of the quick suite: some of each theme, most with an end that does not need a search.
QUICK = frozenset(_QUICK.split())
#: Members of `Expect` that the local API shows.
SHOWN = ("result", "phase", "status", "evidence", "next_step", "supersedes")


def expected(scenario: Scenario) -> dict[str, Any]:
    """Return the state of a payment that a scenario's file names."""
    return shown(expect_of(scenario), SHOWN)


def said(document: Any, scenario: Scenario) -> dict[str, Any]:
    """Return the local API's state in the form of `expected`. If a payment has several kinds of evidence, return the
    kind that the scenario names.
    """
    outcome = document["outcome"] or {"evidence": []}
    kinds = [item["kind"] for item in outcome["evidence"]]
    named = expect_of(scenario).evidence
    return {
        "result": outcome.get("result"),
        "phase": document["phase"],
        "status": outcome["status"] if kinds else document["status"],
        "evidence": named if named in kinds else next(iter(kinds), None),
        "next_step": document["next_step"],
        "supersedes": (outcome.get("supersedes") or {}).get("result"),
        "attention": {item["code"] for item in document["attention"]},
    }


class Play(Playing):
    """One scenario on its terminal. `start` and `abort`: status or problem code of the replies to the till. `document`:
    the payment at the end.
    """

    def __init__(self, street: Street, name: str) -> None:
        super().__init__(street, name)
        self.scenario = payments()[name]
        self.till = msgspec.convert(self.scenario.till, Till)
        self.identity = str(uuid4())
        self.start: int | str = 0
        self.abort: int | str | None = None
        self.document: Any = None

    async def run(self) -> None:
        """Play the scenario, and wait for the expected state or for the longest time."""
        settings = (await self.street.switch_on(self.name)).settings
        if settings.mdns:
            await self.street.daemon.log_line("discovery.found", terminal=settings.serial)
        aborting = asyncio.create_task(self._abort())
        reply = await self._call("PUT", "", self._request(settings.serial))
        self.start = reply.json.get("code") or reply.status
        await aborting
        await self._over()
        if self.till.reconcile:
            await self._call("POST", "/reconcile")
        await self._settle()

    @property
    def passed(self) -> set[str]:
        """The attentions of the payment so far."""
        return self.street.news.passed[self.identity]

    @property
    def charges(self) -> list[Entry]:
        """Ends in the terminal's ledger at which the acquirer approved. Each such end moved money once."""
        return self.simulator.ledger.of("final", charged=True)

    @property
    def chosen_by(self) -> str:
        """How the terminal chose the scenario."""
        starts = self.simulator.ledger.of("start", client_transaction_id=self.identity)
        assert [start["scenario"] for start in starts] in ([], [self.name]), starts
        return starts[0]["chosen_by"] if starts else "option"

    def _request(self, serial: str) -> dict[str, Any]:
        request: dict[str, Any] = {"terminal": serial, "amount": {"subtotal_iva0": self.scenario.amount or ANY_AMOUNT}}
        if self.scenario.amount is None and not self.scenario.out_of_reach:
            request["metadata"] = {"scenario": self.name}
        return request

    async def _call(self, method: str, call: str, body: Any = None) -> Any:
        return await self.street.daemon.call(method, f"/transactions/{self.identity}{call}", body)

    async def _abort(self) -> None:
        """Abort the payment at the status that the scenario names, if any."""
        known = self.till.abort
        if known is None:
            return
        if known == "started":  # the state that posd has after the call
            await self._until(lambda document: document["phase"] != "starting")
        else:
            await self._until(lambda document: document["status"] == known)
        reply = await self._call("POST", "/abort")
        self.abort = reply.json["code"] if reply.status >= 400 else reply.status

    async def _until(self, what: Callable[[Any], bool]) -> Any:
        return await self.street.until("transactions", self.identity, what)

    async def _over(self) -> None:
        """Wait until the terminal has run and sent everything."""
        if self.scenario.out_of_reach:
            return
        told = _tells_all(self.scenario)
        done = {"kind": "over", "client_transaction_id": self.identity}
        ledger, switchboard = self.simulator.ledger, self.simulator.switchboard
        async with asyncio.timeout(PATIENCE_SECONDS):
            await settled(ledger, lambda: bool(ledger.of(**done)) and not (told and switchboard.waiting_events))

    async def _settle(self) -> None:
        """Wait for the expected state. Read the last state, expected or not."""

        def settled(now: Any) -> bool:
            self.document = now
            asked = now["phase"] == "final" or now["last_search"] is not None
            passed = self.passed >= set(expect_of(self.scenario).passed)
            return asked and passed and said(now, self.scenario) == expected(self.scenario)

        with suppress(TimeoutError):
            await self._until(settled)


def _tells_all(scenario: Scenario) -> bool:
    """Return whether every event reaches posd, or the terminal soon gives the event up."""
    deeds = [step.do for step in scenario.steps if step.do in ("unplug", "plug")]
    stays_unplugged = bool(deeds) and deeds[-1] == "unplug"
    return not stays_unplugged and not any(step.deliver.distrusted for step in scenario.steps)
