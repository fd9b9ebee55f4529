"""Durable acknowledgements: how many a second over many connections, and how long one takes over one connection.

Every event is sent to posd, to the no-op on Hypercorn's own server, to the same on posd's listener, and to the naive
receiver, one after the other within a round; the order turns from round to round. The yardstick is Hypercorn's own
server: posd's listener is part of what is measured, and a yardstick that it moves would be none.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.bench.bench import Bench, percentile, sync_seconds
from tests.bench.load import Load, send, trusting
from tests.bench.measures.slow_disk import SYNC_US, slow
from tests.bench.processes import quiet
from tests.bench.rows import Row
from tests.bench.servers import Server, serving
from tests.bench.shop import Shop, lanes, open_shop
from tests.bench.tail import Observer

#: Connections, and the part of the no-op's rate that posd has to reach.
THROUGHPUT = ((16, 0.70), (64, 0.80))
#: What a durable acknowledgement may take beside the no-op's time, in syncs.
SYNCS_BESIDE = 2
#: The 99th percentile, by the median.
TAIL_LIMIT = 5.0
#: Events of each connection that the naive receiver gets: it takes a hundred a second.
NAIVE_EVENTS = 4
#: And over the one connection.
NAIVE_EVENTS_ALONE = 128

_MILLI = 1000


@dataclass(frozen=True)
class Field:
    """A shop, and the servers that it is compared with."""

    shop: Shop
    ours: Server
    others: dict[str, Server]

    def turn(self, number: int) -> list[tuple[str, Server]]:
        """Return all of them, in the order of one round."""
        servers = [("posd", self.ours), *self.others.items()]
        first = number % len(servers)
        return servers[first:] + servers[:first]


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure throughput and latency."""
    async with _field(bench) as field:
        rows = [await _throughput(bench, field, connections, limit) for connections, limit in THROUGHPUT]
        return [*rows, *await _latency(bench, field)]


@asynccontextmanager
async def _field(bench: Bench) -> AsyncIterator[Field]:
    home = bench.directory("acknowledgements")
    made = {name: bench.directory(f"acknowledgements/{name}") for name in ("posd", "no-op", "stock", "naive")}
    async with (
        open_shop(made["posd"], bench.pick(512, 16)) as shop,
        serving("tests.bench.noop", made["no-op"]) as noop,
        serving("tests.bench.noop", made["stock"], "--stock") as stock,
        serving("tests.bench.naive", made["naive"], "--database", str(home / "naive.db")) as naive,
    ):
        ours = Server(shop.pid, shop.daemon.port, trusting(shop.daemon.ca))
        yield Field(shop, ours, {"no-op": stock, "no-op, own listener": noop, "naive": naive})


async def _throughput(bench: Bench, field: Field, connections: int, limit: float) -> Row:
    """All connections send their next event as soon as the one before is answered."""
    rates: dict[str, list[float]] = defaultdict(list)
    refused = 0
    for number in _rounds(bench, 7):
        sent = lanes(await field.shop.start(len(field.shop.serials)), connections)
        await quiet(field.shop.pid)
        for name, server in field.turn(number):
            load = await send(server.port, server.context, _some(sent, NAIVE_EVENTS) if name == "naive" else sent)
            refused += _refused(name, load)
            if number:
                rates[name].append(load.statuses[204 if name.startswith("no-op") else 200] / load.seconds)
        bench.say(f"acknowledgements, {connections} connections, round {number}: " + _rates(rates))
    ratios = [ours / theirs for ours, theirs in zip(rates["posd"], rates["no-op"], strict=True)]
    middle = {name: statistics.median(values) for name, values in rates.items()}
    return Row(
        figure=f"durable acknowledgements a second, {connections} connections",
        measured=statistics.median(ratios),
        limit=limit,
        unit="×",
        at_least=True,
        ours=f"{middle['posd']:,.0f}/s",
        reference=f"{middle['no-op']:,.0f}/s",
        naive=f"{middle['naive']:,.0f}/s" + (f" ({refused} answered 500)" if refused else ""),
        note=f"on posd's own listener the no-op answers {middle['no-op, own listener']:,.0f}/s",
        details={"per_second": dict(rates), "ratios": ratios, "median_per_second": middle, "naive_refused": refused},
    )


def _rounds(bench: Bench, count: int) -> range:
    """Return the numbers of the rounds; number 0 only warms up."""
    return range(1, 2) if bench.short else range(count + 1)


def _rates(rates: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {values[-1]:,.0f}/s" for name, values in rates.items()) or "warm"


def _some(sent: Sequence[Sequence[bytes]], count: int) -> list[Sequence[bytes]]:
    return [lane[:count] for lane in sent]


def _refused(name: str, load: Load) -> int:
    """Return how many the naive receiver refused, for it may; raise where another one did."""
    if name == "naive":
        return load.statuses[500]
    load.all_are(200 if name == "posd" else 204)
    return 0


@dataclass(frozen=True)
class _Alone:
    """What one connection saw, in seconds: by server median and 99th percentile of each round, and each sync.

    `slow` is posd's median where a sync takes 10 ms longer.
    """

    medians: dict[str, list[float]]
    tails: dict[str, list[float]]
    syncs: list[float]
    causes: Counter[str]
    slow: float


async def _latency(bench: Bench, field: Field) -> Sequence[Row]:
    """One connection, one event after the other; the answer is whole when its last byte was read."""
    seen = _Alone(defaultdict(list), defaultdict(list), [], Counter(), await _on_slow_disk(bench))
    for number in _rounds(bench, 5):
        (sent,) = lanes(await field.shop.start(bench.pick(256, 16)), 1)
        await quiet(field.shop.pid)
        sync = sync_seconds(bench.home)
        said = []
        for name, server in field.turn(number):
            observer = Observer(server.pid, field.shop.daemon.database)
            observer.look()
            chosen = sent[:NAIVE_EVENTS_ALONE] if name == "naive" else sent
            load = await send(server.port, server.context, [chosen], observer.look)
            _refused(name, load)
            said.append(f"{name} {statistics.median(load.latencies) * _MILLI:.2f} ms")
            if number == 0:
                continue
            seen.medians[name].append(statistics.median(load.latencies))
            seen.tails[name].append(percentile(load.latencies, 99))
            if name == "posd":
                seen.causes.update(observer.causes(load.latencies, seen.tails[name][-1]))
        if number:
            seen.syncs.append(sync)
        bench.say(f"one connection, round {number}: sync {sync * _MILLI:.2f} ms, {', '.join(said)}")
    return _rows(seen)


async def _on_slow_disk(bench: Bench) -> float:
    """Return the median of one connection on a disk that is as slow as a till's."""
    directory = bench.directory("acknowledgements/slow")
    async with open_shop(directory, bench.pick(64, 4), slow(directory / "state")) as shop:
        sent = lanes(await shop.start(len(shop.serials)), 1)
        await quiet(shop.pid)
        load = await send(shop.daemon.port, trusting(shop.daemon.ca), sent)
    return statistics.median(load.all_are(200).latencies)


def _rows(seen: _Alone) -> Sequence[Row]:
    middle = {name: statistics.median(values) for name, values in seen.medians.items()}
    limits = [bare + SYNCS_BESIDE * sync for bare, sync in zip(seen.medians["no-op"], seen.syncs, strict=True)]
    ratios = {
        name: statistics.median(tail / usual for tail, usual in zip(tails, seen.medians[name], strict=True))
        for name, tails in seen.tails.items()
    }
    causes = ", ".join(f"{count} {cause}" for cause, count in seen.causes.most_common() if count)
    details = {
        "median_ms": {name: _milli(values) for name, values in seen.medians.items()},
        "p99_ms": {name: _milli(values) for name, values in seen.tails.items()},
        "sync_ms": _milli(seen.syncs),
        "limit_ms": _milli(limits),
        "median_ms_on_slow_disk": seen.slow * _MILLI,
        "p99_by_median": ratios,
        "slow_answers_by_cause": dict(seen.causes),
    }
    sync = statistics.median(seen.syncs)
    slow_limit = statistics.median(limits) + SYNCS_BESIDE * SYNC_US / 1e6
    tails = {
        name: f"{statistics.median(values) * _MILLI:.2f} ms ({ratios[name]:.1f} ×)"
        for name, values in seen.tails.items()
    }
    return [
        Row(
            figure="acknowledgement latency, one connection, median",
            measured=middle["posd"] * _MILLI,
            limit=statistics.median(limits) * _MILLI,
            unit="ms",
            at_least=False,
            ours=f"{middle['posd'] * _MILLI:.2f} ms",
            reference=f"{middle['no-op'] * _MILLI:.2f} ms",
            naive=f"{middle['naive'] * _MILLI:.2f} ms",
            note=(
                f"the bound is the no-op's median and {SYNCS_BESIDE} syncs of {sync * _MILLI:.2f} ms; where a sync "
                f"takes 10 ms longer it is {seen.slow * _MILLI:.1f} ms, and the bound {slow_limit * _MILLI:.1f} ms"
            ),
            details=details,
        ),
        Row(
            figure="its 99th percentile, by its median",
            measured=ratios["posd"],
            limit=TAIL_LIMIT,
            unit="×",
            at_least=False,
            ours=tails["posd"],
            reference=tails["no-op"],
            naive=tails["naive"],
            note=f"of the {seen.causes.total()} slowest answers: {causes}",
            details=details,
        ),
    ]


def _milli(values: Sequence[float]) -> list[float]:
    return [value * _MILLI for value in values]
