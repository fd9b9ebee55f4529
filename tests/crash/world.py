"""World of one cell: a daemon, a terminal, and a relay in each direction. The daemon's environment sets the crash
point. The till never gives up. The till repeats calls without a response under the same id.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from posd.simulator import Simulator
from tests.crash import printing
from tests.crash.printing import Job
from tests.crash.relay import Relay
from tests.support import forks
from tests.support.daemon import Daemon
from tests.support.leftovers import OWNER, owner
from tests.support.shop import AMOUNT
from tests.support.simulated import undelivered
from tests.support.streams import Reply

if TYPE_CHECKING:
    from tests.crash.scenarios import Scenario

SERIAL = "SN-0001"
#: Seconds that one call of the till waits for the outcome.
PATIENCE_SECONDS = 0.25


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

    @property
    def logged(self) -> list[dict[str, Any]]:
        """The log of all lives."""
        return self.log + (self.daemon.lines if self.daemon.process is not None else [])

    def another(self, scenario: str, sale: str | None = None) -> Payment:
        """Return another payment that is not started."""
        payment = Payment(str(UUID(int=self.random.getrandbits(128), version=4)), scenario, sale)
        self.payments.append(payment)
        return payment

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
        while True:
            if self._command:
                code = await self._run_command(crash)
                if code:
                    return code
                self._command = ()
                self._made.set()
            code = await self._serve(crash)
            if code or not self._command:
                return code

    async def _serve(self, crash: str) -> int:
        self._gone = asyncio.Event()
        self.daemon.environment = _environment(crash)
        try:
            await self.daemon.start()
        except AssertionError:  # the daemon ended during its start, and the exit code has the cause
            pass
        else:
            self._up.set()
        assert self.daemon.process is not None
        if self._stopping or self._command:
            self._terminate()
        code = await self.daemon.process.wait()
        self._up.clear()
        await self.daemon.stop()
        self.log += self.daemon.lines
        self._gone.set()
        return code

    async def _run_command(self, crash: str) -> int:
        process = await forks.start(
            *("--config", str(self.daemon.config_file), *self._command),
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {OWNER: owner()} | _environment(crash),
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        self.log.append({"event": "command", "code": process.returncode, "text": said.decode("utf-8", "replace")})
        return await process.wait()

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

    # Actions of the till.

    async def put(self, payment: Payment) -> Reply:
        """Repeat the start until a response arrives."""
        wanted = {"amount": AMOUNT, "metadata": {"scenario": payment.scenario}, "sale": payment.sale}
        reply = await self.call("PUT", f"/transactions/{payment.identity}", wanted)
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
            path = f"/transactions/{payment.identity}/outcome?timeout={PATIENCE_SECONDS}"
            reply = await self.call("GET", path)
            if reply.status == 200:
                payment.told.append(reply.json)
                return reply.json
            assert reply.status == 202, f"posd replied {reply.status} to a waiting till: {reply.body.decode()}"
            if self.hopeless(payment, reply.json):
                return None

    async def pay(self, payment: Payment) -> Any:
        """Start a payment and wait for the outcome."""
        await self.start(payment)
        return await self.outcome(payment)

    async def get(self, payment: Payment) -> Any:
        """Return a payment from the local API."""
        reply = await self.call("GET", f"/transactions/{payment.identity}")
        assert reply.status == 200, f"posd replied {reply.status} to a GET of {payment.identity}: {reply.body.decode()}"
        return reply.json

    # True state of the terminal.

    def started(self, payment: Payment) -> bool:
        """Return whether the terminal has accepted a payment."""
        return bool(self.terminal.ledger.of("start", client_transaction_id=payment.identity, http_status=200))

    def hopeless(self, payment: Payment, document: Any) -> bool:
        """Return whether the terminal never gets the payment, and posd has finished all searches."""
        over = payment.answered.is_set() and not self.started(payment)
        asked = document["phase"] == "in_doubt" and document["last_search"] is not None
        return over and asked and not self.scenario.proves

    async def at_terminal(self, payment: Payment, kind: str, **fields: Any) -> bool:
        """Wait until this line is in the terminal's ledger. Return False if the terminal never got the payment."""
        waiting = self.terminal.ledger.wait_for(kind, client_transaction_id=payment.identity, **fields)
        entry, answered = asyncio.create_task(waiting), asyncio.create_task(payment.answered.wait())
        try:
            await asyncio.wait({entry, answered}, return_when=asyncio.FIRST_COMPLETED)
            if not entry.done() and not self.started(payment):
                return False
            await entry
        finally:
            entry.cancel()
            answered.cancel()
        return True

    async def quiet(self) -> None:
        """Wait until the terminal runs nothing and has nothing to send."""
        ledger, news = self.terminal.ledger, asyncio.Event()
        ledger.listen(lambda _entry: news.set())
        while (
            undelivered(ledger)
            or printing.busy(self)
            or any(
                self.started(payment) and not ledger.of("final", client_transaction_id=payment.identity)
                for payment in self.payments
            )
        ):
            news.clear()
            await news.wait()


def _environment(crash: str) -> dict[str, str]:
    return {"POSD_CRASH": crash} if crash else {}
