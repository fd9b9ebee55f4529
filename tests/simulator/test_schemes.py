"""Every scenario of the catalogue under each scheme of authentication, by a client that signs, in virtual time."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.clock import VirtualClock
from posd.simulator.operations import FINALS
from posd.simulator.scenario import CHOICE, Certificate, Fault, payments, prints
from tests.catalogue.print_street import RECEIPT
from tests.catalogue.themes import QUICK
from tests.support.signing import Signer

CODE = "5f1e0c8a7b3d49e2a6c4d80f9b2e7135"
#: Scheme -> the edition that it is played in, and what else its terminal is told.
SCHEMES: dict[str, dict[str, Any]] = {
    "hash-encrypt": {"edition": "2026", "encrypt_replies": True},
    "hmac": {"edition": "classic"},
}
PATHS = {
    "classic": {"abort": "/abort", "print": "/print"},
    "2026": {"abort": "/async/abort", "print": "/print/job"},
}
#: Terminal seconds that are let pass at once, and after which nothing happens any more.
SECONDS, NEVER = 20.0, 4000.0
#: What the quick suite plays: not those that take long by waiting for answers that never come.
SOME = sorted(QUICK)[::2]
SOME_PRINTS = sorted(prints())[::6]


#: How posd answers an abort of the till that it does not send, and how a scenario says that there is none.
NOT_SENT = (None, "not_abortable", "past_point_of_no_return", "terminal_offline")


class SigningTill:
    """Calls one terminal, each call signed, and lets its time pass meanwhile."""

    def __init__(self, terminal: Simulator, client: httpx2.AsyncClient) -> None:
        self.terminal = terminal
        settings = terminal.settings
        self._paths = PATHS[settings.edition]
        self._signer = Signer(settings.auth, CODE, settings.serial)
        self._client = client
        #: Answers that have come.
        self.answers = 0

    async def advance(self) -> None:
        assert isinstance(self.terminal.clock, VirtualClock)
        await self.terminal.clock.advance(SECONDS)

    async def pay(self, name: str) -> str:
        """Play a scenario to its end, and ask for the payment; return its id."""
        scenario, identity = payments()[name], str(uuid.uuid4())
        body: dict[str, Any] = {"client_transaction_id": identity, "amount": {"subtotal_iva0": 5}}
        if scenario.out_of_reach:
            beginning = self.terminal.arm(name)
            assert beginning is not None
            await beginning
        else:
            body["metadata"] = {"scenario": name}
        try:
            async with self._calling("POST", "/async/charge", body):
                await self._play(identity, None if scenario.expect.abort in NOT_SENT else scenario.till.abort)
        finally:
            await self._restore()
        if not scenario.out_of_reach:
            async with self._calling("POST", "/transaction_search_online", {"client_transaction_id": identity}):
                await self.terminal.ledger.wait_for("search", client_transaction_id=identity)
        return identity

    async def print(self, name: str) -> None:
        """Print by a scenario, and ask for the job."""
        identity, ledger = str(uuid.uuid4()), self.terminal.ledger
        body = {"printJobId": identity, "externalReference": CHOICE + name, "document": RECEIPT}
        async with self._calling("POST", self._paths["print"], body):
            await ledger.wait_for("print", print_job_id=identity)
            for _ in range(5):
                self.terminal.put_paper_in()
                await self.advance()
        async with self._calling("GET", f"/print_job?print_job_id={identity}", None):
            await ledger.wait_for("print_poll", print_job_id=identity)

    @asynccontextmanager
    async def _calling(self, method: str, path: str, body: Any) -> AsyncIterator[None]:
        """Make a call beside the block; an answer that has come at its end is encrypted where the terminal does so."""
        signed = self._signer.sign(body, time.time())
        url = f"{self.terminal.base_url}/terminal/v1{path}"
        calling = asyncio.create_task(self._client.request(method, url, content=signed.content, headers=signed.headers))
        try:
            yield
        finally:
            await self.advance()
            calling.cancel()
            with suppress(asyncio.CancelledError, httpx2.TransportError):
                answer = await calling
                own = answer.headers["content-type"] == "application/json" and answer.content
                encrypted = bool(own) and self.terminal.settings.encrypt_replies
                assert (signed.read(answer.content) != answer.content) == encrypted
                self.answers += 1

    async def _play(self, identity: str, abort: str | None) -> None:
        """Let time pass until the payment is over, and abort it once it has that status."""
        ledger, terminal = self.terminal.ledger, self.terminal
        if terminal.terminal.armed is None:
            await ledger.wait_for("start", client_transaction_id=identity)
        for _ in range(int(NEVER / SECONDS)):
            running = terminal.terminal.running
            if ledger.of("over", client_transaction_id=identity) or terminal.terminal.armed:
                return
            if abort is not None and running is not None and abort in ("started", running.status):
                abort = None
                async with self._calling("GET", self._paths["abort"], None):
                    await ledger.wait_for("abort", client_transaction_id=identity)
            if not terminal.powered:
                await terminal.power_on()
            await self.advance()
        pytest.fail(f"{identity} is not over")

    async def _restore(self) -> None:
        """Make the terminal as it was."""
        if self.terminal.terminal.armed:
            beginning = self.terminal.arm(None)
            assert beginning is not None
            await beginning
        await self.terminal.plug()
        await self.terminal.power_on()
        await self.terminal.show_certificate(Certificate.OWN)


Opening = Callable[[str], Any]


@pytest.fixture
def opening(settings: Callable[..., Settings], client: httpx2.AsyncClient) -> Opening:
    @asynccontextmanager
    async def run(auth: str) -> AsyncIterator[SigningTill]:
        its = settings(auth=auth, business_code=CODE, virtual=True, wait_seconds=0, **SCHEMES[auth])
        async with Simulator(its) as terminal:
            yield SigningTill(terminal, client)

    return run


async def played(opening: Opening, auth: str, names: list[str], jobs: list[str]) -> None:
    """Play these, and compare what the terminal has done with what the files say."""
    async with opening(auth) as till:
        ledger = till.terminal.ledger
        for name in names:
            scenario = payments()[name]
            identity = await till.pay(name)
            if scenario.out_of_reach:
                continue
            (start,) = ledger.of("start", client_transaction_id=identity)
            silent = scenario.start.fault in (Fault.LOST, Fault.SILENT)
            assert start["http_status"] == (None if silent else scenario.start.status or 200), name
            assert (start["scenario"], start["runs"]) == (name, scenario.start.runs)
            finals = ledger.of("final", client_transaction_id=identity)
            assert sum(final["charged"] for final in finals) == scenario.expect.charges, name
            if scenario.expect.abort in NOT_SENT:
                ends = [step.status for step in scenario.steps if step.status in FINALS and not step.restates]
                assert [final["status"] for final in finals] == ends, name
        for name in jobs:
            await till.print(name)
            papers = [paper for paper in till.terminal.prints() if paper["external_reference"] == CHOICE + name]
            job = prints()[name]  # what a restart makes forgotten is printed where there is none
            assert len(papers) == (1 if job.person.restarts else job.expect.papers), name
        assert ledger.of("unauthorized") == []
        assert till.answers > len(names) + len(jobs)


@pytest.mark.parametrize("auth", SCHEMES)
async def test_some_scenarios_under_each_scheme(opening: Opening, auth: str) -> None:
    await played(opening, auth, SOME, SOME_PRINTS)


@pytest.mark.slow
@pytest.mark.parametrize("auth", SCHEMES)
async def test_every_scenario_under_each_scheme(opening: Opening, auth: str) -> None:
    await played(opening, auth, list(payments()), list(prints()))
