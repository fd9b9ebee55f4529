"""Durable acknowledgements: how many a second over many connections, and how long one takes over one connection.

The events are of 64 terminals that each have an open payment, spread over all connections. Every event is sent to posd,
to the no-op on Hypercorn's own server and to the same on posd's listener, one server after the other; the order turns
from wave to wave.
"""

import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from tests.bench.bench import Bench, sync_seconds
from tests.bench.load import Server, connected
from tests.bench.noop import serving
from tests.bench.processes import processor_seconds, quiet
from tests.bench.sender import Load
from tests.bench.shop import Shop, open_shop
from tests.bench.table import Row, ratios

#: Terminals, each of which has one open payment in a wave.
TERMINALS = 64
POSD, HYPERCORN, LISTENER = "posd", "no-op on Hypercorn", "no-op on posd's listener"
#: Connections, and the part of the rate of the no-op on Hypercorn that posd has to reach.
THROUGHPUT: Mapping[int, float] = {16: 0.9, 64: 1.05}
#: The median over one connection without one sync, by the no-op's.
ALONE_LIMIT = 2.5
#: The 99th percentile, by the median.
TAIL_LIMIT = 5.0


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
    """What one server did in a round, in seconds; `each` has the processor time of an answer of each wave."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    each: list[float] = field(default_factory=list)

    def add(self, load: Load, processor: float) -> None:
        """Add a wave."""
        self.seconds += load.seconds
        self.each.append(processor / len(load.latencies))
        self.latencies += load.latencies

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    @property
    def median(self) -> float:
        """The median of an answer's time."""
        return statistics.median(self.latencies)

    @property
    def tail(self) -> float:
        """The 99th percentile of an answer's time."""
        return statistics.quantiles(self.latencies, n=100, method="inclusive")[98]


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure throughput and latency."""
    async with open_field(bench, "acknowledgements") as field:
        rows = [await _throughput(bench, field, connections) for connections in THROUGHPUT]
        return [*rows, *await _latency(bench, field)]


@asynccontextmanager
async def open_field(bench: Bench, name: str) -> AsyncIterator[Field]:
    """Run a shop and both no-ops for the block."""
    made = [bench.directory(f"{name}/{part}") for part in ("posd", "stock", "no-op")]
    async with (
        open_shop(made[0], TERMINALS) as shop,
        serving(made[1], "--stock") as stock,
        serving(made[2]) as noop,
    ):
        yield Field(shop, {HYPERCORN: stock, LISTENER: noop})


async def waves(field: Field, connections: int, count: int) -> dict[str, Tally]:
    """Send so many waves, each of an open payment of each terminal, to each server; return what each did."""
    async with AsyncExitStack() as stack:
        senders = {
            name: await stack.enter_async_context(connected(server, connections)) for name, server in field.turn(0)
        }
        found = {name: Tally() for name in senders}
        for number in range(count):
            chains = [payment.events() for payment in await field.shop.start(TERMINALS)]
            await quiet(field.shop.pid)
            for name, server in field.turn(number):
                used = processor_seconds(server.pid)
                load = (await senders[name].send(chains)).all_are(200 if name == POSD else 204)
                found[name].add(load, processor_seconds(server.pid) - used)
    return found


async def _throughput(bench: Bench, field: Field, connections: int) -> Row:
    """All connections send their next event as soon as the one before is answered."""
    rates: dict[str, list[float]] = {}
    for number in bench.rounds(warm=True):
        bench.say(f"acknowledgements, {connections} connections, round {number}")
        for name, tally in (await waves(field, connections, bench.pick(8, 1))).items():
            if number:
                rates.setdefault(name, []).append(tally.per_second)
    return Row(
        figure=f"durable acknowledgements a second, {connections} connections, against the {HYPERCORN}",
        rounds=ratios(rates[POSD], rates[HYPERCORN]),
        limit=THROUGHPUT[connections],
        unit="×",
        at_least=True,
        ours=f"{statistics.median(rates[POSD]):,.0f}/s",
        reference=f"{statistics.median(rates[HYPERCORN]):,.0f}/s",
    )


async def _latency(bench: Bench, field: Field) -> Sequence[Row]:
    """One connection, one event after the other; the answer is whole when its last byte was read."""
    ours, theirs, syncs = list[Tally](), list[float](), list[float]()
    for number in bench.rounds(warm=True):
        bench.say(f"one connection, round {number}")
        sync, found = sync_seconds(bench.home), await waves(field, 1, bench.pick(4, 1))
        if number:
            ours.append(found[POSD])
            theirs.append(found[HYPERCORN].median)
            syncs.append(sync)
    medians, tails = [tally.median for tally in ours], [tally.tail for tally in ours]
    return [
        Row(
            figure=f"acknowledgement over one connection, median less one sync, by that of the {HYPERCORN}",
            rounds=ratios([median - sync for median, sync in zip(medians, syncs, strict=True)], theirs),
            limit=ALONE_LIMIT,
            unit="×",
            at_least=False,
            ours=_milliseconds(medians),
            reference=_milliseconds(theirs),
        ),
        Row("its 99th percentile, by its median", ratios(tails, medians), TAIL_LIMIT, "×", False, _milliseconds(tails)),
    ]


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.2f} ms"
