"""World of one cell: a daemon, a terminal, and a relay in each direction. The daemon's environment sets the crash
point. The till never gives up. The till repeats calls without a response under the same id.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from ssl import PROTOCOL_TLS_SERVER, SSLContext, create_default_context
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import UUID

import trustme

from posd.simulator import Settings, Simulator
from posd.tls import issue
from posd.tls.files import load_pair
from tests.crash import printing
from tests.crash.relay import Relay
from tests.rig.daemon import ANY_PORT, Daemon, toml
from tests.rig.ports import reserve
from tests.rig.program import Command
from tests.rig.shop import AMOUNT
from tests.rig.simulated import SEARCHING, settled, undelivered
from tests.rig.streams import Reply

if TYPE_CHECKING:
    from tests.crash.scenarios import Scenario

SERIAL = "SN-0001"
#: Seconds that one call of the till waits for the outcome.
PATIENCE_SECONDS = 0.25
#: Factor by which terminals are faster than people. With this factor ten attempts of a terminal last 15 s, longer than
#: a restart.
SPEED = 20.0
#: Address of the daemon, and the address at which the terminal calls it, on the same port.
DAEMON_HOST, ADVERTISED_HOST = "127.0.0.1", "127.0.0.2"

TIMES = """
[print]
poll_first_seconds = 0.3
poll_max_seconds = 0.6
[terminal_defaults]
reply_timeout_seconds = 5
"""


@dataclass
class Payment:
    """One payment of a till, with the id, the terminal's behaviour, and the responses to the till."""

    identity: str
    scenario: str
    sale: str | None = None
    #: Event that is set when the till's call has its response. posd sends no request of the payment after this
    #: response.
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[dict[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Path of the resource in the local API."""
        return f"/transactions/{self.identity}"

    @property
    def request(self) -> dict[str, Any]:
        """Body of the start."""
        return {"amount": AMOUNT, "metadata": {"scenario": self.scenario}, "sale": self.sale}


class Job(Payment):
    """One print job of a till."""

    @property
    def path(self) -> str:
        return f"/print-jobs/{self.identity}"

    @property
    def request(self) -> dict[str, Any]:
        document = {"text": f"this is {self.identity}"}
        return {"document": document, "external_reference": f"print:{self.scenario}"}


@dataclass
class World:
    """World of a cell, created by `open_world`. `lives`: value of POSD_CRASH for each life of the daemon. The life
    after these lives is not killed.
    """

    scenario: "Scenario"
    lives: Sequence[str]
    daemon: Daemon
    terminal: Simulator
    #: Relay from the daemon to the terminal.
    wire: Relay
    #: Relay from the terminal to the daemon.
    callbacks: Relay
    random: Random
    payments: list[Payment] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    #: Event that is set when the scenario releases held exchanges.
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    crashes: int = 0
    #: Log of the ended lives.
    log: list[dict[str, Any]] = field(default_factory=list)
    _stopping: bool = False
    _command: tuple[str, ...] = ()
    _made: asyncio.Event = field(default_factory=asyncio.Event)
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def payment(self) -> Payment:
        """The payment of the scenario."""
        return self.payments[0]

    def another(self, scenario: str, sale: str | None = None) -> Payment:
        """Return another payment that is not started."""
        payment = Payment(str(UUID(int=self.random.getrandbits(128), version=4)), scenario, sale)
        self.payments.append(payment)
        return payment

    def add_jobs(self, count: int, scenario: str) -> None:
        """Add print jobs that are not started."""
        self.jobs += [Job(f"receipt-{number}", scenario) for number in range(count)]

    # Lives of the daemon.

    async def watch(self) -> None:
        """Run the daemon, and restart it after each crash, until `stop`. Raise AssertionError if the daemon ends in
        another way.
        """
        for crash in (*self.lives, ""):
            code = await self._live(crash)
            if crash and code == -signal.SIGKILL:
                self.crashes += 1
                continue
            assert self._stopping, f"posd ended by itself ({code}): {self.log[-3:]}"
            assert code == 0, f"posd ended with {code} after a stop"
            return

    async def _live(self, crash: str) -> int:
        """Run the daemon until it ends. If the daemon ended for a command, run the command and then the daemon again.
        Return the exit code of this life.
        """
        crashing = {"POSD_CRASH": crash} if crash else {}
        while True:
            if self._command:
                if code := await self._run_command(crashing):
                    return code
                self._command = ()
                self._made.set()
            code = await self._serve(crashing)
            if code or not self._command:
                return code

    async def _serve(self, crashing: dict[str, str]) -> int:
        self._gone = asyncio.Event()
        self.daemon.environment = crashing
        with suppress(AssertionError):  # if the daemon ends during its start, the exit code has the cause
            await self.daemon.start()
            self._up.set()
        if self._stopping or self._command:
            self._terminate()
        code = await self.daemon.process.wait()
        self._up.clear()
        await self.daemon.stop()
        self.log += self.daemon.lines
        self._gone.set()
        return code

    async def _run_command(self, crashing: dict[str, str]) -> int:
        command = await Command.start(self.daemon.config_file, *self._command, **crashing)
        try:
            code = await command.ended()
        finally:
            if command.process.returncode is None:
                command.process.kill()
        self.log.append({"event": "command", "code": code, "text": command.text})
        return code

    async def offline(self, *command: str) -> None:
        """Stop the daemon, run a command of posd, and restart the daemon. Repeat the command if a crash point kills
        it.
        """
        self._made.clear()
        self._command = command
        self._terminate()
        await self._made.wait()

    @asynccontextmanager
    async def one_life(self) -> AsyncIterator[None]:
        """Run the daemon for the block, before the first life with a crash point."""
        async with asyncio.TaskGroup() as group:
            living = group.create_task(self._live(""))
            yield
            self._terminate()
        assert living.result() == 0

    def stop(self) -> None:
        """End `watch`. Stop the daemon. If a crash came before the stop, stop the restarted daemon."""
        self._stopping = True
        self._terminate()

    def _terminate(self) -> None:
        if self.daemon.process is not None and self._up.is_set():
            with suppress(ProcessLookupError):
                self.daemon.process.terminate()

    async def call(self, method: str, path: str, body: Any = None, *, admin: bool = False) -> Reply:
        """Repeat a call of the local API until a response arrives."""
        while True:
            await self._up.wait()
            gone = self._gone
            try:
                return await self.daemon.call(method, path, body, socket=self.daemon.admin_socket if admin else None)
            except OSError:
                await gone.wait()

    async def ok(self, method: str, path: str, body: Any = None, *, admin: bool = False) -> Any:
        """Repeat a call until a response arrives. Return its document. Check that the status is 200."""
        reply = await self.call(method, path, body, admin=admin)
        assert reply.status == 200, f"posd replied {reply.status} to {method} {path}: {reply.body.decode()}"
        return reply.json

    # Actions of the till.

    async def put(self, payment: Payment) -> Reply:
        """Repeat the start until a response arrives."""
        reply = await self.call("PUT", payment.path, payment.request)
        if reply.status in (200, 201):
            payment.answered.set()
        return reply

    async def start(self, payment: Payment) -> None:
        """Start a payment. Check that posd accepts the start."""
        reply = await self.put(payment)
        assert payment.answered.is_set(), f"posd replied {reply.status} to the start: {reply.body.decode()}"

    async def outcome(self, payment: Payment) -> Any:
        """Wait for the outcome. Return None if nothing can report the outcome and posd is in doubt."""
        while True:
            reply = await self.call("GET", f"{payment.path}/outcome?timeout={PATIENCE_SECONDS}")
            assert reply.status in (200, 202), f"posd replied {reply.status} to a waiting till: {reply.body.decode()}"
            if reply.status == 200:
                payment.told.append(reply.json)
                return reply.json
            if self.hopeless(payment, reply.json):
                return None

    async def pay(self, payment: Payment) -> Any:
        """Start a payment and wait for the outcome."""
        await self.start(payment)
        return await self.outcome(payment)

    async def get(self, payment: Payment) -> Any:
        """Return a payment from the local API."""
        return await self.ok("GET", payment.path)

    # True state of the terminal.

    def started(self, payment: Payment) -> bool:
        """Return whether the terminal has accepted a payment."""
        return bool(self.terminal.ledger.of("start", client_transaction_id=payment.identity, http_status=200))

    def hopeless(self, payment: Payment, document: Any) -> bool:
        """Return whether the terminal never gets the payment, and posd has finished all searches."""
        if isinstance(payment, Job):
            return printing.hopeless(self, payment, document)
        over = payment.answered.is_set() and not self.started(payment)
        asked = document["phase"] == "in_doubt" and document["last_search"] is not None
        return over and asked and not self.scenario.proves

    async def at_terminal(self, payment: Payment, kind: str, **fields: Any) -> None:
        """Wait until this line is in the terminal's ledger, or until posd replies to a start that the terminal never
        got.
        """
        waiting = self.terminal.ledger.wait_for(kind, client_transaction_id=payment.identity, **fields)
        entry, answered = asyncio.create_task(waiting), asyncio.create_task(payment.answered.wait())
        try:
            await asyncio.wait({entry, answered}, return_when=asyncio.FIRST_COMPLETED)
            if entry.done() or self.started(payment):
                await entry
        finally:
            entry.cancel()
            answered.cancel()

    async def quiet(self) -> None:
        """Wait until the terminal runs nothing and has nothing to send."""
        ledger = self.terminal.ledger

        def idle() -> bool:
            ended = {line["client_transaction_id"] for line in ledger.of("final")}
            running = any(self.started(payment) and payment.identity not in ended for payment in self.payments)
            return not (running or undelivered(ledger) or printing.busy(self))

        await settled(ledger, idle)


@asynccontextmanager
async def open_world(scenario: "Scenario", lives: Sequence[str], seed: int) -> AsyncIterator[World]:
    """Set up the world without the daemon, which `World.watch` runs. After the block no process and no file is left."""
    async with AsyncExitStack() as parts:
        home = Path(parts.enter_context(TemporaryDirectory(prefix="posd-")))
        made = issue.init(home / "state" / "tls", names=["localhost"], addresses=[DAEMON_HOST, ADVERTISED_HOST])
        (home / "terminal").mkdir()
        settings = Settings(
            state=home / "terminal",
            serial=SERIAL,
            trust=made.ca_certificate,
            speed=SPEED,
            seed=seed,
            wait_seconds=scenario.wait_seconds,
            unruly=scenario.unruly,
            mdns=False,
        )
        terminal = await parts.enter_async_context(Simulator(settings))
        authority, own = _authority()
        authority.cert_pem.write_to_path(str(home / "terminal.pem"))
        wire = Relay(("127.0.0.1", int(terminal.base_url.rsplit(":", 1)[1])))
        wire_port, port = reserve(), reserve()
        callbacks = Relay((DAEMON_HOST, port), create_default_context(cafile=str(made.ca_certificate)))
        parts.push_async_callback(callbacks.stop)
        parts.push_async_callback(wire.stop)
        fleet = f'[[terminals]]\nserial = "{SERIAL}"\nbase_url = "https://127.0.0.1:{wire_port}"\n'
        times = SEARCHING.format(stall=3, stall_after_request=2, confirmed=str(scenario.proves).lower())
        config = toml(home, f'{fleet}ca_file = "{home}/terminal.pem"\n', TIMES + times)
        listen = f'{DAEMON_HOST}:{port}"\nadvertise_host = "{ADVERTISED_HOST}"'
        daemon = Daemon(home, config.replace(f'{ANY_PORT}"', listen))
        parts.push_async_callback(daemon.end, signal.SIGKILL)
        world = World(scenario, lives, daemon, terminal, wire, callbacks, Random(seed))
        callbacks.script = partial(scenario.callbacks, world)
        world.another(scenario.payment)
        await callbacks.listen(ADVERTISED_HOST, port, load_pair(made.certificate, made.private_key, None).context)
        if scenario.line == "good":
            wire.script = partial(scenario.wire, world)
            await wire.listen("127.0.0.1", wire_port, own)
        elif scenario.line == "cut":
            await wire.listen("127.0.0.1", wire_port)
        yield world


@cache
def _authority() -> tuple[trustme.CA, SSLContext]:
    """Make the terminal's CA and its TLS context, once for all cells."""
    authority, context = trustme.CA(), SSLContext(PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return authority, context
