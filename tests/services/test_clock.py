"""The watch of the clock with a real store, over restarts and power cuts. The test moves the clocks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from posd.base.times import iso, parse_iso, released
from posd.clock import clock as clocks
from posd.clock.clock import LOOK_SECONDS, MOST_STRETCHES, WallClock, last_confirmation, stretches
from posd.clock.rules import CATCH_UP, Doubt, Kernel
from posd.storage import changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.store import Store
from tests.rig.tables import there

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
LIMIT = timedelta(seconds=300)
DAY = timedelta(days=1)
YEARS = timedelta(days=900)


@dataclass
class Machine:
    """A machine with clocks, the kernel's status of the clock, and a database."""

    directory: Path
    wall: datetime = NOON
    elapsed: float = 100.0
    kernel: Kernel = Kernel.UNKNOWN

    def pass_by(self, passed: timedelta) -> None:
        self.wall += passed
        self.elapsed += passed.total_seconds()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[tuple[Store, WallClock]]:
        """Run the needed parts of a daemon. Cut the power at the end."""
        store = await Store.open(self.directory / "posd.db", self.directory / "posd.db.lock")
        clock = WallClock(store, LIMIT, released(), lambda: self.wall, lambda: self.elapsed, lambda _now: self.kernel)
        try:
            await clock.begin()
            yield store, clock
        finally:
            await store.close()

    async def ran(self) -> None:
        """Run the parts and stop them in order."""
        async with self.run() as (_, clock):
            await clock.keep()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def record(store: Store, at: datetime) -> None:
    """Record a change as a payment does."""

    def work(unit: WriteTransaction) -> None:
        changes.record(unit, RecordedChange(0, iso(at), "transaction", "id", "intent", "starting", None, None, ()))

    await store.write(work)


async def test_after_a_wrong_century_and_a_power_cut_the_clock_is_trusted_again(machine: Machine) -> None:
    async with machine.run() as (store, clock):
        await clock.keep()
        machine.pass_by(timedelta(seconds=LOOK_SECONDS))
        machine.wall += timedelta(days=365 * 73)
        await record(store, machine.wall)  # payments continue
        assert not clock.is_sure()
        await clock.keep()
    async with machine.run() as (_, clock):
        assert clock.reason is Doubt.FAR_AHEAD
        await clock.keep()
    machine.wall = NOON + timedelta(minutes=1)
    async with machine.run() as (store, clock):
        assert clock.is_sure()
        await clock.keep()
        assert clock.confirmed == machine.wall
        (told,) = await store.read(stretches)
        assert (told.since, told.until, told.reason) == (iso(NOON), iso(machine.wall), "stepped_ahead")


async def test_after_a_kill_posd_still_knows_that_the_clock_was_behind(machine: Machine) -> None:
    """Records of this period have early timestamps, so the records would count as old."""
    async with machine.run() as (store, clock):
        await clock.keep()
        machine.pass_by(timedelta(seconds=LOOK_SECONDS))
        machine.wall -= YEARS
        wrong = machine.wall
        for _ in range(50):
            clock.look()
            if clock._unwritten:
                await clock.keep()
            machine.pass_by(timedelta(minutes=1))
        machine.wall -= YEARS
        earlier = machine.wall
        clock.look()
        await clock.keep()
        machine.pass_by(timedelta(minutes=1))
        clock.look()
    machine.wall = NOON + timedelta(hours=2)
    async with machine.run() as (store, clock):
        assert clock.is_sure()
        await clock.keep()
        (told,) = await store.read(stretches)
    assert (told.since, told.until) == (iso(NOON), iso(machine.wall))
    assert told.said_from == iso(earlier)
    assert told.said_to is not None
    assert parse_iso(told.said_to) in [wrong + timedelta(minutes=number) for number in range(34, 50)]
    (times,) = told.too_early(iso(NOON), DAY)
    assert times[0] < told.said_from
    assert times[1] > iso(wrong + timedelta(minutes=50))
    assert [*told.too_early(iso(machine.wall + timedelta(seconds=1)), DAY)] == []


@pytest.mark.parametrize("by", ["kernel", "kernel at once", "person"])
async def test_times_recorded_before_the_clock_was_set_ahead_count_as_too_early(machine: Machine, by: str) -> None:
    async with machine.run() as (store, clock):
        machine.pass_by(timedelta(hours=1))
        clock.look()
        before = machine.wall
        machine.kernel = Kernel.SYNCHRONISED if by == "kernel at once" else Kernel.UNSYNCHRONISED
        machine.wall += YEARS
        assert clock.is_sure() == (by == "kernel at once")
        if by == "person":
            await clock.confirm("Ana", "", None)
        else:
            machine.kernel = Kernel.SYNCHRONISED
        assert clock.is_sure()
        await clock.keep()
        (told,) = await store.read(stretches)
        assert told.set_ahead
        assert (iso(parse_iso(told.since) - 30 * DAY), told.since) in told.too_early(iso(NOON), 30 * DAY)
        assert abs(parse_iso(told.since) - before) <= timedelta(hours=1)
        machine.kernel = Kernel.UNSYNCHRONISED
        machine.wall += YEARS  # an operator sets the clock ahead for a moment, and sets it back
        clock.look()
        machine.wall -= YEARS
        assert clock.is_sure()
        await clock.keep()
        assert [item.set_ahead for item in await store.read(stretches)] == [False, True]


async def test_a_suspended_machine_does_not_count_as_a_jump(machine: Machine) -> None:
    async with machine.run() as (_, clock):
        machine.pass_by(30 * DAY)  # both clocks advance during sleep
        assert clock.is_sure()
        assert there(clock.known).highest == machine.wall


async def test_small_steps_of_the_clock_add_up_within_a_day_and_not_over_days(machine: Machine) -> None:
    async with machine.run() as (_, clock):
        for _ in range(100):
            machine.pass_by(DAY)
            machine.wall += timedelta(seconds=100)
            assert clock.is_sure()
        for _ in range(2):
            machine.pass_by(timedelta(hours=1))
            machine.wall += timedelta(seconds=250)
            clock.look()
        assert clock.reason is Doubt.STEPPED_AHEAD


async def test_a_week_of_downtime_is_accepted_and_moves_the_confirmed_time_slowly(machine: Machine) -> None:
    await machine.ran()
    machine.wall += 7 * DAY
    async with machine.run() as (_, clock):
        assert clock.is_sure()
        assert clock.confirmed == NOON, "one reading does not confirm the week"
        machine.pass_by(timedelta(hours=1))
        assert clock.confirmed == NOON + CATCH_UP * timedelta(hours=1)
        await clock.keep()
    async with machine.run() as (_, clock):  # the result is the same after any number of starts
        assert clock.confirmed == NOON + CATCH_UP * timedelta(hours=1)
        machine.kernel = Kernel.SYNCHRONISED
        assert clock.confirmed == machine.wall


async def test_an_operators_confirmation_is_stored_with_the_earlier_state(machine: Machine) -> None:
    async with machine.run() as (store, clock):
        machine.wall -= YEARS
        clock.look()
        assert clock.reason is Doubt.BEFORE_BUILD
        await clock.confirm("Ana", "by the phone", 1000)
        assert clock.is_sure()
    async with machine.run() as (store, clock):
        assert clock.is_sure(), "the build time of this version must be in the past"
        said = there(await store.read(last_confirmation))
        assert (said.operator, said.note, said.uid, said.highest_before) == ("Ana", "by the phone", 1000, iso(NOON))
        assert "this posd was made on" in said.doubt


async def test_a_clock_that_jumps_back_and_forth_does_not_fill_the_disk(machine: Machine) -> None:
    async with machine.run() as (store, clock):
        for _ in range(MOST_STRETCHES + 5):
            machine.pass_by(timedelta(seconds=LOOK_SECONDS))
            machine.wall += YEARS
            clock.look()
            machine.wall -= YEARS
            clock.look()
        await clock.keep()
        assert len(await store.read(stretches)) == MOST_STRETCHES


def test_the_kernels_status_counts_only_for_the_kernels_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC).timestamp()
    assert clocks.kernel_state(now) in Kernel
    # The kernel has no status of another clock. For such a clock the file of systemd-timesyncd counts.
    other = now + 1_000_000.0
    touched = tmp_path / "synchronized"
    monkeypatch.setattr(clocks, "TIMESYNC", touched)
    assert clocks.kernel_state(other) is Kernel.UNKNOWN
    touched.touch()
    assert clocks.kernel_state(other) is Kernel.UNKNOWN, "the file is not recent by this clock"
    assert clocks.kernel_state(now + 60.0) is Kernel.SYNCHRONISED
