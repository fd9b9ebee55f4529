"""One print scenario on a real daemon: the actions of the till and the person, and posd's state afterwards."""

from contextlib import suppress
from typing import Any

from posd.simulator.scenario import CHOICE, PrintScenario, prints
from tests.catalogue.expected import person_of, print_expect_of, shown
from tests.catalogue.street import Playing, Street

RECEIPT = {"text": "MY SHOP\nTotal 11.20"}
#: Members of `PrintExpect` that the local API shows.
SHOWN = ("status", "phase", "decided_by", "error_code")


def expected(scenario: PrintScenario) -> dict[str, Any]:
    """Return the state of a job that a scenario's file names."""
    return shown(print_expect_of(scenario), SHOWN)


def said(job: Any) -> dict[str, Any]:
    """Return the local API's state in the form of `expected`."""
    return {name: job[name] for name in SHOWN} | {"attention": {item["code"] for item in job["attention"]}}


class PrintPlay(Playing):
    """One scenario on its terminal. The job has the scenario's name as its id. `start`: status of the response to the
    till's PUT.
    """

    def __init__(self, street: Street, name: str) -> None:
        super().__init__(street, name)
        self.scenario = prints()[name]
        self.start = 0

    async def run(self) -> None:
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
            await self._until(lambda job: said(job)["attention"] == {"print_stuck"})
            await self._put_paper_in(self.name)
        with suppress(TimeoutError):
            await self._until(lambda job: said(job) == expected(self.scenario))
        if self.papers() or self.simulator.ledger.of("printed"):  # the terminal calls the webhook
            for number in range(1, len(self.scenario.webhooks) + 1):
                await self.simulator.ledger.wait_for("print_webhook", call=number)

    async def job(self) -> Any:
        """Return the job as the local API shows it."""
        return (await self.street.daemon.call("GET", f"/print-jobs/{self.name}")).json

    def papers(self) -> int:
        """Return the number of printed copies."""
        return sum(item["external_reference"] == CHOICE + self.name for item in self.simulator.printer.prints())

    async def _put(self, identity: str, scenario: str) -> int:
        request = {"terminal": self.simulator.settings.serial, "document": RECEIPT}
        request |= {"external_reference": CHOICE + scenario}
        return (await self.street.daemon.call("PUT", f"/print-jobs/{identity}", request)).status

    async def _put_paper_in(self, identity: str) -> None:
        await self.simulator.ledger.wait_for("printing", print_job_id=identity)
        self.simulator.printer.put_paper_in()

    async def _until(self, what: Any) -> None:
        await self.street.until("print-jobs", self.name, what)
