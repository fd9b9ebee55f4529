"""The quick run (--quick): ratios that a busy machine can tell, against those of tests/bench/reference.json.

What is judged is processor time, memory and what is written to the disk: another process on the machine changes a rate,
and changes these little.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median

from tests.bench import reference
from tests.bench.bench import Bench
from tests.bench.machine import versions
from tests.bench.measures.acknowledgements import HYPERCORN, LISTENER, POSD, open_field, waves
from tests.bench.measures.memory import open_shops
from tests.bench.measures.starting import starts
from tests.bench.paying import pay_each
from tests.bench.processes import quiet, resident_bytes
from tests.bench.reference import Ratios
from tests.bench.shop import open_shop
from tests.bench.written import record

#: Waves of events in a round, by connections.
WAVES = {16: 4, 64: 4}
#: Payments in a round: of those whose processor time is measured, and of those that are recorded.
PAYMENTS, RECORDED = 30, 12


async def run(bench: Bench, *, keep: bool) -> int:
    """Measure and compare; return the exit code: 1 where a ratio is worse by more than a quarter."""
    begun = time.monotonic()
    measured = await measure(bench)
    if keep:
        reference.write(measured, versions())
        print(f"stored in tests/bench/{reference.FILE.name}")
        return 0
    stored = reference.read()
    _show(measured, stored)
    found = reference.complaints(measured, stored)
    if found:
        bench.say("quick: what is worse is measured once more, and counts if it is worse again")
        measured = reference.better(measured, await measure(replace(bench, home=bench.directory("again"))))
        _show(measured, stored)
        found = reference.complaints(measured, stored)
    for line in found:
        print(line)
    print(f"{len(found)} of {len(stored)} ratios are worse by more than a quarter; {time.monotonic() - begun:.0f} s")
    return 1 if found else 0


async def measure(bench: Bench) -> Ratios:
    """Return all ratios, of five rounds in which everything takes its turn."""
    begun = [pair for (pair,) in await starts(bench, 1)]
    syncs, kib = await record(bench, bench.pick(RECORDED, 2))
    found: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        idle = await open_shops(bench, stack, "idle")
        field = await stack.enter_async_context(open_field(bench, "field"))
        paying = open_shop(bench.directory("paying"), bench.pick(PAYMENTS, 2), secure=True)
        shop = await stack.enter_async_context(paying)
        for number in bench.rounds(warm=True):
            bench.say(f"quick: events and payments, round {number}")
            tallies = {item: await waves(field, item, bench.pick(count, 1)) for item, count in WAVES.items()}
            payment = await pay_each(shop)
            if number:
                for name, value in _of_round(tallies, payment).items():
                    found.setdefault(name, []).append(value)
        for item in idle:
            await quiet(item.pid)
        sizes = [resident_bytes(item.pid) for item in idle]
    return {
        **found,
        "syncs of a payment": syncs,
        "KiB written for a payment": kib,
        "idle memory, by the bare imports'": [
            size / bare.resident for size, (_, bare) in zip(sizes, begun, strict=True)
        ],
        "processor time from start to ready, by the bare imports'": [
            ours.processor / bare.processor for ours, bare in begun
        ],
    }


def _of_round(tallies: Mapping[int, Mapping[str, Sequence[float]]], payment: float) -> Mapping[str, float]:
    """Return the ratios of processor times; of waves that followed each other, so that one disturbance does not count.

    `payment` is what one takes, in seconds.
    """
    found = {
        f"processor time of an event over {connections} connections, by that of the {name}": median(
            one / other for one, other in zip(tally[POSD], tally[name], strict=True)
        )
        for connections, tally in tallies.items()
        for name in (HYPERCORN, LISTENER)
    }
    requests = tallies[64][HYPERCORN]
    request = sum(requests) / len(requests)
    return found | {f"processor time of a whole payment, by a request of the {HYPERCORN}": payment / request}


def _show(measured: Ratios, stored: Mapping[str, float]) -> None:
    for name, rounds in measured.items():
        least, most = f"{min(rounds):.3g}", f"{max(rounds):.3g}"
        print(f"{median(rounds):8.3g} ({least} to {most}), reference {stored.get(name, 0):.3g}: {name}")
