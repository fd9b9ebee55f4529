"""Payments where a sync takes 10 ms, as on the flash of a till: many at once against one by one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.bench.bench import Bench
from tests.bench.paying import pay
from tests.bench.shop import open_shop
from tests.bench.table import Row, ratios
from tests.support.shim import Shim, build

SYNC_US = 10_000
TERMINALS = 64


async def measure(bench: Bench) -> Sequence[Row]:
    """Return the row of the slow disk."""
    home = bench.directory("slow-disk")
    terminals = bench.pick(TERMINALS, 4)
    at_once, alone = list[float](), list[float]()
    async with (
        open_shop(home / "many", terminals, slow(home / "many" / "state")) as many,
        open_shop(home / "one", 1, slow(home / "one" / "state")) as one,
    ):
        for number in bench.rounds(warm=True):
            bench.say(f"slow disk: round {number}")
            payments, fewer = bench.pick(6, 1) * terminals, bench.pick(20, 2)
            rates = (payments / await pay(many, payments), fewer / await pay(one, fewer))
            if number:
                at_once.append(rates[0])
                alone.append(rates[1])
    return [
        Row(
            figure=f"sync of 10 ms: payments a second, {terminals} at once against one by one",
            rounds=ratios(at_once, alone),
            limit=20.0,
            unit="×",
            at_least=True,
            ours=f"{median(at_once):,.0f}/s",
            reference=f"one by one: {median(alone):,.1f}/s",
        )
    ]


def slow(state: Path) -> Mapping[str, str]:
    """Return the environment of a process whose syncs in a directory take 10 ms longer; nothing is recorded."""
    state.parent.mkdir(parents=True, exist_ok=True)
    shim = build(state.parent, state)
    return Shim(shim.library, state, Path("/dev/null")).environment(SYNC_US)
