"""Durable acknowledgements: what one costs beside a handler that does nothing.

The events are of 64 terminals that each have an open payment, spread over all connections. Every event is sent to posd,
to the no-op on Hypercorn's own server and to the same on posd's listener, one server after the other; the order turns
from wave to wave.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tests.bench.bench import Bench
from tests.bench.load import Server, connected
from tests.bench.noop import serving
from tests.bench.processes import processor_seconds, quiet
from tests.bench.shop import Shop, open_shop

#: Terminals, each of which has one open payment in a wave.
TERMINALS = 64
POSD, HYPERCORN, LISTENER = "posd", "no-op on Hypercorn", "no-op on posd's listener"


@dataclass(frozen=True)
class Field:
    """A shop, and the servers that it is compared with."""

    shop: Shop
    others: Mapping[str, Server]

    def turn(self, number: int) -> list[tuple[str, Server]]:
        """Return all of them, in the order of one wave."""
        servers = [(POSD, self.shop.server), *self.others.items()]
        first = number % len(servers)
        return servers[first:] + servers[:first]


@asynccontextmanager
async def open_field(bench: Bench, name: str) -> AsyncIterator[Field]:
    """Run a shop and both no-ops for the block."""
    made = [bench.directory(f"{name}/{part}") for part in ("posd", "stock", "no-op")]
    async with (
        open_shop(made[0], TERMINALS) as shop,
        serving(made[1], "--stock") as stock,
        serving(made[2]) as noop,
    ):
        yield Field(shop, {HYPERCORN: stock, LISTENER: noop})


async def waves(field: Field, connections: int, count: int) -> dict[str, list[float]]:
    """Send so many waves of an open payment of each terminal; return an answer's processor time by server and wave."""
    async with AsyncExitStack() as stack:
        senders = {
            name: await stack.enter_async_context(connected(server, connections)) for name, server in field.turn(0)
        }
        found: dict[str, list[float]] = {name: [] for name in senders}
        for number in range(count):
            chains = [payment.events() for payment in await field.shop.start(TERMINALS)]
            await quiet(field.shop.pid)
            for name, server in field.turn(number):
                used = processor_seconds(server.pid)
                load = (await senders[name].send(chains)).all_are(200 if name == POSD else 204)
                found[name].append((processor_seconds(server.pid) - used) / load.answers)
    return found
