"""The shop of a run. The daemon is a process. Terminals, tills, an operator and the network are in this process."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from posd.simulator import Settings, Simulator
from posd.tls import issue
from tests.chaos.plan import Plan
from tests.chaos.till import Till
from tests.rig.certificates import issued
from tests.rig.daemon import ANY_PORT, FAULTS, Daemon, toml
from tests.rig.judge import Line
from tests.rig.proxy import Lan, Proxy
from tests.rig.simulated import SEARCHING, undelivered

#: Address of the daemon, and the address at which terminals call it. Only these tests use these addresses, so no other
#: program can take the port while the daemon is down.
DAEMON_HOST = "127.0.0.3"
ADVERTISED_HOST = "127.0.0.2"
#: Factor by which terminals are faster than people.
SPEED = 40.0
#: Lines of a terminal's ledger after which it has ended a payment.
ENDS = ("final", "forgotten", "over")
#: Maximum time until the daemon reaches its crash point, in seconds. The daemon rarely reaches some points.
POINT_SECONDS = 15.0
#: Maximum duration of a requested stop, in seconds.
STOP_SECONDS = 20.0
#: Seconds between two checks of open payments by the operator.
LOOK_SECONDS = 0.5
#: Whether search and abort are confirmed -> seconds after which the operator compares an open payment with its
#: terminal. posd can prove `not_started` in this time.
PATIENCE_SECONDS = {True: 4.0, False: 2.5}
#: Seconds after an outage in which a request can still arrive. The operator resolves nothing in this time.
AFTER_OUTAGE_SECONDS = 1.0
SETTINGS = """
[terminal_defaults]
ca_file = "{ca}"
connect_timeout_seconds = 0.7
reply_timeout_seconds = 1.5
"""


class Away(Exception):
    """Error of a daemon that cannot respond, because its storage fails or it is stopping."""


@dataclass
class Moments:
    """Lines of the ledgers of terminals and tills, for the faults that wait for a line."""

    #: Payments that tills have begun.
    begun: int = 0
    #: Whether all tills have finished. After the end of all tills no fault waits.
    over: bool = False
    _waiting: list[tuple[Callable[[str, Line], bool], asyncio.Future[None]]] = field(default_factory=list)

    def tell(self, name: str, line: Line) -> None:
        """Handle a line of a ledger."""
        self.begun += line["kind"] == "intent"
        for wanted, future in self._waiting:
            if not future.done() and (self.over or wanted(name, line)):
                future.set_result(None)
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]

    def end(self) -> None:
        """Record that all tills have finished."""
        self.over = True
        self.tell("", {"kind": ""})

    async def wait(self, wanted: Callable[[str, Line], bool]) -> None:
        """Wait for a wanted line or for the end."""
        if not self.over:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((wanted, future))
            await future


@dataclass
class Terminal:
    """A simulated terminal with its own connection to the network."""

    simulator: Simulator
    lan: Lan
    #: Lock of the fault that cuts the terminal's power.
    power: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: Lock of the fault that cuts the terminal's connection.
    cable: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def running(self) -> set[str]:
        """Return the payments that run on the terminal."""
        ledger = self.simulator.ledger
        ended = {line["client_transaction_id"] for kind in ENDS for line in ledger.of(kind)}
        return {line["client_transaction_id"] for line in ledger.of("start", runs=True)} - ended

    def quiet(self) -> bool:
        """Return whether the terminal runs nothing and has nothing to deliver."""
        return not self.running and not undelivered(self.simulator.ledger)


class Shop:
    """The parts of a run around the daemon. The parts start with `open` and end with the block."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self.moments = Moments()
        self.lan = Lan()
        self.callbacks_lan = Lan()
        self.callbacks = Proxy(self.lan, self.callbacks_lan)
        self.daemon = Daemon(directory)
        self.daemon_lock = asyncio.Lock()
        self.terminals: dict[str, Terminal] = {}
        payments = [[payment for payment in plan.payments if payment.till == number] for number in range(plan.tills)]
        self.tills = [
            Till(f"till-{number}", mine, self.daemon, self.moments.tell, self._meet)
            for number, mine in enumerate(payments)
        ]
        #: Unexpected faults.
        self.faults: list[str] = []
        #: Log lines of all lives of the daemon.
        self.log: list[Line] = []
        #: Ids resolved by the operator, with the result.
        self.resolved: dict[str, str] = {}
        #: End of the last outage of the LAN, by the monotonic clock. Infinite during an outage.
        self.lan_up_since = 0.0
        self._open_since: dict[str, float] = {}
        self._meetings: dict[str, tuple[set[str], asyncio.Event]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Shop":
        """Start everything except the tills."""
        issue.init(self.directory / "state" / "tls", names=["localhost"], addresses=[ADVERTISED_HOST, DAEMON_HOST])
        authority = trustme.CA()
        terminal_ca = self.directory / "terminal-ca.pem"
        authority.cert_pem.write_to_path(str(terminal_ca))
        # the certificate names no terminal, so all terminals use it
        leaf = issued(self.directory, authority, "127.0.0.1")
        fleet = ""
        for serial in self.plan.terminals:
            state = self.directory / serial
            state.mkdir()
            settings = Settings(
                state=state,
                serial=serial,
                certificate=leaf.certificate,
                private_key=leaf.private_key,
                trust=self.daemon.ca,
                speed=SPEED,
                seed=self.plan.seed,
                delivery_timeout=3,
                unruly=serial in self.plan.unruly,
                mdns=False,
            )
            simulator = await self._stack.enter_async_context(Simulator(settings))
            simulator.ledger.listen(lambda line, serial=serial: self.moments.tell(serial, line))  # type: ignore[misc]
            lan = Lan()
            proxy = await self._listening(Proxy(self.lan, lan), "127.0.0.1")
            proxy.upstream = "127.0.0.1", int(simulator.base_url.rsplit(":", 1)[1])
            self.terminals[serial] = Terminal(simulator, lan)
            fleet += f'[[terminals]]\nserial = "{serial}"\nbase_url = "https://127.0.0.1:{proxy.port}"\n'
        extra = SEARCHING.format(stall=2, stall_after_request=1, confirmed=str(self.plan.confirmed).lower())
        extra += SETTINGS.format(ca=terminal_ca)
        listen = f'{DAEMON_HOST}:0"\nadvertise_host = "{ADVERTISED_HOST}"'
        self.daemon.config = toml(self.directory, fleet, extra).replace(f'{ANY_PORT}"', listen)
        self._stack.push_async_callback(self.end_daemon, signal.SIGKILL)
        await self.daemon.start()
        self.daemon.config = self.daemon.config.replace(f"{DAEMON_HOST}:0", f"{DAEMON_HOST}:{self.daemon.port}")
        self.callbacks.upstream = (DAEMON_HOST, self.daemon.port)
        await self._listening(self.callbacks, ADVERTISED_HOST, self.daemon.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End everything at once."""
        await self._stack.aclose()

    async def _listening(self, proxy: Proxy, host: str, port: int = 0) -> Proxy:
        await proxy.listen(host, port)
        self._stack.push_async_callback(proxy.stop)
        return proxy

    async def start_dying_daemon(self, point: str) -> bool:
        """Start the daemon with a crash point. Return whether the daemon died at the crash point in time."""
        self.daemon.environment = {"POSD_CRASH": point}
        try:
            await self.daemon.start(wait=False)
        finally:
            self.daemon.environment = {}
        death = asyncio.create_task(self.daemon.process.wait())
        end = asyncio.create_task(self.moments.wait(lambda _name, _line: False))
        await asyncio.wait({death, end}, timeout=POINT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        reached = death.done()
        for task in (death, end):
            task.cancel()
        await self.end_daemon(signal.SIGKILL)
        return reached

    async def end_daemon(self, number: signal.Signals) -> None:
        """End the daemon if it runs, and keep its log."""
        if self.daemon.process is None:
            return
        ended = self.daemon.process.returncode
        if ended not in (None, -signal.SIGKILL):
            self.faults.append(f"the daemon ended by itself with {ended}")
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await self.daemon.stop(number)
        except TimeoutError:
            self.faults.append(f"the daemon did not end within {STOP_SECONDS:g} s of {number.name}")
            code = await self.daemon.stop(signal.SIGKILL)
        if number is signal.SIGTERM and code != 0:
            self.faults.append(f"the daemon ended with {code} after SIGTERM")
        wrong = [line for line in self.daemon.lines if line["event"] in FAULTS or line.get("level") == "critical"]
        self.faults += [f"the daemon's log: {json.dumps(line)}" for line in wrong]
        self.log += self.daemon.lines

    async def transactions(self, query: str = "") -> list[dict[str, Any]]:
        """Return all pages of a list of transactions. `query` is empty or ends with "&". Raise Away."""
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            reply = await self.daemon.call("GET", f"/transactions?{query}limit=500{cursor and f'&cursor={cursor}'}")
            if reply.status != 200:
                raise Away(reply.body.decode())
            found += reply.json["transactions"]
            cursor = reply.json["next_cursor"]
        return found

    async def _meet(self, sale: str, till: str) -> None:
        """Wait until both tills of a sale are ready. A killed till is restarted."""
        ready, both = self._meetings.setdefault(sale, (set(), asyncio.Event()))
        ready.add(till)
        if len(ready) == 2:
            both.set()
        await both.wait()

    async def operate(self) -> None:
        """As the operator, compare open payments with their terminal, without end. Resolve the payments that cannot end
        by themselves.
        """
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look(await self.transactions("open=true&"))
            except (OSError, Away):
                continue  # the daemon does not respond

    async def _look(self, found: list[dict[str, Any]]) -> None:
        """Resolve payments that have been open for long. The terminal neither runs nor has ended these payments."""
        now = time.monotonic()
        opened = {item["client_transaction_id"]: item["terminal"] for item in found}
        self._open_since = {identity: self._open_since.get(identity, now) for identity in opened}
        if now - self.lan_up_since <= AFTER_OUTAGE_SECONDS:
            return
        for identity, serial in opened.items():
            terminal, ledger = self.terminals[serial], self.terminals[serial].simulator.ledger
            early = now - self._open_since[identity] <= PATIENCE_SECONDS[self.plan.confirmed]
            if early or terminal.power.locked() or identity in terminal.running:
                continue
            if not ledger.of("final", client_transaction_id=identity):
                started = ledger.of("start", client_transaction_id=identity, runs=True)
                await self._resolve(identity, "canceled" if started else "not_started")

    async def _resolve(self, identity: str, result: str) -> None:
        body = {"operator": "Person", "note": "as the terminal has it", "result": result}
        self.resolved[identity] = result  # stored before the call, because the response can be lost
        path = f"/transactions/{identity}/resolve"
        reply = await self.daemon.call("POST", path, body, socket=self.daemon.admin_socket)
        if reply.status != 200:
            del self.resolved[identity]
