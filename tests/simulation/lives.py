"""Faults of the machine: kills, power cuts, stops, nights, faults of the disk, and exchanges of the database."""

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from posd.storage import StoreError
from tests.simulation.part import within

if TYPE_CHECKING:
    from tests.simulation.plan import Fault
    from tests.simulation.world import World

#: Maximum wait for a sync that is to fail, in seconds.
FAILING_SECONDS: Final = 120.0


async def for_a_while(thing: Any, name: str, during: object, after: object, seconds: float) -> None:
    """Set an attribute of a part of the world, and set it back later."""
    setattr(thing, name, during)
    await asyncio.sleep(seconds)
    setattr(thing, name, after)


async def _start_again(world: "World", seconds: float = 0.0) -> None:
    world.checks.disk()
    await asyncio.sleep(seconds)
    world.machine.start()
    await world.started()


async def crash(
    world: "World",
    fault: "Fault",
    *,
    power: bool,
    operations: int | None = None,
    away: float | None = None,
    failing: int | None = None,
) -> None:
    """Kill the daemon at once or in the middle of a disk operation. Start the daemon again after a while.

    `away`: seconds until the restart. None means the duration of the fault. `failing`: number of the sync from this
    moment that fails. The count of operations begins at that sync.
    """
    async with world.life_lock:
        machine = world.machine
        if not machine.runs:
            return
        if operations is None:
            machine.kill(power=power)
        elif failing is None:
            machine.kill_at(operations, power=power)
        else:
            machine.disk.on_failure = partial(machine.kill_at, operations, power=power)
            machine.disk.fail_after(failing, "sync")
            failed = await within(FAILING_SECONDS, machine.killed.wait())
            machine.disk.clear_faults()
            if not failed:
                machine.kill(power=power)
        await machine.killed.wait()
        world.note("killed", power)
        usual = min(fault.seconds, 300.0) if fault.value % 3 == 0 else 1.0
        await _start_again(world, usual if away is None else away)


async def kill_at_operation(world: "World", fault: "Fault", *, power: bool) -> None:
    """Kill the daemon or cut the power in the middle of a disk operation."""
    await crash(world, fault, power=power, operations=1 + fault.value % 60)


async def kill_at_start(world: "World", fault: "Fault") -> None:
    """Kill the daemon or cut the power during a request to a terminal.

    Sometimes the machine stays down until all events are lost.
    """
    if await world.start_sent(300.0):
        await asyncio.sleep(fault.value % 20 / 100)
        await crash(world, fault, power=fault.value % 2 == 0, away=1000.0 if fault.value % 7 == 0 else None)


async def sync_error_kill(world: "World", fault: "Fault") -> None:
    """Make a sync fail. Kill the daemon soon after the sync, mostly before the next disk operation.

    Cut the power soon after the next start.
    """
    soon = (1, 1, 1, 2, 5, 12)[fault.value // 64 % 6]
    await crash(world, fault, power=False, operations=soon, failing=1 + fault.value % 20)
    await asyncio.sleep(fault.value % 7 / 2)
    await crash(world, fault, power=True, operations=1 + fault.value // 512 % 60)


async def restart(world: "World", fault: "Fault") -> None:
    """Stop the daemon in order, and start it again.

    Sometimes the stop comes while the daemon waits for the reply to a start.
    """
    held = fault.value % 4 < 2 and await world.start_sent(300.0)
    async with world.life_lock:
        with world.ways_held() if held else nullcontext():
            await asyncio.sleep(held * (0.02 + fault.value // 4 % 20 / 100))
            began = world.now
            await world.machine.stop()
        late = world.now - max(began, world.still_until)  # a stopped disk delays any stop
        world.holds(late < 4.0 * world.slower, "posd took too long to stop")
        world.note("stopped")
        world.checks.stopped()
        await _start_again(world, min(fault.seconds, 300.0) if fault.value % 3 == 0 else 0.5)


async def night(world: "World", fault: "Fault") -> None:
    """Advance the time until the shop opens again, also for the terminals."""
    manner = ("sleeps", "sleeps", "stops", "power")[fault.value % 4]
    async with world.life_lock:
        machine, clocks = world.machine, world.machine.clocks
        if manner == "stops":
            await machine.stop()
        elif manner == "power" and machine.runs:
            machine.kill(power=True)
            await machine.killed.wait()
        clocks.slept += _until_opening(clocks.true, fault.value // 4, ZoneInfo(world.plan.timezone))
        world.note("morning", clocks.true, manner)
        world.seen("night", manner)
        if manner != "sleeps":
            await _start_again(world)


def _until_opening(now: datetime, chance: int, zone: tzinfo) -> float:
    """Return the seconds until a shop opens. Most shops open in the morning.

    Some shops open so late that sales continue over midnight or over a change of the clocks.
    """
    day = now.astimezone(zone).date()
    hour, minute = {0: (23, 50), 1: (1, 50)}.get(chance % 7, (8, chance % 60))
    days = 2 if chance // 7 % 7 == 0 else 1
    found = datetime.combine(day, time(hour, minute), zone)
    while found <= now or days > 1:
        day, days = day + timedelta(days=1), days - 1
        found = datetime.combine(day, time(hour, minute), zone)
    return (found.astimezone(UTC) - now).total_seconds()


async def disk_error(world: "World", fault: "Fault") -> None:
    """Make one operation of the disk fail."""
    kind = ("write", "sync", "sync", "truncate")[fault.value % 4]
    world.machine.disk.fail_after(1 + fault.value // 4 % 20, kind)  # type: ignore[arg-type]
    await asyncio.sleep(fault.seconds)
    world.machine.disk.clear_faults()


async def disk_full(world: "World", fault: "Fault") -> None:
    """Refuse new and longer files."""
    await for_a_while(world.machine.disk, "full", True, False, fault.seconds)


async def disk_slow(world: "World", fault: "Fault") -> None:
    """Slow the disk down."""
    await for_a_while(world, "slower", 20.0, 1.0, fault.seconds)


async def disk_still(world: "World", fault: "Fault") -> None:
    """Hold all disk operations until the fault ends."""
    world.still_until = world.now + fault.seconds
    await asyncio.sleep(fault.seconds)


def _snapshot(world: "World", fault: "Fault") -> None:
    path = world.machine.home / f"snapshot-{fault.number}"
    world.machine.snapshot(path)
    world.backups.append(path)


async def backup(world: "World", fault: "Fault") -> None:
    """Make a backup or a snapshot of the disk. The daemon may end during the backup."""
    if fault.value % 3 == 0:
        _snapshot(world, fault)
        world.seen("backup", "snapshot")
        return
    path = world.machine.home / "state" / f"backup-{fault.number}.db"
    newest = world.checks.newest_seq
    reply = await world.person.call_once("POST", "/v1/backup", {"path": str(path)})
    world.seen("backup", "no answer" if reply is None else str(reply.status))
    if reply is not None and reply.status == 200:
        world.checks.sound(path, newest)
        world.backups.append(path)


async def restore(world: "World", fault: "Fault") -> None:
    """Restore a backup or a snapshot. The operator confirms the restore when posd refuses a till because of it."""
    if not world.backups:
        _snapshot(world, fault)
        await asyncio.sleep(min(fault.seconds, 200.0))
    async with world.life_lock:
        machine = world.machine
        if not machine.runs:
            return
        source = world.backups[fault.value // 4 % len(world.backups)]
        if fault.value % 2:
            await machine.stop()
        else:
            machine.kill()
            await machine.killed.wait()
        world.checks.disk()
        snapshot = source.is_dir()
        world.note("restore", source.name)
        try:
            if snapshot:
                world.checks.gone_back(machine.database, source / machine.database.name)
                machine.put_back(source)
            else:
                machine.restore(source)
        except StoreError as error:
            world.seen("restore", "failed")
            world.checks.cannot_start(error)
        else:
            world.seen("restore", "snapshot" if snapshot else "backup")
            world.checks.replaced = True
            world.checks.lost_some |= not snapshot
        machine.start()
        await world.started()
