"""A counter with a daemon, simulated terminals, and a till's directory. The test advances the terminals' time."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from posd.simulator import Simulator
from posd.simulator.clock import VirtualClock
from tests.recipes.running import Recipe, run
from tests.rig.daemon import Daemon
from tests.rig.program import PATIENCE_SECONDS
from tests.rig.simulated import simulated

#: Terminal seconds that exceed any payment.
A_WHILE = 120.0


@dataclass
class Counter:
    """A counter. `till`: directory in which the recipes of one test store their files. `known`: ids of earlier tests.

    `programs`: directory of compiled programs.
    """

    daemon: Daemon
    terminals: dict[str, Simulator]
    directory: Path
    programs: Path
    till: Path = Path()
    known: set[str] = field(default_factory=set)

    @property
    def terminal(self) -> Simulator:
        """The first terminal."""
        return next(iter(self.terminals.values()))

    def fresh(self) -> None:
        """Start a till that has stored nothing."""
        self.till = self.directory / f"till-{uuid4()}"
        self.till.mkdir()
        self.known = set(self._asked())

    def recipe(self, name: str, *arguments: str, **environment: str) -> AbstractAsyncContextManager[Recipe]:
        """Run a recipe for the block."""
        socket = self.daemon.till_socket
        return run(name, *arguments, socket=socket, till=self.till, programs=self.programs, **environment)

    async def pass_time(self) -> None:
        """Advance the time of the terminals."""
        for terminal in self.terminals.values():
            assert isinstance(terminal.clock, VirtualClock)
            await terminal.clock.advance(A_WHILE)

    def _asked(self) -> list[str]:
        bodies = [json.loads(text) for terminal in self.terminals.values() for text in terminal.terminal.requests]
        return [body["client_transaction_id"] for body in bodies]

    @property
    def requests(self) -> list[str]:
        """Id of each request that the terminals received in this test."""
        return [identity for identity in self._asked() if identity not in self.known]

    async def one_request(self) -> Any:
        """Check that the terminals received exactly one request in this test. Return its transaction."""
        (identity,) = self.requests
        return await self.daemon.transaction(identity)

    async def start(self, amount: str | None, identity: str = "", **request: Any) -> str:
        """Start a payment without a recipe. Return its id."""
        identity = identity or str(uuid4())
        body = {"terminal": self.serial, **request}
        if amount is not None:
            body["amount"] = {"subtotal_iva0": amount}
        reply = await self.daemon.call("PUT", f"/transactions/{identity}", body)
        assert reply.status == 201, reply.body
        return identity

    async def pay(self, amount: str | None, result: str = "approved", **request: Any) -> str:
        """Run a payment without a recipe to its end. Return the id."""
        identity = await self.start(amount, **request)
        await self.pass_time()
        assert (await self.daemon.outcome(identity))["result"] == result
        return identity

    async def decide(self, identity: str, verb: str, **word: Any) -> None:
        """Resolve a payment as a person, or acknowledge an attention."""
        word |= {"operator": "ana", "note": "it stands in the bank's list"}
        socket = self.daemon.admin_socket
        reply = await self.daemon.call("POST", f"/transactions/{identity}/{verb}", word, socket=socket)
        assert reply.status == 200, reply.body

    async def hold(self, **request: Any) -> str:
        """Start a payment that runs until an abort. Return the id."""
        return await self.start("9000.08", **request)

    async def starts(self, count: int) -> None:
        """Wait until the terminals have received this many payments in this test."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.requests) < count:
                await self.terminal.ledger.next(lambda entry: entry["kind"] == "start")

    @property
    def serial(self) -> str:
        """The serial of the first terminal."""
        return next(iter(self.terminals))

    async def let_go(self, identity: str) -> None:
        """End a payment that was started by `hold`."""
        assert (await self.daemon.call("POST", f"/transactions/{identity}/abort")).status == 202
        await self.pass_time()
        assert await self.daemon.outcome(identity) is not None


@asynccontextmanager
async def open_counter(programs: Path, *serials: str, extra: str = "", **settings: Any) -> AsyncIterator[Counter]:
    """Run a daemon and terminals with these serials for the block. `settings` apply to the terminals."""
    with TemporaryDirectory(prefix="posd-") as directory:
        terminals = dict.fromkeys(serials, "")
        async with simulated(Path(directory), terminals, extra, virtual=True, **settings) as (daemon, simulators):
            yield Counter(daemon, simulators, Path(directory), programs)
