"""A daemon and a simulated terminal that prints: what they say of a job, and that each was created once."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posd import tls
from posd.simulator import Settings, Simulator
from tests.support.daemon import Daemon, Reply, running
from tests.support.ports import reserve

#: The printer runs this much faster than a real one: a receipt takes some milliseconds.
SPEED = 1000.0
#: posd does not ask for a job: what is known of it came by its webhook.
ONLY_WEBHOOKS = "[print]\npoll_first_seconds = 3600\npoll_max_seconds = 3600\nstuck_seconds = 1\n"
#: Jobs are asked for often.
POLLS = "[print]\npoll_first_seconds = 0.1\npoll_max_seconds = 0.5\nstuck_seconds = 1\n"
#: On a machine that does much else a connection takes its time.
PATIENT = "connect_timeout_seconds = 30\nreply_timeout_seconds = 120\n"
RECEIPT = {"text": "MY SHOP\nTotal 11.20"}


@dataclass
class PrintShop:
    """A daemon whose fleet is one simulated terminal."""

    daemon: Daemon
    simulator: Simulator
    terminal: Settings
    #: The jobs that were asked for.
    jobs: list[str] = field(default_factory=list)

    async def put(self, print_job_id: str, scenario: str | None = None, **fields: Any) -> Reply:
        """Ask the daemon for a job."""
        reference = "" if scenario is None else f"print:{scenario}"
        request = {"external_reference": reference, "document": RECEIPT} | fields
        self.jobs.append(print_job_id)
        return await self.daemon.call("PUT", f"/print-jobs/{print_job_id}", request)

    async def job(self, print_job_id: str) -> Any:
        """Return a job as the local API shows it."""
        return (await self.daemon.call("GET", f"/print-jobs/{print_job_id}")).json

    async def outcome(self, print_job_id: str) -> Any:
        """Wait for the end of a job."""
        reply = await self.daemon.call("GET", f"/print-jobs/{print_job_id}/outcome?timeout=60")
        assert reply.status == 200, reply.body
        return reply.json

    async def until(self, print_job_id: str, what: Callable[[Any], bool]) -> Any:
        """Follow the feed until that holds of a job; return it as it then stands."""
        async for _ in self.daemon.changes():
            job = await self.job(print_job_id)
            if what(job):
                return job
        raise AssertionError("the feed ended")

    async def stuck(self, print_job_id: str) -> Any:
        """Wait until a person is told that a job is stuck."""
        return await self.until(print_job_id, lambda job: "print_stuck" in codes(job))

    async def put_paper_in(self, print_job_id: str) -> None:
        """Put paper in once that job waits for it."""
        await self.simulator.ledger.wait_for("printing", print_job_id=print_job_id)
        self.simulator.put_paper_in()

    async def restart_terminal(self) -> None:
        """Switch the terminal off and on again, at the same address."""
        await self.simulator.__aexit__(None, None, None)
        self.simulator = await Simulator(self.terminal).__aenter__()

    def created_once(self, *but: str) -> None:
        """Every job that was asked for was created at the terminal once, those that are named not at all."""
        created = Counter(entry["print_job_id"] for entry in self.simulator.ledger.of("print"))
        assert created == dict.fromkeys(set(self.jobs) - set(but), 1)


def codes(job: Any) -> set[str]:
    """Return what a person should look at."""
    return {item["code"] for item in job["attention"]}


@asynccontextmanager
async def print_shop(
    directory: Path, config: str = "", *, trusted: bool = True, **settings: Any
) -> AsyncIterator[PrintShop]:
    """Run both for the block. Where the terminal does not trust the daemon, every webhook is lost."""
    made = tls.init(directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    own = tls.init(directory / "terminal" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    terminal = Settings(
        **{"speed": SPEED, "mdns": False, "wait_seconds": 0} | settings,
        state=directory / "terminal",
        port=reserve(),
        certificate=own.certificate,
        private_key=own.private_key,
        trust=made.ca_certificate if trusted else own.ca_certificate,
    )
    simulator = await Simulator(terminal).__aenter__()
    address = f'base_url = "{simulator.base_url}"\nca_file = "{own.ca_certificate}"\n{PATIENT}'
    shop = None
    try:
        async with running(directory, f'[[terminals]]\nserial = "SN-0001"\n{address}', config) as daemon:
            shop = PrintShop(daemon, simulator, terminal)
            yield shop
    finally:
        await (shop.simulator if shop else simulator).__aexit__(None, None, None)
