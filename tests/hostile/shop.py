"""The honest side: a daemon, its terminals as processes on their own addresses, and a till."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

from posd.base.operations import OperationType
from posd.tls import issue
from posd.tls.files import TlsFiles
from tests.store.filled import filling, name
from tests.support.daemon import Daemon, toml
from tests.support.program import Command
from tests.support.streams import call
from tests.support.webhooks import address, disk

#: Seconds between two reads, and seconds between two payments on a terminal.
PAUSE_SECONDS = 0.02
#: The first amount. The amount grows by one cent with each payment, and stays far below the simulator's test amounts.
FIRST_AMOUNT = Decimal("10.00")


class Till:
    """One till on one socket."""

    def __init__(self, socket: Path, seconds: float) -> None:
        self._socket = socket
        self._end = time.monotonic() + seconds
        self._amount = FIRST_AMOUNT
        self._newest = ""
        #: Durations in milliseconds.
        self.reads: list[float] = []
        self.payments: list[float] = []
        #: Id -> the amount, and the result that the till received.
        self.paid: dict[str, tuple[Decimal, str]] = {}
        self.problems: list[str] = []

    async def run(self, serials: Sequence[str]) -> None:
        """Pay and read until the time is over. Wait for every started payment."""
        await asyncio.gather(self._read(), *(self._pay(serial) for serial in serials))

    async def _pay(self, serial: str) -> None:
        while time.monotonic() < self._end:
            identity, self._amount = str(uuid4()), self._amount + Decimal("0.01")
            amount = self._amount
            self.paid[identity] = amount, "unknown"
            request = {"type": "charge", "terminal": serial, "amount": {"subtotal_iva0": float(amount)}}
            began = time.perf_counter()
            reply = await call(self._socket, "PUT", f"/transactions/{identity}", request)
            if reply.status != 201:
                self.problems.append(f"the start of {identity} was answered {reply.status}: {reply.body!r}")
                continue
            self._newest = identity
            reply = await call(self._socket, "GET", f"/transactions/{identity}/outcome?timeout=60")
            self.payments.append((time.perf_counter() - began) * 1000)
            if reply.status == 200:
                self.paid[identity] = amount, reply.json["result"]
            else:
                self.problems.append(f"no outcome of {identity} in a minute: {reply.status}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self) -> None:
        while time.monotonic() < self._end:
            if self._newest:
                began = time.perf_counter()
                reply = await call(self._socket, "GET", f"/transactions/{self._newest}")
                self.reads.append((time.perf_counter() - began) * 1000)
                if reply.status != 200:
                    self.problems.append(f"a read was answered {reply.status}")
            await asyncio.sleep(PAUSE_SECONDS)


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
    serials: list[str]
    #: Rows of the database before the first payment, as counted by `stored`.
    filled: Mapping[str, int] = field(default_factory=dict)

    async def till(self, seconds: float) -> Till:
        """Run a till on all terminals for a time."""
        till = Till(self.daemon.till_socket, seconds)
        await till.run(self.serials)
        return till

    def ledgers(self) -> list[dict[str, Any]]:
        """Return all lines of all terminals' ledgers."""
        files = [self.directory / f"{serial}.ledger" for serial in self.serials]
        return [
            json.loads(line)
            for file in files
            for line in file.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        ]

    def stored(self) -> Mapping[str, int]:
        """Count the rows of the database."""
        queries = {
            "transactions": "SELECT count(*) FROM transactions",
            "events": "SELECT count(*) FROM events",
            "quarantine": "SELECT count(*) FROM quarantine",
            "journal": "SELECT max(n) FROM (SELECT count(*) AS n FROM journal GROUP BY client_transaction_id)",
        }
        with disk(self.daemon) as db:
            return {name: db.execute(query).fetchone()[0] for name, query in queries.items()}

    def files(self) -> set[str]:
        """Return the names of the daemon's files."""
        return {str(path.relative_to(self.directory)) for path in (self.directory / "state").rglob("*")}

    def captured(self) -> tuple[str, bytes]:
        """Return path and body of an accepted callback, which an attacker could have recorded."""
        with disk(self.daemon) as db:
            query = "SELECT client_transaction_id, body FROM events ORDER BY seq DESC LIMIT 1"
            identity, body = db.execute(query).fetchone()
        return address(self.daemon, identity), body


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
        for terminal in terminals.values():
            stack.push_async_callback(terminal.stop)
        entries = ""
        for serial, terminal in terminals.items():
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
        shop = Shop(directory, daemon, list(terminals))
        shop.filled = shop.stored()
        await daemon.start()
        yield shop


async def _start_terminal(daemon: Daemon, serial: str, host: str, made: TlsFiles) -> Command:
    """Start the process of a terminal."""
    directory = daemon.directory
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.hostile.terminal", host, "--json", "--serial", serial),
        *("--listen", f"{host}:0", "--cert", str(made.certificate), "--key", str(made.private_key)),
        *("--state", str(directory / serial), "--ledger", str(directory / f"{serial}.ledger")),
        *("--trust", str(daemon.ca), "--speed", str(SPEED), "--seed", "1"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    terminal = Command(process)
    terminal.read(process.stdout)
    return terminal
