"""The processes of a run, and their kills and restarts: a daemon, terminals, tills, and the network."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import trustme

from posd.tls import issue
from tests.chaos.plan import Plan
from tests.chaos.processes import Happenings, Line, Process
from tests.support.certificates import issued
from tests.support.daemon import ANY_PORT, Daemon, toml
from tests.support.proxy import Lan, Proxy
from tests.support.streams import Reply

#: Address of the daemon, and the terminals' address for it. No other program here uses them, so that no other program
#: can take the port while the daemon is down.
DAEMON_HOST = "127.0.0.3"
ADVERTISED_HOST = "127.0.0.2"
#: Lines of a terminal's ledger after which it has ended a payment.
ENDS = ("final", "forgotten", "over")
#: Most seconds until a process is ready; it takes about one.
READY_SECONDS = 60.0
#: Most seconds until the daemon reaches its crash point; some are rare.
POINT_SECONDS = 15.0
#: Most seconds of a requested stop.
STOP_SECONDS = 20.0
SETTINGS = """
[reconcile]
first_event_grace_seconds = 0.5
stall_seconds = 2
stall_after_request_seconds = 1
settle_seconds = 1
probe_with_abort = {confirmed}
[profile.search]
confirmed = {confirmed}
[profile.abort]
confirmed = {confirmed}
[terminal_defaults]
ca_file = "{ca}"
connect_timeout_seconds = 0.7
reply_timeout_seconds = 1.5
"""


class TerminalProcess(Process):
    """A simulated terminal with its proxy."""

    def __init__(self, street: "Street", serial: str) -> None:
        directory = street.directory
        super().__init__(serial, directory / f"{serial}.log", street.faults.append)
        self.serial = serial
        self.state = directory / serial
        self.ledger = directory / f"{serial}.ledger"
        self.lan = Lan()
        #: Held by a fault that cuts the terminal off.
        self.cut_off = asyncio.Lock()
        self.proxy = Proxy(street.lan, self.lan)
        #: The payment that runs on it.
        self.running: str | None = None
        self._street = street
        self._ready = asyncio.Event()

    async def start(self) -> None:
        """Start it with its stored data, and wait until it can be called."""
        plan, made = self._street.plan, self._street.terminal_leaf
        self._ready.clear()
        await self.spawn(
            *("posd", "simulate", "--json", "--serial", self.serial, "--listen", "127.0.0.1:0"),
            *("--cert", str(made.certificate), "--key", str(made.private_key)),
            *("--state", str(self.state), "--ledger", str(self.ledger), "--seed", str(plan.seed)),
            *(
                "--trust",
                str(self._street.daemon.ca),
                "--speed",
                str(self._street.speed),
                "--set",
                "delivery-timeout=3",
            ),
            *(("--set", "unruly=true") if self.serial in plan.unruly else ()),
        )
        async with asyncio.timeout(READY_SECONDS):
            await self._ready.wait()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill it. It forgets a running payment."""
        self.proxy.upstream = None
        await super().kill(number)
        self.running = None

    def waiting(self) -> int:
        """Return the bytes of undelivered events."""
        queue = self.state / "queue.jsonl"
        return queue.stat().st_size if queue.exists() else 0

    def _hear(self, line: Line) -> None:
        if "ready" in line:
            self.proxy.upstream = _address(line["base_url"])
            self._ready.set()
            return
        if line["kind"] == "moved":
            self.proxy.upstream = _address(line["base_url"])
        elif line["kind"] == "start" and line["runs"]:
            self.running = line["client_transaction_id"]
        elif line["kind"] in ENDS and line["client_transaction_id"] == self.running:
            self.running = None
        self._street.happenings.tell(self.serial, line)


def _address(base_url: str) -> tuple[str, int]:
    return "127.0.0.1", int(base_url.rsplit(":", 1)[1])


class TillProcess(Process):
    """A till, and the other tills that it meets."""

    def __init__(self, street: "Street", number: int) -> None:
        directory = street.directory
        super().__init__(f"till-{number}", directory / f"till-{number}.log", street.faults.append)
        self.number = number
        self.ledger = directory / f"till-{number}.ledger"
        self._plan = directory / f"till-{number}.plan"
        self._street = street
        #: Set when it has made all its payments, or has failed.
        self.done = asyncio.Event()
        street.plan.write_till(number, self._plan)

    async def start(self) -> None:
        """Start it with its stored data."""
        await self.spawn(
            *("tests.chaos.till", "--socket", str(self._street.daemon.till_socket)),
            *("--plan", str(self._plan), "--ledger", str(self.ledger)),
        )

    def _ended(self) -> None:
        if self.finished or self._ended_by == 0:
            self.done.set()

    def go(self, meeting: int) -> None:
        """Report that the other till is ready."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(json.dumps({"go": meeting}).encode() + b"\n")

    def _hear(self, line: Line) -> None:
        if line["kind"] == "meet":
            self._street.arrived(self, line["meet"])
        else:
            self._street.happenings.tell(self.name, line)


class Away(Exception):
    """The daemon cannot respond: its storage fails, or it is stopping."""


class Street:
    """The whole shop. `open` starts everything, `close` ends everything."""

    def __init__(self, plan: Plan, directory: Path, speed: float) -> None:
        self.plan = plan
        self.directory = directory
        self.speed = speed
        self.happenings = Happenings()
        self.lan = Lan()
        self._environment = {"POSD_CRASH": ""}
        self.daemon = Daemon(directory, environment=self._environment)
        self.daemon_lock = asyncio.Lock()
        self.callbacks_lan = Lan()
        self.callbacks = Proxy(self.lan, self.callbacks_lan)
        issue.init(directory / "state" / "tls", names=["localhost"], addresses=[ADVERTISED_HOST, DAEMON_HOST])
        authority = trustme.CA()
        self.terminal_ca = directory / "terminal-ca.pem"
        authority.cert_pem.write_to_path(str(self.terminal_ca))
        #: All terminals have the same certificate, which does not name them.
        self.terminal_leaf = issued(directory, authority, "127.0.0.1")
        #: Unexpected faults of all processes.
        self.faults: list[str] = []
        self.terminals = {serial: TerminalProcess(self, serial) for serial in plan.terminals}
        self.tills = [TillProcess(self, number) for number in range(plan.tills)]
        self._log = directory / "posd.log"
        self._meetings: dict[int, set[int]] = {}

    @property
    def proxies(self) -> list[Proxy]:
        """Return all proxies."""
        return [self.callbacks, *(item.proxy for item in self.terminals.values())]

    async def open(self) -> None:
        """Start everything except the tills."""
        for terminal in self.terminals.values():
            await terminal.proxy.listen("127.0.0.1")
        settings = SETTINGS.format(confirmed=str(self.plan.confirmed).lower(), ca=self.terminal_ca)
        fleet = "".join(
            f'[[terminals]]\nserial = "{serial}"\nbase_url = "https://127.0.0.1:{terminal.proxy.port}"\n'
            for serial, terminal in self.terminals.items()
        )
        listen = f'{DAEMON_HOST}:0"\nadvertise_host = "{ADVERTISED_HOST}"'
        self.daemon.config = toml(self.directory, fleet, settings).replace(f'{ANY_PORT}"', listen)
        await asyncio.gather(self._open_daemon(), *(terminal.start() for terminal in self.terminals.values()))

    async def _open_daemon(self) -> None:
        await self.start_daemon()
        self.daemon.config = self.daemon.config.replace(f"{DAEMON_HOST}:0", f"{DAEMON_HOST}:{self.daemon.port}")
        self.callbacks.upstream = (DAEMON_HOST, self.daemon.port)
        await self.callbacks.listen(ADVERTISED_HOST, self.daemon.port)

    async def start_daemon(self) -> None:
        """Start the daemon on its earlier port. Return when it serves. Raise AssertionError if it ends."""
        await self.daemon.start()

    async def start_dying_daemon(self, point: str) -> bool:
        """Start the daemon with a crash point. Return whether it died there in time."""
        self.daemon.environment = self._environment | {"POSD_CRASH": point}
        try:
            await self.daemon.start(wait=False)
        finally:
            self.daemon.environment = self._environment
        assert self.daemon.process is not None
        death = asyncio.create_task(self.daemon.process.wait())
        end = asyncio.create_task(self.happenings.wait(lambda _who, _line: False))
        await asyncio.wait({death, end}, timeout=POINT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        reached = death.done()
        for task in (death, end):
            task.cancel()
        await self.end_daemon(signal.SIGKILL)
        return reached

    async def end_daemon(self, number: signal.Signals) -> None:
        """End a life of the daemon and keep its log."""
        assert self.daemon.process is not None
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
        with self._log.open("a") as log:
            for line in self.daemon.lines:
                log.write(json.dumps(line) + "\n")
                if line["event"] in ("posd.internal_error", "not json") or line.get("level") == "critical":
                    self.faults.append(f"the daemon's log: {json.dumps(line)}")

    async def list(self, query: str) -> list[dict[str, Any]]:
        """Return all pages of a list of transactions. `query` is empty or ends with "&". Raise Away."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            reply = await self.daemon.call("GET", f"/transactions?{query}limit=500{cursor}")
            if reply.status != 200:
                raise Away(reply.body.decode())
            page = reply.json
            found += page["transactions"]
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    async def admin(self, method: str, path: str, body: Any = None) -> Reply:
        """Call the local API as an operator."""
        return await self.daemon.call(method, path, body, socket=self.daemon.admin_socket)

    async def reprocess(self) -> None:
        """Reprocess all records, and check that nothing differs."""
        reply = await self.admin("POST", "/reprocess")
        if reply.status != 503 and (reply.status != 200 or reply.json["differing"] or reply.json["applied"]):
            self.faults.append(f"reprocess answered {reply.status}: {reply.body.decode()}")

    def arrived(self, till: TillProcess, meeting: int) -> None:
        """Record that a till is ready for a meeting. When both are, they continue. A killed till reports again."""
        there = self._meetings.setdefault(meeting, set())
        there.add(till.number)
        if len(there) == 2:
            for number in there:
                self.tills[number].go(meeting)

    async def close(self) -> None:
        """End everything at once."""
        for process in (*self.tills, *self.terminals.values()):
            await process.kill()
        if self.daemon.process is not None:
            await self.end_daemon(signal.SIGKILL)
        for proxy in self.proxies:
            await proxy.stop()
