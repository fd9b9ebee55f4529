"""What a payment costs beside a relay: none, one that waits, one that stands still, one that sends all over again.

`python -m tests.collect.beside --rounds 5 --payments 200 --stored 50000` prints the latency of a till's call and of a
terminal's event, the daemon's processor time for a payment and its memory, each as the median of the rounds and its
least and most. The conditions take turns, so that what else the machine does is the same for all.
"""

import argparse
import asyncio
import json
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from posd.records.callback_urls import make_key
from tests.bench import seed
from tests.bench.load import trusting
from tests.bench.processes import processor_seconds, quiet, resident_bytes
from tests.bench.shop import AMOUNT, Payment, Shop, open_shop
from tests.bench.wire import Wire, call, taken_over
from tests.relay.lane import Lane, with_feed
from tests.relay.nats_server import nats_server
from tests.support.senders import crowd

MIB = 1024 * 1024
#: Terminals of the shop: payments go one after the other, and what is stored is of them all.
TERMINALS = 4

#: Runs a relay in some way for the block.
Condition = Callable[[Lane], AbstractAsyncContextManager[None]]


@dataclass
class Found:
    """What was measured of one condition: times in milliseconds, memory in MB, one of each a round."""

    start: list[float] = field(default_factory=list)
    event: list[float] = field(default_factory=list)
    slow: list[float] = field(default_factory=list)  # 95 of 100 events
    processor: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


@asynccontextmanager
async def absent(_lane: Lane) -> AsyncIterator[None]:
    """No relay."""
    yield


@asynccontextmanager
async def running(lane: Lane) -> AsyncIterator[None]:
    """A relay that has sent everything, and sends what comes."""
    relay = await lane.start()
    await _complete(lane)
    yield
    assert await relay.stop() == 0


@asynccontextmanager
async def hung(lane: Lane) -> AsyncIterator[None]:
    """One that stands still with its connections open."""
    relay = await lane.start()
    await _complete(lane)
    relay.process.send_signal(signal.SIGSTOP)
    yield
    relay.process.send_signal(signal.SIGCONT)
    assert await relay.stop() == 0


@asynccontextmanager
async def cut_off(lane: Lane) -> AsyncIterator[None]:
    """One whose server is away."""
    await lane.server.stop()
    relay = await lane.start()
    await relay.said("relay.waiting")
    yield
    assert await relay.stop() == 0
    await lane.server.start()


@asynccontextmanager
async def catching_up(lane: Lane) -> AsyncIterator[None]:
    """One that sends all that is stored, from the beginning, and is not done with it before the payments are."""
    relay = await lane.start("--once", "--from", "1")
    await relay.said("relay.connected")
    yield
    assert relay.process.returncode is None, "store more payments: it was done too soon"
    assert await relay.stop() == 0


async def _complete(lane: Lane) -> None:
    """Wait until the stream has all of the feed."""
    newest = (await lane.daemon.call("GET", "/feed?limit=1")).json["databases"][-1]["last_seq"]
    await lane.server.until(lane.subject, lambda last: last["kind"] == "state" and last["last_seq"] >= newest)


CONDITIONS: Mapping[str, Condition] = {
    "absent": absent,
    "running": running,
    "hung": hung,
    "cut off": cut_off,
    "catching up": catching_up,
}


async def pay(shop: Shop, count: int, found: Found) -> None:
    """Make so many payments, one after the other."""
    order = json.dumps({"terminal": shop.serials[0], "amount": AMOUNT}).encode()
    starts, events, used = [], [], processor_seconds(shop.pid)
    with crowd(shop.daemon.till_socket, 1, each=1) as (connection,):
        till = await taken_over(connection)
        lan = Wire(await asyncio.open_connection("127.0.0.1", shop.daemon.port, ssl=trusting(shop.daemon.ca)))
        for _ in range(count):
            identity = str(uuid4())
            before = till.send(call("PUT", identity, order))
            starts.append((await till.answer(201) - before) * 1000)
            path = shop.terminals.arrived.pop(identity)
            for event in Payment(identity, shop.serials[0], path).events():
                before = lan.send(event)
                events.append((await lan.answer(200) - before) * 1000)
        till.close()
        lan.close()
    found.start.append(statistics.median(starts))
    found.event.append(statistics.median(events))
    found.slow.append(statistics.quantiles(events, n=20)[-1])
    found.processor.append((processor_seconds(shop.pid) - used) / count * 1000)
    found.memory.append(resident_bytes(shop.pid) / MIB)


async def measure(rounds: int, payments: int, stored: int, names: Sequence[str]) -> Mapping[str, Found]:
    """Measure conditions in turn, so many rounds."""
    found = {name: Found() for name in names}
    with TemporaryDirectory(prefix="posd-") as directory:
        home, office = Path(directory) / "lane", Path(directory) / "nats"
        office.mkdir()
        home.mkdir()
        with_feed(home)
        courses = await seed.run_courses(Path(directory) / "courses")
        (home / "state").mkdir()
        make_key(home / "state" / "callback.key")
        await seed.fill(home / "state" / "posd.db", courses, stored, terminals=TERMINALS)
        async with nats_server(office) as server, open_shop(home, TERMINALS) as shop:
            await server.make_stream()
            lane = Lane(shop.daemon, server)
            await lane.once()
            await pay(shop, payments, Found())
            for number in range(rounds):
                for name in names:
                    print(f"round {number + 1}: {name}", flush=True)
                    await quiet(shop.pid)
                    async with CONDITIONS[name](lane):
                        await pay(shop, payments, found[name])
    return found


def table(found: Mapping[str, Found]) -> str:
    """Write it as a table."""
    lines = ["| relay | start, ms | event, ms | event, 95 of 100 | processor, ms a payment | memory, MB |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name, item in found.items():
        cells = (_cell(values) for values in (item.start, item.event, item.slow, item.processor, item.memory))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.collect.beside", description=str(__doc__))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--payments", type=int, default=200)
    parser.add_argument("--stored", type=int, default=50_000)
    parser.add_argument("--only", choices=CONDITIONS, action="append", help="of the conditions only this one")
    given = parser.parse_args()
    began = time.monotonic()
    print(table(asyncio.run(measure(given.rounds, given.payments, given.stored, given.only or [*CONDITIONS]))))
    print(f"{given.rounds} rounds of {given.payments} payments in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
