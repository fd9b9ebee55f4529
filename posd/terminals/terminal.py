"""One terminal of the fleet: its configuration, addresses, conflict, and calls.

A terminal is identified by its serial. The address of a terminal comes from the configuration, which overrides
announcements, or from an announcement. The address may change at any time. The next request uses the newest usable
address (see `announcements`). A terminal in the cloud is called only at the configured address. Announcements on this
network do not apply to such a terminal.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import structlog

from posd.base.clocks import monotonic
from posd.base.problems import Problem
from posd.base.times import iso
from posd.config.profile import Table, resolve_path
from posd.terminals import identity
from posd.terminals.announcements import Announcement, CandidateVerdict, RivalDevices
from posd.terminals.attempt import Attempt, NotSent, refuser
from posd.terminals.authentication import Headers
from posd.terminals.documents import Claim, Commissioned, Identity, State, Terminal
from posd.terminals.identity import AddressConflict, Commission, OpenConflict, Proof, Trusted
from posd.terminals.location import AddressChange, FleetState, TerminalLocation
from posd.terminals.settings import TerminalSettings
from posd.terminals.trust import Reached, Unreached

if TYPE_CHECKING:
    from posd.terminals.client import TerminalAccess

#: Seconds for which a successful probe counts when there are several addresses.
FRESH_SECONDS = 30.0
#: Seconds for which a probe counts if a call waits for it, or if no address replied.
CHECK_SECONDS = 1.0
#: Seconds for which a call waits for other announced addresses after the trusted one has replied. A slow device must
#: not delay every payment, and nothing is sent to it.
OTHERS_SECONDS = 0.3
#: Seconds for which only one device must reply before a conflict between several devices ends.
CALM_SECONDS = 15.0

#: Reason why a device is not the terminal that had proven its identity before.
NOT_BORNE = (
    "the certificate there is of the trusted CA, but lacks the serial, which this terminal's certificate had "
    "before: another device is there, or it got another certificate"
)
#: Result of a connection -> word of the local API.
STATES: Mapping[CandidateVerdict, State] = {
    CandidateVerdict.ANSWERS: "answers",
    CandidateVerdict.UNCHECKED: "unchecked",
    CandidateVerdict.SILENT: "silent",
    CandidateVerdict.REFUSED: "refused",
}

log = structlog.get_logger("posd.fleet")


class TerminalRequest(msgspec.Struct, frozen=True):
    """One request to a terminal, ready to be sent. `base_url`: the chosen address."""

    terminal: "FleetTerminal"
    base_url: str
    method: str
    path: str
    body: bytes | None = None


class FleetTerminal(TerminalLocation):
    """A terminal of the configuration. The object exists while posd runs, and a reload changes its settings."""

    def __init__(self, settings: TerminalSettings, fleet: FleetState) -> None:
        super().__init__(settings.config, fleet)
        self._set_settings(settings)
        self._probes: dict[str, asyncio.Task[None]] = {}  # by base URL
        self._confirming: asyncio.Task[None] | None = None
        self._rivals: RivalDevices | None = None
        self._conflict: OpenConflict | None = None
        self._conflict_seen = 0.0  # when the conflict was last found, in monotonic seconds

    def configure(self, settings: TerminalSettings) -> None:
        """Apply settings of a reloaded configuration, with the present profiles. The state stays."""
        changed = settings.config != self.config
        self._set_settings(settings)
        if changed:
            self._relocate(settings.config)

    def _set_settings(self, settings: TerminalSettings) -> None:
        config = settings.config
        self.settings = settings
        self._version: str | None = None
        #: Table of the profile: operation -> request.
        self.rows: Table = self._fleet.profiles[config.edition].table(config.access_mode)
        #: Unit of the amounts that the terminal sends.
        self.answer_unit = config.unit_of_answers

    # # The configuration.

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

    def webhook_fault(self, headers: Headers, body: bytes) -> str:
        """Return why the signature of a webhook is refused, or an empty text if it is valid or not required."""
        verifier = self.settings.webhooks
        if verifier is None or not (fault := verifier.fault(headers, body)):
            return ""
        return (
            f'{fault}; terminal {self.serial} has webhook_signature = "{verifier.name}". If that or its secret '
            "differs from the vendor's data, correct it"
        )

    # The last trusted address.

    def trust(self, trusted: Trusted) -> None:
        """Set the trust record. Called when a payment is sent, when the operator decides, and when posd starts."""
        if not self.in_fleet:
            return
        before = self.trusted
        with self._watched():
            self._set_trusted(trusted)
        self._fleet.tell(self.serial, AddressChange.CHANGED)
        if before is not None and before.base_url != trusted.base_url and not trusted.decided:
            log.info("terminal.moved", terminal=self.serial, host=trusted.base_url, kind=trusted.proof)
        self.update_conflict(at_once=trusted.decided)

    def decision(self, base_url: str, operator: str, note: str, uid: int | None) -> Trusted:
        """Return the trust record of an operator's decision. Raise Problem if no device claims that address."""
        found = next((item for item in self.candidates if item.base_url == base_url.rstrip("/")), None)
        if found is None:
            known = ", ".join(item.base_url for item in self.candidates) or "none is known"
            errors = [{"path": "/base_url", "message": f"must be one of the addresses that claim to be it: {known}"}]
            raise Problem("invalid_request", f"nothing was decided: base_url {errors[0]['message']}", errors=errors)
        others = (item.base_url for item in self._answering if item is not found)
        other = self.other_at(found.base_url)
        turned_down = (other.serial,) if other is not None and other.announced else ()
        at = iso(self._fleet.now())
        return Trusted(found.base_url, self.proof(found), at, operator, note, uid, (*others, *turned_down))

    def record_other_identity(self, base_url: str, other_serial: str | None) -> None:
        """Record that the device at an address reports another serial. None: the device reports the expected serial."""
        trusted = self.trusted
        if self.in_fleet and trusted and trusted.base_url == base_url and trusted.other_serial != other_serial:
            self.trusted = msgspec.structs.replace(trusted, other_serial=other_serial)
            self.update_conflict()

    def note_certificate(self, base_url: str, certificate: str | None) -> None:
        """Record the certificate (fingerprint) that verified at an address of the terminal."""
        for candidate in self.find(base_url):
            candidate.certificate, candidate.proven = certificate, self.settings.device.proves(certificate)

    @property
    def conflict(self) -> OpenConflict | None:
        """The conflict that forbids sending to the terminal, or None."""
        return self._conflict if self.in_fleet else None

    # Choice of the address for a call, by probes.

    async def choose(self) -> str | None:
        """Return the address for a call. Return None if no address is known, or `conflict` forbids the call.

        A device that reports another serial receives searches for the starts that it received, but no new start.

        Each announced address is probed first, unless the right address is known. So a call is sent once, and to an
        address that replies, if there is one. If nothing proves which device is the terminal, a probe must also show
        that no other device contradicts it.

        If no address is known and mDNS has just started, the call waits for the first announcement of the terminal.
        """
        if self.configured is None:
            await self._probe_where_it_may_be()
            if self.best is None and await self._is_announced():
                await self._probe_where_it_may_be()
        self.update_conflict(probed=True)
        conflict = self.conflict
        return self.base_url if conflict is None or conflict.kind is AddressConflict.SERIAL else None

    async def _is_announced(self) -> bool:
        """Wait for the first announcement. Return whether it arrived in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._fleet.announced_until):
                while not self.claims and monotonic() < self._fleet.announced_until:
                    await self._fleet.announced.wait()
        return bool(self.claims)

    async def _probe_where_it_may_be(self) -> None:
        if not self.moves_freely:
            await self._probe_others()
        elif len(self.candidates) > 1:
            await self._probe_for_the_best()
        elif self.best is None:  # not announced: the terminal may be at its last address
            await self._probe_all(self._fresh)

    async def _probe_for_the_best(self) -> None:
        # If no address replied, the probes expire soon, because a restarting terminal does not announce itself again.
        since = self._fresh
        probes = {self._probe(item.base_url) for item in self.claims.stale(since)}
        while probes and not self.claims.decided(since):
            _, probes = await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)

    async def _probe_others(self) -> None:
        """Probe the last trusted address and all candidates, unless there is only one address."""
        if len(self.candidates) < 2 and (self.place is None or self.claims.find(self.place.base_url)):
            return
        await self._probe_all(self._fresh)
        if isinstance(self.use, AddressConflict):  # the terminal may be moving at this moment
            await self._probe_all(monotonic())
        while self.moves_soon:
            await asyncio.sleep(CHECK_SECONDS)
            await self._probe_all(monotonic())

    async def _probe_all(self, since: float) -> None:
        place = self.place
        stale = {item.base_url for item in self.candidates if item.tried < since}
        probes = {url: self._probe(url) for url in sorted(stale)}
        if place is not None and place.base_url in probes:
            await asyncio.wait({probes.pop(place.base_url)})
        if probes:
            answers = place is not None and place.verdict is CandidateVerdict.ANSWERS
            await asyncio.wait(probes.values(), timeout=OTHERS_SECONDS if answers else None)

    @property
    def _fresh(self) -> float:
        return monotonic() - (FRESH_SECONDS if self.reachable else CHECK_SECONDS)

    def start_probes(self, since: float = float("inf")) -> "set[asyncio.Task[None]]":
        """Probe the addresses that were not tried since `since` (monotonic seconds). Join running probes."""
        return {self._probe(item.base_url) for item in self.candidates if self.on_lan and item.tried < since}

    async def check(self) -> None:
        """Probe all addresses of the terminal: connect, and close again."""
        if probes := self.start_probes():
            await asyncio.wait(probes)
            self.update_conflict(probed=True)

    def _probe(self, base_url: str) -> "asyncio.Task[None]":
        """Start a probe of an address, or join a running one."""
        if base_url not in self._probes:
            probe = asyncio.create_task(self._run_probe(base_url), name=f"look-{self.serial}")
            self._probes[base_url] = probe
        return self._probes[base_url]

    async def _run_probe(self, base_url: str) -> None:
        config = self.config
        try:
            seen = await self.device.probe(base_url)
        finally:
            del self._probes[base_url]
        if self.config is not config:  # another certificate may be right after the change
            self._fleet.tell(self.serial, AddressChange.WANTED)
            return
        with self._watched():
            match seen:
                case Reached(certificate):
                    self.note_certificate(base_url, certificate)
                    here = self.place is not None and self.place.base_url == base_url
                    if not here or not self.must_prove(None) or self.settings.device.proves(certificate):
                        self._judge(base_url, CandidateVerdict.ANSWERS, None)
                    else:
                        self._judge(base_url, CandidateVerdict.REFUSED, NOT_BORNE)
                case Unreached(reason, refused):
                    verdict = CandidateVerdict.REFUSED if refused else CandidateVerdict.SILENT
                    self._judge(base_url, verdict, reason)
            if not self._probes:
                self._settle()
        self._fleet.tell(self.serial, AddressChange.REACHED if self.reachable else AddressChange.MISSED)

    def cancel_probes(self) -> "list[asyncio.Task[None]]":
        """Cancel the running probes, and return them."""
        probes = [*self._probes.values(), *([self._confirming] if self._confirming else [])]
        for probe in probes:
            probe.cancel()
        return probes

    # Rival devices, and conflicts.

    def _settle(self) -> None:
        """Remove announcements that probes disproved, and report rival devices."""
        for gone in self.claims.sweep():
            log.info("discovery.gone", terminal=self.serial, host=gone.hosts[0], reason="it is not there any more")
        self.update_conflict()
        self._fleet.tell(self.serial, AddressChange.PROBED)
        decided_here = self.configured is not None or isinstance(self.use, AddressConflict)
        before, self._rivals = self._rivals, None if decided_here else self.claims.rivals
        if (rivals := self._rivals) is None or rivals == before:
            return
        others = ", ".join(rivals.others)
        log.warning(
            "discovery.claim",
            terminal=self.serial,
            host=rivals.believed,
            count=1 + len(rivals.others),
            detail=f"several devices announce themselves as terminal {self.serial}: {rivals.believed} is used; "
            f"{others} "
            + (
                "is trusted as well. Find out which is the right one, and give the terminal a base_url or pin it "
                "in the configuration"
                if rivals.both_verified
                else "is not: its certificate is not the one that the configuration trusts. Find out which device it is"
            ),
        )

    def update_conflict(self, *, probed: bool = False, at_once: bool = False) -> None:
        """Update the conflict. Report its beginning and its end.

        `probed`: all devices were just probed. `at_once`: the operator has decided, so the conflict ends without a
        pause.
        """
        serial, use, old = self.serial, self.use, self._conflict
        if not isinstance(use, AddressConflict):
            if old is None:
                return
            calm = monotonic() - self._conflict_seen >= CALM_SECONDS
            if calm or at_once or self.moves_freely or old.kind is not AddressConflict.RIVALS:
                self._conflict = None
                log.info("terminal.identity_settled", terminal=serial, host=self.base_url)
                self._fleet.tell(serial, AddressChange.RETURNED)
                self._fleet.tell(serial, AddressChange.PROBED)
            return
        if not probed and old is None and use is not AddressConflict.SERIAL:
            self._confirm()  # the terminal may be moving now, so all addresses are probed once more
            return
        trusted = self.trusted
        others = tuple(
            item.base_url for item in self._answering if trusted is None or item.base_url != trusted.base_url
        )
        here = self.configured or trusted
        other = self.other_at(here.base_url) if use is AddressConflict.SERIAL and here is not None else None
        what = identity.words(use, serial, others, here.base_url if here else None, other)
        steps = identity.steps(serial, other.serial if other else None)
        same = old is not None and old.kind is use
        since = old.since if old is not None and same else iso(self._fleet.now())
        self._conflict = OpenConflict(use, since, self.identity_claims(), what, steps)
        self._conflict_seen = monotonic()
        if not same:
            log.warning("terminal.identity_conflict", terminal=serial, kind=use, detail=self._conflict.detail)
            self._fleet.tell(serial, AddressChange.WANTED)
            self._fleet.tell(serial, AddressChange.PROBED)

    def _confirm(self) -> None:
        """Probe all addresses. Requests during the probes are joined."""
        if self._confirming is None:
            self._confirming = asyncio.get_running_loop().create_task(self.check(), name=f"confirm-{self.serial}")
            self._confirming.add_done_callback(self._confirmed)

    def _confirmed(self, _probe: "asyncio.Task[None]") -> None:
        self._confirming = None

    # Announcements.

    def announce(self, announcement: Announcement) -> bool:
        """Apply an announcement of this serial.

        Return whether it has a new address; always False for a terminal in the cloud.
        """
        if not self.on_lan:
            return False
        with self._watched():
            new = self.claims.announce(announcement)
            self.last_seen = announcement.seen_at
        self._fleet.announced.set()
        self._fleet.announced = asyncio.Event()
        if self.configured is None and (new or self.reachable is not True):
            self._fleet.tell(self.serial, AddressChange.WANTED)
        return new

    def withdraw(self, name: str) -> Announcement | None:
        """Remove the announcement with an instance name, and return it."""
        if self.announced is not None and self.announced.name == name:
            self.announced = None
            self.update_conflict()
        with self._watched():
            withdrawn, place = self.claims.withdraw(name), self.place
            if withdrawn is not None and place is not None and not self.claims.find(place.base_url):
                # Any device can send an mDNS goodbye, so it proves nothing. A probe shows whether the terminal is gone.
                place.verdict, place.tried = CandidateVerdict.UNCHECKED, float("-inf")
                self._fleet.tell(self.serial, AddressChange.WANTED)
        return withdrawn

    def compare(self, *announcements: Announcement) -> None:
        """Record which terminal is announced at the configured address. Report a conflict if it is another terminal."""
        before = self.announced
        for item in announcements:
            if self.is_announced_at(item):
                self.announced = item
            elif self.announced is not None and self.announced.name == item.name:
                self.announced = None  # the announcement now has another address
        if self.announced != before:
            self.update_conflict()

    # Calls.

    @property
    def device(self) -> "TerminalAccess":
        """The client for calls, with the present rules for dates and shutdown."""
        made = self.settings.device
        made.judge_dates(self._fleet.clock_sure())
        if self._fleet.stopping:
            made.cancel_calls()
        return made

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

        The ids are inserted into paths that contain them. Raise ValueError if the path needs an id that is missing.
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
            proven=self.must_prove(request.base_url),
            written=written,
            connected=note,
        )
        reason = attempt.reason if isinstance(attempt, NotSent) and not shown else None
        self.reached(reason is None, base_url=request.base_url, reason=reason)
        if (said := refuser(attempt)) is not None and self.on_lan:
            self.record_other_identity(request.base_url, said if said != self.serial else None)
        return attempt

    @property
    def longest_call(self) -> float:
        """Longest duration of one call, in seconds."""
        return self.config.connect_timeout_seconds + self.config.reply_timeout_seconds

    def note_start(self, base_url: str, certificate: str | None) -> None:
        """Record the address and the certificate (fingerprint) of the device to which a start is sent."""
        self.started = (base_url, certificate)
        self.note_certificate(base_url, certificate)

    # The terminal's document in the local API.

    def document(self, transaction: str | None) -> Terminal:
        """Return the terminal as in the local API. `transaction`: the payment that holds the terminal."""
        best = self.best
        believed = next((claim for claim in self.claims if best is None or claim.has(best.base_url)), None)
        announcement = believed.announcement if believed else None
        seen, lapsed = self.commissioned, self.commission_lapsed
        return Terminal(
            serial=self.serial,
            brand=self.brand or (announcement.brand if announcement else None),
            model=self.model or (announcement.model if announcement else None),
            base_url=best.base_url if best else None,
            source=self.source if best else None,
            reachable=self.reachable if best else None,
            last_seen=self.last_seen,
            transaction=transaction,
            reason=best.reason if best else self._fleet.no_address,
            checked_at=best.checked_at if best else None,
            claims=[
                Claim(
                    base_url=candidate.base_url,
                    same_device=claim is believed and self.configured is None,
                    last_seen=claim.announcement.seen_at,
                    state=STATES[candidate.verdict],
                    reason=candidate.reason,
                )
                for claim in self.claims
                for candidate in claim.candidates
                if best is None or candidate.base_url != best.base_url
            ],
            identity=Identity(
                proof=self.proof(best) if self.proof() is Proof.NONE else self.proof(),
                conflict=self.conflict is not None,
                claims=list(self.identity_claims()),
            ),
            commissioned=Commissioned(seen.at, seen.operator, list(seen.proven)) if seen and not lapsed else None,
            commission_lapsed=seen.at if seen and lapsed else None,
        )
