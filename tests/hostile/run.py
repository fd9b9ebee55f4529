"""A run. For each attack the run measures a quiet time and then the attack. A till pays in both periods."""

import asyncio
import json
import statistics
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from time import monotonic
from typing import Any

from posd.base import limits
from posd.httpd.admission import MAX_TURNED_AWAY
from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.shop import Shop
from tests.hostile.wire import BEGUN
from tests.support.usage import MIB, descriptors, forget_peak, processor_seconds, resident_bytes

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
#: Maximum number of log lines in a minute. posd logs each of the nine kinds of disturbance once a minute.
KINDS = 9
#: Maximum number of lines about addresses that refuse the certificate. posd logs one line for each address in an hour.
DISTRUSTED = 32


def lines_allowed(seconds: float) -> int:
    """Return the number of log lines that strangers may cause in these seconds. The number does not depend on the
    strangers' actions.
    """
    return KINDS * (1 + int(seconds // 60 + 1)) + DISTRUSTED


def broken(result: "Result", descriptors: int = DESCRIPTORS, *, insider: bool = False) -> list[str]:
    """Return the exceeded bounds of a result. `descriptors`: permitted number of additional descriptors."""
    quiet = result.quiet
    memory_mb = INSIDER_MEMORY_MB if insider else MEMORY_MB
    found = [f"quiet: {item}" for item in quiet.wrong] if quiet is not None else []
    found += result.attack.wrong + result.stored
    if not result.done.get("connections"):
        found.append("no attacker made a connection")
    for name, value in (("at its peak", result.memory_peak_mb), ("at the end", result.memory_end_mb)):
        more = value - result.memory_quiet_mb
        if more > memory_mb:
            found.append(f"memory {name}: {more:.0f} MB more than in the quiet time")
    if result.descriptors_peak > result.descriptors_quiet + descriptors:
        found.append(f"posd had {result.descriptors_peak} open descriptors")
    if result.descriptors_end > result.descriptors_quiet + DESCRIPTORS // 10:
        found.append(f"posd had {result.descriptors_end} open descriptors after the attack")
    if len(result.lines) > lines_allowed(result.seconds):
        kinds = Counter(line["event"] for line in result.lines)
        found.append(f"{len(result.lines)} log lines: {dict(kinds)}, the last is {result.lines[-1]}")
    if quiet is not None:
        found += _slow("payments", quiet.payments, result.attack.payments)
        if not insider:
            found += _slow("reads", quiet.reads, result.attack.reads)
        elif result.attack.reads.p95 > INSIDER_READ_MS:
            found.append(f"reads, 95th percentile: {result.attack.reads.p95:.0f} ms")
    return found


def _slow(name: str, quiet: "Times", attack: "Times") -> list[str]:
    pairs = (("median", quiet.median, attack.median), ("95th percentile", quiet.p95, attack.p95))
    return [
        f"{name}, {what}: {now:.1f} ms, {now / before:.1f} times the quiet time"
        for what, before, now in pairs
        if before and now > TIMES_AS_LONG * before
    ]


#: Seconds for which attackers run before the till begins.
BEFORE_SECONDS = 1.0
#: Maximum time until an attacker's process makes its first connection, in seconds.
BEGIN_SECONDS = 60.0
#: Seconds between two counts of descriptors.
EVERY_SECONDS = 0.1
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
class Times:
    """Median and 95th percentile of one kind of call, in milliseconds, and the number of calls."""

    median: float
    p95: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Times":
        """Return the median, the percentile and the number of these durations."""
        if len(values) < 2:
            return cls(0, 0, len(values))
        return cls(statistics.median(values), statistics.quantiles(values, n=20)[18], len(values))


@dataclass
class Phase:
    """Measurements of a till in a period."""

    reads: Times
    payments: Times
    wrong: list[str]


@dataclass
class Result:
    """Result of one attack, compared with the quiet time before the attack."""

    name: str
    seconds: float
    quiet: Phase | None  # None if the times are not judged
    attack: Phase
    memory_quiet_mb: float
    memory_peak_mb: float
    memory_end_mb: float
    descriptors_quiet: int
    descriptors_peak: int
    descriptors_end: int
    lines: list[dict[str, Any]]
    processor: float
    stored: list[str]
    done: dict[str, int]
    retried: int
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the measurements on one line. `x`: factor compared with the quiet time."""
        quiet = self.quiet or self.attack
        peak, end = self.memory_peak_mb - self.memory_quiet_mb, self.memory_end_mb - self.memory_quiet_mb
        times = (
            f"{name} {now:.1f} ms (x {now / (before or now or 1):.1f})"
            for name, now, before in (
                ("read", self.attack.reads.median, quiet.reads.median),
                ("read p95", self.attack.reads.p95, quiet.reads.p95),
                ("payment", self.attack.payments.median, quiet.payments.median),
                ("payment p95", self.attack.payments.p95, quiet.payments.p95),
            )
        )
        figures = f"{self.descriptors_peak} descriptors, {len(self.lines)} log lines, cpu {self.processor:.0%}"
        memory = f"memory {peak:+.1f} MB at the peak, {end:+.1f} at the end"
        return f"{self.name}: {', '.join(times)}; {memory}; {figures}; {self.retried} retried; attackers: {self.done}"


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
        self._path = ""
        self._body = shop.directory / "captured"

    @property
    def _pid(self) -> int:
        assert self._shop.daemon.process is not None
        return self._shop.daemon.process.pid

    async def warm_up(self, seconds: float) -> None:
        """Pay until the daemon has loaded its modules, and capture a callback."""
        await self._phase(seconds)
        self._path, body = self._shop.captured()
        self._body.write_bytes(body)
        self._first_mb = resident_bytes(self._pid) / MIB

    async def attack(self, name: str, names: Sequence[str], quiet_seconds: float, seconds: float) -> Result:
        """Measure a quiet time and then all attacks at once. If no quiet time was measured, the times are not
        judged.
        """
        pid, daemon = self._pid, self._shop.daemon
        before = await self._phase(quiet_seconds) if quiet_seconds else None
        opened, files, first_line = descriptors(pid), self._shop.files(), len(daemon.lines)
        forget_peak(pid)
        most = [0]
        watching = asyncio.create_task(_watch_descriptors(pid, most))
        try:
            async with self._attackers(names) as done:
                await asyncio.sleep(BEFORE_SECONDS)
                worked = processor_seconds(pid)
                with daemon.unread() if any(ATTACKS[name].log_stands_still for name in names) else nullcontext():
                    phase = await self._phase(seconds)
                worked = processor_seconds(pid) - worked
        finally:
            watching.cancel()
        await _given_back(pid, opened + SPARE_DESCRIPTORS)
        result = Result(
            name=name,
            seconds=seconds,
            quiet=before,
            attack=phase,
            memory_quiet_mb=self._first_mb,
            memory_peak_mb=resident_bytes(pid, "VmHWM") / MIB,
            memory_end_mb=resident_bytes(pid) / MIB,
            descriptors_quiet=opened,
            descriptors_peak=most[0],
            descriptors_end=descriptors(pid),
            lines=[line for line in daemon.lines[first_line:] if not self._honest(line)],
            processor=worked / seconds,
            stored=self._stored(files, self._extra(names)),
            done=dict(sorted(done.items())),
            retried=self._retried(),
        )
        attacks = [ATTACKS[name] for name in names]
        insider = any(attack.insider for attack in attacks)
        result.broken = broken(result, _descriptors(attacks), insider=insider)
        return result

    async def _phase(self, seconds: float) -> Phase:
        """Run the till for a time, and compare the ledgers."""
        till = await self._shop.till(seconds)
        self._ids = set(till.paid)
        self._paid |= self._ids
        wrong = list(till.problems)
        charges: dict[str, list[Decimal]] = {identity: [] for identity in till.paid}
        for line in self._shop.ledgers():
            if line["kind"] == "final" and line["charged"] and line["client_transaction_id"] in charges:
                charges[line["client_transaction_id"]].append(Decimal(str(line["amount"])))
        for identity, (amount, result) in till.paid.items():
            if result != "approved" or charges[identity] != [amount]:
                wrong.append(f"{identity}: {amount} is {result} at the till, the terminal charged {charges[identity]}")
        if not till.paid:
            wrong.append("the till made no payment")
        return Phase(Times.of(till.reads), Times.of(till.payments), wrong)

    def _honest(self, line: dict[str, Any]) -> bool:
        return line.get("transaction") in self._paid and str(line.get("transaction")) not in self._path

    def _retried(self) -> int:
        """Return the number of failed deliveries of the newest payments."""
        return sum(
            line["kind"] == "attempt" and line["result"] != 200
            for line in self._shop.ledgers()
            if line.get("client_transaction_id") in self._ids
        )

    def _extra(self, names: Sequence[str]) -> int:
        """Return the number of rows of events that these attacks and earlier attacks may have left."""
        self._events += sum(ATTACKS[name].events for name in names)
        return self._events

    def _stored(self, files: set[str], extra: int) -> list[str]:
        """Return texts about rows and files that no honest sender caused. `extra`: permitted rows of events."""
        filled, found = self._shop.filled, sorted(self._shop.files() - files)
        stored = self._shop.stored()
        made = sum(line["kind"] == "event" for line in self._shop.ledgers())
        if (count := stored["transactions"] - filled["transactions"]) != len(self._paid):
            found.append(f"the database has {count} new transactions, and the till made {len(self._paid)}")
        if stored["journal"] > (allowed := HONEST_ENTRIES + ENTRIES_A_MINUTE * (1 + (monotonic() - self._began) / 60)):
            found.append(f"the journal of one payment has {stored['journal']} entries, and {allowed:.0f} are allowed")
        if (count := stored["events"] - filled["events"]) > made + extra:
            found.append(
                f"the database has {count} events, and {made} of the terminals and {extra} of an attack are allowed"
            )
        if stored["quarantine"]:
            found.append(f"the quarantine has {stored['quarantine']} bodies")
        return found

    @asynccontextmanager
    async def _attackers(self, names: Sequence[str]) -> AsyncIterator[Counter[str]]:
        """Run the attackers' processes for the block, after all have connected. Yield a dictionary. At the end the
        dictionary has the counts of the processes.
        """
        running = [await self._attacker(name, number) for name in names for number in range(ATTACKS[name].processes)]
        counts = Counter[str]()
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                for process in running:
                    assert process.stdout is not None
                    assert await process.stdout.readline() == BEGUN
            yield counts
            async with asyncio.timeout(END_SECONDS):
                for output, _ in await asyncio.gather(*(process.communicate(b"") for process in running)):
                    counts.update(json.loads(output))
        finally:
            for process in running:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async def _attacker(self, name: str, number: int) -> asyncio.subprocess.Process:
        attack = ATTACKS[name]
        network = 10 + list(ATTACKS).index(name)  # no attack may profit from an earlier attack
        addresses = [f"127.0.{network}.{host}" for host in range(1, attack.addresses + 1)]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.hostile.attacker", name, "--port", str(self._shop.daemon.port)),
            *("--path", self._path, "--body", str(self._body)),
            *("--nice", str(self._nice), "--socket", str(self._shop.daemon.till_socket)),
            *addresses[number :: attack.processes],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )


async def _given_back(pid: int, most: int) -> None:
    """Wait until a process has at most this many descriptors or the time limit is over. Then wait until the process has
    returned memory.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(GIVEN_BACK_SECONDS):
            while descriptors(pid) > most:  # noqa: ASYNC110 - the kernel has no event for closed descriptors
                await asyncio.sleep(EVERY_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)


async def _watch_descriptors(pid: int, most: list[int]) -> None:
    """Record the largest number of open descriptors in a list with one item, until cancelled."""
    while True:
        most[0] = max(most[0], descriptors(pid))
        await asyncio.sleep(EVERY_SECONDS)


def _descriptors(attacks: Sequence[Attack]) -> int:
    """Return the number of additional descriptors that posd may have, for the LAN and for each till."""
    tills = sum(attack.tills for attack in attacks)
    of_tills = tills * limits.CONNECTIONS_OF_PROCESS.value + TURNED_AWAY if tills else 0
    return of_tills + (DESCRIPTORS if any(not attack.tills for attack in attacks) else 0)
