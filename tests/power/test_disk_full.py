"""Tests of a disk that is full for a while. posd replies 503 to tills and terminals, records nothing
incomplete, and needs no restart.
"""

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from tests.power.promises import Promises, failures
from tests.power.street import DECLINED, Street, bodies, make_daemon, names
from tests.rig.events import APPROVED
from tests.rig.shop import Held, acknowledging, answering
from tests.rig.terminal import Script, scripted_terminal
from tests.rig.tmpfs import SmallDisk, small_disk

pytestmark = pytest.mark.slow

#: Size of the disk. The WAL stays smaller until a checkpoint, so only the ballast fills the disk.
DISK_SIZE = "12m"
TERMINALS = 8
CYCLES = 8
#: Number of refused calls before space is freed, and number of successful calls before the disk is filled again.
REFUSALS = 20
SUCCESSES = 30
#: Maximum number of SQLite's pages that fit into the space beside the ballast. With these pages the disk becomes full
#: in the middle of a COMMIT.
SPARE_PAGES = 40
SEED = 5
PAGE = 4096


@dataclass
class Shop:
    """Terminals, tills and a daemon whose state is on a small disk."""

    street: Street
    disk: SmallDisk
    home: Path
    promises: Promises = field(default_factory=Promises)

    def failures(self) -> list[str]:
        """Return the faults of the database. The daemon must not run."""
        copy = self.home / "copy"
        copy.mkdir()
        for name in ("posd.db", "posd.db-wal"):
            shutil.copy(self.disk.files / name, copy / name)
        return failures(copy / "posd.db", self.promises)

    async def health(self) -> tuple[int, str]:
        """Return the HTTP status and the status in the body of the health resource."""
        reply = await self.street.posd.call("GET", "/health")
        return reply.status, reply.json["status"]


@pytest.fixture
async def shop(small_disks: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    """Yield a shop with a daemon on a small disk. After the test kill the daemon, check its promises in the database,
    and start the daemon again.
    """
    async with scripted_terminal(home, ports=TERMINALS) as terminal:
        posd = make_daemon(home, terminal, {})
        with small_disk(home, home / "state", DISK_SIZE) as disk:
            shutil.copytree(home / "state" / "tls", disk.files / "tls")
            monkeypatch.setattr(sys, "executable", str(disk.python))  # this interpreter runs the daemon
            promises = Promises()
            await posd.start()
            shop = Shop(
                Street(posd, terminal, names(TERMINALS), lambda promise: promise(promises)), disk, home, promises
            )
            try:
                yield shop
                assert not shop.street.posd.faults
                await posd.kill()
                assert shop.failures() == []
                await posd.start()
                await nothing_is_forgotten(shop)
                assert not shop.street.posd.faults
            finally:
                if posd.process is not None:
                    await posd.stop()


async def nothing_is_forgotten(shop: Shop) -> None:
    """Request all promised data from the daemon, and repeat each start. Check that no terminal receives a start
    twice.
    """
    street = shop.street
    for identity, result in shop.promises.results.items():
        assert await street.outcome(identity) == result
    for identity in shop.promises.phases:
        document = await street.posd.transaction(identity)
        assert (await street.put(identity, document["terminal"])).status == 200
        assert street.terminal.starts_of(identity) == 1


async def is_refused(shop: Shop, identity: str, serial: str) -> None:
    """Start a payment on a full disk. Check that posd refuses the payment and sends nothing to the terminal."""
    reply = await shop.street.put(identity, serial)
    assert (reply.status, reply.json["code"]) == (503, "storage_unavailable")
    assert int(reply.headers["retry-after"]) > 0
    assert shop.street.terminal.starts_of(identity) == 0


async def is_not_taken(shop: Shop, identity: str, content: bytes) -> None:
    """Deliver an event on a full disk. Check that posd requests a retry."""
    answer = await shop.street.deliver(identity, content)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0


async def test_a_full_disk_stops_new_payments_and_reads_still_work(shop: Shop) -> None:
    street = shop.street
    known, identity = await street.started("SN-0"), str(uuid4())
    shop.disk.fill()
    for _ in range(3):
        await is_refused(shop, identity, "SN-1")
    assert (await street.put(known, "SN-0")).status == 200
    assert (await street.posd.call("GET", f"/transactions/{identity}")).status == 404
    assert (await street.posd.transaction(known))["phase"] == "active"
    for path in ("/transactions", f"/transactions/{known}/events", "/feed", "/terminals"):
        assert (await street.posd.call("GET", path)).status == 200
    assert (await street.posd.call("GET", f"/transactions/{known}/outcome?timeout=0")).status == 202
    shop.disk.free()
    assert (await street.put(identity, "SN-1")).status == 201


async def test_health_reports_the_full_disk_until_there_is_space_again(shop: Shop) -> None:
    assert await shop.health() == (200, "ok")
    shop.disk.fill()
    await is_refused(shop, str(uuid4()), "SN-0")
    for _ in range(3):
        assert await shop.health() == (503, "failing")
    check = (await shop.street.posd.call("GET", "/health")).json["checks"]["storage"]
    assert "never delete posd.db*, callback.key or tls/: sudo du -xah" in check["todo"]
    shop.disk.free()
    assert await shop.health() == (200, "ok")


async def test_an_abort_that_cannot_be_recorded_is_not_sent(shop: Shop) -> None:
    street = shop.street
    identity = await street.started("SN-0")
    shop.disk.fill()
    reply = await street.posd.call("POST", f"/transactions/{identity}/abort")
    assert (reply.status, reply.json["code"]) == (503, "storage_unavailable")
    assert street.terminal.aborts == 0
    shop.disk.free()
    street.terminal.abort = answering(200, {})
    assert (await street.posd.call("POST", f"/transactions/{identity}/abort")).status == 202
    assert street.terminal.aborts == 1


@pytest.mark.parametrize(
    ("script", "phase"), [(acknowledging("SN-0"), "active"), (answering(409), "final")], ids=["taken", "refused"]
)
async def test_a_reply_on_a_full_disk_is_recorded_when_there_is_space(shop: Shop, script: Script, phase: str) -> None:
    street, identity = shop.street, str(uuid4())
    street.scripts["SN-0"] = holding = Held(script)
    starting = asyncio.create_task(street.put(identity, "SN-0"))
    await holding.arrived.wait()
    shop.disk.fill()
    holding.release.set()
    reply = await starting
    assert (reply.status, reply.json["phase"]) == (201, "starting"), "the database has the sent payment"
    await is_not_taken(shop, identity, bodies(identity, "SN-0")[0])
    assert (await street.put(identity, "SN-0")).status == 200
    shop.disk.free()
    await street.posd.wait_for(identity, lambda document: document["phase"] == phase)
    assert (await street.put(identity, "SN-0")).json["phase"] == phase


async def test_an_event_on_a_full_disk_is_sent_again_and_the_till_keeps_waiting(shop: Shop) -> None:
    street = shop.street
    identity = await street.started("SN-0")
    till = asyncio.create_task(street.outcome(identity))
    for number, content in enumerate(bodies(identity, "SN-0")):
        shop.disk.fill()
        for _ in range(2):
            await is_not_taken(shop, identity, content)
        assert len((await street.posd.call("GET", f"/transactions/{identity}/events")).json["events"]) == number
        shop.disk.free()
        await street.delivered(identity, content)
    assert await till == "approved"


async def test_a_kill_on_a_full_disk_loses_no_sent_payment(shop: Shop) -> None:
    street, identity = shop.street, str(uuid4())
    street.scripts["SN-0"] = holding = Held(acknowledging("SN-0"))
    starting = asyncio.create_task(street.put(identity, "SN-0"))
    await holding.arrived.wait()
    shop.disk.fill()
    holding.release.set()
    assert (await starting).json["phase"] == "starting"
    assert not street.posd.faults
    await street.posd.kill()
    code, said = await street.posd.cannot_start()
    assert code == 1
    assert "cannot be written" in said
    assert "full" in said
    shop.disk.free()
    await street.posd.start()
    assert (await street.posd.transaction(identity))["phase"] == "in_doubt"


async def test_after_a_kill_on_a_full_disk_posd_starts_if_nothing_is_to_be_recorded(shop: Shop) -> None:
    street, refused = shop.street, str(uuid4())
    known = await street.started("SN-0")
    shop.disk.fill()
    await is_refused(shop, refused, "SN-1")
    assert not street.posd.faults
    await street.posd.restart()
    assert (await street.put(known, "SN-0")).status == 200
    await is_refused(shop, refused, "SN-1")
    await is_not_taken(shop, known, bodies(known, "SN-0")[0])
    shop.disk.free()
    await street.delivered(known, bodies(known, "SN-0")[0])
    assert (await street.put(refused, "SN-1")).status == 201


class Crowd:
    """Tills and terminals that never give up, and a task that fills the disk and frees space again."""

    def __init__(self, shop: Shop, random: Random) -> None:
        self.shop = shop
        self.street = shop.street
        self.random = random
        self.heard: Counter[str] = Counter()
        self.over = False
        self._news = asyncio.Event()

    def hear(self, what: str, status: int) -> None:
        """Count a reply."""
        self.heard[f"{what} {status}"] += 1
        self.heard["refused" if status == 503 else "done"] += 1
        self._news.set()

    async def until(self, what: str, more: int) -> None:
        """Wait for this many more replies of a kind."""
        wanted = self.heard[what] + more
        async with asyncio.timeout(60):
            while self.heard[what] < wanted:
                self._news.clear()
                await self._news.wait()

    async def start(self, serial: str) -> str:
        """Start a payment, and repeat the call under the same id until it succeeds."""
        identity = str(uuid4())
        while True:
            reply = await self.street.put(identity, serial)
            self.hear("PUT", reply.status)
            if reply.status == 201:
                return identity
            assert (reply.status, reply.json["code"]) == (503, "storage_unavailable")
            assert self.street.terminal.starts_of(identity) == 0

    async def deliver(self, identity: str, content: bytes) -> None:
        """Deliver an event, and repeat the event until posd accepts it."""
        while True:
            answer = await self.street.deliver(identity, content)
            self.hear("event", answer.status)
            if answer.status == 200:
                return
            assert answer.status == 503

    async def in_order(self, identity: str, events: Sequence[bytes]) -> None:
        """Deliver the events of a payment one after the other."""
        for content in events:
            await self.deliver(identity, content)

    async def all_at_once(self, identity: str, events: Sequence[bytes]) -> None:
        """Deliver all events at once, as after an outage. Deliver the last event twice."""
        await asyncio.gather(*(self.deliver(identity, content) for content in (*events, events[-1])))

    async def pay(self, serial: str) -> None:
        """Run payments on one terminal, one after the other."""
        while not self.over:
            identity = await self.start(serial)
            events = bodies(identity, serial, self.random.choice((APPROVED, DECLINED)), echo_bytes=5000)
            deliver = self.random.choice((self.in_order, self.all_at_once))
            await asyncio.gather(self.street.outcome(identity), deliver(identity, events))

    async def fill_and_free(self) -> None:
        """Fill the disk during payments, and free space again while posd refuses calls."""
        for _ in range(CYCLES):
            await self.until("done", self.random.randrange(SUCCESSES))
            self.shop.disk.fill(spare=self.random.randrange(SPARE_PAGES) * PAGE)
            await self.until("refused", REFUSALS)
            assert (await self.street.posd.call("GET", "/transactions")).status == 200
            self.shop.disk.free()
        self.over = True


async def test_many_payments_survive_a_disk_that_is_full_repeatedly(shop: Shop) -> None:
    crowd = Crowd(shop, Random(SEED))
    async with asyncio.TaskGroup() as group:
        for serial in shop.street.serials:
            group.create_task(crowd.pay(serial))
        group.create_task(crowd.fill_and_free())
    print(dict(crowd.heard), f"{len(shop.promises.results)} payments, seed {SEED}")
    assert crowd.heard["PUT 503"] > 0
    assert crowd.heard["event 503"] > CYCLES
