"""One terminal of the fleet: its settings, the calls to it, and the probes and conflicts of its addresses.

A terminal is identified by its serial. `addresses` has the state of its addresses. Each request uses the address that
`choose` returns.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import Enum, auto

import msgspec
import structlog

from posd.base.clocks import monotonic, wall
from posd.base.times import iso
from posd.config.profile import EDITIONS, Profiles, Table, resolve_path
from posd.terminals import identity
from posd.terminals.addresses import REACHABLE, TerminalAddresses
from posd.terminals.announcements import Announcement, Candidate, CandidateVerdict
from posd.terminals.attempt import Attempt, NotSent, refuser
from posd.terminals.client import TerminalAccess
from posd.terminals.identity import AddressConflict, Commission, OpenConflict, Trusted

#: Seconds for which the result of a probe is used, before a call probes again.
FRESH_SECONDS = 30.0
#: Value instead of `FRESH_SECONDS` if the address in use did not reply, or if an operator waits for the result.
CHECK_SECONDS = 1.0
#: Seconds for which a call waits for the probes of other announced addresses after the trusted address has replied.
#: The call goes to the trusted address, so a slow device at another address must not delay it.
OTHERS_SECONDS = 0.3
#: A conflict between several devices ends when posd has not found it for this many seconds.
CALM_SECONDS = 15.0

#: Reason why a device is not accepted at the address of a terminal that has proven its identity before.
NOT_BORNE = (
    "its certificate is from the trusted CA, but lacks the serial, which the certificate of this terminal had before: "
    "it is another device, or the terminal got another certificate. Check the device: posd terminals identity SERIAL"
)

#: Reason why no address of a terminal is known.
NOT_ANNOUNCED = "it has not announced itself: check that it is switched on and in this network, or give it a base_url"

log = structlog.get_logger("posd.fleet")


class AddressChange(Enum):
    """Kind of change of a terminal or its addresses, for the listeners (see `FleetState.tell`)."""

    WANTED = auto()  # its addresses should be probed
    HEARD = auto()  # it sent a callback
    REACHED = auto()  # a call or a probe connected
    MISSED = auto()  # a call or a probe did not connect
    CHANGED = auto()  # its addresses changed
    RETURNED = auto()  # it is reachable again, or has a new address
    OPENED = auto()  # a payment on it has started
    PROBED = auto()  # its probes have ended, or a conflict began or ended


class FleetState(msgspec.Struct, eq=False):
    """Shared state of the terminals of a fleet.

    `commissions` and `trusted`: stored data by serial, even for terminals that are not configured now.
    `announced_until`: time until which calls wait for a first announcement, in monotonic seconds.
    """

    now: Callable[[], datetime] = wall
    profiles: Profiles = EDITIONS
    commissions: dict[str, Commission] = {}
    trusted: dict[str, Trusted] = {}
    #: Returns whether a terminal has an open payment, during which its address must not change.
    is_open: Callable[[str], bool] = lambda _serial: False
    #: Reason why no address of a terminal is known, as text.
    no_address: str = NOT_ANNOUNCED
    announced_until: float = float("-inf")
    #: Event that is set, and then replaced, at each announcement.
    announced: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    #: Listeners by kind of change, in the order in which they are called.
    listeners: dict[AddressChange, list[Callable[[str], None]]] = {}

    def tell(self, serial: str, news: AddressChange) -> None:
        """Report a change of a terminal to the listeners."""
        for listener in self.listeners.get(news, ()):
            listener(serial)


class TerminalRequest(msgspec.Struct, frozen=True):
    """One request to a terminal, ready to be sent. `base_url`: the chosen address."""

    terminal: "FleetTerminal"
    base_url: str
    method: str
    path: str
    body: bytes | None = None


class FleetTerminal:
    """A terminal of the fleet. A reload of the configuration changes its settings, and keeps its state.

    `last_seen`: time of the last callback, reply or announcement, ISO 8601.
    """

    def __init__(self, device: TerminalAccess, fleet: FleetState) -> None:
        self._fleet = fleet
        self.serial = device.config.serial
        #: False after a reload has removed the terminal from the fleet. Its open calls continue.
        self.in_fleet = True
        self.last_seen: str | None = None
        self.brand: str | None = None
        self.model: str | None = None
        self._probes: dict[str, asyncio.Task[None]] = {}  # by base URL
        self._confirming: asyncio.Task[None] | None = None
        self._rivals = ""  # the last logged text about rival devices
        self._conflict: OpenConflict | None = None
        self._conflict_seen = 0.0  # when the conflict was last found, in monotonic seconds
        self._set_device(device)
        self.addresses = TerminalAddresses(device.config, fleet.now, lambda: fleet.is_open(self.serial))

    def _set_device(self, device: TerminalAccess) -> None:
        #: The client for calls, and its settings.
        self.device, self.config = device, device.config
        self._version: str | None = None
        #: Table of the profile: operation -> request.
        self.rows: Table = self._fleet.profiles[device.config.edition][device.config.access_mode]

    def configure(self, device: TerminalAccess) -> None:
        """Apply settings of a reloaded configuration, with the present profiles. The state stays.

        The addresses are probed again if the configuration has changed.
        """
        self._set_device(device)
        if device.config != self.addresses.config:
            self.addresses.configure(device.config)

    # The configuration.

    @property
    def profile_version(self) -> str:
        """Version of the terminal's profile."""
        if self._version is None:
            self._version = identity.profile_version(self.config, self.rows)
        return self._version

    @property
    def commissioned(self) -> Commission | None:
        """The terminal's commissioning, with this or an earlier version of its profile."""
        return self._fleet.commissions.get(self.serial)

    @property
    def commission_lapsed(self) -> bool:
        """Whether the profile has changed since the terminal was commissioned."""
        seen = self.commissioned
        return seen is not None and seen.profile != self.profile_version

    def vouched(self, operation: str) -> bool:
        """Return whether an operator vouches for an operation, by configuration or commissioning."""
        return identity.vouched(operation, self.rows[operation], self.profile_version, self.commissioned)

    # Results of connections, calls and events.

    def _judge(self, base_url: str, verdict: CandidateVerdict, reason: str | None) -> None:
        """Record the result of a connection to an address of the terminal. `reason`: why it failed, or None."""
        at = iso(self._fleet.now())
        self.addresses.record(base_url, verdict, reason, at)
        if verdict is CandidateVerdict.ANSWERS:
            self.last_seen = at

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Report `RETURNED` if the terminal has another address after the block, or is reachable again."""
        old = self.addresses.best
        where, reachable = (old.base_url, REACHABLE[old.verdict]) if old is not None else (None, None)
        yield
        best = self.addresses.best
        if best is not None and (best.base_url != where or (reachable is False and REACHABLE[best.verdict])):
            self._fleet.tell(self.serial, AddressChange.RETURNED)

    def note_call(self, base_url: str, failure: str | None) -> None:
        """Record whether a call connected to an address. `failure`: why it did not, or None."""
        if not self.in_fleet:
            return
        with self._watched():
            self._judge(base_url, CandidateVerdict.SILENT if failure else CandidateVerdict.ANSWERS, failure)
        self._fleet.tell(self.serial, AddressChange.MISSED if failure else AddressChange.REACHED)

    # The last trusted address.

    def trust(self, trusted: Trusted) -> None:
        """Set the trust record. Called when a payment is sent, when the operator decides, and when posd starts."""
        if not self.in_fleet:
            return
        before = self.addresses.trusted
        with self._watched():
            self.addresses.trust(trusted)
        self._fleet.tell(self.serial, AddressChange.CHANGED)
        if before is not None and before.base_url != trusted.base_url and not trusted.decided:
            log.info("terminal.moved", terminal=self.serial, host=trusted.base_url, kind=trusted.proof)
        self.update_conflict(at_once=trusted.decided)

    def record_other_identity(self, base_url: str, other_serial: str | None) -> None:
        """Record which other serial the device at an address reports. None: it reports the serial of this terminal."""
        trusted = self.addresses.trusted
        if self.in_fleet and trusted and trusted.base_url == base_url and trusted.other_serial != other_serial:
            self.addresses.trusted = msgspec.structs.replace(trusted, other_serial=other_serial)
            self.update_conflict()

    def note_certificate(self, base_url: str, certificate: str | None) -> None:
        """Record the verified certificate (fingerprint) of the device at an address of the terminal."""
        for candidate in self.addresses.find(base_url):
            candidate.certificate, candidate.proven = certificate, self.device.proves(certificate)

    @property
    def conflict(self) -> OpenConflict | None:
        """The open identity conflict of the terminal, or None. During one, posd starts nothing on the terminal."""
        return self._conflict if self.in_fleet else None

    # Choice of the address for a call, by probes.

    async def choose(self) -> str | None:
        """Return the base URL for a call, or None if no address is known, or it is unclear which device to call.

        An address whose device reports another serial is returned too. The device may have received earlier starts, and
        posd searches for them there. Callers that start something check `conflict`.

        If there are several announced addresses, they are probed first. So a call is sent once, and to an address that
        replies, if there is one. If no proof shows which device is the terminal, the probes also show whether several
        devices reply. If no address is known and mDNS has just started, wait for the first announcement.
        """
        configured = self.addresses.configured
        if configured is None:
            await self._probe_where_it_may_be()
            if self.addresses.best is None and await self._is_announced():
                await self._probe_where_it_may_be()
        self.update_conflict(probed=True)
        conflict = self.conflict
        if conflict is not None and conflict.kind is not AddressConflict.SERIAL:
            return None
        return self.addresses.base_url if configured is None else configured.base_url

    async def _is_announced(self) -> bool:
        """Wait for the first announcement of the terminal. Return whether it arrived in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._fleet.announced_until):
                while not self.addresses.claims and monotonic() < self._fleet.announced_until:
                    await self._fleet.announced.wait()
        return bool(self.addresses.claims)

    async def _probe_where_it_may_be(self) -> None:
        if not self.addresses.moves_freely:
            await self._probe_others()
        elif len(self.addresses.candidates) > 1:
            await self._probe_for_the_best()
        elif self.addresses.best is None:  # not announced: the terminal may be at its last address
            await self._probe_all(self._fresh)

    async def _probe_for_the_best(self) -> None:
        # If no address replied, probe again soon: a terminal that restarts does not announce itself again.
        since = self._fresh
        probes = {self._probe(item.base_url) for item in self.addresses.claims.stale(since)}
        while probes and not self.addresses.claims.decided(since):
            _, probes = await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)

    async def _probe_others(self) -> None:
        """Probe the last trusted address and all announced addresses, unless there is only one address."""
        if len(self.addresses.candidates) < 2 and (
            self.addresses.place is None or self.addresses.claims.find(self.addresses.place.base_url)
        ):
            return
        await self._probe_all(self._fresh)
        if isinstance(self.addresses.use, AddressConflict):  # the terminal may be moving at this moment
            await self._probe_all(monotonic())
        while self.addresses.moves_soon:
            await asyncio.sleep(CHECK_SECONDS)
            await self._probe_all(monotonic())

    async def _probe_all(self, since: float) -> None:
        place = self.addresses.place
        stale = {item.base_url for item in self.addresses.candidates if item.tried < since}
        probes = {url: self._probe(url) for url in sorted(stale)}
        if place is not None and place.base_url in probes:
            await asyncio.wait({probes.pop(place.base_url)})
        if probes:
            answers = place is not None and place.verdict is CandidateVerdict.ANSWERS
            await asyncio.wait(probes.values(), timeout=OTHERS_SECONDS if answers else None)

    @property
    def _fresh(self) -> float:
        return monotonic() - (FRESH_SECONDS if self.addresses.reachable else CHECK_SECONDS)

    def start_probes(self, since: float = float("inf")) -> "set[asyncio.Task[None]]":
        """Start probes of the addresses that were not tried since `since` (monotonic seconds).

        Return the probes, including those that were running already.
        """
        return {
            self._probe(item.base_url)
            for item in self.addresses.candidates
            if self.addresses.on_lan and item.tried < since
        }

    async def check(self) -> None:
        """Probe all addresses of the terminal, and wait for the results."""
        if probes := self.start_probes():
            await asyncio.wait(probes)
            self.update_conflict(probed=True)

    def _probe(self, base_url: str) -> "asyncio.Task[None]":
        """Start a probe of an address, or return the running one."""
        if base_url not in self._probes:
            probe = asyncio.create_task(self._run_probe(base_url), name=f"look-{self.serial}")
            self._probes[base_url] = probe
        return self._probes[base_url]

    async def _run_probe(self, base_url: str) -> None:
        config = self.addresses.config
        try:
            seen = await self.device.probe(base_url)
        finally:
            del self._probes[base_url]
        if self.addresses.config is not config:  # with the new configuration, another certificate may be trusted
            self._fleet.tell(self.serial, AddressChange.WANTED)
            return
        with self._watched():
            verdict, reason = CandidateVerdict.ANSWERS, seen.reason
            if reason is not None:
                verdict = CandidateVerdict.REFUSED if seen.refused else CandidateVerdict.SILENT
            else:
                self.note_certificate(base_url, seen.certificate)
                here = self.addresses.place is not None and self.addresses.place.base_url == base_url
                if here and self.addresses.must_prove(None) and not self.device.proves(seen.certificate):
                    verdict, reason = CandidateVerdict.REFUSED, NOT_BORNE
            self._judge(base_url, verdict, reason)
            if not self._probes:
                self._settle()
        self._fleet.tell(self.serial, AddressChange.REACHED if self.addresses.reachable else AddressChange.MISSED)

    def cancel_probes(self) -> "list[asyncio.Task[None]]":
        """Cancel the running probes, and return them."""
        probes = [*self._probes.values(), *([self._confirming] if self._confirming else [])]
        for probe in probes:
            probe.cancel()
        return probes

    # Rival devices, and conflicts.

    def _settle(self) -> None:
        """Remove the announcements that the probes disproved. Log if several devices reply under the serial."""
        for gone in self.addresses.claims.sweep():
            log.info("discovery.gone", terminal=self.serial, host=gone.hosts[0], reason="it is not there any more")
        self.update_conflict()
        self._fleet.tell(self.serial, AddressChange.PROBED)
        decided_here = self.addresses.configured is not None or isinstance(self.addresses.use, AddressConflict)
        rivals = [] if decided_here else self.addresses.claims.rivals
        before, self._rivals = self._rivals, _words_of_rivals(self.serial, *rivals) if rivals else ""
        if self._rivals and self._rivals != before:
            host, count = rivals[0].base_url, len(rivals)
            log.warning("discovery.claim", terminal=self.serial, host=host, count=count, detail=self._rivals)

    def update_conflict(self, *, probed: bool = False, at_once: bool = False) -> None:
        """Update the identity conflict. Report its beginning and its end.

        `probed`: whether all addresses were just probed. `at_once`: whether the operator has decided, so that the
        conflict ends without a pause.
        """
        serial, use, old = self.serial, self.addresses.use, self._conflict
        if not isinstance(use, AddressConflict):
            if old is None:
                return
            calm = monotonic() - self._conflict_seen >= CALM_SECONDS
            if calm or at_once or self.addresses.moves_freely or old.kind is not AddressConflict.RIVALS:
                self._conflict = None
                log.info("terminal.identity_settled", terminal=serial, host=self.addresses.base_url)
                self._fleet.tell(serial, AddressChange.RETURNED)
                self._fleet.tell(serial, AddressChange.PROBED)
            return
        if not probed and old is None and use is not AddressConflict.SERIAL:
            self._confirm()  # the terminal may be moving now, so all addresses are probed once more
            return
        same = old is not None and old.kind is use
        self._conflict = self.addresses.describe(use, old.since if old is not None and same else iso(self._fleet.now()))
        self._conflict_seen = monotonic()
        if not same:
            log.warning("terminal.identity_conflict", terminal=serial, kind=use, detail=self._conflict.detail)
            self._fleet.tell(serial, AddressChange.WANTED)
            self._fleet.tell(serial, AddressChange.PROBED)

    def _confirm(self) -> None:
        """Start a probe of all addresses, unless one is running."""
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.get_running_loop().create_task(self.check(), name=f"confirm-{self.serial}")

    # Announcements.

    def announce(self, announcement: Announcement) -> bool:
        """Apply an announcement of this serial.

        Return whether it has a new address; always False for a terminal in the cloud.
        """
        if not self.addresses.on_lan:
            return False
        with self._watched():
            new = self.addresses.claims.announce(announcement)
            self.last_seen = announcement.seen_at
        self._fleet.announced.set()
        self._fleet.announced = asyncio.Event()
        if self.addresses.configured is None and (new or self.addresses.reachable is not True):
            self._fleet.tell(self.serial, AddressChange.WANTED)
        return new

    def withdraw(self, name: str) -> Announcement | None:
        """Remove the announcement with an instance name, and return it."""
        if self.addresses.announced is not None and self.addresses.announced.name == name:
            self.addresses.announced = None
            self.update_conflict()
        with self._watched():
            withdrawn, place = self.addresses.claims.withdraw(name), self.addresses.place
            if withdrawn is not None and place is not None and not self.addresses.claims.find(place.base_url):
                # Any device can withdraw an announcement, so a probe must show whether the terminal replies.
                place.verdict, place.tried = CandidateVerdict.UNCHECKED, float("-inf")
                self._fleet.tell(self.serial, AddressChange.WANTED)
        return withdrawn

    def compare(self, *announcements: Announcement) -> None:
        """Record which terminal is announced at the configured address.

        If another terminal is announced there, that is an identity conflict.
        """
        before = self.addresses.announced
        for item in announcements:
            if self.addresses.is_announced_at(item):
                self.addresses.announced = item
            elif self.addresses.announced is not None and self.addresses.announced.name == item.name:
                self.addresses.announced = None  # the announcement now has another address
        if self.addresses.announced != before:
            self.update_conflict()

    # Calls.

    def request(
        self,
        operation: str,
        base_url: str,
        body: bytes | None = None,
        *,
        client_transaction_id: str = "",
        print_job_id: str = "",
    ) -> TerminalRequest:
        """Return the request for an operation at an address, as defined by the profile.

        The ids are inserted into the path if it has a place for them. Raise ValueError if the path needs an id that is
        missing.
        """
        row = self.rows[operation]
        path = resolve_path(
            row, terminal_serial=self.serial, client_transaction_id=client_transaction_id, print_job_id=print_job_id
        )
        return TerminalRequest(self, base_url, row.method, path, body)

    async def call(
        self,
        request: TerminalRequest,
        *,
        same_as: str | None = None,
        written: Callable[[], None] = lambda: None,
        connected: Callable[[str | None], None] = lambda _certificate: None,
    ) -> Attempt:
        """Send a request once, and record whether the terminal was reached (see `TerminalAccess.call`)."""
        shown: list[str | None] = []

        def note(certificate: str | None) -> None:
            shown.append(certificate)
            connected(certificate)

        attempt = await self.device.call(
            request.method,
            f"{request.base_url}{request.path}",
            request.body,
            same_as=same_as,
            proven=self.addresses.must_prove(request.base_url),
            written=written,
            connected=note,
        )
        self.note_call(request.base_url, attempt.reason if isinstance(attempt, NotSent) and not shown else None)
        if (said := refuser(attempt)) is not None and self.addresses.on_lan:
            self.record_other_identity(request.base_url, said if said != self.serial else None)
        return attempt

    def note_start(self, base_url: str, certificate: str | None) -> None:
        """Record the address and the certificate (fingerprint) of the device to which a start is sent."""
        self.addresses.started = (base_url, certificate)
        self.note_certificate(base_url, certificate)


def _words_of_rivals(serial: str, believed: Candidate, *others: Candidate) -> str:
    """Return text about several reachable devices under one serial. `believed`: the address in use."""
    verified = any(item.verdict is CandidateVerdict.ANSWERS for item in others)
    advice = (
        "is trusted as well. Find out which is the right one, and give the terminal a base_url or pin it in the "
        "configuration"
        if verified
        else "is not: its certificate is not the one that the configuration trusts. Find out which device it is"
    )
    return (
        f"several devices announce themselves as terminal {serial}: {believed.base_url} is used; "
        f"{', '.join(sorted(item.base_url for item in others))} {advice}"
    )
