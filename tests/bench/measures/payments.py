"""What a whole payment costs the daemon in processor time, against an earlier version's (--before).

A payment is a start, its terminal's acknowledgement and four events, the outcome at a till that waits, and the changes
in the feed that another program reads. What is counted is the time of all the daemon's threads.
"""

import asyncio
import json
import ssl
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from uuid import uuid4

from tests.bench.bench import Bench
from tests.bench.load import trusting
from tests.bench.processes import processor_seconds, quiet
from tests.bench.program import Program
from tests.bench.rows import Row
from tests.bench.shop import AMOUNT, Payment, Shop, open_shop
from tests.bench.wire import Wire, call, till

#: By an earlier version's.
LIMIT = 0.6
#: How often each version has its turn in a round, and the payments of a turn.
TURNS, PAYMENTS = 4, 15
#: After each step of a payment, in seconds: in a shop the next one is seconds away and shares no work with it.
PAUSE_SECONDS = 0.003
FEED = b"GET /v1/feed HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n\r\n"

_MILLI = 1000

#: Milliseconds of each turn, by round.
Rounds = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Flavour:
    """How posd calls a terminal, and whether a terminal keeps its connection for all its callbacks."""

    secure: bool
    kept: bool

    def __str__(self) -> str:
        scheme = "https" if self.secure else "http"
        return f"{scheme} terminals, callbacks over {'one kept connection' if self.kept else 'a fresh connection each'}"


JUDGED = Flavour(secure=True, kept=True)
FLAVOURS = (JUDGED, *(Flavour(secure, kept) for secure, kept in ((True, False), (False, True), (False, False))))
OURS, BEFORE = "this version", "the earlier version"


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure each flavour in turn, and with --before the same of the earlier version."""
    programs = {OURS: Program()} | ({BEFORE: Program(tree=bench.before)} if bench.before else {})
    found = await compare(bench, "payments", programs, FLAVOURS)
    ours = {flavour: means(found[OURS, flavour]) for flavour in FLAVOURS}
    theirs = {flavour: means(found[BEFORE, flavour]) for flavour in FLAVOURS} if bench.before else {}
    ratios = {flavour: by_turn(found[OURS, flavour], found[BEFORE, flavour]) for flavour in theirs}
    others = [flavour for flavour in FLAVOURS if flavour != JUDGED]
    note = "; ".join(_words(flavour, ours[flavour], theirs.get(flavour), ratios.get(flavour)) for flavour in others)
    return [
        Row(
            figure=f"processor time of a whole payment ({JUDGED})" + (f", by {BEFORE}'s" if theirs else ""),
            rounds=ratios[JUDGED] if theirs else ours[JUDGED],
            limit=LIMIT if theirs else None,
            unit="×" if theirs else "ms",
            at_least=False,
            ours=f"{statistics.median(ours[JUDGED]):.2f} ms",
            reference=f"{statistics.median(theirs[JUDGED]):.2f} ms" if theirs else "",
            note=note,
            details={
                "ms": {str(flavour): values for flavour, values in ours.items()},
                "ms_before": {str(flavour): values for flavour, values in theirs.items()},
                "ratios": {str(flavour): values for flavour, values in ratios.items()},
            },
        )
    ]


def means(rounds: Rounds) -> list[float]:
    """Return what a payment took in each round."""
    return [statistics.fmean(turns) for turns in rounds]


def by_turn(ours: Rounds, theirs: Rounds) -> list[float]:
    """Return the median ratio of each round's turns: what disturbs one turn does not count."""
    return [
        statistics.median(one / other for one, other in zip(*turns, strict=True))
        for turns in zip(ours, theirs, strict=True)
    ]


def _words(
    flavour: Flavour, ours: Sequence[float], theirs: Sequence[float] | None, ratios: Sequence[float] | None
) -> str:
    said = f"{flavour}: {statistics.median(ours):.2f} ms"
    if theirs is None or ratios is None:
        return said
    return f"{said} by {statistics.median(theirs):.2f} ms, {statistics.median(ratios):.2f} ×"


async def compare(
    bench: Bench, name: str, programs: Mapping[str, Program], flavours: Sequence[Flavour]
) -> dict[tuple[str, Flavour], list[list[float]]]:
    """Return the milliseconds of a payment in each turn of each round, of each program and flavour."""
    count = bench.pick(PAYMENTS, 2)
    async with AsyncExitStack() as stack:
        shops: dict[tuple[str, bool], Shop] = {}
        for program in programs:
            await programs[program].check()
            for secure in {flavour.secure for flavour in flavours}:
                directory = bench.directory(f"{name}/{len(shops)}")
                shop = open_shop(directory, count, secure=secure, program=programs[program])
                shops[program, secure] = await stack.enter_async_context(shop)
        found: dict[tuple[str, Flavour], list[list[float]]] = {}
        for number in bench.rounds(warm=True):
            bench.say(f"payments, round {number}")
            for flavour in flavours:
                taken: dict[str, list[float]] = {program: [] for program in programs}
                for turn in range(bench.pick(TURNS, 1)):
                    for program in list(programs) if turn % 2 else reversed(list(programs)):
                        seconds = await pay_each(shops[program, flavour.secure], kept=flavour.kept)
                        taken[program].append(seconds * _MILLI)
                if number:
                    for program, values in taken.items():
                        found.setdefault((program, flavour), []).append(values)
        return found


async def pay_each(shop: Shop, *, kept: bool) -> float:
    """Run a payment on each terminal, one after the other; return the daemon's processor seconds for each."""
    context = trusting(shop.daemon.ca)
    own, waiter, feed = [await till(shop.daemon.till_socket) for _ in range(3)]
    lan = await _lan(shop, context)
    await quiet(shop.pid)
    used = processor_seconds(shop.pid)
    feed.send(FEED)
    reading = asyncio.create_task(feed.discard())
    try:
        for serial in shop.serials:
            identity = str(uuid4())
            own.send(call("PUT", identity, json.dumps({"terminal": serial, "amount": AMOUNT}).encode()))
            await own.answer(201)
            _, path = shop.terminals.arrived.pop(identity)
            await asyncio.sleep(PAUSE_SECONDS)
            waiter.send(call("GET", f"{identity}/outcome"))
            await asyncio.sleep(PAUSE_SECONDS)
            for event in Payment(identity, serial, path).events():
                if kept:
                    lan.send(event)
                    await lan.answer(200)
                else:
                    once = await _lan(shop, context)
                    once.send(event)
                    await once.answer(200)
                    await once.end()
            await waiter.answer(200)
            await asyncio.sleep(PAUSE_SECONDS)
        await quiet(shop.pid)
        return (processor_seconds(shop.pid) - used) / len(shop.serials)
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        for wire in (own, waiter, feed, lan):
            wire.close()


async def _lan(shop: Shop, context: ssl.SSLContext) -> Wire:
    return Wire(await asyncio.open_connection("127.0.0.1", shop.daemon.port, ssl=context))
