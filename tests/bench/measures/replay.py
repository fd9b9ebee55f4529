"""The LAN was away and is back: 100 terminals deliver 10,000 queued events at once, against the no-op handler.

Each terminal has an address, a connection and a queue of its own, and delivers one event after the other. What is
answered 503 and the like, or not answered, is sent again after a moment, as terminals do. The queue of a terminal
holds all the events of payments that a person had released meanwhile, so that the terminal could take the next.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import httpx2

from posd.storage.connection import connect_reader
from tests.bench.bench import Bench
from tests.bench.load import Server, trusting
from tests.bench.measures.acknowledgements import HYPERCORN, LISTENER
from tests.bench.rows import Row
from tests.bench.sender import STUCK_SECONDS, whole
from tests.bench.servers import serving
from tests.bench.shop import Payment, Shop, open_shop

#: By the time that each no-op takes; None: it is shown, and not judged.
LIMITS = {HYPERCORN: 1.3, LISTENER: None}
#: After which a terminal tries again, in seconds: shorter than any does, so that a refusal costs, and is not idleness.
PAUSE_SECONDS = 0.1
#: Payments are prepared for longer than posd waits for the first event of one before it asks the terminal.
CONFIGURATION = "[reconcile]\nfirst_event_grace_seconds = 3600\n"
#: Tills that start payments at one time.
_TILLS = 8
#: What a terminal sends again after; other answers but 2xx are refusals for good (spec 6.2).
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
#: Of the queue of each terminal, what the naive receiver gets: it would take minutes for all.
NAIVE_EVENTS = 8
RELEASE = {"operator": "Ana", "note": "the LAN is away"}


@dataclass
class Replay:
    """What came of it: how long all of it took, the statuses, how often a connection ended without an answer."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0

    @property
    def repeated(self) -> int:
        """How many deliveries had to be repeated."""
        return self.broken + sum(self.statuses[status] for status in RETRIED)


async def measure(bench: Bench) -> Sequence[Row]:
    """Return the row of the replay."""
    home = bench.directory("replay")
    terminals, each, rounds = bench.pick(100, 10), bench.pick(25, 3), bench.rounds()
    addresses = [f"127.0.1.{number}" for number in range(1, terminals + 1)]
    ours, yardsticks = list[Replay](), dict[str, list[Replay]]()
    async with (
        open_shop(home / "posd", terminals, addresses=addresses, extra=CONFIGURATION) as shop,
        serving("tests.bench.noop", home / "stock", "--stock") as stock,
        serving("tests.bench.noop", home / "noop", "--known", *addresses) as noop,
    ):
        for number in rounds:
            bench.say(f"replay: round {number}, {terminals * each} payments before it")
            queues = await _queues(shop, each)
            ours.append(await _replay(shop.server, addresses, queues))
            for name, server in ((HYPERCORN, stock), (LISTENER, noop)):
                yardsticks.setdefault(name, []).append(await _replay(server, addresses, queues))
        stored, ended = _stored(shop)
        bench.say("replay: the naive receiver")
        (home / "naive").mkdir()
        database = str(home / "naive" / "naive.db")
        async with serving("tests.bench.naive", home / "naive", "--database", database) as server:
            naive = await _replay(server, addresses, [queue[:NAIVE_EVENTS] for queue in queues])
    events = terminals * each * 4
    _check(ours, events * len(rounds), stored, ended)
    repeated = sum(item.repeated for item in ours)
    few = f"{terminals * NAIVE_EVENTS:,}"
    return [
        Row(
            figure=f"replay of {events:,} queued events of {terminals} terminals at once, against the {name}",
            rounds=[a.seconds / b.seconds for a, b in zip(ours, theirs, strict=True)],
            limit=LIMITS[name],
            unit="×",
            at_least=False,
            ours=f"{median(item.seconds for item in ours):.2f} s, all durable, none refused for good",
            reference=f"{median(item.seconds for item in theirs):.2f} s",
            naive=f"{naive.seconds:.1f} s for {few} of them, {naive.repeated} deliveries repeated",
            note=f"{repeated} deliveries of {events * len(rounds)} had to be repeated" if repeated else "",
            details={
                "seconds": [item.seconds for item in ours],
                "seconds_noop": [item.seconds for item in theirs],
                "statuses": [dict(item.statuses) for item in ours],
                "broken": [item.broken for item in ours],
                "naive": {"seconds": naive.seconds, "statuses": dict(naive.statuses)},
                "stored_events": stored,
                "ended_payments": ended,
            },
        )
        for name, theirs in yardsticks.items()
    ]


def _check(ours: Sequence[Replay], events: int, stored: int, ended: int) -> None:
    """Raise RuntimeError where an event is not on disk, or was refused for good."""
    statuses = sum((item.statuses for item in ours), Counter[int]())
    if (statuses[200], stored, ended) != (events, events, events // 4) or set(statuses) - RETRIED - {200}:
        raise RuntimeError(f"of {events} events {stored} are stored, {ended} payments ended: {dict(statuses)}")


async def _queues(shop: Shop, each: int) -> list[list[bytes]]:
    """Start so many payments on each terminal, and release all; return the queue of each terminal."""
    payments: dict[str, list[Payment]] = {serial: [] for serial in shop.serials}
    waiting = list(shop.serials)
    admin = httpx2.AsyncHTTPTransport(uds=str(shop.daemon.admin_socket), verify=False)

    async def some(people: httpx2.AsyncClient) -> None:
        async with shop.till() as till:
            while waiting:
                serial = waiting.pop()
                for _ in range(each):
                    payment = await shop.start_one(till, serial)
                    payments[serial].append(payment)
                    released = await people.post(f"/transactions/{payment.identity}/release", json=RELEASE)
                    released.raise_for_status()

    async with httpx2.AsyncClient(transport=admin, base_url="http://posd/v1", timeout=60) as people:
        await asyncio.gather(*(some(people) for _ in range(_TILLS)))
    return [[event for payment in queue for event in payment.events()] for queue in payments.values()]


async def _replay(server: Server, addresses: Sequence[str], queues: Sequence[Sequence[bytes]]) -> Replay:
    """Deliver all the queues at once; connecting is a part of it."""
    replay = Replay()
    begun = time.perf_counter()
    async with asyncio.timeout(STUCK_SECONDS), asyncio.TaskGroup() as group:
        for address, queue in zip(addresses, queues, strict=True):
            group.create_task(_deliver(server, address, queue, replay))
    replay.seconds = time.perf_counter() - begun
    return replay


async def _deliver(server: Server, address: str, queue: Sequence[bytes], replay: Replay) -> None:
    """Deliver a queue over one connection, and over another one where that ends."""
    loop, context, done = asyncio.get_running_loop(), trusting(server.ca), 0
    while done < len(queue):
        try:
            _, lane = await loop.create_connection(
                partial(_Lane, queue, done, replay),
                "127.0.0.1",
                server.port,
                ssl=context,
                local_addr=(address, 0),
            )
            done = await lane.ended
        except OSError:  # turned away
            pass
        if done < len(queue):
            replay.broken += 1
            await asyncio.sleep(PAUSE_SECONDS)


class _Lane(asyncio.Protocol):
    """One connection: sends an event when the one before was taken. `ended`: how many of the queue are taken then."""

    def __init__(self, queue: Sequence[bytes], done: int, replay: Replay) -> None:
        self._queue = queue
        self._done = done
        self._replay = replay
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(self._done)

    def _send(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(self._queue[self._done])

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not whole(self._received):
            return
        status, self._received = int(self._received[9:12]), b""
        self._replay.statuses[status] += 1
        if status in RETRIED:
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._send)
            return
        self._done += 1
        if self._done < len(self._queue):
            self._send()
            return
        self.ended.set_result(self._done)
        assert self._transport is not None
        self._transport.abort()


def _stored(shop: Shop) -> tuple[int, int]:
    """Return how many events are on disk as they should be, and how many payments are approved."""
    with closing(connect_reader(shop.daemon.database)) as db:
        events = db.execute("SELECT count(*) FROM events WHERE verdict = 'applied'").fetchone()[0]
        ended = db.execute("SELECT count(*) FROM transactions WHERE phase = 'final' AND outcome LIKE '%approved%'")
        return events, ended.fetchone()[0]
