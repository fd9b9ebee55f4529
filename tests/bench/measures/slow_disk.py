"""Payments where a sync takes 10 ms, as on the flash of a till: many at once against one by one."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from tests.bench.altered import altered
from tests.bench.bench import Bench
from tests.bench.load import Load, send
from tests.bench.paying import pay
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import Shop, open_shop
from tests.support.shim import Shim, build

SYNC_US = 10_000
TERMINALS = 64
#: What makes posd commit each event by itself, all else as it is.
ONE_AT_A_TIME = "posd.storage.writer.MAX_BATCH=1"


async def measure(bench: Bench) -> Sequence[Row]:
    """Return the rows of the slow disk."""
    home = bench.directory("slow-disk")
    terminals = bench.pick(TERMINALS, 4)
    at_once, alone = list[float](), list[float]()
    grouped, single = list[float](), list[float]()
    async with AsyncExitStack() as stack:
        many = await stack.enter_async_context(open_shop(home / "many", terminals, slow(home / "many" / "state")))
        one = await stack.enter_async_context(open_shop(home / "one", 1, slow(home / "one" / "state")))
        ungrouped = await stack.enter_async_context(
            open_shop(home / "single", terminals, slow(home / "single" / "state"), entering=altered(ONE_AT_A_TIME))
        )
        (home / "naive").mkdir()
        database = home / "naive" / "naive.db"
        arguments = ("--database", str(database))
        naive = await stack.enter_async_context(
            serving("tests.bench.naive", home / "naive", *arguments, environment=slow(database.parent))
        )
        for number in bench.rounds(warm=True):
            bench.say(f"slow disk: round {number}")
            payments, fewer = bench.pick(6, 1) * terminals, bench.pick(20, 2)
            rates = (payments / await pay(many, payments), fewer / await pay(one, fewer))
            loads = [await _send(shop) for shop in (many, ungrouped)]
            if number:
                for values, value in zip((at_once, alone), rates, strict=True):
                    values.append(value)
                for values, load in zip((grouped, single), loads, strict=True):
                    values.append(load.per_second)
        bench.say("slow disk: the naive receiver")
        chains = [payment.events() for payment in await many.start(terminals)]
        plain = await send(naive, chains, terminals)
    tutorial, refused = plain.statuses[200] / plain.seconds, plain.statuses.total() - plain.statuses[200]
    return [
        Row(
            figure=f"sync of 10 ms: payments a second, {terminals} at once against one by one",
            rounds=[ours / theirs for ours, theirs in zip(at_once, alone, strict=True)],
            limit=20.0,
            unit="×",
            at_least=True,
            ours=f"{median(at_once):,.0f}/s",
            reference=f"one by one: {median(alone):,.1f}/s",
            note="start, terminal's acknowledgement and four events, each terminal with a till of its own",
            details={"at_once_per_second": at_once, "alone_per_second": alone},
        ),
        Row(
            figure=f"sync of 10 ms: events a second, {terminals} connections, against one commit for each",
            rounds=[ours / theirs for ours, theirs in zip(grouped, single, strict=True)],
            limit=None,
            unit="×",
            at_least=True,
            ours=f"{median(grouped):,.0f}/s",
            reference=f"one commit for each: {median(single):,.0f}/s",
            naive=f"{tutorial:,.0f}/s" + (f" ({refused} answered 500)" if refused else ""),
            details={
                "per_second": grouped,
                "ungrouped_per_second": single,
                "naive_per_second": tutorial,
                "naive_statuses": dict(plain.statuses),
            },
        ),
    ]


async def _send(shop: Shop) -> Load:
    """Send the four events of a payment on each terminal, over as many connections at once."""
    chains = [payment.events() for payment in await shop.start(len(shop.serials))]
    return (await send(shop.server, chains, len(chains))).all_are(200)


def slow(state: Path) -> Mapping[str, str]:
    """Return the environment of a process whose syncs in a directory take 10 ms longer; nothing is recorded."""
    state.parent.mkdir(parents=True, exist_ok=True)
    shim = build(state.parent, state)
    return Shim(shim.library, state, Path("/dev/null")).environment(SYNC_US)
