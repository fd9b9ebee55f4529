"""The faults of a run. For each kind of fault, one function begins and ends the fault."""

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from posd.clock.rules import Kernel
from posd.storage import StoreError
from tests.simulation.http import Server
from tests.simulation.network import End, Way
from tests.simulation.part import within

if TYPE_CHECKING:
    from tests.simulation.plan import Fault
    from tests.simulation.terminal import Terminal
    from tests.simulation.world import World


#: Maximum wait for a sync that is to fail, in seconds.
FAILING_SECONDS: Final = 120.0
#: Seconds after which posd has ended an idle connection from the LAN.
IDLE_SECONDS: Final = 30.0


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
    world: "World", fault: "Fault", *, power: bool, operations: int = 0, away: float | None = None, failing: int = 0
) -> None:
    """Kill the daemon at once or in the middle of a disk operation. Start the daemon again after a while.

    `operations`: number of the disk operation, 0 means at once. `away`: seconds until the restart. None means the
    duration of the fault. `failing`: number of the sync from this moment that fails, 0 means none. The count of
    operations begins at that sync.
    """
    async with world.life_lock:
        machine = world.machine
        if not machine.runs:
            return
        if not operations:
            machine.kill(power=power)
        elif not failing:
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
    days = count(1 if chance // 7 % 7 == 0 else 0)
    openings = (datetime.combine(day + timedelta(days=number), time(hour, minute), zone) for number in days)
    return (next(moment for moment in openings if moment > now).astimezone(UTC) - now).total_seconds()


async def disk_error(world: "World", fault: "Fault") -> None:
    """Make one operation of the disk fail."""
    kind = ("write", "sync", "sync", "truncate")[fault.value % 4]
    world.machine.disk.fail_after(1 + fault.value // 4 % 20, kind)  # type: ignore[arg-type]
    await asyncio.sleep(fault.seconds)
    world.machine.disk.clear_faults()


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


def _terminal(world: "World", fault: "Fault") -> "Terminal":
    return world.terminals[fault.target % len(world.terminals)]


async def _log_still(world: "World", fault: "Fault") -> None:
    """Stop reading the log. posd drops the lines that do not fit, counts them, and reports the number later."""
    if world.machine.still_log is not None:
        return
    world.machine.log_stands_still()
    await asyncio.sleep(fault.seconds)
    dropped, wrong = world.machine.log_goes_on()
    if dropped:
        world.seen("log", "log.dropped")
    if wrong is not None:
        world.checks.fail(wrong)


async def _manager_still(world: "World", fault: "Fault") -> None:
    """Stop the service manager from reading."""
    world.machine.manager_stands_still()
    await asyncio.sleep(fault.seconds)
    world.machine.manager_reads = True
    world.machine.hear()


async def _link_down(world: "World", fault: "Fault") -> None:
    way = world.network.way(_terminal(world, fault).address)
    way.up.clear()
    await asyncio.sleep(fault.seconds)
    way.raise_up()


async def _links_down(world: "World", fault: "Fault") -> None:
    with world.ways_held():
        await asyncio.sleep(fault.seconds)


async def _link_cut(world: "World", fault: "Fault") -> None:
    world.network.way(_terminal(world, fault).address).cut()


async def _link_slow(world: "World", fault: "Fault") -> None:
    terminal = _terminal(world, fault)
    slow = (0.05, 0.4 + fault.value % 16 / 4)
    # the connections are open even if another such fault continues
    await for_a_while(world.network.way(terminal.address), "latency", slow, Way.latency, fault.seconds)
    with world.wrong("", {"holds"}, terminal.serial):
        pass


async def _till_crash(world: "World", fault: "Fault") -> None:
    await world.tills[fault.target % len(world.tills)].crash(min(fault.seconds, 60.0))


async def _power_cycle(world: "World", fault: "Fault", forgets: bool) -> None:
    terminal = _terminal(world, fault)
    if terminal.on:
        await terminal.power_cycle(fault.seconds, forgets=forgets)


async def _clock(world: "World", fault: "Fault", sign: int) -> None:
    clocks = world.machine.clocks
    before = await world.person.call_once("GET", "/v1/clock")
    clocks.error = sign * timedelta(seconds=(400, 5_000, 90_000, 40_000_000)[fault.value % 4])
    clocks.kernel = Kernel.UNSYNCHRONISED
    began, machine, life = world.now, world.machine, world.machine.life
    alone = sum("clock" in kind for kind in world.now_wrong) == 1
    # posd trusts a clock that was behind and jumps ahead, because the jump can be a correction.
    if life and alone and before is not None and before.json.get("sure"):
        await asyncio.sleep(min(fault.seconds, 150.0))
        if machine.task is not None and machine.started.is_set():
            state = (await world.person.call("GET", "/v1/clock")).json
            said = {"older_than_days": world.plan.retention_days or 400}
            pruned = await world.person.call_once("POST", "/v1/prune", said)
            jumped = world.now - began >= 120.0 and machine.life == life
            if machine.life == life and not state["sure"]:
                report = (await world.person.report(clocks.now(), timedelta(hours=1))).json
                world.holds(report["clock_unsure"], "the report of an untrusted clock's day does not say so")
            world.holds(not (jumped and state["sure"]), "posd trusts a clock that jumped two minutes ago")
            removed = jumped and pruned is not None and pruned.status < 400
            world.holds(not removed, f"posd removed records by an untrusted clock: {pruned and pruned.body!r}")
    await asyncio.sleep(max(0.0, began + fault.seconds - world.now))
    clocks.error = timedelta()
    clocks.kernel = Kernel.SYNCHRONISED


async def _close_shift(world: "World", _: "Fault") -> None:
    await world.person.call_once("POST", "/v1/shifts", {"operator": "P"})


async def _reload(world: "World", fault: "Fault") -> None:
    """Make the daemon reload the configuration. If the new file has a mistake, posd must keep the old configuration."""
    if fault.value % 3:
        world.machine.reload()
        return
    async with world.life_lock:
        world.machine.write_configuration("nonsense = 1\n")
        world.machine.reload()
        await asyncio.sleep(2.0)
        world.machine.write_configuration()
    world.machine.reload()


async def _connect(
    world: "World", origin: str, place: Any, many: int, said: Sequence[bytes], *, reads: bool = True
) -> list[End]:
    """Open connections, and write a text on each."""
    ends = []
    for number in range(many):
        with suppress(OSError):
            end = await world.network.dial(origin, place, credentials=(3000, 3000, 3000))
            end.attach(asyncio.Protocol())
            if not reads:
                end.pause_reading()
            end.write(said[number % len(said)])
            ends.append(end)
    return ends


async def _strangers(world: "World", fault: "Fault") -> None:
    """Open connections from an unknown host of the LAN, and send nonsense or nothing."""
    host, began = f"10.0.9.{fault.value % 200}", world.now
    said = b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 40, b"POST /w/x HTTP/1.1\r\ncontent-length: 9"
    ends = await _connect(world, host, (world.network.machine, 8443), 20 + fault.value % 200, said)
    life = world.machine.life
    await asyncio.sleep(2.0)
    if world.machine.serves(life) and not world.felt("no-descriptors"):
        held = sum(not end.ended for end in ends)
        world.holds(held <= 16, f"posd lets a stranger hold {held} connections")
    await asyncio.sleep(max(0.0, fault.seconds - 2.0))
    if world.machine.serves(life) and fault.seconds > IDLE_SECONDS and world.last("unwell") < began:
        silent = sum(not end.ended for end in ends[::4])
        world.holds(not silent, f"posd keeps {silent} idle connections open after {IDLE_SECONDS} s")
    for end in ends:
        end.abort()


async def _no_descriptors(world: "World", fault: "Fault") -> None:
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    await for_a_while(world.network, "accept_error", error, None, min(fault.seconds, 60.0))


async def _move(world: "World", fault: "Fault") -> None:
    """Change a terminal's address. The terminal announces the new address at once or late.

    A configured terminal gets the old address back.
    """
    terminal = _terminal(world, fault)
    if not terminal.on:
        return
    old = terminal.address
    world.network.way(old).there = fault.value % 2 == 0  # the old address belongs to another host or to none
    terminal.move(f"10.0.2.{1 + fault.number % 250}")
    world.seen("move", "announced" if terminal.announces else "configured")
    if fault.value % 3 or not terminal.announces:
        await asyncio.sleep(fault.seconds)
    if terminal.announces:
        terminal.announce()
    else:
        world.network.way(terminal.home).there = True
        terminal.move(terminal.home)  # the terminal may have moved again


async def _twin(world: "World", fault: "Fault") -> None:
    """Announce another device under a terminal's serial. The device accepts connections and refuses requests.

    posd must send nothing to the device while the real terminal replies.
    """
    terminal, address = _terminal(world, fault), f"10.0.3.{1 + fault.number % 250}"
    if not terminal.announces:
        return

    async def handle(method: str, target: str, body: bytes, server: Server) -> None:
        world.note("twin", "called", method, target)
        world.seen("twin", "called")
        world.holds(world.disturbed, f"posd sent {target} to a second {terminal.serial}")
        if body:
            truth = world.truth(json.loads(body).get("client_transaction_id", ""))
            if "/async/" in target:
                truth.starts.append(address)
                world.checks.start(truth)
                truth.refused, truth.end = True, truth.end or "REFUSED"
            else:
                truth.lied = True
        server.answer(409, b'{"type": "TERMINAL", "code": "TER-003", "message": "busy"}')

    way, name = world.network.way(address), f"twin-{address}"
    way.there = True
    listening = world.serve((address, terminal.port), handle, "twin")
    world.air.announce(name, terminal.serial, address, terminal.port)
    world.seen("twin", "there")
    await asyncio.sleep(fault.seconds)
    world.air.withdraw(name)
    listening.close()
    way.there = False
    way.cut()


async def _crowd(world: "World", fault: "Fault") -> None:
    """Open many connections, as a faulty till program does.

    The program reads no stream and sends incomplete requests or nonsense.
    """
    said = (
        b"GET /v1/feed HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n\r\n",
        b"PUT /v1/transactions/x HTTP/1.1\r\nhost: posd\r\ncontent-length: 100\r\n\r\n{",
        b"\x00\xff\x16\x03 nonsense\r\n\r\n",
        b"GET /v1/transactions HTTP/1.1\r\nhost: posd\r\n\r\n" * 40,
    )
    ends = await _connect(world, "crowd", world.machine.socket("till"), 20 + fault.value % 400, said, reads=False)
    world.seen("crowd", "there")
    await asyncio.sleep(min(fault.seconds, 300.0))
    for end in ends:
        end.abort()


async def _machine_moves(world: "World", fault: "Fault") -> None:
    if world.plan.announced:
        world.seen("machine", "moves")
        world.machine.move(f"10.0.0.{10 + fault.number % 200}")


class Kind:
    """A kind of fault: its number in a run of a hundred sales, its effects, and the function that plays it."""

    def __init__(self, often: float, effects: str, play: Callable[..., Awaitable[None]], **options: Any) -> None:
        self.often, self.effects, self.play = often, frozenset(effects.split()), partial(play, **options)


#: Kinds of faults, with their effects. `stops`: posd, or each way to a terminal, does not work. `stops-one`: one way to
#: a terminal does not work. During these two, nothing counts as late. `disturbs`: during the fault and soon afterwards,
#: a terminal may not reply at its address. `unwell`: at a stop, posd may not complete every start in time. `holds`: the
#: fault delays bytes.
KINDS: Final[Mapping[str, Kind]] = {
    "kill": Kind(1.0, "stops", crash, power=False),
    "kill-at-operation": Kind(2.0, "stops", kill_at_operation, power=False),
    "power": Kind(0.5, "stops", crash, power=True),
    "power-at-operation": Kind(1.0, "stops", kill_at_operation, power=True),
    "restart": Kind(0.7, "stops", restart),
    "disk-full": Kind(0.4, "stops unwell", lambda w, f: for_a_while(w.machine.disk, "full", True, False, f.seconds)),
    "disk-error": Kind(0.6, "stops unwell", disk_error),
    "disk-slow": Kind(0.5, "stops unwell", lambda w, f: for_a_while(w, "slower", 20.0, 1.0, f.seconds)),
    "disk-still": Kind(0.3, "stops unwell", disk_still),
    "link-down": Kind(1.2, "stops-one disturbs holds", _link_down),
    "links-down": Kind(0.3, "stops disturbs holds", _links_down),
    "link-cut": Kind(1.5, "stops-one disturbs", _link_cut),
    "link-slow": Kind(0.7, "stops-one disturbs", _link_slow),
    "terminal-off": Kind(0.8, "stops-one disturbs", _power_cycle, forgets=False),
    "terminal-forgets": Kind(0.5, "stops-one disturbs", _power_cycle, forgets=True),
    "till-crash": Kind(1.5, "", _till_crash),
    "clock-ahead": Kind(0.2, "", _clock, sign=1),
    "clock-back": Kind(0.2, "", _clock, sign=-1),
    "reload": Kind(0.4, "", _reload),
    "strangers": Kind(0.4, "", _strangers),
    "no-descriptors": Kind(0.2, "stops unwell", _no_descriptors),
    "backup": Kind(1.5, "", backup),
    "kill-at-start": Kind(1.5, "stops", kill_at_start),
    "restore": Kind(0.8, "stops", restore),
    "move": Kind(0.6, "stops-one disturbs", _move),
    "twin": Kind(0.5, "stops-one", _twin),
    "machine-moves": Kind(0.3, "stops disturbs", _machine_moves),
    "crowd": Kind(0.15, "", _crowd),
    "sync-error-kill": Kind(1.0, "stops unwell", sync_error_kill),
    "log-still": Kind(0.5, "", _log_still),
    "manager-still": Kind(0.3, "", _manager_still),
    "shift": Kind(1.0, "", _close_shift),
    "night": Kind(0.0, "stops", night),  # only in runs over weeks
}
