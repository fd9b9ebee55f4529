"""The fleet: the terminals in the configuration, the announcements on this network, and the probes of terminals.

An announced terminal outside the fleet is shown, but never called.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

import msgspec
import structlog

from posd.base.clocks import monotonic, wall
from posd.base.money import AmountUnit
from posd.base.problems import Problem
from posd.config import TerminalConfig
from posd.config.profile import EDITIONS, Profiles
from posd.terminals.announcements import Announcement, CandidateVerdict
from posd.terminals.authentication import Headers
from posd.terminals.client import TerminalAccess, make_clients
from posd.terminals.documents import Terminal, stranger_document, terminal_document
from posd.terminals.identity import Commission, OpenConflict, Trusted
from posd.terminals.terminal import CHECK_SECONDS, AddressChange, FleetState, FleetTerminal

#: Maximum number of announcements stored from terminals outside the fleet, because devices on the LAN can send any
#: number.
MAX_STRANGERS = 64
#: Age of a probe, in seconds, after which a call of the local API that shows the terminals starts a new probe.
READ_SECONDS = 10.0
#: Longest wait for the first announcement of a terminal after mDNS has started, in seconds. Some devices reply only to
#: the third mDNS query, which is sent after three seconds.
FIRST_SECONDS = 4.0

log = structlog.get_logger("posd.fleet")


class Fleet:
    """The terminals of the fleet, in the order of the configuration."""

    def __init__(
        self,
        terminals: tuple[TerminalConfig, ...],
        profiles: Profiles = EDITIONS,
        now: Callable[[], datetime] = wall,
        clock_sure: Callable[[], bool] = lambda: True,
    ) -> None:
        """Read certificates and headers of each terminal. Raise OSError or ConfigError if a file cannot be used.

        `clock_sure`: returns whether this machine's clock can judge the dates of certificates.
        """
        self._clock_sure = clock_sure
        self.state = FleetState(now, profiles)
        self._terminals = {
            serial: FleetTerminal(device, self.state) for serial, device in self.make_clients(terminals).items()
        }
        self._former: dict[str, FleetTerminal] = {}  # terminals removed from the fleet; they may have open calls
        self._outdated: list[TerminalAccess] = []  # clients from before a reload, with open calls
        #: Instance name -> announcement, of terminals outside the fleet.
        self.strangers: dict[str, Announcement] = {}

    def __contains__(self, serial: object) -> bool:
        return serial in self._terminals

    def __iter__(self) -> Iterator[FleetTerminal]:
        return iter(self._terminals.values())

    @property
    def serials(self) -> tuple[str, ...]:
        """Serials of the fleet's terminals."""
        return tuple(self._terminals)

    def get(self, serial: str | None) -> FleetTerminal | None:
        """Return a terminal of the fleet, or None."""
        return self._terminals.get(serial or "")

    def of(self, serial: str) -> FleetTerminal:
        """Return a terminal that is in the fleet, or has left it with open calls."""
        return self._terminals.get(serial) or self._former[serial]

    def resolve(self, serial: str | None) -> FleetTerminal:
        """Return the terminal that a till names.

        Without a name, return the only terminal. Raise Problem unknown_terminal.
        """
        fleet = list(self._terminals)
        if serial is None and len(fleet) == 1:
            return self._terminals[fleet[0]]
        if serial is None:
            detail = (
                "cannot choose a terminal: none was named and the fleet has "
                f"{len(fleet)}; name one of them in `terminal`"
                if fleet
                else "there is no terminal: the configuration names none; add [[terminals]] with its serial"
            )
            raise Problem("unknown_terminal", detail, fleet=fleet)
        if serial not in self._terminals:
            raise Problem(
                "unknown_terminal",
                f"terminal {serial} is not in the fleet ({', '.join(fleet) or 'empty'}); "
                "check the serial, or add it to [[terminals]] in the configuration",
                fleet=fleet,
            )
        return self._terminals[serial]

    def known(self, serial: str) -> FleetTerminal:
        """Return a terminal of the fleet for an operator. Raise Problem not_found."""
        if (found := self.get(serial)) is None:
            raise Problem("not_found", f"terminal {serial} is not in the fleet")
        return found

    # Callbacks, which a terminal outside the fleet may send too.

    def answer_unit(self, serial: str) -> AmountUnit | None:
        """Return the unit of the amounts that a terminal sends, or None outside the fleet."""
        terminal = self.get(serial)
        return None if terminal is None else terminal.config.unit_of_answers

    def webhook_fault(self, serial: str, headers: Headers, body: bytes) -> str:
        """Return why the signature of a webhook is refused, or an empty text if it is valid or not required.

        No signature is required from a terminal outside the fleet.
        """
        terminal = self.get(serial)
        verifier = terminal.device.webhooks if terminal is not None else None
        if verifier is None or not (fault := verifier.fault(headers, body)):
            return ""
        return (
            f'{fault}; terminal {serial} has webhook_signature = "{verifier.name}". If that or its secret differs from '
            "the vendor's data, correct it"
        )

    def heard_from(self, serial: str, at: str, *, brand: str | None = None, model: str | None = None) -> None:
        """Record that a terminal sent a callback at the time `at`, and the brand and model in it."""
        if (terminal := self.get(serial)) is not None:
            terminal.last_seen = at
            terminal.brand, terminal.model = brand or terminal.brand, model or terminal.model
            self.state.tell(serial, AddressChange.HEARD)

    def conflict(self, serial: str) -> OpenConflict | None:
        """Return the open identity conflict of a terminal, or None. During one, posd starts nothing on the terminal."""
        terminal = self.get(serial)
        return None if terminal is None else terminal.conflict

    # A changed configuration, and stored data.

    def make_clients(self, terminals: tuple[TerminalConfig, ...]) -> dict[str, TerminalAccess]:
        """Return the clients for `adopt` (see `client.make_clients`)."""
        return make_clients(terminals, self.state.now, self._clock_sure)

    def adopt(self, clients: Mapping[str, TerminalAccess], profiles: Profiles) -> None:
        """Replace the fleet by the terminals of a new configuration, with its profiles.

        The state of each terminal stays. Open calls continue unchanged, even those to a removed terminal.
        """
        before, known = self._lapsed(), self._former | self._terminals
        self.state.profiles = profiles
        self._terminals = {}
        for serial, device in clients.items():
            terminal = known.pop(serial, None)
            if terminal is None:
                terminal = FleetTerminal(device, self.state)
            else:
                self._outdated.append(terminal.device)
                terminal.configure(device)
            self._terminals[serial] = terminal
            terminal.in_fleet = True
        self._former = known
        for terminal in known.values():
            terminal.in_fleet = False
        self._outdated = [item for item in self._outdated if item.busy]
        self._log_lapsed(but=before)
        self._trust_stored()
        self._reassign_announcements()
        self.network_changed()

    def _reassign_announcements(self) -> None:
        """Move announcements between the fleet and the strangers after terminals have left or joined the fleet."""
        for terminal in self._former.values():
            self.strangers |= {item.name: item for item in terminal.addresses.claims.announcements}
        for stranger in list(self.strangers.values()):
            if stranger.serial in self:
                self.announce(stranger)
        announced = [item for terminal in self for item in terminal.addresses.claims.announcements]
        for terminal in self:
            # After a change of the configured address, compare it with all announcements.
            if terminal.addresses.announced is None:
                terminal.compare(*announced, *self.strangers.values())

    def remember(self, trusted: Mapping[str, Trusted], commissions: Mapping[str, Commission]) -> None:
        """Add stored data about terminals, even about terminals that are not configured now."""
        self.state.trusted |= trusted
        self.state.commissions |= commissions
        self._trust_stored()
        self._log_lapsed()

    def _trust_stored(self) -> None:
        for terminal in self:
            if terminal.addresses.trusted is None and (stored := self.state.trusted.get(terminal.serial)) is not None:
                terminal.trust(stored)

    def commission(self, seen: Commission) -> None:
        """Apply the commissioning of a terminal by an operator."""
        self.state.commissions[seen.terminal] = seen

    def _lapsed(self) -> frozenset[str]:
        """Return the serials whose profile has changed since their commissioning."""
        return frozenset(terminal.serial for terminal in self if terminal.commission_lapsed)

    def _log_lapsed(self, but: frozenset[str] = frozenset()) -> None:
        for serial in sorted(self._lapsed() - but):
            at = self.state.commissions[serial].at
            detail = f"it was commissioned at {at}, and its profile has changed since"
            log.warning("terminal.commission_lapsed", terminal=serial, detail=detail)

    # Announcements and probes.

    def listen(self, listener: Callable[[str], None], *news: AddressChange) -> None:
        """Add a listener. It is called with the serial at each change of these kinds, after the listeners before it."""
        for item in news:
            self.state.listeners.setdefault(item, []).append(listener)

    def announce(self, announcement: Announcement) -> bool:
        """Apply an announcement. Return whether anything changed."""
        serial, name = announcement.serial, announcement.name
        old = self.strangers.pop(name, None)
        for other in self:
            other.compare(announcement)
            if other.serial != serial:
                other.addresses.claims.withdraw(name)
        terminal = self.get(serial)
        if terminal is None:
            if len(self.strangers) >= MAX_STRANGERS:
                del self.strangers[next(iter(self.strangers))]  # the oldest
            self.strangers[name] = announcement
            return old is None or msgspec.structs.replace(old, seen_at=announcement.seen_at) != announcement
        return terminal.announce(announcement)

    def withdraw(self, name: str) -> Announcement | None:
        """Remove the announcement with an instance name, and return it."""
        gone = self.strangers.pop(name, None)
        for terminal in self:
            gone = terminal.withdraw(name) or gone
        return gone

    def mark_stale(self) -> None:
        """Mark all announcements as stale, because the network has changed.

        An announcement that is not repeated is removed if its address is unreachable too.
        """
        self.strangers.clear()
        for terminal in self:
            terminal.addresses.announced = None
            terminal.addresses.claims.mark_stale()

    def expect_announcements(self) -> None:
        """Make calls wait for the first announcement of a terminal. Called when mDNS has just started."""
        self.state.announced_until = monotonic() + FIRST_SECONDS

    def network_changed(self) -> None:
        """Request a probe of every terminal. Called when this machine's addresses or links have changed."""
        for serial in self._terminals:
            self.state.tell(serial, AddressChange.WANTED)

    def request_probes(self) -> None:
        """Request a probe of each terminal whose last probe is older than `READ_SECONDS`.

        For a call of the local API that shows the terminals.
        """
        since = monotonic() - READ_SECONDS
        for terminal in self:
            if any(item.tried < since for item in terminal.addresses.candidates):
                self.state.tell(terminal.serial, AddressChange.WANTED)

    async def check_stale(self, seconds: float) -> None:
        """Probe each address that was not tried within `CHECK_SECONDS`. Wait at most `seconds` for the results."""
        since = monotonic() - CHECK_SECONDS
        if probes := {probe for terminal in self for probe in terminal.start_probes(since)}:
            await asyncio.wait(probes, timeout=seconds)

    def hosts(self) -> dict[str, str]:
        """Return host -> serial for the addresses on this network that are configured, or at which a device replied."""
        return {
            urlsplit(item.base_url).hostname or "": terminal.serial
            for terminal in self
            for item in terminal.addresses.candidates
            if terminal.addresses.on_lan
            and (terminal.addresses.configured is not None or item.verdict is CandidateVerdict.ANSWERS)
        }

    def document(self, terminal: FleetTerminal, held: Mapping[str, str]) -> Terminal:
        """Return a terminal as in the local API. `held`: terminal -> transaction that it is busy with."""
        return terminal_document(terminal, held.get(terminal.serial), self.state.no_address)

    def documents(self, held: Mapping[str, str], *, everything: bool) -> Iterator[Terminal]:
        """Yield the terminals as in the local API. `held`: terminal -> transaction that it is busy with.

        `everything`: whether to include announced terminals outside the fleet.
        """
        for terminal in self:
            yield self.document(terminal, held)
        if everything:
            yield from map(stranger_document, self.strangers.values())

    # Calls.

    def cancel_calls(self) -> list[asyncio.Task[None]]:
        """Cancel the open calls, probes and waits for announcements, because posd is stopping. Return the probes.

        Later calls end at once.
        """
        self.state.announced_until = float("-inf")
        self.state.announced.set()
        known = (self._terminals | self._former).values()
        for device in (*(terminal.device for terminal in known), *self._outdated):
            device.cancel_calls()
        return [probe for terminal in known for probe in terminal.cancel_probes()]

    async def close(self) -> None:
        """Cancel the open calls and the probes. Wait until the probes have ended."""
        if probes := self.cancel_calls():
            await asyncio.wait(probes)


# Times of probes, computed from the state of a terminal. No I/O.
#
# mDNS reports a new terminal, and often a terminal that is switched off. mDNS does not report a terminal without power,
# because its records stay valid for an hour or longer. So posd probes a terminal after a new announcement, for a call
# that shows the terminals, during an open payment, and after a failed connection. Without such a reason posd probes it
# rarely; these are the regular probes.

#: Minimum pause between two probes of one terminal, in seconds, so that repeated announcements do not cause many
#: probes.
SPACING_SECONDS = 2.0
#: Pause between probes during an open payment without events from the terminal, in seconds.
OPEN_SECONDS = 30.0
#: Pause between probes during a conflict, in seconds. Only a probe can show that the conflict ended.
CONTESTED_SECONDS = 5.0
#: First pause and longest pause after a failed connection, in seconds. Each failure doubles the pause.
LOST_SECONDS = 5.0
MAX_LOST_SECONDS = 60.0
#: Number of failures that shorten the pause before the next probe. They take about 10 minutes. After more failures, the
#: terminal is probed as rarely as others, unless a payment is open.
LOST_LOOKS = 12
#: Regular probes start at multiples of this time (s, monotonic clock), so that several terminals are probed together.
TOGETHER_SECONDS = 20.0
#: A pause ends at a multiple of `TOGETHER_SECONDS` only if it is at least this many times as long.
TOGETHER_PAUSES = 10


class ProbeState(msgspec.Struct):
    """State of one terminal's probes.

    `last`: time of the last probe, call or callback (monotonic seconds). `failures`: number of failures since the last
    success. `wanted`: whether a probe is requested. `every`: pause between regular probes, in seconds; 0: no
    such probes.
    """

    last: float
    every: float
    failures: int = 0
    wanted: bool = False

    def begin(self, now: float, every: float) -> None:
        """Record the start of a probe. A requested probe then counts as made."""
        self.last, self.every, self.wanted = now, every, False

    def record(self, now: float, *, reached: bool) -> None:
        """Record the result of a probe or a call."""
        self.last, self.failures = now, 0 if reached else self.failures + 1

    def due(self, *, busy: bool, contested: bool = False) -> float | None:
        """Return the time of the next probe (monotonic seconds), or None if none is needed.

        `busy`: whether a payment is open on the terminal. `contested`: whether the terminal has an identity conflict.
        """
        if self.wanted:
            return self.last + SPACING_SECONDS
        times = [_together(self.last, max(self.every, SPACING_SECONDS))] if self.every else []
        if busy:
            times.append(self.last + OPEN_SECONDS)
        if contested:
            times.append(self.last + CONTESTED_SECONDS)
        if self.failures and (busy or self.failures <= LOST_LOOKS):
            times.append(self.last + min(LOST_SECONDS * 2.0 ** min(self.failures - 1, 10), MAX_LOST_SECONDS))
        return min(times, default=None)


def _together(last: float, pause: float) -> float:
    """Return the end of a pause. Move the end of a long pause to an earlier multiple of `TOGETHER_SECONDS`."""
    end = last + pause
    return end - end % TOGETHER_SECONDS if pause >= TOGETHER_PAUSES * TOGETHER_SECONDS else end


#: Maximum number of concurrent probes.
MAX_LOOKS = 4
#: Largest fraction by which the pause between regular probes is shortened at random, so that a large fleet is not
#: probed all at once.
SPREAD = 0.2


class Liveness:
    """Prober of the terminals. Run `run` as a task; cancel it to stop.

    Each terminal has its own timer. If a probe is postponed, the timer stays. A timer that ends before the probe is due
    is started again. So `changed` has to be called only if a probe may be due sooner.

    `every`: seconds between two regular probes; 0: no such probes. `busy`: returns whether a terminal has an
    open payment. `chance`: returns a random number from 0 to 1.
    """

    def __init__(self, fleet: Fleet, every: float, busy: Callable[[str], bool], chance: Callable[[], float]) -> None:
        self._fleet = fleet
        self._busy = busy
        self._seconds = every
        self._chance = chance
        self._states: dict[str, ProbeState] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_LOOKS)
        self._running = False
        fleet.listen(self._heard, AddressChange.HEARD)
        fleet.listen(self._wanted, AddressChange.WANTED)
        fleet.listen(self._reached, AddressChange.REACHED)
        fleet.listen(self._missed, AddressChange.MISSED)
        fleet.listen(self.changed, AddressChange.CHANGED, AddressChange.OPENED)

    async def run(self) -> None:
        """Probe the terminals that are due, until cancelled."""
        self._running = True
        try:
            for serial in self._fleet.serials:
                self.changed(serial)
            await asyncio.Event().wait()
        finally:
            self._running = False
            for timer in self._timers.values():
                timer.cancel()
            looks = list(self._looks.values())
            for look in looks:
                look.cancel()
            if looks:
                await asyncio.wait(looks)

    def changed(self, serial: str) -> None:
        """Plan the next probe of a terminal again, because the probe may be due sooner."""
        if not self._running or serial in self._looks:  # the end of the probe plans the next one
            return
        at, timer = self._due(serial), self._timers.get(serial)
        if at is None or (timer is not None and timer.when() <= at):
            return
        if timer is not None:
            timer.cancel()
        self._timers[serial] = asyncio.get_running_loop().call_at(at, self._ended, serial)

    def _pause(self) -> float:
        return self._seconds * (1 - SPREAD * self._chance())

    def _state(self, serial: str) -> ProbeState:
        """Return the probe state of a terminal. A new terminal is probed without delay."""
        if serial not in self._states:
            self._states[serial] = ProbeState(monotonic() - SPACING_SECONDS, self._pause())
        return self._states[serial]

    def _due(self, serial: str) -> float | None:
        """Return the time of a terminal's next probe, or None if it cannot be probed, or no probe is needed."""
        terminal = self._fleet.get(serial)
        if terminal is None or not terminal.addresses.can_be_probed:
            return None
        return self._state(serial).due(busy=self._busy(serial), contested=terminal.conflict is not None)

    def _ended(self, serial: str) -> None:
        """Probe a terminal whose timer has ended, if the probe is still due."""
        del self._timers[serial]
        at, now = self._due(serial), monotonic()
        if at is None or at > now:
            self.changed(serial)
            return
        self._state(serial).begin(now, self._pause())
        look = asyncio.create_task(self._look(serial), name=f"liveness-{serial}")
        self._looks[serial] = look
        look.add_done_callback(partial(self._looked, serial))

    async def _look(self, serial: str) -> None:
        async with self._turns:
            await self._fleet.of(serial).check()

    def _looked(self, serial: str, _look: "asyncio.Task[None]") -> None:
        del self._looks[serial]
        self.changed(serial)

    # Changes of a terminal that the fleet reports, on the event loop.

    def _heard(self, serial: str) -> None:
        self._state(serial).last = asyncio.get_running_loop().time()  # only postpones the next probe

    def _wanted(self, serial: str) -> None:
        self._state(serial).wanted = True
        self.changed(serial)

    def _reached(self, serial: str) -> None:
        self._state(serial).record(monotonic(), reached=True)  # only postpones the next probe

    def _missed(self, serial: str) -> None:
        self._state(serial).record(monotonic(), reached=False)
        self.changed(serial)
