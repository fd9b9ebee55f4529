"""Real daemons and a simulated terminal for each print scenario of the catalogue. All scenarios are played at the same
time. The module runs two daemons, because a job's end arrives by one webhook and by polls. One daemon polls so rarely
that the webhook is faster. The other daemon polls soon. The daemons differ only in these times.
"""

import asyncio
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posd.simulator import Settings, Simulator
from posd.simulator.scenario import CHOICE, PrintScenario, prints
from posd.tls import issue
from tests.catalogue import schemes
from tests.catalogue.expected import person_of, print_expect_of
from tests.catalogue.playing import News
from tests.catalogue.street import IMPATIENT, PATIENT
from tests.support.daemon import Daemon, running
from tests.support.ports import reserve

#: Factor by which printers are faster than in a shop: a receipt takes 20 to 60 ms.
SPEED = 50.0
#: Settings of the two daemons, in real seconds. With the first setting webhooks report the ends. With the second
#: setting polls report the ends, long after each timely webhook.
SELDOM = "[print]\npoll_first_seconds = 3600\npoll_max_seconds = 3600\nstuck_seconds = 2\n"
SOON = "[print]\npoll_first_seconds = 2\npoll_max_seconds = 2\nstuck_seconds = 4\n"
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
    daemon: Daemon
    news: News
    simulator: Simulator
    settings: Settings
    #: Status of the response to the till's PUT.
    start: int = 0

    @property
    def scenario(self) -> PrintScenario:
        """The played scenario."""
        return prints()[self.name]

    async def run(self) -> "PrintPlay":
        """Play the scenario until posd has the expected state or the time is over."""
        person = person_of(self.scenario)
        if person.restarts:
            await self._put("before", "out-of-paper")  # later jobs wait for their turn
            await self.simulator.ledger.wait_for("printing")
        self.start = await self._put(self.name, self.name)
        if person.restarts:
            await self._restart()
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
        return (await self.daemon.call("GET", f"/print-jobs/{self.name}")).json

    def papers(self) -> int:
        """Return the number of printed copies."""
        return sum(item["external_reference"] == CHOICE + self.name for item in self.simulator.printer.prints())

    async def _put(self, identity: str, scenario: str) -> int:
        request = {"terminal": self.settings.serial, "external_reference": CHOICE + scenario, "document": RECEIPT}
        return (await self.daemon.call("PUT", f"/print-jobs/{identity}", request)).status

    async def _put_paper_in(self, identity: str) -> None:
        await self.simulator.ledger.wait_for("printing", print_job_id=identity)
        self.simulator.printer.put_paper_in()

    async def _restart(self) -> None:
        await self.simulator.__aexit__(None, None, None)
        self.simulator = await Simulator(self.settings).__aenter__()

    async def _told(self) -> None:
        """Wait for the last call of the webhook, if any."""
        if self.papers() or self.simulator.ledger.of("printed"):
            for number in range(1, len(self.scenario.webhooks) + 1):
                await self.simulator.ledger.wait_for("print_webhook", call=number)

    async def _until(self, what: Any) -> None:
        """Wait until the condition holds for the job. Check the condition once, and at each change."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not what(await self.job()):
                await self.news.of(self.name)


def _asked_soon(scenario: PrintScenario) -> bool:
    """Return whether a scenario needs the daemon that polls soon, because only a poll shows its end."""
    expect = print_expect_of(scenario)
    brought = expect.decided_by == "webhook" or "quarantined_event" in expect.passed
    return not brought


def _entry(settings: Settings, scenario: PrintScenario, ca: Path, signed: str) -> str:
    times = IMPATIENT if scenario.creation.fault == "silent" else PATIENT
    address = f'base_url = "https://127.0.0.1:{settings.port}"\nca_file = "{ca}"\n'
    return f'[[terminals]]\nserial = "{settings.serial}"\n{address}{times}{signed}'


@asynccontextmanager
async def _group(
    directory: Path, scenarios: Mapping[str, PrintScenario], times: str
) -> AsyncIterator[dict[str, PrintPlay]]:
    """Run a daemon, and terminals for these scenarios."""
    made = issue.init(directory / "terminals" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    settings = {}
    for number, name in enumerate(scenarios):
        state = directory / "terminals" / name
        state.mkdir()
        settings[name] = Settings(
            state=state,
            serial=f"SN-{number:04}",
            port=reserve(),
            certificate=made.certificate,
            private_key=made.private_key,
            trust=directory / "state" / "tls" / "ca.crt",
            speed=SPEED,
            mdns=False,
            **schemes.SETTINGS,
        )
    signed = schemes.entry(directory)
    fleet = "".join(_entry(settings[name], item, made.ca_certificate, signed) for name, item in scenarios.items())
    async with running(directory, fleet, times) as daemon:
        news = News()
        following = asyncio.create_task(news.follow(daemon.till_socket))
        plays = {}
        try:
            for name, its in settings.items():
                plays[name] = PrintPlay(name, daemon, news, await Simulator(its).__aenter__(), its)
            yield plays
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.gather(*(play.simulator.__aexit__(None, None, None) for play in plays.values()))


@asynccontextmanager
async def print_street(directory: Path, names: Container[str]) -> AsyncIterator[dict[str, PrintPlay]]:
    """Run daemons and terminals for the block. Yield a play for each of these scenarios of the catalogue."""
    async with AsyncExitStack() as stack:
        plays: dict[str, PrintPlay] = {}
        for soon, times in ((False, SELDOM), (True, SOON)):
            home = directory / ("soon" if soon else "seldom")
            home.mkdir()
            scenarios = {name: one for name, one in prints().items() if name in names and _asked_soon(one) == soon}
            plays |= await stack.enter_async_context(_group(home, scenarios, times))
        yield plays
