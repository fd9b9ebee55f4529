"""Events a second where a sync takes 10 ms, as on the flash of a till, against one commit for each event."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from tests.bench.altered import altered
from tests.bench.bench import Bench
from tests.bench.load import Load, send, trusting
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import Shop, lanes, open_shop
from tests.support.shim import Shim, build

SYNC_US = 10_000
CONNECTIONS = 64
#: What makes posd commit each event by itself, all else as it is.
ONE_AT_A_TIME = "posd.storage.writer.MAX_BATCH=1"


async def measure(bench: Bench) -> Sequence[Row]:
    """Return the row of the slow disk."""
    home = bench.directory("slow-disk")
    rounds = bench.pick(5, 1)
    many, few = bench.pick(256, 16), bench.pick(CONNECTIONS, 4)
    async with AsyncExitStack() as stack:
        grouped = await stack.enter_async_context(open_shop(home / "grouped", many, slow(home / "grouped" / "state")))
        single = await stack.enter_async_context(
            open_shop(home / "single", few, slow(home / "single" / "state"), entering=altered(ONE_AT_A_TIME))
        )
        (home / "naive").mkdir()
        database = home / "naive" / "naive.db"
        naive = await stack.enter_async_context(
            serving(
                "tests.bench.naive",
                home / "naive",
                *("--database", str(database)),
                environment=slow(database.parent),
            )
        )
        figures: dict[str, list[float]] = {"grouped": [], "single": []}
        for number in range(rounds):
            bench.say(f"slow disk: round {number + 1} of {rounds}")
            figures["grouped"].append((await _send(grouped, many)).per_second)
            figures["single"].append((await _send(single, few)).per_second)
        bench.say("slow disk: the naive receiver")
        payments = await grouped.start(few)
        plain = await send(naive.port, naive.context, lanes(payments, min(few, CONNECTIONS)))
    tutorial, refused = plain.statuses[200] / plain.seconds, plain.statuses.total() - plain.statuses[200]
    ratios = [ours / theirs for ours, theirs in zip(figures["grouped"], figures["single"], strict=True)]
    ours, theirs = (median(figures[name]) for name in ("grouped", "single"))
    return [
        Row(
            figure=f"sync of 10 ms, {CONNECTIONS} connections, against one commit per event",
            measured=median(ratios),
            limit=20.0,
            unit="×",
            at_least=True,
            ours=f"{ours:,.0f}/s",
            reference=f"one commit per event: {theirs:,.0f}/s",
            naive=f"{tutorial:,.0f}/s" + (f" ({refused} answered 500)" if refused else ""),
            details={
                "per_second": figures,
                "ratios": ratios,
                "naive_per_second": tutorial,
                "naive_statuses": dict(plain.statuses),
            },
        )
    ]


async def _send(shop: Shop, payments: int) -> Load:
    """Send the four events of so many payments, over all the connections at once."""
    started = await shop.start(payments)
    context = trusting(shop.daemon.ca)
    return (await send(shop.daemon.port, context, lanes(started, min(payments, CONNECTIONS)))).all_are(200)


def slow(state: Path) -> Mapping[str, str]:
    """Return the environment of a process whose syncs in a directory take 10 ms longer; nothing is recorded."""
    state.parent.mkdir(parents=True, exist_ok=True)
    shim = build(state.parent, state)
    return Shim(shim.library, state, Path("/dev/null")).environment(SYNC_US)
