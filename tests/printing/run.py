"""One run: everything is asked for, the terminal goes away, comes back, and all is settled; and what that took.

The terminal is a simulated one behind a gate. While it is away it is switched off, and the gate counts who knocks. A
payment after the other is made beside: on the same terminal while it is there, on another one while it is away.
"""

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import httpx2

from posd import tls
from posd.simulator import Settings, Simulator
from tests.support.daemon import Daemon, running
from tests.support.gate import Gate
from tests.support.ports import reserve

#: Longest that a till waits for an answer, in seconds: an outcome takes as long as the run.
PATIENCE_SECONDS = 700
#: On a machine that does much else a connection takes its time; the absent terminal resets it at once.
PATIENT = "connect_timeout_seconds = 30\nreply_timeout_seconds = 120\n"
#: Tills that ask for print jobs at the same time.
TILLS = 8
PRINTER, OTHER = "SN-0001", "SN-0002"
DOCUMENT = {"text": "MY SHOP\nTotal 11.20\nThank you"}


@dataclass(frozen=True)
class Plan:
    """What is done. `late` jobs are asked for while the terminal is away. `away` returns when it is to come back.

    `held`: nothing comes out until the terminal is back (there is no paper). `told`: its webhooks come through.
    """

    jobs: int
    late: int
    away: "Callable[[Scene], Awaitable[None]]"
    first: float
    most: float
    held: bool
    told: bool
    speed: float
    quiet_payments: int
    #: Seconds between two payments.
    pause: float


@dataclass
class Result:
    """What was counted; times are in seconds, memory in MiB."""

    #: Requests that the terminal received for each job, those that it was sent while away among them.
    creations: Counter[str]
    #: By how many jobs ended so: status, and by what that is known.
    ends: Counter[tuple[str | None, str]]
    late_ends: Counter[tuple[str | None, str]]
    #: Questions that the terminal received for each job.
    polls: Counter[str]
    #: The most that the schedule allows of one job in the time that passed since it was asked for.
    most_polls: int
    #: Connections that came while the terminal was away: all, and of these what the log names as questions.
    knocks: int
    knocks_by_polls: int
    most_knocks: int
    seconds_asking: float
    seconds_away: float
    seconds_settling: float
    #: Seconds from the till's call to the outcome, of each payment: before any print job; while jobs are sent and
    #: printed, on the terminal that prints; while it is away, on another one.
    payments: dict[str, list[float]]
    approved: bool
    memory: dict[str, float]

    def ratio(self, when: str) -> float:
        """How much longer a payment took beside than in quiet times (medians)."""
        quiet = "quiet" if when == "beside" else "quiet, other"
        return median(self.payments[when]) / median(self.payments[quiet])


@dataclass
class Scene:
    """Everything that runs."""

    daemon: Daemon
    gate: Gate
    settings: Settings
    printer: Simulator
    #: The till: a client of the local API that keeps its connections.
    till: httpx2.AsyncClient
    payments: dict[str, list[float]] = field(default_factory=dict)
    approved: bool = True
    _paid: asyncio.Event = field(default_factory=asyncio.Event)

    async def paid(self, when: str, count: int) -> None:
        """Wait until so many payments were made."""
        while len(self.payments.get(when, ())) < count:
            self._paid.clear()
            await self._paid.wait()

    async def pay(self, when: str, terminal: str) -> None:
        """Make one payment, and keep how long it took."""
        identity, begun = str(uuid4()), time.monotonic()
        request = {"terminal": terminal, "amount": {"subtotal_iva0": 10}}
        started = await self.till.put(f"/transactions/{identity}", json=request)
        outcome = await self.till.get(f"/transactions/{identity}/outcome?timeout=600")
        self.approved = self.approved and started.status_code == 201 and outcome.json()["result"] == "approved"
        self.payments.setdefault(when, []).append(time.monotonic() - begun)
        self._paid.set()

    @asynccontextmanager
    async def paying(self, when: str, terminal: str, pause: float) -> AsyncIterator[None]:
        """Make one payment after the other for the block, at least one, with a pause between them."""
        over = asyncio.Event()

        async def pay() -> None:
            while not over.is_set():
                await self.pay(when, terminal)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await over.wait()

        task = asyncio.create_task(pay())
        try:
            yield
        finally:
            over.set()
            await task

    async def print_all(self, names: list[str], **fields: Any) -> list[Any]:
        """Ask for jobs, several at the same time; return them as they stood then."""
        answers: dict[str, Any] = {}
        waiting = iter(names)

        async def till() -> None:
            for name in waiting:
                request = {"terminal": PRINTER, "document": DOCUMENT} | fields
                reply = await self.till.put(f"/print-jobs/{name}", json=request)
                assert reply.status_code == 201, reply.text
                answers[name] = reply.json()

        await asyncio.gather(*(till() for _ in range(TILLS)))
        return [answers[name] for name in names]

    async def taken(self, name: str) -> None:
        """Wait until the terminal has a job."""
        async for _ in self.daemon.changes():
            if (await self.till.get(f"/print-jobs/{name}")).json()["phase"] != "starting":
                return

    async def ends(self, names: list[str]) -> Counter[tuple[str | None, str]]:
        """Wait for the end of jobs; count how they ended."""
        found: Counter[tuple[str | None, str]] = Counter()
        waiting = iter(names)

        async def wait() -> None:
            for name in waiting:
                reply = await self.till.get(f"/print-jobs/{name}/outcome?timeout=600")
                assert reply.status_code == 200, reply.text
                found[reply.json()["status"], reply.json()["decided_by"]] += 1

        await asyncio.gather(*(wait() for _ in range(TILLS)))
        return found

    def memory(self) -> float:
        """Return the daemon's resident memory in MiB."""
        assert self.daemon.process is not None
        status = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


async def run(home: Path, plan: Plan) -> Result:
    """Run it in a new directory `home`."""
    async with AsyncExitStack() as stack:
        scene = await _open(home, plan, stack)
        daemon, gate, ledger = scene.daemon, scene.gate, home / "printer.jsonl"
        for _ in range(plan.quiet_payments):
            await scene.pay("quiet", PRINTER)
            await scene.pay("quiet, other", OTHER)
        memory = {"before": scene.memory()}

        names = [f"job-{number:04}" for number in range(plan.jobs)]
        begun = time.monotonic()
        async with scene.paying("beside", PRINTER, plan.pause):
            if plan.held:
                await scene.print_all(names[:1], external_reference="print:out-of-paper")
            jobs = await scene.print_all(names[1 if plan.held else 0 :])
        for job in jobs:
            if job["phase"] == "starting":  # its till was answered while it stood in line
                await scene.taken(job["print_job_id"])
        asked = time.monotonic()
        memory["all taken"] = scene.memory()

        gate.closed = True
        await scene.printer.__aexit__(None, None, None)
        lines = len(daemon.lines)
        late = [f"late-{number:04}" for number in range(plan.late)]
        async with scene.paying("while away", OTHER, plan.pause):
            await asyncio.gather(scene.print_all(late), plan.away(scene))
        left = time.monotonic()
        knocks, log = gate.turned_away, daemon.lines[lines:]
        memory["after the absence"] = scene.memory()

        scene.printer = await Simulator(scene.settings).__aenter__()
        gate.closed = False
        if plan.held:
            await scene.printer.ledger.wait_for("printing", print_job_id=names[0])
            scene.printer.put_paper_in()
        async with scene.paying("beside", PRINTER, plan.pause):
            ends = await scene.ends(names)
        settled = time.monotonic()
        late_ends = await scene.ends(late)
        memory["settled"] = scene.memory()
        entries = [json.loads(line) for line in ledger.read_text().splitlines()]
        return Result(
            creations=Counter(item["print_job_id"] for item in entries if item["kind"] == "print"),
            ends=ends,
            late_ends=late_ends,
            polls=Counter(item["print_job_id"] for item in entries if item["kind"] == "print_poll"),
            most_polls=most_questions(plan, settled - begun),
            knocks=knocks,
            knocks_by_polls=sum(line["event"] == "print.poll" for line in log),
            most_knocks=most_questions(plan, left - asked) + plan.late,
            seconds_asking=asked - begun,
            seconds_away=left - asked,
            seconds_settling=settled - left,
            payments=scene.payments,
            approved=scene.approved,
            memory=memory,
        )


def most_questions(plan: Plan, seconds: float) -> int:
    """How many questions the pauses leave room for: first, twice that, …, most, most, … and one that was under way."""
    doublings = math.ceil(math.log2(plan.most / plan.first))
    return 2 + doublings + int(seconds / plan.most)


async def _open(home: Path, plan: Plan, stack: AsyncExitStack) -> Scene:
    made = tls.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    own = tls.init(home / "terminals" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    settings = {}
    for serial, told in ((PRINTER, plan.told), (OTHER, True)):
        state = home / "terminals" / serial
        state.mkdir()
        settings[serial] = Settings(
            state=state,
            serial=serial,
            port=reserve(),
            certificate=own.certificate,
            private_key=own.private_key,
            trust=made.ca_certificate,
            speed=plan.speed,
            print_scenario="completes" if told else "silent",
            ledger_file=home / "printer.jsonl" if serial == PRINTER else None,
            mdns=False,
        )
    printer = await Simulator(settings[PRINTER]).__aenter__()
    other = await stack.enter_async_context(Simulator(settings[OTHER]))
    gate = Gate(settings[PRINTER].port)
    await gate.start()
    stack.push_async_callback(gate.stop)
    entries = "".join(
        f'[[terminals]]\nserial = "{serial}"\nbase_url = "{url}"\nca_file = "{own.ca_certificate}"\n{PATIENT}'
        for serial, url in ((PRINTER, f"https://127.0.0.1:{gate.port}"), (OTHER, other.base_url))
    )
    limits = f"[print]\npoll_first_seconds = {plan.first}\npoll_max_seconds = {plan.most}\n"
    daemon = await stack.enter_async_context(running(home, entries, limits))
    transport = httpx2.AsyncHTTPTransport(uds=str(daemon.till_socket), verify=False)
    till = await stack.enter_async_context(
        httpx2.AsyncClient(transport=transport, base_url="http://posd/v1", timeout=PATIENCE_SECONDS)
    )
    scene = Scene(daemon, gate, settings[PRINTER], printer, till)

    async def switch_off() -> None:
        await scene.printer.__aexit__(None, None, None)

    stack.push_async_callback(switch_off)
    return scene
