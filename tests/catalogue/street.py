"""Real daemons and a simulated terminal for each scenario of the catalogue. Each scenario is played once, many at the
same time.

The module runs two daemons. The first daemon never searches by itself, so that the ends come from the scenarios on any
machine. The second daemon searches soon, for scenarios that end by a search. The daemons differ only in these times.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from posd import tls
from posd.simulator import Settings, Simulator
from posd.simulator.scenario import Certificate, Scenario, TerminalAction, payments
from posd.tls import issue
from tests.catalogue import schemes
from tests.catalogue.expected import expect_of
from tests.catalogue.playing import News, Play, Played
from tests.support.daemon import Daemon, running
from tests.support.ports import reserve

#: Factor by which terminals are faster than people: an approved cycle takes about a second.
SPEED = 20.0
#: Of both daemons.
DEBUG = '[logging]\nlevel = "debug"\n'
#: Limits of the daemon that searches soon, in real seconds. These limits are shorter than the default limits, and far
#: from the times of the scenarios.
SOON = """
[reconcile]
first_event_grace_seconds = 4
stall_seconds = 12
stall_after_request_seconds = 6
"""
#: Limit that is longer than the time of all scenarios together.
SELDOM = """
[reconcile]
first_event_grace_seconds = 600
stall_seconds = 1200
stall_after_request_seconds = 600
"""
DISCOVERY = 'enabled = true\ninterfaces = ["127.0.0.1"]'
#: Time-out in real seconds, long enough for a reply on a busy machine.
PATIENT = "connect_timeout_seconds = 60\nreply_timeout_seconds = 120\n"
#: Time-out for terminals that do not reply, or reply after posd's default time-out.
IMPATIENT = "connect_timeout_seconds = 60\nreply_timeout_seconds = 1\n"
#: Sum of posd's two default time-outs, in terminal seconds. After this time posd has given up the call.
GIVEN_UP_SECONDS = 23.0
#: A terminal of the fleet without a device. Events of other terminals may have the serial of this terminal.
ANOTHER_SERIAL = "SN-0002"
#: Number of scenarios that are played at the same time.
TOGETHER = 16


@dataclass
class Street:
    """A daemon, and the parts that its scenarios need."""

    daemon: Daemon
    news: News
    terminals: Mapping[str, Settings]
    places: asyncio.Semaphore
    #: Terminals that run until the end, because their payments stay open or posd may still search.
    simulators: dict[str, Simulator] = field(default_factory=dict)

    async def play(self, name: str) -> Played:
        """Play a scenario to its end."""
        async with self.places:
            simulator = self.simulators[name] = await Simulator(self.terminals[name]).__aenter__()
            return await Play(self.daemon, self.news, name, simulator).run()


def _gives_up(scenario: Scenario) -> bool:
    """Return whether a call of this scenario must time out."""
    replies = (scenario.start, scenario.abort, scenario.search)
    return any(reply.fault == "silent" or _longest(reply.after) > GIVEN_UP_SECONDS for reply in replies)


def _asked_soon(scenario: Scenario) -> bool:
    """Return whether a scenario needs the daemon that searches soon. The end of such a scenario comes by a search or a
    time-out, or the terminal moves.
    """
    expect = expect_of(scenario)
    brought = expect.phase == "final" and expect.evidence in ("event", "refusal", "unsent")
    by_time = {"stalled", "no_callback"} & {*expect.attention, *expect.passed}
    return not brought or bool(by_time) or _gives_up(scenario) or _does(scenario, "move")


def _longest(span: float | tuple[float, float]) -> float:
    return span[1] if isinstance(span, tuple) else span


def _does(scenario: Scenario, deed: TerminalAction) -> bool:
    return any(step.do is deed for step in scenario.steps)


def _changes_key(scenario: Scenario) -> bool:
    return Certificate.CHANGED in (scenario.certificate, *(step.certificate for step in scenario.steps))


def _terminal(directory: Path, name: str, scenario: Scenario, made: tls.TlsFiles, trust: Path) -> Settings:
    """Return the settings of the terminal that plays a scenario."""
    state = directory / name
    state.mkdir()
    return Settings(
        state=state,
        serial=f"SN-{name}"[:54] + f"-{token_hex(4)}",
        port=reserve(),
        certificate=made.certificate,
        private_key=made.private_key,
        ca_certificate=made.ca_certificate,
        ca_private_key=made.ca_key,
        trust=trust,
        speed=SPEED,
        wait_seconds=0,
        delivery_timeout=60,
        mdns=_does(scenario, "move"),
        mdns_interfaces=("127.0.0.1",),
        move_ports=(reserve(),),
        **({"scenario": name} if scenario.out_of_reach else {}),
        **schemes.SETTINGS,
    )


def _entry(scenario: Scenario, settings: Settings, made: tls.TlsFiles, fingerprint: str, signed: str) -> str:
    """Return the entry of that terminal in posd's configuration."""
    address = "" if settings.mdns else f'base_url = "https://127.0.0.1:{settings.port}"\n'
    # posd follows a terminal that moves during a payment only if the certificate is pinned.
    pinned = _changes_key(scenario) or settings.mdns
    trust = f'fingerprint_sha256 = "{fingerprint}"' if pinned else f'ca_file = "{made.ca_certificate}"'
    times = IMPATIENT if _gives_up(scenario) else PATIENT
    return f'[[terminals]]\nserial = "{settings.serial}"\n{address}{trust}\n{times}{signed}'


@asynccontextmanager
async def _street(
    directory: Path, scenarios: Mapping[str, Scenario], soon: bool, places: asyncio.Semaphore
) -> AsyncIterator[Street]:
    """Run a daemon for the block, with a terminal in its fleet for each of these scenarios."""
    made = issue.init(directory / "terminals" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    trust = directory / "state" / "tls" / "ca.crt"
    fingerprint = tls.describe(made.certificate).fingerprint_sha256
    terminals = {
        name: _terminal(directory / "terminals", name, scenario, made, trust) for name, scenario in scenarios.items()
    }
    signed = schemes.entry(directory)
    fleet = "".join(_entry(item, terminals[name], made, fingerprint, signed) for name, item in scenarios.items())
    fleet += f'[[terminals]]\nserial = "{ANOTHER_SERIAL}"\n'
    discovery = DISCOVERY if soon else "enabled = false"
    async with running(directory, fleet, (SOON if soon else SELDOM) + DEBUG, discovery) as daemon:
        news = News()
        following = asyncio.create_task(news.follow(daemon.till_socket))
        opened = Street(daemon, news, terminals, places)
        try:
            yield opened
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.gather(*(item.__aexit__(None, None, None) for item in opened.simulators.values()))


@asynccontextmanager
async def streets(directory: Path, names: Iterable[str]) -> AsyncIterator[Mapping[str, Street]]:
    """Run the daemons for the block. Return the daemon for each of these scenarios."""
    places = asyncio.Semaphore(TOGETHER)
    async with AsyncExitStack() as stack:
        found: dict[str, Street] = {}
        for soon in (False, True):
            scenarios = {name: payments()[name] for name in names if _asked_soon(payments()[name]) == soon}
            if scenarios:
                home = directory / ("soon" if soon else "seldom")
                home.mkdir()
                street = await stack.enter_async_context(_street(home, scenarios, soon, places))
                found |= dict.fromkeys(scenarios, street)
        yield found
