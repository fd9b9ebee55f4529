"""Another Python (--interpreter) against this one: a payment, acknowledgements, memory, start; nothing is judged."""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from tests.bench.bench import Bench
from tests.bench.installed import as_installed
from tests.bench.measures import payments
from tests.bench.measures.acknowledgements import HYPERCORN, LISTENER, POSD, TERMINALS, Field, Tally, open_field, waves
from tests.bench.measures.memory import MIB
from tests.bench.measures.starting import Start, prepare, service_manager, start
from tests.bench.processes import resident_bytes
from tests.bench.program import Program
from tests.bench.rows import Row
from tests.bench.shop import open_shop

THIS, OTHER = "this Python", "the other"
#: Of an idle daemon, until its memory is looked at, in seconds.
IDLE_SECONDS = 10


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure what differs; none where no other Python is named."""
    if bench.interpreter is None:
        return []
    programs = {THIS: Program(), OTHER: Program(python=bench.interpreter)}
    names = {name: f"Python {await program.check()}" for name, program in programs.items()}
    found = await payments.compare(bench, "interpreter/payments", programs, [payments.JUDGED])
    taken = {name: payments.means(found[name, payments.JUDGED]) for name in programs}
    rates = await _rates(bench, programs)
    sizes, starts = await _sizes(bench, programs), await _starts(bench, programs)
    return [
        _row(names, f"processor time of a whole payment ({payments.JUDGED})", taken, "ms", "{:.2f} ms"),
        *(
            _row(names, what, {name: rates[name][server] for name in programs}, "/s", "{:,.0f}/s")
            for server, what in (
                (POSD, f"durable acknowledgements a second, {TERMINALS} connections"),
                (HYPERCORN, f"the {HYPERCORN}, requests a second"),
                (LISTENER, f"the {LISTENER}, requests a second"),
            )
        ),
        _row(names, "resident memory, idle", sizes, "MB", "{:.1f} MB"),
        _row(names, "start to ready", starts, "s", "{:.3f} s"),
    ]


def _row(names: Mapping[str, str], figure: str, values: Mapping[str, Sequence[float]], unit: str, pattern: str) -> Row:
    return Row(
        figure=f"{names[OTHER]} ({OTHER}) against {names[THIS]}: {figure}",
        rounds=[other / this for other, this in zip(values[OTHER], values[THIS], strict=True)],
        limit=None,
        unit="×",
        at_least=unit == "/s",
        ours=pattern.format(statistics.median(values[OTHER])),
        reference=pattern.format(statistics.median(values[THIS])),
        details={name: list(values[name]) for name in values},
    )


async def _rates(bench: Bench, programs: Mapping[str, Program]) -> dict[str, dict[str, list[float]]]:
    rates: dict[str, dict[str, list[float]]] = {name: {} for name in programs}
    async with AsyncExitStack() as stack:
        fields: dict[str, Field] = {}
        for name, program in programs.items():
            place = f"interpreter/{list(programs).index(name)}"
            fields[name] = await stack.enter_async_context(open_field(bench, place, program))
        for number in bench.rounds(warm=True):
            bench.say(f"interpreter: acknowledgements, round {number}")
            for name, field in fields.items():
                found: Mapping[str, Tally] = await waves(field, TERMINALS, bench.pick(4, 1))
                if number:
                    for server, tally in found.items():
                        rates[name].setdefault(server, []).append(tally.per_second)
    return rates


async def _sizes(bench: Bench, programs: Mapping[str, Program]) -> dict[str, list[float]]:
    """Return the MB of idle daemons; the first round writes the bytecode."""
    sizes: dict[str, list[float]] = {name: [] for name in programs}
    for number in bench.rounds(warm=True):
        bench.say(f"interpreter: memory, round {number}")
        async with AsyncExitStack() as stack:
            shops = {}
            for place, (name, program) in enumerate(programs.items()):
                directory = bench.directory(f"interpreter/memory/{place}-{number}")
                shop = open_shop(directory, 16, as_installed(bench), "enabled = true", program=program)
                shops[name] = await stack.enter_async_context(shop)
            await asyncio.sleep(bench.pick(IDLE_SECONDS, 0))
            if number:
                for name, shop in shops.items():
                    sizes[name].append(resident_bytes(shop.pid) / MIB)
    return sizes


async def _starts(bench: Bench, programs: Mapping[str, Program]) -> dict[str, list[float]]:
    directory = bench.directory("interpreter/starts")
    config, _ = prepare(directory)
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    with service_manager(directory) as manager:
        for number in bench.rounds(warm=True):
            bench.say(f"interpreter: start, round {number}")
            for name, program in programs.items():
                taken: list[Start] = [
                    await start(config, program.environment(as_installed(bench)), manager, program.python)
                    for _ in range(bench.pick(3, 1))
                ]
                if number:
                    seconds[name].append(statistics.median(item.seconds for item in taken))
    return seconds
