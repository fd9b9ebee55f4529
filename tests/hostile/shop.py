"""The honest side: a daemon, its terminals as processes on their own addresses, and a till."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

from posd.base.operations import OperationType
from posd.tls import issue
from posd.tls.files import TlsFiles
from tests.rig.daemon import Daemon, toml
from tests.rig.judge import Cases, Line, payment_faults
from tests.rig.program import Command
from tests.rig.simulated import simulate
from tests.rig.streams import call
from tests.rig.webhooks import address, disk
from tests.store.filled import filling, name

#: Seconds between two reads, and seconds between two payments on a terminal.
PAUSE_SECONDS = 0.02
#: The first amount. The amount grows by one cent with each payment, and stays far below the simulator's test amounts.
FIRST_AMOUNT = Decimal("10.00")


@dataclass
class Till:
    """One till on one socket, which pays and reads until the time `end`."""

    socket: Path
    end: float
    #: Durations in milliseconds.
    reads: list[float] = field(default_factory=list)
    payments: list[float] = field(default_factory=list)
    #: Id -> record of the payment.
    paid: Cases = field(default_factory=Cases)
    problems: list[str] = field(default_factory=list)

    async def pay(self, serial: str) -> None:
        """Pay on a terminal. Wait for every started payment."""
        while time.monotonic() < self.end:
            case = self.paid[str(uuid4())]
            amount = float(FIRST_AMOUNT + len(self.paid) * Decimal("0.01"))
            request = {"type": "charge", "terminal": serial, "amount": {"subtotal_iva0": amount}}
            began = time.perf_counter()
            reply = await call(self.socket, "PUT", f"/transactions/{case.id}", request)
            if reply.status == 201:
                case.answers.append(reply.status)
                reply = await call(self.socket, "GET", f"/transactions/{case.id}/outcome?timeout=60")
                self.payments.append((time.perf_counter() - began) * 1000)
            if reply.status == 200:
                case.told.append(reply.json)
            else:
                self.problems.append(f"{case.id} was answered {reply.status}: {reply.body!r}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def read(self) -> None:
        """Read the newest accepted payment."""
        while time.monotonic() < self.end:
            if accepted := [case for case in self.paid.values() if case.answers]:
                began = time.perf_counter()
                reply = await call(self.socket, "GET", f"/transactions/{accepted[-1].id}")
                self.reads.append((time.perf_counter() - began) * 1000)
                if reply.status != 200:
                    self.problems.append(f"a read was answered {reply.status}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def judge(self, ledger: Iterable[Line]) -> None:
        """Compare the payments with posd's and with the terminals' ledgers. Each payment must be approved."""
        self.paid.read(line for line in ledger if line.get("client_transaction_id") in self.paid)
        for case in self.paid.values():
            case.shown = (await call(self.socket, "GET", f"/transactions/{case.id}")).json
            found = [*payment_faults(case)]
            if not case.charges or not case.told:
                found.append(f"the terminal made {len(case.charges)} charges, and the till received {case.told}")
            self.problems += [f"{case.id}: {fault}" for fault in found]
        if not self.paid:
            self.problems.append("the till made no payment")


#: Factor by which terminals are faster than people. A payment takes some 150 ms.
SPEED = 40.0
#: The mDNS service type that posd browses. Only strangers announce this type.
TYPE = "_posd-hostile._tcp.local."
#: A payment of SN-1, and the number of its operations. The operations are failed voids.
LONG_CHAIN = name(1)
OPERATIONS = 3000
DISCOVERY = f'service_types = ["{TYPE}"]\ninterfaces = ["127.0.0.1"]'


@dataclass
class Shop:
    """All honest processes of a run."""

    directory: Path
    daemon: Daemon
    terminals: Mapping[str, Command]
    #: Rows of the database before the first payment, as counted by `stored`.
    filled: Mapping[str, int] = field(default_factory=dict)

    async def pay(self, seconds: float) -> Till:
        """Run a till on all terminals for a time. Compare its payments with the ledgers."""
        till = Till(self.daemon.till_socket, time.monotonic() + seconds)
        await asyncio.gather(till.read(), *map(till.pay, self.terminals))
        await till.judge(self.ledgers())
        return till

    def ledgers(self) -> list[Line]:
        """Return all lines of all terminals' ledgers. The terminals print them."""
        return [line for terminal in self.terminals.values() for line in terminal.lines if "kind" in line]

    def stored(self) -> Mapping[str, int]:
        """Count the rows of the database."""
        longest = "SELECT max(n) FROM (SELECT count(*) AS n FROM journal GROUP BY client_transaction_id)"
        queries = {name: f"SELECT count(*) FROM {name}" for name in ("transactions", "events", "quarantine")}
        with disk(self.daemon) as db:
            return {name: db.execute(sql).fetchone()[0] for name, sql in (queries | {"journal": longest}).items()}

    def files(self) -> set[str]:
        """Return the names of the daemon's files."""
        return {str(path.relative_to(self.directory)) for path in (self.directory / "state").rglob("*")}

    def captured(self) -> tuple[str, str]:
        """Return path and body of an accepted callback, which an attacker could have recorded."""
        with disk(self.daemon) as db:
            query = "SELECT client_transaction_id, body FROM events ORDER BY seq DESC LIMIT 1"
            identity, body = db.execute(query).fetchone()
        return address(self.daemon, identity), body.decode()


@asynccontextmanager
async def open_shop(directory: Path, count: int) -> AsyncIterator[Shop]:
    """Start a daemon and terminals. At the end stop the processes."""
    addresses = {f"SN-{number}": f"127.0.1.{number}" for number in range(1, count + 1)}
    issue.init(directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    made = issue.init(directory / "terminal-tls", names=["localhost"], addresses=list(addresses.values()))
    daemon = Daemon(directory)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(daemon.end)
        terminals = {serial: await _start_terminal(daemon, serial, at, made) for serial, at in addresses.items()}
        entries = ""
        for serial, terminal in terminals.items():
            stack.push_async_callback(terminal.stop)
            base_url = (await terminal.line(lambda line: "base_url" in line))["base_url"]
            entries += f'[[terminals]]\nserial = "{serial}"\nbase_url = "{base_url}"\n'
            entries += f'ca_file = "{made.ca_certificate}"\n'
        daemon.config = toml(directory, entries, discovery=DISCOVERY)
        await daemon.start()
        await daemon.stop()  # the daemon has created its key
        with filling(daemon.database) as filled:
            filled.db.execute("BEGIN")
            filled.pay(1)
            filled.pay(2, ["TERMINAL_REJECTED"], type=OperationType.VOID, original=name(1), derives_from=name(1))
            filled.again(2, OPERATIONS - 1)
            filled.db.execute("COMMIT")
        shop = Shop(directory, daemon, terminals)
        shop.filled = shop.stored()
        await daemon.start()
        yield shop


async def _start_terminal(daemon: Daemon, serial: str, host: str, made: TlsFiles) -> Command:
    """Start the process of a terminal."""
    arguments = simulate(serial, f"{host}:0", made, daemon.directory / serial, daemon.ca, SPEED)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.hostile.terminal", host, *arguments, "--seed", "1"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    return Command(process)
