"""Real daemons and a simulated terminal for each scenario of the catalogue.

Each scenario is played once, many at the same time.

The module runs two daemons. The first daemon never searches or polls by itself, so that the ends come from the
scenarios on any machine. The second daemon searches and polls soon, for scenarios that end by a search or by a poll.
The daemons differ only in these times.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from posd.simulator import Settings, Simulator
from posd.simulator.scenario import PrintScenario, Scenario
from posd.tls import issue
from posd.tls.files import TlsFiles, describe
from tests.catalogue.expected import expect_of, print_expect_of
from tests.rig.daemon import Daemon, running
from tests.rig.ports import reserve
from tests.rig.streams import stream

AnyScenario = Scenario | PrintScenario

#: Factor by which terminals are faster than people: an approved cycle takes about a second.
SPEED = 20.0
#: Factor by which printers are faster than in a shop: a receipt takes 20 to 60 ms.
PRINT_SPEED = 50.0
TIMES = """
[logging]
level = "debug"
[reconcile]
first_event_grace_seconds = {grace}
stall_seconds = {stall}
stall_after_request_seconds = {stall_after_request}
[print]
poll_first_seconds = {poll}
poll_max_seconds = {poll}
stuck_seconds = {stuck}
"""
#: Limits of the daemon that searches and polls soon, in real seconds. These limits are shorter than the default limits,
#: and far from the times of the scenarios. Polls come long after each timely webhook.
SOON = TIMES.format(grace=4, stall=12, stall_after_request=6, poll=2, stuck=4)
#: Limits that are longer than the time of all scenarios together. Only a stuck job is reported soon.
SELDOM = TIMES.format(grace=600, stall=1200, stall_after_request=600, poll=3600, stuck=2)
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
#: Seconds until a payment is read again without a change.
LOOK_AGAIN_SECONDS = 2.0
#: Maximum duration of a wait, in seconds.
PATIENCE_SECONDS = 150.0


@dataclass
class News:
    """Reader of the feed: records the attentions of each id, and wakes waiters at a change."""

    passed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _changed: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def follow(self, socket: Path) -> None:
        """Follow until cancelled."""
        last = 0
        while True:
            with suppress(TimeoutError):  # posd reported no change for a while
                async with stream(socket, "/feed", last_event_id=last) as messages:
                    async for message in messages:
                        change = json.loads(message.data)
                        last = change["seq"]
                        self.passed[change["id"]].update(change["attention"])
                        self._changed[change["id"]].set()

    async def of(self, identity: str) -> None:
        """Wait for the next change of this id since the last wait, with a short time limit.

        After some time a doubt needs an operator. posd reports no change at this moment.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                await self._changed[identity].wait()
        self._changed[identity].clear()


@dataclass
class Street:
    """A daemon, and the parts that its scenarios need."""

    daemon: Daemon
    news: News
    terminals: Mapping[str, Settings]
    #: Terminals that run until the end, because their payments stay open or posd may still search.
    simulators: dict[str, Simulator] = field(default_factory=dict)

    async def switch_on(self, name: str) -> Simulator:
        """Start the terminal of a scenario, or start it again."""
        if (before := self.simulators.get(name)) is not None:
            await before.__aexit__(None, None, None)
        found = self.simulators[name] = await Simulator(self.terminals[name]).__aenter__()
        return found

    async def until(self, kind: str, identity: str, what: Callable[[Any], bool]) -> Any:
        """Wait until the condition holds for a payment or a print job. Check the condition once, and at each change."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                document = (await self.daemon.call("GET", f"/{kind}/{identity}")).json
                if "phase" in document and what(document):
                    return document
                await self.news.of(identity)


def _gives_up(scenario: AnyScenario) -> bool:
    """Return whether a call of this scenario must time out."""
    if isinstance(scenario, PrintScenario):
        return scenario.creation.fault == "silent"
    replies = (scenario.start, scenario.abort, scenario.search)
    return any(reply.fault == "silent" or _longest(reply.after) > GIVEN_UP_SECONDS for reply in replies)


def _asked_soon(scenario: AnyScenario) -> bool:
    """Return whether a scenario needs the daemon that searches and polls soon.

    The end of such a scenario comes by a search, a poll or a time-out, or the terminal moves.
    """
    if isinstance(scenario, PrintScenario):
        printed = print_expect_of(scenario)
        return printed.decided_by != "webhook" and "quarantined_event" not in printed.passed
    expect = expect_of(scenario)
    brought = expect.phase == "final" and expect.evidence in ("event", "refusal", "unsent")
    by_time = {"stalled", "no_callback"} & {*expect.attention, *expect.passed}
    return not brought or bool(by_time) or _gives_up(scenario) or _moves(scenario)


def _longest(span: float | tuple[float, float]) -> float:
    return span[1] if isinstance(span, tuple) else span


def _moves(scenario: AnyScenario) -> bool:
    return isinstance(scenario, Scenario) and any(step.do == "move" for step in scenario.steps)


def _changes_key(scenario: AnyScenario) -> bool:
    return isinstance(scenario, Scenario) and "changed" in (
        scenario.certificate,
        *(step.certificate for step in scenario.steps),
    )


def _terminal(directory: Path, name: str, scenario: AnyScenario, made: TlsFiles, trust: Path) -> Settings:
    """Return the settings of the terminal that plays a scenario."""
    prints = isinstance(scenario, PrintScenario)
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
        speed=PRINT_SPEED if prints else SPEED,
        wait_seconds=0,
        delivery_timeout=60,
        mdns=_moves(scenario),
        mdns_interfaces=("127.0.0.1",),
        move_ports=(reserve(),),
        **({"scenario": name} if isinstance(scenario, Scenario) and scenario.out_of_reach else {}),
    )


def _entry(scenario: AnyScenario, settings: Settings, made: TlsFiles, fingerprint: str) -> str:
    """Return the entry of that terminal in posd's configuration."""
    address = "" if settings.mdns else f'base_url = "https://127.0.0.1:{settings.port}"\n'
    # posd follows a terminal that moves during a payment only if the certificate is pinned.
    pinned = _changes_key(scenario) or settings.mdns
    trust = f'fingerprint_sha256 = "{fingerprint}"' if pinned else f'ca_file = "{made.ca_certificate}"'
    times = IMPATIENT if _gives_up(scenario) else PATIENT
    return f'[[terminals]]\nserial = "{settings.serial}"\n{address}{trust}\n{times}'


@asynccontextmanager
async def _street(directory: Path, scenarios: Mapping[str, AnyScenario], soon: bool) -> AsyncIterator[Street]:
    """Run a daemon for the block, with a terminal in its fleet for each of these scenarios."""
    made = issue.init(directory / "terminals" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    trust = directory / "state" / "tls" / "ca.crt"
    fingerprint = describe(made.certificate).fingerprint_sha256
    terminals = {
        name: _terminal(directory / "terminals", name, scenario, made, trust) for name, scenario in scenarios.items()
    }
    fleet = "".join(_entry(item, terminals[name], made, fingerprint) for name, item in scenarios.items())
    fleet += f'[[terminals]]\nserial = "{ANOTHER_SERIAL}"\n'
    discovery = DISCOVERY if any(map(_moves, scenarios.values())) else "enabled = false"
    async with running(directory, fleet, SOON if soon else SELDOM, discovery) as daemon:
        news = News()
        following = asyncio.create_task(news.follow(daemon.till_socket))
        opened = Street(daemon, news, terminals)
        try:
            yield opened
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.gather(*(item.__aexit__(None, None, None) for item in opened.simulators.values()))


@dataclass
class Playing:
    """One scenario on its terminal."""

    street: Street
    name: str

    @property
    def simulator(self) -> Simulator:
        """The terminal of the scenario."""
        return self.street.simulators[self.name]

    async def run(self) -> None:
        """Play the scenario to its end."""
        raise NotImplementedError


P = TypeVar("P", bound=Playing)


@asynccontextmanager
async def play_all(
    scenarios: Mapping[str, AnyScenario], play: type[P]
) -> AsyncIterator[Mapping[str, "asyncio.Task[P]"]]:
    """Play these scenarios in parallel for the block. Yield the tasks, which return the plays."""
    places = asyncio.Semaphore(TOGETHER)

    async def one(street: Street, name: str) -> P:
        async with places:
            found = play(street, name)
            await found.run()
            return found

    with TemporaryDirectory(prefix="posd-") as directory:
        async with AsyncExitStack() as stack:
            tasks = {}
            for soon in (False, True):
                chosen = {name: scenario for name, scenario in scenarios.items() if _asked_soon(scenario) == soon}
                if chosen:
                    home = Path(directory, "soon" if soon else "seldom")
                    home.mkdir()  # noqa: ASYNC240 - no other task runs yet
                    street = await stack.enter_async_context(_street(home, chosen, soon))
                    tasks |= {name: asyncio.create_task(one(street, name), name=name) for name in chosen}
            try:
                yield tasks
            finally:
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)


def daemons(plays: Iterable[Playing]) -> list[Daemon]:
    """Return each daemon of these plays once."""
    return list({id(play.street): play.street.daemon for play in plays}.values())
