"""A million stored payments against none: start, memory, acknowledgements, look-up of one, lists, totals."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from urllib.parse import quote

from posd.base.times import iso
from posd.records.callback_urls import make_key
from tests.bench import seed
from tests.bench.bench import Bench
from tests.bench.measures.acknowledgements import POSD, TERMINALS, Field, waves
from tests.bench.measures.starting import prepare, service_manager, start
from tests.bench.processes import MIB, on_one_core, quiet, resident_bytes
from tests.bench.shop import Shop, open_shop
from tests.bench.table import Row, ratios
from tests.bench.wire import Wire, till

#: What "none" has: the newest payments of the other, so that both answer the same page, or the same one.
NEWEST = 100
#: Rows of a page where that many are there on both sides.
PAGE = 50
#: The figures of which less is better, by their names: by how many times the other side's may be.
TIMES = {"look-up of one": 1.2, "list by metadata": 2.0, "list page, the worst of other filters": 2.0}
#: Read of a file at once, in bytes.
_PIECE = 1 << 20


@dataclass
class Side:
    """A daemon over so many stored payments, in a directory of its own, and what each round has found by name."""

    directory: Path
    stored: int
    found: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def database(self) -> Path:
        """Its database."""
        return self.directory / "state" / "posd.db"


@dataclass(frozen=True)
class _Open:
    """A daemon of a side in one round, and a till's connection to it."""

    side: Side
    shop: Shop
    wire: Wire

    async def get(self, path: str) -> float:
        """GET as a till does; return the seconds until the answer was whole."""
        begun = self.wire.send(f"GET /v1/transactions{path} HTTP/1.1\r\nhost: posd\r\n\r\n".encode())
        return await self.wire.answer(200) - begun


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure one against the other, in turn, each round with daemons of its own."""
    sides = await _filled(bench, [0, bench.pick(1_000_000, 500)])
    chance = Random(1)
    for number in bench.rounds(warm=True):
        bench.say(f"stored: round {number}")
        for side in sides:
            side.found["start"].append(await _start(bench, side))
        async with AsyncExitStack() as stack:
            opened = []
            for side in sides:
                shop = await stack.enter_async_context(open_shop(side.directory, TERMINALS, bench.as_installed()))
                wire = await till(shop.daemon.till_socket)
                stack.callback(wire.close)
                opened.append(_Open(side, shop, wire))
                _into_cache(side.database)
            await _look_up(bench, opened, chance)
            await _list(bench, opened)
            for item in opened:
                waved = await waves(Field(item.shop, {}), TERMINALS, bench.pick(16, 1))
                item.side.found["acknowledgements"].append(waved[POSD].per_second)
            for item in opened:
                await quiet(item.shop.pid)
                item.side.found["memory"].append(resident_bytes(item.shop.pid) / MIB)
        if number == 0:  # it has read what the others find in memory
            for side in sides:
                side.found.clear()
    return _rows(sides[0], sides[1])


def _rows(none: Side, many: Side) -> Sequence[Row]:
    against = f"{many.stored:,} stored payments against none"

    def more(name: str, figure: str, limit: float, unit: str) -> Row:
        ours, theirs = many.found[name], none.found[name]
        differences = [one - other for one, other in zip(ours, theirs, strict=True)]
        words = [f"{median(values):.3g} {unit}" for values in (ours, theirs)]
        return Row(f"{against}: {figure}", differences, limit, unit, False, *words)

    def times(name: str, limit: float) -> Row:
        others = [item for item in many.found if item.startswith("list: ")]
        worst = max(others, key=lambda item: median(ratios(many.found[item], none.found[item])))
        key = worst if name not in many.found else name
        ours, theirs = many.found[key], none.found[key]
        words = [f"{median(values) * 1000:.3g} ms" for values in (ours, theirs)]
        return Row(f"{against}: {name}", ratios(ours, theirs), limit, "×", False, *words)

    rates = [side.found["acknowledgements"] for side in (many, none)]
    totals = [seconds * 1000 for seconds in many.found["totals"]]
    return [
        more("start", "start to ready, seconds more", 0.3, "s"),
        more("memory", "resident memory more, after all that the other rows ask of it", 5.0, "MB"),
        Row(
            f"{against}: acknowledgements a second, {TERMINALS} connections",
            ratios(*rates),
            0.9,
            "×",
            True,
            *(f"{median(values):,.0f}/s" for values in rates),
        ),
        *(times(name, limit) for name, limit in TIMES.items()),
        Row(
            f"{many.stored:,} stored payments: totals of a day, over 2,000 payments",
            totals,
            50.0,
            "ms",
            False,
            f"{median(totals):.3g} ms",
        ),
    ]


async def _filled(bench: Bench, sizes: Sequence[int]) -> list[Side]:
    """Return a side for each number of stored payments, its database filled."""
    home = bench.directory("stored")
    courses = await seed.run_courses(home / "courses")
    made = []
    for stored in sizes:
        bench.say(f"stored: fills a database with {stored:,} payments")
        side = Side(home / str(stored), stored)
        side.database.parent.mkdir(parents=True)
        make_key(side.database.with_name("callback.key"))
        await seed.fill(side.database, courses, stored + NEWEST, terminals=TERMINALS)
        made.append(side)
    return made


async def _start(bench: Bench, side: Side) -> float:
    """Return how long the daemon takes until it says that it is ready: the median of some starts."""
    numbers = range(1, TERMINALS + 1)
    config = prepare(
        side.directory,
        "".join(f'[[terminals]]\nserial = "SN-{item:04}"\nbase_url = "http://127.0.0.1:9"\n' for item in numbers),
    )
    with service_manager(side.directory) as manager:
        taken = [(await start(config, bench.as_installed(), manager)).seconds for _ in range(bench.pick(3, 1))]
    return median(taken)


def _into_cache(file: Path) -> None:
    """Have the system keep a whole file in memory, where it has the room: what is new there has gone in part."""
    with file.open("rb", buffering=0) as stream:
        while stream.read(_PIECE):
            pass


async def _look_up(bench: Bench, opened: Sequence[_Open], chance: Random) -> None:
    """A till's GET of one payment, of any, by its id: some of one side, then of the other, both on one core.

    Two cores of a virtual machine are not always as fast as each other, and a daemon stays where it is for seconds.
    """
    times: list[list[float]] = [[] for _ in opened]
    with on_one_core([item.shop.pid for item in opened]):
        for _ in range(bench.pick(12, 2)):
            for item, taken in zip(opened, times, strict=True):
                for _ in range(bench.pick(25, 5)):
                    identity = seed.identity(chance.randint(1, item.side.stored + NEWEST))
                    taken.append(await item.get(f"/{identity}"))
    for item, taken in zip(opened, times, strict=True):
        item.side.found["look-up of one"].append(median(taken))


async def _queries(shop: Shop) -> Mapping[str, str]:
    """Return a query for each filter, of which all that the newest payments can answer is the whole answer."""
    first = (await shop.daemon.call("GET", f"/transactions?limit={PAGE}")).json
    since, until = (quote(first["transactions"][place]["created_at"]) for place in (PAGE - 1, PAGE // 5))
    attention = seed.terminal(seed.CYCLE, TERMINALS)
    lists = {
        "no filter": f"limit={PAGE}",
        "cursor": f"limit={PAGE}&cursor={first['next_cursor']}",
        "phase=final": f"phase=final&limit={PAGE}",
        "since and until": f"since={since}&until={until}&limit={PAGE}",
        "attention": f"attention=true&limit={NEWEST // seed.CYCLE}",
        "terminal": f"terminal={seed.terminal(1, TERMINALS)}&limit={NEWEST // TERMINALS}",
        "terminal and attention": f"terminal={attention}&attention=true&limit=1",
        "sale": f"sale={seed.sale(1)}",
        "result": f"result=declined&limit={NEWEST // seed.CYCLE * seed.DECLINED_OF_CYCLE}",
        "result of none": "result=not_started",
        "open": f"open=true&limit={PAGE}",
        "phase=active": f"phase=active&limit={PAGE}",
    }
    day = quote(iso(datetime.now(UTC) - timedelta(days=1)))
    return {f"list: {name}": query for name, query in lists.items()} | {
        "list by metadata": f"metadata.till=2&metadata.ticket={seed.ticket(1)}",
        "totals": f"since={day}&totals=true&limit=1",
    }


async def _list(bench: Bench, opened: Sequence[_Open]) -> None:
    """A till's GET of a page, for each filter; of each terminal a payment is open."""
    queries = [await _queries(item.shop) for item in opened]
    waiting = [await item.shop.start(TERMINALS) for item in opened]
    for name in queries[0]:
        times: list[list[float]] = [[] for _ in opened]
        for _ in range(bench.pick(20, 2)):
            for item, asked, taken in zip(opened, queries, times, strict=True):
                taken.append(await item.get(f"?{asked[name]}"))
        for item, taken in zip(opened, times, strict=True):
            item.side.found[name].append(median(taken))
    for item, payments in zip(opened, waiting, strict=True):
        await item.shop.end(payments)
