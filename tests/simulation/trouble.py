"""The faults of a run. For each kind of fault, one function begins and ends the fault."""

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from posd.clock.rules import Kernel
from tests.simulation import lives
from tests.simulation.http import Server
from tests.simulation.lives import for_a_while
from tests.simulation.network import Way

if TYPE_CHECKING:
    from tests.simulation.network import End
    from tests.simulation.plan import Fault
    from tests.simulation.terminal import Terminal
    from tests.simulation.world import World


#: Seconds after which posd has ended an idle connection from the LAN.
IDLE_SECONDS: Final = 30.0


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
            world.holds(not (jumped and state["sure"]), "posd trusts a clock that jumped two minutes ago")
            removed = jumped and pruned is not None and pruned.status < 400
            world.holds(not removed, f"posd removed records by an untrusted clock: {pruned and pruned.body!r}")
    await asyncio.sleep(max(0.0, began + fault.seconds - world.now))
    clocks.error = timedelta()
    clocks.kernel = Kernel.SYNCHRONISED


async def _reload(world: "World", fault: "Fault") -> None:
    """Make the daemon reload the configuration. If the new file has a mistake, posd must keep the old configuration."""
    if fault.value % 3:
        world.machine.reload()
        return
    async with world.life_lock:
        good = world.machine.text
        world.machine.text = f"nonsense = 1\n{good}"
        world.machine.write_configuration()
        world.machine.reload()
        await asyncio.sleep(2.0)
        world.machine.text = good
        world.machine.write_configuration()
    world.machine.reload()


async def _connect(
    world: "World", origin: str, place: Any, count: int, said: Sequence[bytes], *, reads: bool = True
) -> list["End"]:
    """Open connections, and write a text on each."""
    ends = []
    for number in range(count):
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
    host = f"10.0.9.{fault.value % 200}"
    said = b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 40, b"POST /w/x HTTP/1.1\r\ncontent-length: 9"
    ends = await _connect(world, host, (world.network.machine, 8443), 20 + fault.value % 200, said)
    life = world.machine.life
    await asyncio.sleep(2.0)
    if world.machine.serves(life) and not world.felt("no-descriptors"):
        held = sum(not end.ended for end in ends)
        world.holds(held <= 16, f"posd lets a stranger hold {held} connections")
    await asyncio.sleep(max(0.0, fault.seconds - 2.0))
    if world.machine.serves(life) and fault.seconds > IDLE_SECONDS:
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
    listening = world.network.serve(
        address, terminal.port, lambda end: world.spawn("call", Server(end).serve(handle), "twin call")
    )
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


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its number in a run of a hundred sales, its effects, and the function that plays it."""

    often: float
    effects: frozenset[str]
    play: Callable[["World", "Fault"], Awaitable[None]]


def _kind(often: float, effects: str, play: Callable[..., Awaitable[None]], **options: Any) -> Kind:
    return Kind(often, frozenset(effects.split()), partial(play, **options))


#: Effects of faults. During a fault that `stops` posd, or that `stops-one` way to a terminal, nothing counts as late.
#: During and soon after a fault that `disturbs`, a terminal may not reply at its address. During a fault that makes
#: posd `unwell`, posd may fail to complete every start in time at a stop. A fault that `holds` delays bytes.
KINDS: Final[Mapping[str, Kind]] = {
    "kill": _kind(1.0, "stops", lives.crash, power=False),
    "kill-at-operation": _kind(2.0, "stops", lives.kill_at_operation, power=False),
    "power": _kind(0.5, "stops", lives.crash, power=True),
    "power-at-operation": _kind(1.0, "stops", lives.kill_at_operation, power=True),
    "restart": _kind(0.7, "stops", lives.restart),
    "disk-full": _kind(0.4, "stops unwell", lives.disk_full),
    "disk-error": _kind(0.6, "stops unwell", lives.disk_error),
    "disk-slow": _kind(0.5, "stops unwell", lives.disk_slow),
    "disk-still": _kind(0.3, "stops unwell", lives.disk_still),
    "link-down": _kind(1.2, "stops-one disturbs holds", _link_down),
    "links-down": _kind(0.3, "stops disturbs holds", _links_down),
    "link-cut": _kind(1.5, "stops-one disturbs", _link_cut),
    "link-slow": _kind(0.7, "stops-one disturbs", _link_slow),
    "terminal-off": _kind(0.8, "stops-one disturbs", _power_cycle, forgets=False),
    "terminal-forgets": _kind(0.5, "stops-one disturbs", _power_cycle, forgets=True),
    "till-crash": _kind(1.5, "", _till_crash),
    "clock-ahead": _kind(0.2, "", _clock, sign=1),
    "clock-back": _kind(0.2, "", _clock, sign=-1),
    "reload": _kind(0.4, "", _reload),
    "strangers": _kind(0.4, "", _strangers),
    "no-descriptors": _kind(0.2, "stops unwell", _no_descriptors),
    "backup": _kind(1.5, "", lives.backup),
    "kill-at-start": _kind(1.5, "stops", lives.kill_at_start),
    "restore": _kind(0.8, "stops", lives.restore),
    "move": _kind(0.6, "stops-one disturbs", _move),
    "twin": _kind(0.5, "stops-one", _twin),
    "machine-moves": _kind(0.3, "stops disturbs", _machine_moves),
    "crowd": _kind(0.15, "", _crowd),
    "sync-error-kill": _kind(1.0, "stops unwell", lives.sync_error_kill),
    "log-still": _kind(0.5, "", _log_still),
    "manager-still": _kind(0.3, "", _manager_still),
    "night": _kind(0.0, "stops", lives.night),  # only in runs over weeks
}
