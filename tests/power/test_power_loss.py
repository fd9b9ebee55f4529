"""Power loss at every operation on the disk. Acknowledged data survives, and no change is incomplete.

A real daemon makes payments under a shim that records file operations. For each point of the record the test builds the
disk after a power loss, and opens it as posd does.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from posd.tls import issue
from tests.power.platter import Image, Platter, replay
from tests.power.promises import Promises, failures
from tests.power.street import DECLINED, Promise, Street, bodies, make_daemon, names
from tests.rig.daemon import Daemon, toml
from tests.rig.needs import needs
from tests.rig.shim import Kind, Operation, Shim, build
from tests.rig.shop import answering
from tests.rig.terminal import scripted_terminal

TERMINALS = 8
#: Rounds of payments. These payments are enough for a checkpoint, after which SQLite starts the WAL again.
ROUNDS = 8
#: Bytes of the till's metadata that a final event echoes. These bytes fill the WAL quickly.
ECHO_BYTES = 30_000
#: Microseconds of a sync on a slow disk. A reply that does not wait for the sync would be sent before the end of the
#: sync.
SYNC_US = 2000
#: Disks per cut before a sync, when the most data is unsynced. Each disk has a random part of the unsynced data.
#: TORN_SHARE: share of the other cuts that have such a disk, chosen at random.
TORN_BEFORE_SYNC = 2
TORN_SHARE = 0.1
SEED = 3

pytestmark = [pytest.mark.slow, needs("cc")]

#: The first bytes of a WAL (https://sqlite.org/fileformat2.html#walformat).
LOG_MAGIC = b"\x37\x7f\x06"


@dataclass
class Recording:
    """A daemon's operations, and the promises between them as (length of the record at that time, promise)."""

    initial: Image
    operations: list[Operation] = field(default_factory=list)
    said: list[tuple[int, Promise]] = field(default_factory=list)
    files: Image = field(default_factory=dict)


@asynccontextmanager
async def recorded(home: Path) -> AsyncIterator[tuple[Street, Shim, Recording]]:
    """Run a daemon under the shim for the block. The directory has no database at first. The record is complete after
    the block.
    """
    state = home / "state"
    async with scripted_terminal(home, ports=TERMINALS) as terminal:
        shim = build(home, state)
        posd = make_daemon(home, terminal, shim.environment(SYNC_US))
        recording = Recording(files_in(state))

        def note(promise: Promise) -> None:
            recording.said.append((shim.position(), promise))

        await posd.start()
        key = (state / "callback.key").read_bytes()
        note(lambda promises: promises.files.update({"callback.key": key}))
        street = Street(posd, terminal, names(TERMINALS), note)
        try:
            yield street, shim, recording
        finally:
            await posd.stop()
        assert not street.posd.faults
        recording.operations = list(shim.operations())
        recording.files = files_in(state)


def files_in(directory: Path) -> Image:
    """Return the files that the shim watches."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.suffix != ".db-shm"}


async def in_order(street: Street, identity: str, serial: str) -> None:
    """Deliver the events one after the other."""
    for content in bodies(identity, serial, echo_bytes=ECHO_BYTES):
        await street.delivered(identity, content)


async def twice(street: Street, identity: str, serial: str) -> None:
    """Deliver each event twice at the same time."""
    for content in bodies(identity, serial, DECLINED):
        await asyncio.gather(street.delivered(identity, content), street.delivered(identity, content))


async def all_at_once(street: Street, identity: str, serial: str) -> None:
    """Deliver all events at once, as after an outage."""
    events = bodies(identity, serial, echo_bytes=ECHO_BYTES)
    await asyncio.gather(*(street.delivered(identity, content) for content in events))


async def with_a_bad_one(street: Street, identity: str, serial: str) -> None:
    """Deliver a body that posd refuses and keeps. Then deliver only the final event."""
    assert (await street.deliver(identity, b'{"not": "an event of %s"}' % identity.encode())).status == 400
    await street.delivered(identity, bodies(identity, serial)[-1])


async def pay(street: Street, serial: str, random: Random) -> None:
    """Make a payment in one of these ways. A till waits for the outcome."""
    identity = await street.started(serial)
    waiting = asyncio.create_task(street.outcome(identity))
    if serial not in street.scripts:
        await random.choice((in_order, twice, all_at_once, with_a_bad_one))(street, identity, serial)
    await waiting


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recording() -> AsyncIterator[Recording]:
    """Return the record of a daemon. The daemon makes payments, stops, is killed, and starts twice."""
    random = Random(SEED)
    with TemporaryDirectory(prefix="posd-") as directory:
        async with recorded(Path(directory)) as (street, _, recording):
            street.scripts[street.serials[-1]] = answering(409)
            for number in range(ROUNDS):
                await pay(street, random.choice(street.serials), random)
                await asyncio.gather(*(pay(street, serial, random) for serial in street.serials))
                assert not street.posd.faults
                if number == 0:
                    await street.posd.stop()
                    await street.posd.start()
                elif number == 1:
                    await street.posd.restart()
            left = await street.started(street.serials[0])
            await street.delivered(left, bodies(left, street.serials[0])[0])
        yield recording


def test_the_record_has_every_change_of_a_file(recording: Recording) -> None:
    """The record has every change of a file. SQLite has started the WAL again, so the test covers this moment."""
    assert replay(recording.initial, recording.operations).live() == recording.files
    anew = [item for item in recording.operations if item.offset == 0 and item.data.startswith(LOG_MAGIC)]
    assert len(anew) >= 2, "the record must contain a checkpoint and a new start of the WAL"
    print(f"{len(recording.operations)} operations, the log was started {len(anew)} times")


def cuts(recording: Recording, platter: Platter) -> Iterator[tuple[Promises, bool]]:
    """Write the recorded operations to the platter. Before each operation and after the last, yield the promises made
    so far, and whether the next operation is a sync.
    """
    promises, said, end = Promises(), iter(recording.said), 0
    pending = next(said, None)
    for operation in [*recording.operations, None]:
        while pending is not None and pending[0] <= end:
            pending[1](promises)
            pending = next(said, None)
        yield promises, operation is None or operation.kind is Kind.SYNC
        if operation is not None:
            platter.apply(operation)
            end = operation.end
    assert pending is None


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Yield a directory, in memory if possible, because the test builds many databases in it."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="posd-", dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def examine(image: Image, promises: Promises, scratch: Path) -> list[str]:
    """Build a disk and open the database. Return the faults."""
    directory = scratch / "state"
    directory.mkdir()
    try:
        for name, content in image.items():
            (directory / name).write_bytes(content)
        return failures(directory / "posd.db", promises)
    finally:
        shutil.rmtree(directory)


def test_acknowledged_data_survives_the_loss_of_everything_unsynced(recording: Recording, scratch: Path) -> None:
    """Check before each sync. Between two syncs the certain content does not change, and the number of promises is
    largest just before the second sync.
    """
    platter, tried, disks = Platter(recording.initial), 0, 0
    for promises, before_sync in cuts(recording, platter):
        tried += 1
        if before_sync:
            disks += 1
            assert examine(platter.cut(), promises, scratch) == [], f"the power is lost before operation {tried}"
    print(f"{tried} cuts, which leave {disks} different disks; {len(promises.events)} events were acknowledged")


def test_acknowledged_data_survives_when_a_part_of_the_unsynced_data_is_kept(
    recording: Recording, scratch: Path
) -> None:
    random, platter, tried = Random(SEED), Platter(recording.initial), 0
    for number, (promises, before_sync) in enumerate(cuts(recording, platter)):
        for _ in range(TORN_BEFORE_SYNC if before_sync else random.random() < TORN_SHARE):
            tried += 1
            assert examine(platter.torn(random), promises, scratch) == [], (
                f"the power is lost before operation {number}"
            )
    print(f"{tried} disks at {number + 1} cuts, seed {SEED}")


async def test_the_daemon_starts_after_a_power_loss_in_its_first_start(recording: Recording, home: Path) -> None:
    """Start the real daemon on each disk that a power loss in its first start can leave. Check that the daemon reports
    no damage.
    """
    random, platter = Random(SEED), Platter(recording.initial)
    disks: dict[tuple[tuple[str, bytes], ...], int] = {}
    for number, (promises, before_sync) in enumerate(cuts(recording, platter)):
        if promises.files:
            break
        if before_sync:
            for image in (platter.cut(), platter.torn(random)):
                disks.setdefault(tuple(sorted(image.items())), number)
    state = home / "state"
    issue.init(state / "tls", names=["localhost"], addresses=["127.0.0.1"])
    posd = Daemon(home, toml(home, '[[terminals]]\nserial = "SN-0"\n'))
    for disk, number in disks.items():
        for path in state.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in disk:
            (state / name).write_bytes(content)
        print(f"power lost before operation {number}: {[name for name, _ in disk]}")
        await posd.start()
        await posd.kill()
    print(f"{len(disks)} disks")


@dataclass
class Liar:
    """A disk that ignores each sync of one file. With `late` the disk stops syncing after the first event. The empty
    name stands for the directory.
    """

    name: str
    late: bool = False

    def believes(self, name: str, promises: Promises) -> bool:
        """Whether a sync is honest."""
        return name != self.name or (self.late and not promises.events)


LIARS = (
    Liar("posd.db-wal"),
    Liar("posd.db-wal", late=True),
    Liar("posd.db", late=True),
    Liar("callback.key.new"),
    Liar(""),
)


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: f"{liar.name or 'directory'}{'-late' if liar.late else ''}")
def test_a_disk_without_honest_syncs_loses_acknowledged_data(recording: Recording, scratch: Path, liar: Liar) -> None:
    """This test shows that the check can fail. If one kind of sync has no effect, acknowledged data is lost."""
    said = Promises()
    platter = Platter(recording.initial, believes=lambda name: liar.believes(name, said))
    for number, (promises, before_sync) in enumerate(cuts(recording, platter)):
        said.events = promises.events
        if before_sync and (lost := examine(platter.cut(), promises, scratch)):
            print(f"found before operation {number}: {lost[0]}")
            return
    pytest.fail("nothing was lost")


async def test_unsynced_data_of_a_killed_daemon_is_synced_before_it_is_acknowledged(home: Path, scratch: Path) -> None:
    """The next daemon can read the data, because the data is in the kernel's memory. A power loss would still lose the
    data.
    """
    async with recorded(home) as (street, shim, recording):
        identity = await street.started(street.serials[0])
        first, *_, last = bodies(identity, street.serials[0])
        await street.delivered(identity, first)
        shim.kill_file.touch()
        with pytest.raises((OSError, ValueError)):  # no reply comes, because the daemon dies at the sync of the COMMIT
            await street.deliver(identity, last)
        shim.kill_file.unlink()
        await street.posd.restart()
        await street.delivered(identity, last)  # the terminal sends the event again
        await street.outcome(identity)
    platter = Platter(recording.initial)
    for promises, _ in cuts(recording, platter):
        assert examine(platter.cut(), promises, scratch) == []
