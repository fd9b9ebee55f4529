"""Durable acknowledgements: how many a second over many connections, and how long one takes over one connection.

The events are of 64 terminals that each have an open payment, spread over all connections. Every event is sent to posd,
to the no-op on Hypercorn's own server, to the same on posd's listener, and some to the naive receiver, one server after
the other; the order turns from wave to wave. posd's listener is part of what is measured, so a yardstick on it moves
with it: both no-ops have rows of their own.
"""

import asyncio
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.bench.bench import Bench, percentile, sync_seconds
from tests.bench.load import Load, Sender, Server, connected
from tests.bench.processes import processor_seconds, quiet
from tests.bench.program import Program
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import Shop, open_shop
from tests.bench.tail import Observer
from tests.bench.wire import call, till

#: Terminals, each of which has one open payment in a wave.
TERMINALS = 64
POSD, HYPERCORN, LISTENER, NAIVE = "posd", "no-op on Hypercorn", "no-op on posd's listener", "naive"
#: Connections, and the part of each no-op's rate that posd has to reach.
THROUGHPUT: Mapping[int, Mapping[str, float]] = {
    16: {HYPERCORN: 0.9, LISTENER: 0.55},
    64: {HYPERCORN: 1.05, LISTENER: 0.65},
}
#: The median over one connection without one sync, by the no-op's.
ALONE_LIMIT = 2.5
#: The 99th percentile, by the median.
TAIL_LIMIT = 5.0
#: What a till asks for again and again while the tail is measured.
LIST = b"GET /v1/transactions?limit=100 HTTP/1.1\r\nhost: posd\r\n\r\n"

_MILLI = 1000
_MICRO = 1e6


@dataclass(frozen=True)
class Field:
    """A shop, and the servers that it is compared with."""

    shop: Shop
    others: Mapping[str, Server]

    def turn(self, number: int) -> list[tuple[str, Server]]:
        """Return all of them, in the order of one wave."""
        servers = [(POSD, self.shop.server), *self.others.items()]
        first = number % len(servers)
        return servers[first:] + servers[:first]


@dataclass
class Tally:
    """What one server did in a round, in seconds; `each_us` has the processor time of an answer of each wave."""

    seconds: float = 0.0
    answers: int = 0
    done: int = 0
    processor: float = 0.0
    client: float = 0.0
    latencies: list[float] = field(default_factory=list)
    each_us: list[float] = field(default_factory=list)
    causes: list[tuple[Load, Observer]] = field(default_factory=list)

    def add(self, load: Load, done: int, processor: float) -> None:
        """Add a wave."""
        self.seconds += load.seconds
        self.answers += len(load.latencies)
        self.done += done
        self.processor += processor
        self.each_us.append(processor / len(load.latencies) * _MICRO)
        self.client += load.computed
        self.latencies += load.latencies

    @property
    def per_second(self) -> float:
        """What was done, a second."""
        return self.done / self.seconds

    @property
    def processor_us(self) -> float:
        """Microseconds of processor time an answer."""
        return self.processor / self.answers * _MICRO

    @property
    def median(self) -> float:
        """The median of an answer's time."""
        return statistics.median(self.latencies)


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure throughput and latency."""
    home = bench.directory("acknowledgements")
    async with open_field(bench, "acknowledgements/servers") as field:
        (home / "naive").mkdir()
        async with serving("tests.bench.naive", home / "naive", "--database", str(home / "naive.db")) as naive:
            field = Field(field.shop, {**field.others, NAIVE: naive})
            rows = [row for connections in THROUGHPUT for row in await _throughput(bench, field, connections)]
            return [*rows, *await _latency(bench, field)]


@asynccontextmanager
async def open_field(bench: Bench, name: str, program: Program | None = None) -> AsyncIterator[Field]:
    """Run a shop and both no-ops for the block."""
    made = [bench.directory(f"{name}/{part}") for part in ("posd", "stock", "no-op")]
    async with (
        open_shop(made[0], TERMINALS + 1, program=program) as shop,
        serving("tests.bench.noop", made[1], "--stock", program=program) as stock,
        serving("tests.bench.noop", made[2], program=program) as noop,
    ):
        yield Field(shop, {HYPERCORN: stock, LISTENER: noop})


async def waves(
    field: Field, connections: int, count: int, *, observed: bool = False, busy: bool = False
) -> dict[str, Tally]:
    """Send so many waves, each of an open payment of each terminal, to each server; return what each did.

    The naive receiver gets the first one alone: it takes a hundred a second. `observed`: each server is looked at
    between two requests. `busy`: others keep the daemon busy, and it is not waited until it has nothing more to do.
    """
    database = field.shop.daemon.database if observed else None
    async with AsyncExitStack() as stack:
        senders: dict[str, Sender] = {}
        for name, server in field.turn(0):
            senders[name] = await stack.enter_async_context(connected(server, connections, database))
        found = {name: Tally() for name in senders}
        for number in range(count):
            chains = [payment.events() for payment in await field.shop.start(TERMINALS)]
            if not busy:
                await quiet(field.shop.pid)
            for name, server in field.turn(number):
                if name == NAIVE and number:
                    continue
                used = processor_seconds(server.pid)
                load = await senders[name].send(chains)
                used = processor_seconds(server.pid) - used
                if name == NAIVE:  # it may refuse some
                    done = load.statuses[200]
                else:
                    done = len(load.all_are(200 if name == POSD else 204).latencies)
                found[name].add(load, done, used)
                if observed:
                    found[name].causes.append((load, Observer(server.pid, field.shop.daemon.database, load.moments)))
    return found


async def _throughput(bench: Bench, field: Field, connections: int) -> Sequence[Row]:
    """All connections send their next event as soon as the one before is answered."""
    rounds: list[dict[str, Tally]] = []
    for number in bench.rounds(warm=True):
        found = await waves(field, connections, bench.pick(8, 1))
        if number:
            rounds.append(found)
        said = ", ".join(f"{name} {tally.per_second:,.0f}/s" for name, tally in found.items())
        bench.say(f"acknowledgements, {connections} connections, round {number}: {said}")
    return [_against(rounds, connections, name, limit) for name, limit in THROUGHPUT[connections].items()]


def _against(rounds: Sequence[Mapping[str, Tally]], connections: int, yardstick: str, limit: float) -> Row:
    middle = {name: statistics.median(found[name].per_second for found in rounds) for name in rounds[0]}
    computed = {name: statistics.median(found[name].processor_us for found in rounds) for name in rounds[0]}
    busy = {name: statistics.median(_shares(found[name])[0] for found in rounds) for name in rounds[0]}
    serving = {name: statistics.median(_shares(found[name])[1] for found in rounds) for name in rounds[0]}
    refused = sum(found[NAIVE].answers - found[NAIVE].done for found in rounds)
    return Row(
        figure=f"durable acknowledgements a second, {connections} connections, against the {yardstick}",
        rounds=[found[POSD].per_second / found[yardstick].per_second for found in rounds],
        limit=limit,
        unit="×",
        at_least=True,
        ours=f"{middle[POSD]:,.0f}/s",
        reference=f"{middle[yardstick]:,.0f}/s",
        naive=f"{middle[NAIVE]:,.0f}/s" + (f" ({refused} answered 500)" if refused else ""),
        note=(
            f"processor time an event {computed[POSD]:.0f} µs, of the no-op {computed[yardstick]:.0f} µs; against the "
            f"no-op its server computed for {serving[yardstick]:.0%} of the time, the client for {busy[yardstick]:.0%}"
        ),
        details={
            "per_second": {name: [found[name].per_second for found in rounds] for name in middle},
            "processor_us": {name: [found[name].processor_us for found in rounds] for name in middle},
            "client_computed_share": busy,
            "server_computed_share": serving,
            "naive_refused": refused,
        },
    )


def _shares(tally: Tally) -> tuple[float, float]:
    """Return for which part of the time the client and the server computed."""
    return tally.client / tally.seconds, tally.processor / tally.seconds


@dataclass
class _Alone:
    """What one connection saw: by server a tally of each round, the same of posd beside busy tills, and each sync."""

    quiet: list[dict[str, Tally]] = field(default_factory=list)
    busy: list[Tally] = field(default_factory=list)
    syncs: list[float] = field(default_factory=list)
    pages: int = 0


async def _latency(bench: Bench, field: Field) -> Sequence[Row]:
    """One connection, one event after the other; the answer is whole when its last byte was read."""
    seen, count = _Alone(), bench.pick(4, 1)
    for number in bench.rounds(warm=True):
        sync = sync_seconds(bench.home)
        found = await waves(field, 1, count, observed=True)
        async with _tills(field.shop, seen):
            beside = (await waves(Field(field.shop, {}), 1, count, observed=True, busy=True))[POSD]
        said = ", ".join(f"{name} {tally.median * _MILLI:.2f} ms" for name, tally in found.items())
        bench.say(f"one connection, round {number}: sync {sync * _MILLI:.2f} ms, {said}")
        if number:
            seen.quiet.append(found)
            seen.busy.append(beside)
            seen.syncs.append(sync)
    return [_median(seen, HYPERCORN, ALONE_LIMIT), _median(seen, LISTENER, None), *_tails(seen)]


@asynccontextmanager
async def _tills(shop: Shop, seen: _Alone) -> AsyncIterator[None]:
    """Have one till list pages of 100 without a pause, and another wait for an outcome, during the block."""
    lister, waiter = await till(shop.daemon.till_socket), await till(shop.daemon.till_socket)
    async with shop.till() as client:
        waited_for = await shop.start_one(client, shop.serials[TERMINALS])
    waiter.send(call("GET", f"{waited_for.identity}/outcome"))

    async def go_on() -> None:
        while True:
            lister.send(LIST)
            await lister.answer(200)
            seen.pages += 1

    listing = asyncio.create_task(go_on())
    try:
        yield
        if listing.done():
            listing.result()
        await shop.end([waited_for])
        await waiter.answer(200)
    finally:
        listing.cancel()
        with suppress(asyncio.CancelledError):
            await listing
        lister.close()
        waiter.close()


def _median(seen: _Alone, yardstick: str, limit: float | None) -> Row:
    middle = {name: _of(seen, name) for name in seen.quiet[0]}
    sync = statistics.median(seen.syncs)
    return Row(
        figure=f"acknowledgement over one connection, median less one sync, by that of the {yardstick}",
        rounds=[
            (found[POSD].median - sync) / found[yardstick].median
            for found, sync in zip(seen.quiet, seen.syncs, strict=True)
        ],
        limit=limit,
        unit="×",
        at_least=False,
        ours=f"{middle[POSD] * _MILLI:.2f} ms",
        reference=f"{middle[yardstick] * _MILLI:.2f} ms",
        naive=f"{middle[NAIVE] * _MILLI:.2f} ms",
        note=f"a sync takes {sync * _MILLI:.2f} ms",
        details={
            "median_ms": {name: [found[name].median * _MILLI for found in seen.quiet] for name in middle},
            "processor_us": {name: [found[name].processor_us for found in seen.quiet] for name in middle},
            "sync_ms": [sync * _MILLI for sync in seen.syncs],
        },
    )


def _of(seen: _Alone, name: str) -> float:
    return statistics.median(found[name].median for found in seen.quiet)


def _tails(seen: _Alone) -> Sequence[Row]:
    """The 99th percentile of posd, quiet and beside busy tills, each by the median of the same answers."""
    tails = {name: [percentile(found[name].latencies, 99) for found in seen.quiet] for name in seen.quiet[0]}
    words = {
        name: f"{statistics.median(values) * _MILLI:.2f} ms ({_ratio(seen, name, values):.1f} ×)"
        for name, values in tails.items()
    }
    beside = [percentile(tally.latencies, 99) for tally in seen.busy]
    quiet = [found[POSD] for found in seen.quiet]
    return [
        Row(
            figure="its 99th percentile, by its median",
            rounds=_ratios(seen, POSD, tails[POSD]),
            limit=TAIL_LIMIT,
            unit="×",
            at_least=False,
            ours=words[POSD],
            reference=words[HYPERCORN],
            naive=words[NAIVE],
            note=_causes(quiet),
            details={"p99_ms": {name: [value * _MILLI for value in values] for name, values in tails.items()}},
        ),
        Row(
            figure="the same while a till lists pages of 100 and another waits, by the median then",
            rounds=[value / tally.median for value, tally in zip(beside, seen.busy, strict=True)],
            limit=TAIL_LIMIT,
            unit="×",
            at_least=False,
            ours=f"{statistics.median(beside) * _MILLI:.2f} ms",
            reference=f"median {statistics.median(tally.median for tally in seen.busy) * _MILLI:.2f} ms",
            note=(
                f"{_ratio(seen, POSD, beside):.1f} × the median without them; {seen.pages:,} pages were listed, one "
                f"after the other without a pause; {_causes(seen.busy)}"
            ),
            details={
                "median_ms": [tally.median * _MILLI for tally in seen.busy],
                "p99_ms": [value * _MILLI for value in beside],
                "by_median_without": _ratios(seen, POSD, beside),
            },
        ),
    ]


def _ratios(seen: _Alone, name: str, values: Sequence[float]) -> list[float]:
    return [value / found[name].median for value, found in zip(values, seen.quiet, strict=True)]


def _ratio(seen: _Alone, name: str, values: Sequence[float]) -> float:
    return statistics.median(_ratios(seen, name, values))


def _causes(tallies: Sequence[Tally]) -> str:
    """Say what the slowest answers waited for."""
    found = Counter[str]()
    for tally in tallies:
        slow = percentile(tally.latencies, 99)
        for load, observer in tally.causes:
            found.update(observer.causes(load.latencies, slow))
    named = ", ".join(f"{count} {cause}" for cause, count in found.most_common() if count)
    return f"of the {found.total()} slowest answers: {named}"
