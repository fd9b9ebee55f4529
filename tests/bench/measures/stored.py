"""A million stored payments against none: start, acknowledgements, look-up of one, by metadata too, every list."""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from time import perf_counter
from urllib.parse import quote

from posd import tls
from posd.records.callback_urls import make_key
from tests.bench import growth, seed
from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.load import send, trusting
from tests.bench.rows import Row
from tests.bench.shop import Payment, Shop, lanes, open_shop
from tests.bench.side import NEWEST, TERMINALS, Side
from tests.bench.wire import Wire, till
from tests.support.daemon import Daemon, toml
from tests.support.events import APPROVED

#: Rows of a page where that many are there on both sides.
PAGE = 50
#: Stored payments of the other points of the plot.
BETWEEN = (10_000, 100_000)


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure one against the other, in turn; where the plot is wanted, with sizes between, which it shows."""
    between = () if bench.plot is None or bench.short else BETWEEN
    none, *others, many = await sides(bench, "stored", [0, *between, bench.pick(1_000_000, 500)])
    await measure_sides(bench, [none, *others, many])
    if bench.plot is not None:
        growth.write(bench.plot, [none, *others, many])
    ratios = {name: _ratio(none.lists[name], many.lists[name]) for name in many.lists}
    worst = max(ratios, key=lambda name: ratios[name])
    against = f"{many.stored:,} stored payments against none"
    found = f"both have the newest {NEWEST}, which is what is asked for"
    return [
        _row(f"{against}: start", none.starts, many.starts, 1.1, "s"),
        _row(
            f"{against}: acknowledgements/s, {TERMINALS} connections", none.acknowledged, many.acknowledged, 0.9, "/s"
        ),
        _row(f"{against}: look-up of one", none.looked_up, many.looked_up, 1.2, "s", "any of them, in random order"),
        _row(
            f"{many.stored:,} stored payments: look-up of one by its metadata against that by its id",
            many.looked_up,
            many.by_metadata,
            2.0,
            "s",
            "the same ones; by a text that no other has",
        ),
        _row(
            f"{against}: list page, the worst of {len(ratios)} filters",
            none.lists[worst],
            many.lists[worst],
            2.0,
            "s",
            f"worst: {worst}; {found}",
            ratios,
        ),
    ]


def _ratio(none: Sequence[float], many: Sequence[float]) -> float:
    return statistics.median(ours / theirs for theirs, ours in zip(none, many, strict=True))


def _row(
    figure: str,
    none: Sequence[float],
    many: Sequence[float],
    limit: float,
    unit: str,
    note: str = "",
    ratios: Mapping[str, float] | None = None,
) -> Row:
    def words(values: Sequence[float]) -> str:
        value = statistics.median(values)
        return f"{value:,.0f}/s" if unit == "/s" else f"{value * 1000:.3g} ms"

    return Row(
        figure=figure,
        measured=_ratio(none, many),
        limit=limit,
        unit="×",
        at_least=unit == "/s",
        ours=words(many),
        reference=words(none),
        note=note,
        details={"none": list(none), "stored": list(many), **({"ratios": dict(ratios)} if ratios else {})},
    )


async def sides(bench: Bench, name: str, sizes: Sequence[int]) -> list[Side]:
    """Return a side for each number of stored payments, its database filled."""
    home = bench.directory(name)
    courses = await seed.run_courses(home / "courses")
    made = []
    for stored in sizes:
        bench.say(f"{name}: fills a database with {stored:,} payments")
        side = Side(home / str(stored), stored)
        (side.directory / "state").mkdir(parents=True)
        database = side.directory / "state" / "posd.db"
        make_key(database.with_name("callback.key"))
        await seed.fill(database, courses, stored + NEWEST, terminals=TERMINALS)
        made.append(side)
    return made


async def measure_sides(bench: Bench, measured: Sequence[Side]) -> None:
    """Take all figures of all sides, in turn."""
    await _measure_starts(bench, measured)
    async with AsyncExitStack() as stack:
        environment = as_installed(bench)
        shops = [
            await stack.enter_async_context(open_shop(side.directory, TERMINALS, environment)) for side in measured
        ]
        wires = [await till(shop.daemon.till_socket) for shop in shops]
        for wire in wires:
            stack.callback(wire.close)
        await _measure_look_ups(bench, measured, wires)
        await _measure_lists(bench, measured, wires, [await _lists_of_ended(shop) for shop in shops])
        opened = [await shop.start(TERMINALS) for shop in shops]
        of_open = {"open": f"open=true&limit={PAGE}", "phase": f"phase=active&limit={PAGE}"}
        await _measure_lists(bench, measured, wires, [of_open] * len(shops))
        for shop, payments in zip(shops, opened, strict=True):
            await _acknowledge(shop, payments)
        await _measure_acknowledgements(bench, measured, shops)


async def _measure_starts(bench: Bench, measured: Sequence[Side]) -> None:
    """From the start of the process until it says that it is ready, in seconds; everything is in the page cache."""
    daemons = []
    for side in measured:
        terminals = "".join(
            f'[[terminals]]\nserial = "SN-{number:04}"\nbase_url = "http://127.0.0.1:9"\n'
            for number in range(1, TERMINALS + 1)
        )
        tls.init(side.directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        daemons.append(Daemon(side.directory, toml(side.directory, terminals), environment=as_installed(bench)))
    rounds = bench.pick(20, 1)
    bench.say(f"starts, {rounds} rounds")
    for number in range(1 + rounds):
        for side, daemon in zip(measured, daemons, strict=True):
            begun = perf_counter()
            await daemon.start()
            taken = perf_counter() - begun
            await daemon.stop()
            if number:  # the first one reads what the others find in memory
                side.starts.append(taken)


async def _measure_look_ups(bench: Bench, measured: Sequence[Side], wires: Sequence[Wire]) -> None:
    """A till's GET of one payment, of any, by its id and by its metadata: the median of each round, in seconds."""
    rounds, calls, chance = bench.pick(9, 1), bench.pick(300, 10), Random(1)
    bench.say(f"look-ups, {rounds} rounds of {calls}")
    for _ in range(rounds):
        times: list[tuple[list[float], list[float]]] = [([], []) for _ in measured]
        for _ in range(calls):
            for side, wire, (by_id, by_metadata) in zip(measured, wires, times, strict=True):
                ago = chance.randint(1, side.stored + NEWEST)
                by_id.append(await _get(wire, seed.identity(ago)))
                by_metadata.append(await _get(wire, f"?metadata.ticket={seed.ticket(ago)}"))
        for side, (by_id, by_metadata) in zip(measured, times, strict=True):
            side.looked_up.append(statistics.median(by_id))
            side.by_metadata.append(statistics.median(by_metadata))


async def _lists_of_ended(shop: Shop) -> Mapping[str, str]:
    """Return a query for each filter, of which all that the newest payments can answer is the whole answer."""
    first = (await shop.daemon.call("GET", f"/transactions?limit={PAGE}")).json
    since, until = (quote(first["transactions"][place]["created_at"]) for place in (PAGE - 1, PAGE // 5))
    attention = seed.CYCLE
    return {
        "no filter": f"limit={PAGE}",
        "cursor": f"limit={PAGE}&cursor={first['next_cursor']}",
        "phase=final": f"phase=final&limit={PAGE}",
        "since and until": f"since={since}&until={until}&limit={PAGE}",
        "attention": f"attention=true&limit={NEWEST // seed.CYCLE}",
        "terminal": f"terminal={seed.terminal(1, TERMINALS)}&limit={NEWEST // TERMINALS}",
        "terminal and attention": f"terminal={seed.terminal(attention, TERMINALS)}&attention=true&limit=1",
        "sale": f"sale={seed.sale(1)}",
        "result": f"result=declined&limit={NEWEST // seed.CYCLE * seed.DECLINED_OF_CYCLE}",
        "result of none": "result=not_started",
        "metadata": f"metadata.ticket={seed.ticket(1)}",
        "metadata, a common key first": f"metadata.till=2&metadata.ticket={seed.ticket(1)}",
    }


async def _measure_lists(
    bench: Bench, measured: Sequence[Side], wires: Sequence[Wire], queries: Sequence[Mapping[str, str]]
) -> None:
    """A till's GET of a page, for each filter: the median of each round, in seconds."""
    rounds = bench.pick(7, 1)
    for name in queries[0]:
        calls = bench.pick(20, 2)
        bench.say(f"list by {name}, {rounds} rounds of {calls}")
        for side in measured:
            side.lists[name] = []
        for _ in range(rounds):
            times: list[list[float]] = [[] for _ in measured]
            for _ in range(calls):
                for wire, asked, taken in zip(wires, queries, times, strict=True):
                    taken.append(await _get(wire, f"?{asked[name]}"))
            for side, taken in zip(measured, times, strict=True):
                side.lists[name].append(statistics.median(taken))


async def _get(wire: Wire, path: str) -> float:
    slash = "" if path.startswith("?") else "/"
    begun = wire.send(f"GET /v1/transactions{slash}{path} HTTP/1.1\r\nhost: posd\r\n\r\n".encode())
    return await wire.answer(200) - begun


async def _measure_acknowledgements(bench: Bench, measured: Sequence[Side], shops: Sequence[Shop]) -> None:
    """Events of payments that are open, over all connections: how many a second of each round."""
    rounds, batches = bench.pick(9, 1), bench.pick(4, 1)
    bench.say(f"acknowledgements, {rounds} rounds of {batches * TERMINALS} payments")
    for _ in range(rounds):
        seconds = [0.0] * len(shops)
        for _ in range(batches):
            for place, shop in enumerate(shops):
                seconds[place] += await _acknowledge(shop, await shop.start(TERMINALS))
        for side, taken in zip(measured, seconds, strict=True):
            side.acknowledged.append(batches * TERMINALS * len(APPROVED) / taken)


async def _acknowledge(shop: Shop, payments: Sequence[Payment]) -> float:
    """Send all events of the payments; return how many seconds that took."""
    load = await send(shop.daemon.port, trusting(shop.daemon.ca), lanes(payments, TERMINALS))
    return load.all_are(200).seconds
