"""A run. For each attack the run measures a quiet time and then the attack. A till pays in both periods."""

import asyncio
import json
import statistics
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import inf
from time import monotonic

from posd.base import limits
from posd.httpd.admission import MAX_TURNED_AWAY
from posd.logs.output import LIMITS
from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.shop import Shop, Till
from tests.hostile.wire import BEGUN
from tests.rig.figures import Figure
from tests.rig.program import program
from tests.rig.usage import MIB, descriptors, metered, processor_seconds, resident_bytes
from tests.rig.waits import until

#: Factor by which the till may wait longer than in the quiet time. The waits last milliseconds, so a cashier sees no
#: difference.
TIMES_AS_LONG = 3.0
#: Maximum duration of a read during an attack by an admitted till or terminal, in milliseconds.
INSIDER_READ_MS = 500.0
#: Maximum growth of resident memory since the first quiet time, in megabytes. A small machine has this amount to spare.
MEMORY_MB = 25.0
#: Maximum growth of resident memory in an attack by an admitted till or terminal, in megabytes.
INSIDER_MEMORY_MB = 32.0
#: Maximum number of additional descriptors: the connections of the LAN, and some descriptors that posd opens for honest
#: work.
DESCRIPTORS = 512 + 40
#: Maximum number of additional descriptors of each till: the refused connections, and some descriptors that posd opens
#: for honest work.
TURNED_AWAY = MAX_TURNED_AWAY + 40
#: Maximum number of log lines in a minute. posd logs each of the nine kinds of disturbance once a minute. On a busy
#: machine posd also drops the starts of tills that no longer wait, each with a line up to a limit.
KINDS = 9
DROPPED = LIMITS["start.dropped"].lines
#: Maximum number of lines about addresses that refuse the certificate. posd logs one line for each address in an hour.
DISTRUSTED = 32

#: Seconds for which attackers run before the till begins.
BEFORE_SECONDS = 1.0
#: Maximum time until an attacker's process makes its first connection, in seconds.
BEGIN_SECONDS = 60.0
#: Maximum time until posd has closed the connections of ended attackers, in seconds. posd gets little time on a busy
#: machine.
GIVEN_BACK_SECONDS = 120.0
#: Maximum number of additional descriptors after posd has closed the connections.
SPARE_DESCRIPTORS = 4
#: Seconds until memory is measured again. posd returns memory two seconds after the end of many connections.
SETTLE_SECONDS = 3.0
#: Maximum time until an attacker's process ends after its last second, in seconds.
END_SECONDS = 60.0
#: Journal entries of an undisturbed payment, and entries that calls may add in a minute (each call and its reply).
HONEST_ENTRIES = 20
ENTRIES_A_MINUTE = 2 * limits.CALLS_OF_TRANSACTION.value


@dataclass
class Result:
    """Result of one attack: the figures, and the faults with all exceeded limits."""

    name: str
    figures: Sequence[Figure]
    faults: list[str]


class Run:
    """Runner of the measurements on one shop."""

    def __init__(self, shop: Shop, *, nice: int) -> None:
        """Create the runner. `nice`: nice value of the attackers."""
        self._shop = shop
        self._nice = nice
        self._first_mb = 0.0
        self._events = 0
        self._began = monotonic()
        self._paid: set[str] = set()
        self._path = self._body = ""

    async def warm_up(self, seconds: float) -> None:
        """Pay until the daemon has loaded its modules, and capture a callback."""
        await self._pay(seconds)
        self._path, self._body = self._shop.captured()
        self._first_mb = resident_bytes(self._shop.daemon.pid) / MIB

    async def attack(self, name: str, names: Sequence[str], quiet_seconds: float, seconds: float) -> Result:
        """Measure a quiet time and then all attacks at once. If no quiet time was measured, the times are not
        judged.
        """
        pid, daemon, attacks = self._shop.daemon.pid, self._shop.daemon, [ATTACKS[name] for name in names]
        insider = any(attack.insider for attack in attacks)
        before = await self._pay(quiet_seconds) if quiet_seconds else None
        files, first_line, began = self._shop.files(), len(daemon.lines), monotonic()
        async with metered(pid) as meter, self._attackers(names):
            await asyncio.sleep(BEFORE_SECONDS)
            used = processor_seconds(pid)
            with daemon.unread() if any(attack.log_stands_still for attack in attacks) else nullcontext():
                till = await self._pay(seconds)
            used = processor_seconds(pid) - used
        await _given_back(pid, meter.before + SPARE_DESCRIPTORS)
        self._events += sum(attack.events for attack in attacks)
        told = [(str(line.get("transaction")), line) for line in daemon.lines[first_line:]]
        lines = [line for paid, line in told if paid not in self._paid or paid in self._path]
        memory = INSIDER_MEMORY_MB if insider else MEMORY_MB
        # The number of lines does not depend on the attackers' actions.
        a_minute = KINDS + DROPPED * insider
        logged = Figure("log lines", [len(lines)], limit=a_minute * (2 + (monotonic() - began) // 60) + DISTRUSTED)
        figures = [
            *_slowed(before, till, inf if insider else TIMES_AS_LONG),
            Figure("MB, peak", [resident_bytes(pid, "VmHWM") / MIB - self._first_mb], "MB", memory),
            Figure("MB, end", [resident_bytes(pid) / MIB - self._first_mb], "MB", memory),
            Figure("descriptors", [meter.most - meter.before], limit=_descriptors(attacks)),
            Figure("descriptors, end", [descriptors(pid) - meter.before], limit=DESCRIPTORS // 10),
            logged,
            Figure("processor", [used / seconds]),
        ]
        faults = [f"quiet: {item}" for item in before.problems] if before else []
        faults += till.problems + self._stored(files)
        faults += [str(figure) for figure in figures if not figure.holds]
        if not logged.holds:
            faults.append(f"{Counter(line['event'] for line in lines)}, the last is {lines[-1]}")
        if before and insider and (slow := _middle(till.reads)[1]) > INSIDER_READ_MS:
            faults.append(f"reads, 95th percentile: {slow:.0f} ms")
        return Result(name, figures, faults)

    async def _pay(self, seconds: float) -> Till:
        till = await self._shop.pay(seconds)
        self._paid |= till.paid.keys()
        return till

    def _stored(self, files: set[str]) -> list[str]:
        """Return texts about rows and files that no honest sender caused."""
        filled, stored = self._shop.filled, self._shop.stored()
        found = [f"a new file: {name}" for name in sorted(self._shop.files() - files)]
        made = sum(line["kind"] == "event" for line in self._shop.ledgers())
        minutes = 1 + (monotonic() - self._began) / 60
        if (count := stored["transactions"] - filled["transactions"]) != len(self._paid):
            found.append(f"the database has {count} new transactions, and the till made {len(self._paid)}")
        for name, count, allowed in (
            ("entries in the journal of one payment", stored["journal"], HONEST_ENTRIES + ENTRIES_A_MINUTE * minutes),
            ("events of the terminals and the attacks", stored["events"] - filled["events"], made + self._events),
            ("bodies in the quarantine", stored["quarantine"], 0),
        ):
            if count > allowed:
                found.append(f"the database has {count} {name}, and {allowed:.0f} are allowed")
        return found

    @asynccontextmanager
    async def _attackers(self, names: Sequence[str]) -> AsyncIterator[None]:
        """Run the attackers' processes for the block, after all have connected. Raise AssertionError if one failed."""
        async with AsyncExitStack() as stack:
            running = [
                await stack.enter_async_context(self._attacker(name, number))
                for name in names
                for number in range(ATTACKS[name].processes)
            ]
            async with asyncio.timeout(BEGIN_SECONDS):
                for process in running:
                    assert await process.stdout.readline() == BEGUN
            yield
            async with asyncio.timeout(END_SECONDS):
                await asyncio.gather(*(process.communicate(b"") for process in running))
            assert not any(process.returncode for process in running)

    def _attacker(self, name: str, number: int) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        attack, daemon = ATTACKS[name], self._shop.daemon
        network = 10 + list(ATTACKS).index(name)  # no attack may profit from an earlier attack
        addresses = [f"127.0.{network}.{host}" for host in range(1, attack.addresses + 1)]
        fields = {"port": daemon.port, "sources": addresses[number :: attack.processes]}
        fields |= {"path": self._path, "body": self._body, "till_socket": str(daemon.till_socket)}
        return program(sys.executable, "-m", "tests.hostile.attacker", name, str(self._nice), json.dumps(fields))


async def _given_back(pid: int, most: int) -> None:
    """Wait until a process has at most this many descriptors or the time limit is over. Then wait until the process has
    returned memory.
    """
    with suppress(TimeoutError):
        await until(lambda: descriptors(pid) <= most, GIVEN_BACK_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)


def _slowed(before: Till | None, till: Till, limit: float) -> list[Figure]:
    """Return the factors by which reads and payments take longer than in the quiet time."""
    if before is None:
        return []
    pairs = {"read": (before.reads, till.reads, limit), "payment": (before.payments, till.payments, TIMES_AS_LONG)}
    return [
        Figure(f"{name}, {what}", [now / then if then else 0.0], "×", most)
        for name, (quiet, attacked, most) in pairs.items()
        for what, now, then in zip(("median", "p95"), _middle(attacked), _middle(quiet), strict=True)
    ]


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile, or zeros for a single value."""
    return (statistics.median(values), statistics.quantiles(values, n=20)[18]) if len(values) > 1 else (0.0, 0.0)


def _descriptors(attacks: Sequence[Attack]) -> int:
    """Return the number of additional descriptors that posd may have, for the LAN and for each till."""
    tills = sum(attack.tills for attack in attacks)
    of_tills = tills * limits.CONNECTIONS_OF_PROCESS.value + TURNED_AWAY if tills else 0
    return of_tills + (DESCRIPTORS if any(not attack.tills for attack in attacks) else 0)
