"""The faults of a run. For each kind of fault, one function begins and ends the fault."""

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from posd.clock.rules import Kernel
from tests.simulation.http import Asked, Server
from tests.simulation.network import Way
from tests.simulation.plan import Fault

if TYPE_CHECKING:
    from tests.simulation.network import End
    from tests.simulation.terminal import Terminal
    from tests.simulation.world import World


class Twin:
    """A device that announces itself, accepts connections and refuses requests.

    posd must send nothing to the device while the real terminal replies.
    """

    def __init__(self, world: "World", terminal: "Terminal", address: str) -> None:
        self._world, self._terminal, self._address = world, terminal, address
        self._name = f"twin-{address}"
        world.network.way(address).there = True
        self._listening = world.network.serve(address, terminal.port, self._connected)
        world.air.announce(self._name, terminal.serial, address, terminal.port)
        world.seen("twin", "there")

    def _connected(self, end: "End") -> None:
        end.attach(Server(end, self._handle))

    async def _handle(self, asked: Asked, server: Server) -> None:
        world = self._world
        world.note("twin", "called", asked.method, asked.target)
        world.seen("twin", "called")
        world.checks.holds(world.disturbed, f"posd sent {asked.target} to a second {self._terminal.serial}")
        if asked.body:
            truth = world.bank.of(json.loads(asked.body).get("client_transaction_id", ""))
            if "/async/" in asked.target:
                truth.starts.append(self._address)
                world.checks.start(truth)
                truth.refused, truth.end = True, truth.end or "REFUSED"
            else:
                truth.lied = True
        server.answer(409, b'{"type": "TERMINAL", "code": "TER-003", "message": "busy"}')

    def leave(self) -> None:
        """Withdraw the device."""
        self._world.air.withdraw(self._name)
        self._listening.close()
        way = self._world.network.way(self._address)
        way.there = False
        way.cut()


#: Seconds after which posd has ended an idle connection from the LAN.
IDLE_SECONDS: Final = 30.0

Trouble = Callable[["World", Fault], Awaitable[None]]


def _terminal(world: "World", fault: Fault) -> "Terminal":
    return world.terminals[fault.target % len(world.terminals)]


async def _kill_at_start(world: "World", fault: Fault) -> None:
    """Kill the daemon or cut the power during a request to a terminal.

    Sometimes the machine stays down until all events are lost.
    """
    if not await world.start_sent(300.0):
        return
    await asyncio.sleep(fault.value % 20 / 100)
    await world.crash(fault, power=fault.value % 2 == 0, away=1000.0 if fault.value % 7 == 0 else None)


async def _disk_full(world: "World", fault: Fault) -> None:
    world.machine.disk.full = True
    await asyncio.sleep(fault.seconds)
    world.machine.disk.full = False


async def _disk_error(world: "World", fault: Fault) -> None:
    kind = ("write", "sync", "sync", "truncate")[fault.value % 4]
    world.machine.disk.fail_after(1 + fault.value // 4 % 20, kind)  # type: ignore[arg-type]
    await asyncio.sleep(fault.seconds)
    world.machine.disk.clear_faults()


async def _sync_error_kill(world: "World", fault: Fault) -> None:
    """Make a sync fail. Kill the daemon soon after the sync, mostly before the next disk operation.

    Cut the power soon after the next start.
    """
    soon = (1, 1, 1, 2, 5, 12)[fault.value // 64 % 6]
    await world.crash(fault, power=False, operations=soon, failing=1 + fault.value % 20)
    await asyncio.sleep(fault.value % 7 / 2)
    await world.crash(fault, power=True, operations=1 + fault.value // 512 % 60)


async def _disk_slow(world: "World", fault: Fault) -> None:
    world.slower = 20.0
    await asyncio.sleep(fault.seconds)
    world.slower = 1.0


async def _disk_still(world: "World", fault: Fault) -> None:
    """Hold all disk operations until the fault ends."""
    world.still_until = world.loop.time() + fault.seconds
    await asyncio.sleep(fault.seconds)


async def _log_still(world: "World", fault: Fault) -> None:
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


async def _manager_still(world: "World", fault: Fault) -> None:
    """Stop the service manager from reading."""
    world.machine.manager_stands_still()
    await asyncio.sleep(fault.seconds)
    if world.machine.manager is not None:
        world.machine.manager.go_on()


async def _link_down(world: "World", fault: Fault) -> None:
    way = world.network.way(_terminal(world, fault).address)
    way.up = False
    await asyncio.sleep(fault.seconds)
    way.raise_up()


async def _links_down(world: "World", fault: Fault) -> None:
    world.hold_ways()
    await asyncio.sleep(fault.seconds)
    world.let_ways_go()


async def _link_cut(world: "World", fault: Fault) -> None:
    world.network.way(_terminal(world, fault).address).cut()


async def _link_slow(world: "World", fault: Fault) -> None:
    way = world.network.way(_terminal(world, fault).address)
    way.latency = (0.05, 0.4 + fault.value % 16 / 4)
    await asyncio.sleep(fault.seconds)
    way.latency = Way.latency  # the connections are open even if another such fault continues


async def _power_cycle(world: "World", fault: Fault, forgets: bool) -> None:
    terminal = _terminal(world, fault)
    if terminal.on:
        await terminal.power_cycle(fault.seconds, forgets=forgets)


async def _clock(world: "World", fault: Fault, sign: int) -> None:
    clocks = world.machine.clocks
    before = await world.person.call_once("GET", "/v1/clock")
    clocks.error = sign * timedelta(seconds=(400, 5_000, 90_000, 40_000_000)[fault.value % 4])
    clocks.kernel = Kernel.UNSYNCHRONISED
    began, life = world.loop.time(), world.machine.life
    alone = "clock" not in "".join(kind for number, kind in world.now_wrong.items() if number != fault.number)
    # posd trusts a clock that was behind and jumps ahead, because the jump can be a correction.
    if life and alone and before is not None and before.json.get("sure"):
        await asyncio.sleep(min(fault.seconds, 150.0))
        await _look_at_clock(world, began, life)
    await asyncio.sleep(max(0.0, began + fault.seconds - world.loop.time()))
    clocks.error = timedelta()
    clocks.kernel = Kernel.SYNCHRONISED


async def _look_at_clock(world: "World", began: float, life: int) -> None:
    """Check that the daemon does not trust the clock two minutes after a jump."""
    if world.machine.task is None or not world.machine.started.is_set():
        return
    state = (await world.person.call("GET", "/v1/clock")).json
    said = {"older_than_days": world.plan.retention_days or 400}
    pruned = await world.person.call_once("POST", "/v1/prune", said)
    if world.loop.time() - began >= 120.0 and world.machine.life == life:
        world.checks.holds(not state["sure"], "posd trusts a clock that jumped two minutes ago")
        refused = pruned is None or pruned.status >= 400
        world.checks.holds(refused, f"posd removed records by an untrusted clock: {pruned and pruned.body!r}")


async def _reload(world: "World", fault: Fault) -> None:
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


async def _strangers(world: "World", fault: Fault) -> None:
    """Open connections from an unknown host of the LAN, and send nonsense or nothing."""
    host = f"10.0.9.{fault.value % 200}"
    ends = []
    for number in range(20 + fault.value % 200):
        with suppress(OSError):
            end = await world.network.dial(host, (world.network.machine, 8443))
            end.attach(asyncio.Protocol())
            end.write(
                (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 40, b"POST /w/x HTTP/1.1\r\ncontent-length: 9")[
                    number % 4
                ]
            )
            ends.append(end)
    life = world.machine.life
    await asyncio.sleep(2.0)
    if world.machine.serves(life) and not world.felt("no-descriptors"):
        held = sum(not end.ended for end in ends)
        world.checks.holds(held <= 16, f"posd lets a stranger hold {held} connections")
    await asyncio.sleep(max(0.0, fault.seconds - 2.0))
    if world.machine.serves(life) and fault.seconds > IDLE_SECONDS:
        silent = sum(not end.ended for end in ends[::4])
        world.checks.holds(not silent, f"posd keeps {silent} idle connections open after {IDLE_SECONDS} s")
    for end in ends:
        end.abort()


async def _no_descriptors(world: "World", fault: Fault) -> None:
    world.network.accept_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    await asyncio.sleep(min(fault.seconds, 60.0))
    world.network.accept_error = None


async def _move(world: "World", fault: Fault) -> None:
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


async def _twin(world: "World", fault: Fault) -> None:
    """Announce another device under a terminal's serial. The device accepts connections."""
    terminal = _terminal(world, fault)
    if not terminal.announces:
        return
    twin = Twin(world, terminal, f"10.0.3.{1 + fault.number % 250}")
    await asyncio.sleep(fault.seconds)
    twin.leave()


async def _crowd(world: "World", fault: Fault) -> None:
    """Open many connections, as a faulty till program does.

    The program reads no stream and sends incomplete requests or nonsense.
    """
    said = (
        b"GET /v1/feed HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n\r\n",
        b"PUT /v1/transactions/x HTTP/1.1\r\nhost: posd\r\ncontent-length: 100\r\n\r\n{",
        b"\x00\xff\x16\x03 nonsense\r\n\r\n",
        b"GET /v1/transactions HTTP/1.1\r\nhost: posd\r\n\r\n" * 40,
    )
    ends = []
    for number in range(20 + fault.value % 400):
        with suppress(OSError):
            end = await world.network.dial("crowd", world.machine.till_socket, credentials=(3000, 3000, 3000))
            end.attach(asyncio.Protocol())
            end.pause_reading()
            end.write(said[number % len(said)])
            ends.append(end)
    world.seen("crowd", "there")
    await asyncio.sleep(min(fault.seconds, 300.0))
    for end in ends:
        end.abort()


async def _machine_moves(world: "World", fault: Fault) -> None:
    if world.plan.announced:
        world.seen("machine", "moves")
        world.machine.move(f"10.0.0.{10 + fault.number % 200}")


TROUBLES: Final[Mapping[str, Trouble]] = {
    "kill": lambda world, fault: world.crash(fault, power=False),
    "kill-at-operation": lambda world, fault: world.crash(fault, power=False, operations=1 + fault.value % 60),
    "power": lambda world, fault: world.crash(fault, power=True),
    "power-at-operation": lambda world, fault: world.crash(fault, power=True, operations=1 + fault.value % 60),
    "restart": lambda world, fault: world.restart(fault),
    "disk-full": _disk_full,
    "disk-error": _disk_error,
    "disk-slow": _disk_slow,
    "disk-still": _disk_still,
    "link-down": _link_down,
    "links-down": _links_down,
    "link-cut": _link_cut,
    "link-slow": _link_slow,
    "terminal-off": partial(_power_cycle, forgets=False),
    "terminal-forgets": partial(_power_cycle, forgets=True),
    "till-crash": lambda world, fault: world.tills[fault.target % len(world.tills)].crash(min(fault.seconds, 60.0)),
    "clock-ahead": partial(_clock, sign=1),
    "clock-back": partial(_clock, sign=-1),
    "reload": _reload,
    "strangers": _strangers,
    "no-descriptors": _no_descriptors,
    "night": lambda world, fault: world.night(fault),
    "backup": lambda world, fault: world.backup(fault),
    "restore": lambda world, fault: world.restore(fault),
    "kill-at-start": _kill_at_start,
    "move": _move,
    "twin": _twin,
    "machine-moves": _machine_moves,
    "crowd": _crowd,
    "sync-error-kill": _sync_error_kill,
    "log-still": _log_still,
    "manager-still": _manager_still,
}
