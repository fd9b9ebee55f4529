"""One print scenario on a real daemon: the actions of the till and the person, and posd's state afterwards."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from posd.simulator import Simulator
from posd.simulator.scenario import CHOICE, PrintScenario, prints
from tests.catalogue.expected import person_of, print_expect_of
from tests.catalogue.street import Street

RECEIPT = {"text": "MY SHOP\nTotal 11.20"}
#: Maximum duration of any wait, in seconds.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Said:
    """State of a print job in the form of `PrintExpect`, with a set in place of a list."""

    status: str | None
    phase: str
    decided_by: str | None
    error_code: str | None
    attention: frozenset[str]

    @classmethod
    def expected(cls, scenario: PrintScenario) -> "Said":
        """Return the content of a scenario's file."""
        it = print_expect_of(scenario)
        return cls(it.status, it.phase, it.decided_by, it.error_code, frozenset(it.attention))

    @classmethod
    def of(cls, job: Any) -> "Said":
        """Return the local API's state."""
        codes = frozenset(item["code"] for item in job["attention"])
        return cls(job["status"], job["phase"], job["decided_by"], job["error_code"], codes)


@dataclass
class PrintPlay:
    """One scenario on its terminal. The job has the scenario's name as its id."""

    name: str
    street: Street
    #: Status of the response to the till's PUT.
    start: int = 0

    @property
    def scenario(self) -> PrintScenario:
        """The played scenario."""
        return prints()[self.name]

    @property
    def simulator(self) -> Simulator:
        """The terminal of the scenario."""
        return self.street.simulators[self.name]

    async def run(self) -> "PrintPlay":
        """Play the scenario until posd has the expected state or the time is over."""
        person = person_of(self.scenario)
        await self.street.switch_on(self.name)
        if person.restarts:
            await self._put("before", "out-of-paper")  # later jobs wait for their turn
            await self.simulator.ledger.wait_for("printing")
        self.start = await self._put(self.name, self.name)
        if person.restarts:
            await self.street.switch_on(self.name)
            await self._put_paper_in("before")
        if person.puts_paper_in:
            await self._until(lambda job: {item["code"] for item in job["attention"]} == {"print_stuck"})
            await self._put_paper_in(self.name)
        with suppress(TimeoutError):
            await self._until(lambda job: Said.of(job) == Said.expected(self.scenario))
        await self._told()
        return self

    async def job(self) -> Any:
        """Return the job as the local API shows it."""
        return (await self.street.daemon.call("GET", f"/print-jobs/{self.name}")).json

    def papers(self) -> int:
        """Return the number of printed copies."""
        return sum(item["external_reference"] == CHOICE + self.name for item in self.simulator.printer.prints())

    async def _put(self, identity: str, scenario: str) -> int:
        request = {
            "terminal": self.simulator.settings.serial,
            "external_reference": CHOICE + scenario,
            "document": RECEIPT,
        }
        return (await self.street.daemon.call("PUT", f"/print-jobs/{identity}", request)).status

    async def _put_paper_in(self, identity: str) -> None:
        await self.simulator.ledger.wait_for("printing", print_job_id=identity)
        self.simulator.printer.put_paper_in()

    async def _told(self) -> None:
        """Wait for the last call of the webhook, if any."""
        if self.papers() or self.simulator.ledger.of("printed"):
            for number in range(1, len(self.scenario.webhooks) + 1):
                await self.simulator.ledger.wait_for("print_webhook", call=number)

    async def _until(self, what: Any) -> None:
        """Wait until the condition holds for the job. Check the condition once, and at each change."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not what(await self.job()):
                await self.street.news.of(self.name)
