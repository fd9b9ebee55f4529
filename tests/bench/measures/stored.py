"""A million stored payments against none: start, memory, acknowledgements, look-up of one, every list, totals."""

import asyncio
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from urllib.parse import quote

from posd.base.times import iso
from posd.records.callback_urls import make_key
from tests.bench import growth, seed
from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.load import connected
from tests.bench.measures.starting import prepare, service_manager, start
from tests.bench.processes import KIB, on_one_core, quiet, resident_bytes
from tests.bench.program import Program
from tests.bench.rows import Row
from tests.bench.shop import Shop, open_shop
from tests.bench.side import NEWEST, TERMINALS, Side
from tests.bench.wire import Wire, till

MIB = 1024 * KIB
#: Rows of a page where that many are there on both sides.
PAGE = 50
#: Stored payments of the other points of the plot.
BETWEEN = (10_000, 100_000)
#: Filters that name metadata: of these alone the worst has a row of its own.
BY_METADATA = ("metadata", "metadata, a common key first")

_MILLI = 1000
_IN_CACHE = "the system has the whole file in its cache"
#: Read of a file at once, in bytes.
_PIECE = 1 << 20


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure one against the other, in turn; where plots are wanted, with sizes between, which one of them shows."""
    between = () if bench.plots is None or bench.short else BETWEEN
    measured = await sides(bench, "stored", [0, *between, bench.pick(1_000_000, 500)])
    await measure_sides(bench, measured)
    if bench.plots is not None:
        growth.write(bench.plots / "growth.svg", measured)
    return _rows(measured[0], measured[-1])


def _rows(none: Side, many: Side) -> Sequence[Row]:
    ratios = {name: _ratios(none.lists[name], many.lists[name]) for name in many.lists}
    by_metadata = max(BY_METADATA, key=lambda name: statistics.median(ratios[name]))
    others = [name for name in ratios if name not in BY_METADATA]
    worst = max(others, key=lambda name: statistics.median(ratios[name]))
    against = f"{many.stored:,} stored payments against none"
    newest = f"both have the newest {NEWEST}, which is what is asked for"
    every = {"ratios": ratios}
    return [
        Row(
            figure=f"{against}: start to ready, seconds more",
            rounds=[ours - theirs for theirs, ours in zip(none.starts, many.starts, strict=True)],
            limit=growth.STARTS_LATER,
            unit="s",
            at_least=False,
            ours=_milliseconds(many.starts),
            reference=_milliseconds(none.starts),
            details={"none_s": none.starts, "stored_s": many.starts},
        ),
        Row(
            figure=f"{against}: resident memory more",
            rounds=[ours - theirs for theirs, ours in zip(none.worked, many.worked, strict=True)],
            limit=5.0,
            unit="MB",
            at_least=False,
            ours=f"{statistics.median(many.worked):.1f} MB",
            reference=f"{statistics.median(none.worked):.1f} MB",
            note=(
                "after all that the other rows ask of it; before that "
                f"{statistics.median(many.idle):.1f} against {statistics.median(none.idle):.1f} MB"
            ),
            details={"none": [none.idle, none.worked], "stored": [many.idle, many.worked]},
        ),
        Row(
            figure=f"{against}: acknowledgements a second, {TERMINALS} connections",
            rounds=_ratios(none.acknowledged, many.acknowledged),
            limit=0.9,
            unit="×",
            at_least=True,
            ours=f"{statistics.median(many.acknowledged):,.0f}/s",
            reference=f"{statistics.median(none.acknowledged):,.0f}/s",
            note=_IN_CACHE,
            details={"none": none.acknowledged, "stored": many.acknowledged},
        ),
        _times(
            f"{against}: look-up of one",
            none.looked_up,
            many.looked_up,
            1.2,
            f"any of them, in random order; {_IN_CACHE}",
        ),
        Row(
            figure=f"{many.stored:,} stored payments: look-up of one whose pages are on the disk alone",
            rounds=[seconds * _MILLI for seconds in many.from_disk],
            limit=None,
            unit="ms",
            at_least=False,
            ours=_milliseconds(many.from_disk),
            reference=_milliseconds(many.looked_up),
            note="against the same from the system's cache",
        ),
        _times(
            f"{against}: list by metadata, the worse of {len(BY_METADATA)}",
            none.lists[by_metadata],
            many.lists[by_metadata],
            2.0,
            f"worse: {by_metadata}; {newest}",
        ),
        _times(
            f"{against}: list page, the worst of {len(others)} other filters",
            none.lists[worst],
            many.lists[worst],
            2.0,
            f"worst: {worst}; {newest}",
            every,
        ),
        Row(
            figure=f"{many.stored:,} stored payments: totals of a day",
            rounds=[seconds * _MILLI for seconds in many.totals],
            limit=50.0,
            unit="ms",
            at_least=False,
            ours=_milliseconds(many.totals),
            note="a list of one row with the totals of the newest 24 hours, over 2,000 payments",
        ),
    ]


def _ratios(none: Sequence[float], many: Sequence[float]) -> list[float]:
    return [ours / theirs for theirs, ours in zip(none, many, strict=True)]


def _milliseconds(values: Sequence[float]) -> str:
    return f"{statistics.median(values) * _MILLI:.3g} ms"


def _times(
    figure: str,
    none: Sequence[float],
    many: Sequence[float],
    limit: float,
    note: str,
    more: Mapping[str, object] | None = None,
) -> Row:
    return Row(
        figure=figure,
        rounds=_ratios(none, many),
        limit=limit,
        unit="×",
        at_least=False,
        ours=_milliseconds(many),
        reference=_milliseconds(none),
        note=note,
        details={"none_s": list(none), "stored_s": list(many), **(more or {})},
    )


async def sides(bench: Bench, name: str, sizes: Sequence[int]) -> list[Side]:
    """Return a side for each number of stored payments, its database filled."""
    home = bench.directory(name)
    courses = await seed.run_courses(home / "courses")
    made = []
    for stored in sizes:
        bench.say(f"{name}: fills a database with {stored:,} payments")
        side = Side(home / str(stored), stored)
        side.database.parent.mkdir(parents=True)
        make_key(side.database.with_name("callback.key"))
        await seed.fill(side.database, courses, stored + NEWEST, terminals=TERMINALS)
        made.append(side)
    return made


@dataclass(frozen=True)
class _Open:
    """A daemon of a side in one round, and a till's connection to it."""

    side: Side
    shop: Shop
    wire: Wire


async def measure_sides(bench: Bench, measured: Sequence[Side]) -> None:
    """Take all figures of all sides, in turn, each round with daemons of its own."""
    chance = Random(1)
    for number in bench.rounds(warm=True):
        bench.say(f"stored: round {number}")
        await _start(bench, measured)
        async with AsyncExitStack() as stack:
            opened = []
            for side in measured:
                shop = await stack.enter_async_context(open_shop(side.directory, TERMINALS, as_installed(bench)))
                wire = await till(shop.daemon.till_socket)
                stack.callback(wire.close)
                opened.append(_Open(side, shop, wire))
            for side in measured:
                _into_cache(side.database)
            await asyncio.sleep(bench.pick(3, 0))
            _note_memory(opened, "idle")
            await _look_up(bench, opened, chance)
            await _list(bench, opened, [await _lists_of_ended(item.shop) for item in opened])
            await _total(bench, opened)
            await _acknowledge(bench, opened)
            for item in opened:
                await quiet(item.shop.pid)
            _note_memory(opened, "worked")
            await _look_up_from_disk(bench, opened[-1], chance)
        if number == 0:  # it has read what the others find in memory
            for side in measured:
                for values in (side.starts, side.acknowledged, side.looked_up, side.from_disk, side.totals):
                    values.clear()
                side.idle.clear()
                side.worked.clear()
                side.lists.clear()


def _note_memory(opened: Sequence[_Open], when: str) -> None:
    for item in opened:
        getattr(item.side, when).append(resident_bytes(item.shop.pid) / MIB)


async def _start(bench: Bench, measured: Sequence[Side]) -> None:
    """From the start of the process until it says that it is ready: the median of some."""
    terminals = "".join(
        f'[[terminals]]\nserial = "SN-{number:04}"\nbase_url = "http://127.0.0.1:9"\n'
        for number in range(1, TERMINALS + 1)
    )
    environment = Program().environment(as_installed(bench))
    taken: list[list[float]] = [[] for _ in measured]
    for _ in range(bench.pick(3, 1)):
        for side, times in zip(measured, taken, strict=True):
            config, _ = prepare(side.directory, terminals)
            with service_manager(side.directory) as manager:
                times.append((await start(config, environment, manager)).seconds)
    for side, times in zip(measured, taken, strict=True):
        side.starts.append(statistics.median(times))


async def _look_up(bench: Bench, opened: Sequence[_Open], chance: Random) -> None:
    """A till's GET of one payment, of any, by its id: some of one side, then of the next, all sides on one core.

    Two cores of a virtual machine are not always as fast as each other, and a daemon stays where it is for seconds.
    """
    times: list[list[float]] = [[] for _ in opened]
    with on_one_core([item.shop.pid for item in opened]):
        for _ in range(bench.pick(12, 2)):
            for item, taken in zip(opened, times, strict=True):
                for _ in range(bench.pick(25, 5)):
                    taken.append(await _get_any(item, chance))
    for item, taken in zip(opened, times, strict=True):
        item.side.looked_up.append(statistics.median(taken))


async def _look_up_from_disk(bench: Bench, item: _Open, chance: Random) -> None:
    """The same where the system has to read what posd asks for: each time it forgets the file before."""
    taken = []
    for _ in range(bench.pick(30, 3)):
        _out_of_cache(item.side.database)
        taken.append(await _get_any(item, chance))
    item.side.from_disk.append(statistics.median(taken))


async def _get_any(item: _Open, chance: Random) -> float:
    return await _get(item.wire, f"/{seed.identity(chance.randint(1, item.side.stored + NEWEST))}")


def _into_cache(file: Path) -> None:
    """Have the system keep a whole file in memory, where it has the room: what is new there has gone in part."""
    with file.open("rb", buffering=0) as stream:
        while stream.read(_PIECE):
            pass


def _out_of_cache(file: Path) -> None:
    """Have the system forget what it keeps of a file in memory."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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
        BY_METADATA[0]: f"metadata.ticket={seed.ticket(1)}",
        BY_METADATA[1]: f"metadata.till=2&metadata.ticket={seed.ticket(1)}",
        "open": f"open=true&limit={PAGE}",
        "phase=active": f"phase=active&limit={PAGE}",
    }


async def _list(bench: Bench, opened: Sequence[_Open], queries: Sequence[Mapping[str, str]]) -> None:
    """A till's GET of a page, for each filter; of each terminal a payment is open."""
    waiting = [await item.shop.start(TERMINALS) for item in opened]
    for name in queries[0]:
        times: list[list[float]] = [[] for _ in opened]
        for _ in range(bench.pick(20, 2)):
            for item, asked, taken in zip(opened, queries, times, strict=True):
                taken.append(await _get(item.wire, f"?{asked[name]}"))
        for item, taken in zip(opened, times, strict=True):
            item.side.lists.setdefault(name, []).append(statistics.median(taken))
    for item, payments in zip(opened, waiting, strict=True):
        await item.shop.end(payments)


async def _total(bench: Bench, opened: Sequence[_Open]) -> None:
    """The totals of the newest day."""
    times: list[list[float]] = [[] for _ in opened]
    for _ in range(bench.pick(10, 2)):
        since = quote(iso(datetime.now(UTC) - timedelta(days=1)))
        for item, taken in zip(opened, times, strict=True):
            taken.append(await _get(item.wire, f"?since={since}&totals=true&limit=1"))
    for item, taken in zip(opened, times, strict=True):
        item.side.totals.append(statistics.median(taken))


async def _get(wire: Wire, path: str) -> float:
    begun = wire.send(f"GET /v1/transactions{path} HTTP/1.1\r\nhost: posd\r\n\r\n".encode())
    return await wire.answer(200) - begun


async def _acknowledge(bench: Bench, opened: Sequence[_Open]) -> None:
    """Events of a payment of each terminal, over as many connections: how many a second."""
    seconds, answers = [0.0] * len(opened), 0
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(connected(item.shop.server, TERMINALS)) for item in opened]
        turns = list(enumerate(opened))
        for _ in range(bench.pick(16, 1)):
            turns.reverse()
            for place, item in turns:
                chains = [payment.events() for payment in await item.shop.start(TERMINALS)]
                await quiet(item.shop.pid)
                load = (await senders[place].send(chains)).all_are(200)
                seconds[place] += load.seconds
            answers += len(load.latencies)
    for item, taken in zip(opened, seconds, strict=True):
        item.side.acknowledged.append(answers / taken)
