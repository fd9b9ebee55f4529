"""posd's own probes of terminals, over real TLS connections. Probes without a reason are rare."""

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from posd.config import load
from posd.terminals import fleet as schedule
from posd.terminals.announcements import Announcement
from posd.terminals.fleet import MAX_LOOKS, Fleet, Liveness
from posd.terminals.identity import Proof, Trusted
from posd.terminals.terminal import AddressChange
from tests.rig.daemon import toml
from tests.rig.terminal import ScriptedTerminal, scripted_terminal
from tests.rig.waits import until

AT = "2026-11-20T10:00:00.000Z"
PATIENCE_SECONDS = 60.0


class Visits:
    """Counter of the connections to a terminal, with the bytes sent over them."""

    def __init__(self, terminal: ScriptedTerminal) -> None:
        self.count = self.open = self.most = 0
        self.sent = b""
        self.let_go: asyncio.Event | None = None
        self._news = asyncio.Condition()
        terminal.instead = self._visit

    async def _visit(self, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        self.count += 1
        self.open += 1
        self.most = max(self.most, self.open)
        async with self._news:
            self._news.notify_all()
        self.sent += await reader.read()
        self.open -= 1

    async def at_least(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._news:
            await self._news.wait_for(lambda: self.count >= count)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses for the tests."""
    for name in ("SPACING_SECONDS", "OPEN_SECONDS", "LOST_SECONDS", "MAX_LOST_SECONDS"):
        monkeypatch.setattr(schedule, name, getattr(schedule, name) / 200)


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    async with scripted_terminal(tmp_path, "SN-1") as made:
        yield made


def fleet_of(
    home: Path, terminal: ScriptedTerminal, *, configured: bool, serials: Collection[str] = ("SN-1",)
) -> Fleet:
    trust = f'ca_file = "{terminal.ca_file}"\nconnect_timeout_seconds = 60\n'
    entries = ""
    for serial in serials:
        path = f"/{serial}" if len(serials) > 1 else ""
        address = f'base_url = "{terminal.base_url}{path}"\n' if configured else ""
        entries += f'[[terminals]]\nserial = "{serial}"\n{trust}{address}'
    (home / "config.toml").write_text(toml(home, entries))
    return Fleet(load(home / "config.toml").terminals)


@asynccontextmanager
async def looking(fleet: Fleet, every: float = 0, busy: Collection[str] = ()) -> AsyncIterator[Liveness]:
    """Make posd probe the fleet for the block. No task remains after the block."""
    before = asyncio.all_tasks()
    liveness = Liveness(fleet, every, busy.__contains__, random.random)
    task = asyncio.create_task(liveness.run())
    yield liveness
    task.cancel()
    await asyncio.wait({task})
    await fleet.close()
    left = [item for item in asyncio.all_tasks() - before if item.get_name().startswith(("look-", "liveness-"))]
    assert left == []


def announce(fleet: Fleet, terminal: ScriptedTerminal) -> None:
    port = int(terminal.base_url.rsplit(":", 1)[1])
    fleet.announce(Announcement("a", "SN-1", ("127.0.0.1",), port, None, None, AT))


async def until_reachable(fleet: Fleet, reachable: bool) -> None:
    """Wait until the fleet has this state. Every probe reports its result."""
    told = asyncio.Event()
    fleet.listen(lambda _serial: told.set(), *AddressChange)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while next(iter(fleet.documents({}, everything=False))).reachable is not reachable:
            told.clear()
            await told.wait()


async def test_an_announced_terminal_is_probed_and_sent_nothing(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    visits = Visits(terminal)
    fleet = fleet_of(tmp_path, terminal, configured=False)
    async with looking(fleet):
        announce(fleet, terminal)
        await until_reachable(fleet, True)
        await visits.at_least(1)
    assert visits.sent == b""


async def test_a_lost_terminal_is_probed_and_its_return_is_reported(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    fleet = fleet_of(tmp_path, terminal, configured=True)
    returned = asyncio.Event()
    fleet.listen(lambda _serial: returned.set(), AddressChange.RETURNED)
    async with looking(fleet):
        fleet.of("SN-1").note_call(terminal.base_url, "a call failed")
        assert next(iter(fleet.documents({}, everything=False))).reason == "a call failed"
        async with asyncio.timeout(PATIENCE_SECONDS):
            await returned.wait()
        await until_reachable(fleet, True)


async def test_a_configured_address_is_probed_regularly(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    visits = Visits(terminal)
    async with looking(fleet_of(tmp_path, terminal, configured=True), every=0.01):
        await visits.at_least(3)


async def test_a_terminal_with_an_open_payment_is_probed(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    visits = Visits(terminal)
    async with looking(fleet_of(tmp_path, terminal, configured=True), busy={"SN-1"}):
        await visits.at_least(2)


async def test_without_a_reason_there_is_no_probe_and_no_timer(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    fleet = fleet_of(tmp_path, terminal, configured=True)
    async with looking(fleet) as liveness:
        await asyncio.sleep(0)  # the task of the probes runs to its first wait
        fleet.heard_from("SN-1", AT)
        assert liveness._timers == {}


async def test_a_new_payment_causes_a_probe(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    visits, busy = Visits(terminal), set[str]()
    async with looking(fleet_of(tmp_path, terminal, configured=True), busy=busy) as liveness:
        await asyncio.sleep(0)  # the task of the probes runs to its first wait
        assert liveness._timers == {}
        busy.add("SN-1")
        liveness.changed("SN-1")
        await visits.at_least(2)


async def test_a_new_address_causes_a_probe(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    visits, fleet = Visits(terminal), fleet_of(tmp_path, terminal, configured=False)
    async with looking(fleet, busy={"SN-1"}) as liveness:
        await asyncio.sleep(0)  # the task of the probes runs to its first wait
        assert liveness._timers == {}
        fleet.of("SN-1").trust(Trusted(terminal.base_url, Proof.NONE, AT))
        await visits.at_least(2)


async def test_an_event_delays_the_probe_without_a_new_timer(
    tmp_path: Path, terminal: ScriptedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "OPEN_SECONDS", 3600.0)
    visits = Visits(terminal)
    fleet = fleet_of(tmp_path, terminal, configured=True)
    async with looking(fleet, busy={"SN-1"}) as liveness:
        await asyncio.sleep(0)  # the task of the probes runs to its first wait
        timer = liveness._timers["SN-1"]
        fleet.heard_from("SN-1", AT)
        assert liveness._timers["SN-1"] is timer
        timer.cancel()
        liveness._ended("SN-1")
        assert liveness._timers["SN-1"].when() > timer.when()
        assert not liveness._looks
    assert visits.count == 0


async def test_repeated_requests_for_probes_cause_no_further_probe(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    fleet = fleet_of(tmp_path, terminal, configured=True)
    news: list[str] = []
    async with looking(fleet):
        fleet.request_probes()
        await until_reachable(fleet, True)
        fleet.listen(news.append, *AddressChange)
        for _ in range(100):
            fleet.request_probes()
    assert news == []


async def test_a_whole_fleet_is_probed_a_few_terminals_at_a_time(tmp_path: Path, terminal: ScriptedTerminal) -> None:
    serials = [f"SN-{number}" for number in range(30)]
    visits = Visits(terminal)
    fleet = fleet_of(tmp_path, terminal, configured=True, serials=serials)
    most = 0

    def count(_serial: str) -> None:
        nonlocal most
        most = max(
            most, sum(len(terminal._probes) for terminal in fleet) + 1
        )  # the probe that reports its result has just ended

    async with looking(fleet):
        fleet.listen(count, AddressChange.REACHED, AddressChange.MISSED)
        fleet.network_changed()
        await visits.at_least(len(serials))
    assert most == MAX_LOOKS


async def test_a_flapping_announcement_causes_no_flood_of_probes(
    tmp_path: Path, terminal: ScriptedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SPACING_SECONDS", 3600.0)
    visits = Visits(terminal)
    fleet = fleet_of(tmp_path, terminal, configured=False)
    async with looking(fleet) as liveness:
        announce(fleet, terminal)
        await until_reachable(fleet, True)
        for _ in range(100):
            fleet.withdraw("a")
            announce(fleet, terminal)
        await until(lambda: not liveness._looks)  # the first probe has reported its result and is about to end
        assert liveness._timers["SN-1"].when() - asyncio.get_running_loop().time() > 3600.0 / 2
        await visits.at_least(1)
    assert visits.count == 1
