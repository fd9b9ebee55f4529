"""The quick run (--quick): ratios that a busy machine can tell, against those of tests/bench/reference.json.

What is judged is processor time, memory and what is written to the disk: another process on the machine changes a rate,
and changes these little. Rates and times are shown beside them.
"""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.bench import reference
from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.machine import about
from tests.bench.measures.acknowledgements import HYPERCORN, LISTENER, POSD, Field, Tally, open_field, waves
from tests.bench.measures.flash import KIB, record
from tests.bench.measures.memory import MIB, TERMINALS
from tests.bench.measures.payments import JUDGED, pay_each
from tests.bench.measures.starting import BARE, first_line, prepare, service_manager, start
from tests.bench.processes import quiet, resident_bytes
from tests.bench.program import Program
from tests.bench.reference import Ratio
from tests.bench.shop import Shop, open_shop

#: Waves of events in a round, by connections.
WAVES = {16: 4, 64: 4, 1: 2}
#: Payments in a round: of those whose processor time is measured, and of those that are recorded.
PAYMENTS, RECORDED = 30, 12
YARDSTICKS = (HYPERCORN, LISTENER)

_MILLI, _MICRO = 1e3, 1e6
#: Columns of the table in a pipe or a file.
_PLAIN_COLUMNS = 160


async def run(bench: Bench, *, keep: bool) -> int:
    """Measure and compare; return the exit code: 1 where a ratio is worse by more than a quarter."""
    begun = time.monotonic()
    measured = await measure(bench)
    stored = reference.read()
    _show(measured, stored)
    if keep:
        about_it = about(bench.sync_seconds)
        versions = {name: str(about_it[name]) for name in ("python", "sqlite", "openssl", "processor")}
        reference.write(measured, versions)
        print(f"stored in tests/bench/{reference.FILE.name}")
        return 0
    found = reference.complaints(measured, stored)
    if found:
        bench.say("quick: what is worse is measured once more, and counts if it is worse again")
        again = await measure(replace(bench, home=bench.directory("again")))
        measured = [first.better(second) for first, second in zip(measured, again, strict=True)]
        _show(measured, stored)
        found = reference.complaints(measured, stored)
    for line in found:
        print(line)
    print(f"{len(found)} of {len(stored)} ratios are worse by more than a quarter; {time.monotonic() - begun:.0f} s")
    return 1 if found else 0


async def measure(bench: Bench) -> list[Ratio]:
    """Return all ratios, of five rounds in which everything takes its turn."""
    started = await _starts(bench)
    recorded, _ = await record(bench, "quick", bench.pick(RECORDED, 2))
    async with AsyncExitStack() as stack:
        idle = [
            await stack.enter_async_context(
                open_shop(bench.directory(f"idle/{number}"), TERMINALS, as_installed(bench), "enabled = true")
            )
            for number in bench.rounds()
        ]
        field = await stack.enter_async_context(open_field(bench, "field"))
        payments = bench.pick(PAYMENTS, 2)
        shop = await stack.enter_async_context(open_shop(bench.directory("paying"), payments, secure=JUDGED.secure))
        ratios = await _rounds(bench, field, shop)
        for item in idle:
            await quiet(item.pid)
        sizes = [resident_bytes(item.pid) for item in idle]
    return [
        *ratios,
        Ratio("syncs of a payment", [sum(span.syncs for span in spent) / len(spent) for spent in recorded]),
        Ratio(
            "KiB written for a payment", [sum(span.blocks for span in spent) / len(spent) / KIB for spent in recorded]
        ),
        Ratio(
            "idle memory, by the bare imports'",
            [size / bare for size, (_, (_, bare)) in zip(sizes, started, strict=True)],
        ),
        Ratio("idle memory, MB", [size / MIB for size in sizes], judged=False),
        Ratio("processor time from start to ready, by the bare imports'", [ours / bare for ours, (bare, _) in started]),
    ]


async def _starts(bench: Bench) -> list[tuple[float, tuple[float, int]]]:
    """Return the processor seconds of a start, those of the bare imports, and how many bytes these take."""
    directory = bench.directory("starting")
    config, _ = prepare(directory)
    environment = Program().environment(as_installed(bench))
    found = []
    with service_manager(directory) as manager:
        for number in bench.rounds(warm=True):
            bench.say(f"quick: start, round {number}")
            ours = await start(config, environment, manager)
            bare = await first_line(environment, "-c", BARE)
            if number:  # the first one writes the bytecode
                found.append((ours.processor, (bare.processor, bare.resident)))
    return found


async def _rounds(bench: Bench, field: Field, shop: Shop) -> list[Ratio]:
    rounds: list[tuple[dict[int, dict[str, Tally]], float]] = []
    for number in bench.rounds(warm=True):
        bench.say(f"quick: events and payments, round {number}")
        found = {
            connections: await waves(field, connections, bench.pick(count, 1)) for connections, count in WAVES.items()
        }
        payment = await pay_each(shop, kept=JUDGED.kept)
        if number:
            rounds.append((found, payment))
    ratios = []
    for connections in WAVES:
        over = f"over {connections} connection{'s' * (connections > 1)}"
        for name in YARDSTICKS:
            pairs = [(found[connections][POSD], found[connections][name]) for found, _ in rounds]
            ratios += [
                Ratio(
                    f"processor time of an event {over}, by that of the {name}",
                    [_by_wave(ours, theirs) for ours, theirs in pairs],
                    judged=connections > 1,  # alone, a slow sync and cold caches cost as much again
                ),
                Ratio(
                    f"time of an event {over}, by that of the {name}",
                    [theirs.per_second / ours.per_second for ours, theirs in pairs],
                    judged=False,
                ),
            ]
    requests = [found[64][HYPERCORN].processor_us / _MICRO for found, _ in rounds]
    return [
        *ratios,
        Ratio(
            f"processor time of a whole payment, by a request of the {HYPERCORN}",
            [payment / request for (_, payment), request in zip(rounds, requests, strict=True)],
        ),
        Ratio("processor time of a whole payment, ms", [payment * _MILLI for _, payment in rounds], judged=False),
    ]


def _by_wave(ours: Tally, theirs: Tally) -> float:
    """Return the median of the ratios of waves that followed each other: a disturbance of one wave does not count."""
    return median(one / other for one, other in zip(ours.each_us, theirs.each_us, strict=True))


def _show(measured: Sequence[Ratio], stored: dict[str, float]) -> None:
    table = Table("", "min", "median", "max", "reference", "change", box=None, pad_edge=False)
    for ratio in measured:
        change = ratio.change(stored)
        table.add_row(
            ratio.name,
            *(f"{value:.3g}" for value in (min(ratio.rounds), ratio.measured, max(ratio.rounds))),
            f"{stored[ratio.name]:.3g}" if ratio.name in stored else "",
            "" if change is None else f"{change:+.0%}",
        )
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PLAIN_COLUMNS
    console.print(table)
