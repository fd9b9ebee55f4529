"""Addresses of terminals: announcements, probes of addresses, and the address to use."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import Enum, auto
from urllib.parse import urlsplit

import msgspec
import structlog

from posd.base.clocks import monotonic
from posd.base.problems import Problem
from posd.base.times import iso
from posd.terminals import identity
from posd.terminals.announcements import Announcement, CandidateVerdict, RivalDevices
from posd.terminals.attempt import Attempt, NotSent
from posd.terminals.identity import AddressConflict, OpenConflict, Proof, Trusted
from posd.terminals.members import Member, Members, Source
from posd.terminals.trust import Reached, Unreached

#: Most announcements of terminals outside the fleet that are stored for display; the LAN can send any number.
MAX_STRANGERS = 64
#: Seconds for which a reply of an address counts when there are several to choose from.
FRESH_SECONDS = 30.0
#: Age in seconds after which a call that shows the terminals starts a probe.
READ_SECONDS = 10.0
#: The same age for a call that waits for the probe, or if no address replied.
CHECK_SECONDS = 1.0
#: Seconds that a call waits for other announced addresses once the trusted one has replied. A slow device must not
#: delay every payment, and is sent nothing.
OTHERS_SECONDS = 0.3
#: Longest wait of a call for the first announcement of a terminal after mDNS started, in seconds. Some devices answer
#: only the third question, which is sent after three seconds.
FIRST_SECONDS = 4.0
#: Seconds that one device alone must be seen before a conflict between several ends.
CALM_SECONDS = 15.0

#: Reason why a device is not the terminal that had proven its identity before.
NOT_BORNE = (
    "the certificate there is of the trusted CA, and does not bear the serial, which that of this terminal did before: "
    "another device is there, or it was given another certificate"
)
#: Reason why no address of a terminal is known.
NOT_ANNOUNCED = "it has not announced itself: check that it is switched on and in this network, or give it a base_url"

log = structlog.get_logger("posd.fleet")


class AddressChange(Enum):
    """Kinds of news about a terminal for `Fleet.on_news`."""

    WANTED = auto()  # a call asks for its state, or it is announced at an address without a probe
    HEARD = auto()  # it sent something itself
    REACHED = auto()  # a call or a probe connected
    MISSED = auto()  # a call or a probe did not connect
    CHANGED = auto()  # its addresses changed


class Addresses:
    """Addresses of terminals from the configuration, announcements, probes and calls."""

    def __init__(self, members: Members, now: Callable[[], datetime]) -> None:
        self._members = members
        self._now = now
        #: Announcements of terminals outside the fleet, by name of the announcement.
        self.strangers: dict[str, Announcement] = {}
        self._looks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._confirming: dict[str, asyncio.Task[None]] = {}
        self._rivals: dict[str, RivalDevices] = {}
        self._remembered: dict[str, Trusted] = {}
        # with the time of the newest sighting, in monotonic seconds
        self._disputes: dict[str, tuple[OpenConflict, float]] = {}
        #: Reason, in words, why a terminal without a configured address has none.
        self.no_address = NOT_ANNOUNCED
        self._first_until = float("-inf")  # until when first announcements are waited for, monotonic seconds
        self._announced = asyncio.Event()  # set, and replaced, at each announcement
        self._listeners: list[Callable[[str], None]] = []
        #: Called with a serial when a conflict of that terminal begins or ends, and after a probe.
        self.on_looked: Callable[[str], None] = lambda _serial: None
        #: Called with news that decides when a terminal is probed again.
        self.on_news: Callable[[str, AddressChange], None] = lambda _serial, _news: None

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the serial of each terminal that is reachable again or has a new address."""
        self._listeners.append(listener)

    def reassign_announcements(self, gone: list[Member]) -> None:
        """Apply a changed fleet: reassign the announcements of terminals that left or joined it."""
        self.remember({})
        for member in gone:
            self.strangers |= {item.name: item for item in member.claims.announcements}
        for stranger in list(self.strangers.values()):
            if stranger.serial in self._members.current:
                self.announce(stranger)
        known = [item for member in self._members.current.values() for item in member.claims.announcements]
        for member in self._members.current.values():
            # its configured address changed: the order of the announcements for it is not known
            if member.announced is None:
                self._compare(member, *known, *self.strangers.values())
        self.network_changed()

    def is_open(self, tells: Callable[[str], bool]) -> None:
        """Set the callback that reports whether a terminal has an open payment. It keeps its address then."""
        self._members.is_open = tells

    def conflict(self, serial: str) -> OpenConflict | None:
        """Return the conflict that forbids sending to a terminal, or None."""
        found = self._disputes.get(serial)
        return found[0] if found is not None and serial in self._members.current else None

    def has_rivals(self, serial: str) -> bool:
        """Return whether another device replies as this terminal. It is sent nothing."""
        member = self._members.current[serial]
        others = [
            item for item in member.candidates if item.verdict in (CandidateVerdict.ANSWERS, CandidateVerdict.REFUSED)
        ]
        claims = member.claims.rivals
        return not member.moves_freely and len(others) > 1 and claims is not None

    def trusted(self, serial: str) -> Trusted | None:
        """Return the address where a terminal was trusted last, or None."""
        return self._members.of(serial).trusted

    def to_trust(self, serial: str, base_url: str) -> Trusted | None:
        """Return the trust record that a request to that address creates, None for no change."""
        member = self._members.of(serial)
        old = member.trusted
        if not member.on_lan or (old is not None and old.base_url == base_url):
            return None
        return Trusted(base_url, member.proof(next(iter(member.find(base_url)), None)), iso(self._now()))

    def proved(self, serial: str, base_url: str) -> Trusted | None:
        """Return the trust record of a device that has now proven its identity for the first time, else None."""
        member = self._members.of(serial)
        old = member.trusted
        if old is None or old.base_url != base_url or old.proof is Proof.CA or member.proof() is Proof.PINNED:
            return None
        proven = any(item.proven for item in member.find(base_url))
        return msgspec.structs.replace(old, proof=Proof.CA) if proven else None

    def remember(self, known: Mapping[str, Trusted]) -> None:
        """Add trust records from before the start of posd, also for terminals of a later configuration."""
        self._remembered |= known
        for serial, member in self._members.current.items():
            if member.trusted is None and serial in self._remembered:
                self.trust(serial, self._remembered[serial])

    def trust(self, serial: str, trusted: Trusted) -> None:
        """Set the trust record of a terminal: a payment is sent there, the operator decided, or posd starts."""
        member = self._members.current.get(serial)
        if member is None:
            return
        before = member.trusted
        with self._watched(member):
            member.trust(trusted)
        self.on_news(serial, AddressChange.CHANGED)
        if before is not None and before.base_url != trusted.base_url and not trusted.decided:
            log.info("terminal.moved", terminal=serial, host=trusted.base_url, kind=trusted.proof)
        self._state(member, at_once=trusted.decided)

    def decision(self, serial: str, base_url: str, operator: str, note: str, uid: int | None) -> Trusted:
        """Return the trust record of an operator's decision. Raise Problem if no device claims that address."""
        member = self._members.current[serial]
        found = next((item for item in member.candidates if item.base_url == base_url.rstrip("/")), None)
        if found is None:
            known = ", ".join(item.base_url for item in member.candidates) or "none is known"
            errors = [{"path": "/base_url", "message": f"must be one of the addresses that claim to be it: {known}"}]
            raise Problem("invalid_request", f"nothing was decided: base_url {errors[0]['message']}", errors=errors)
        others = (item for item in member.candidates if item is not found and item.verdict is CandidateVerdict.ANSWERS)
        other = member.other_at(found.base_url)
        turned_down = (other.serial,) if other is not None and other.announced else ()
        return Trusted(
            found.base_url,
            member.proof(found),
            iso(self._now()),
            operator,
            note,
            uid,
            (*(item.base_url for item in others), *turned_down),
        )

    def record_other_identity(self, serial: str, base_url: str, other_serial: str | None) -> None:
        """Record the serial that the device at an address reports: another terminal, or None for the expected one."""
        member = self._members.current.get(serial)
        trusted = member.trusted if member is not None else None
        if member is None or trusted is None or trusted.base_url != base_url or trusted.other_serial == other_serial:
            return
        member.trusted = msgspec.structs.replace(trusted, other_serial=other_serial)
        self._state(member)

    def _compare(self, member: Member, *announcements: Announcement) -> None:
        """Record which terminal is announced at a configured address, and report another one."""
        before = member.announced
        for item in announcements:
            if member.is_announced_at(item):
                member.announced = item
            elif member.announced is not None and member.announced.name == item.name:
                member.announced = None  # its announcement has another address
        if member.announced != before:
            self._state(member)

    def base_url(self, serial: str) -> tuple[str, Source] | None:
        """Return the best known address of a fleet member and its source, or None."""
        member = self._members.of(serial)
        best = member.best
        return None if best is None else (best.base_url, member.source)

    def reachable(self, serial: str) -> bool:
        """Return whether the last call to, or probe of, a fleet member connected."""
        return self._members.current[serial].reachable is True

    def may_answer(self, serial: str) -> bool:
        """Return whether a fleet member has an address, and no failure is known there."""
        member = self._members.current[serial]
        return member.best is not None and member.reachable is not False

    def hosts(self) -> dict[str, str]:
        """Return the hosts, with serials, of terminals on this network that are configured or have replied."""
        return {
            urlsplit(item.base_url).hostname or "": member.config.serial
            for member in self._members.current.values()
            for item in member.candidates
            if member.on_lan and (member.configured is not None or item.verdict is CandidateVerdict.ANSWERS)
        }

    async def choose(self, serial: str) -> tuple[str, Source] | None:
        """Return the address of a fleet member for a call; None if none is known or `conflict` forbids it.

        A device that reports another serial gets queries for earlier starts at it, but no start.

        Of several announced addresses, each is probed first, unless the right one is known. So a call goes to one
        address, once, and to one that replies, if any does. If nothing proves which device is the terminal, a probe
        must also show that no other device contradicts it.

        If none is known and mDNS has just started, the call waits for the first announcement of the terminal.
        """
        member = self._members.of(serial)
        await self._look_where_it_may_be(member)
        if member.best is None and await self._is_announced(member):
            await self._look_where_it_may_be(member)
        self._state(member, looked=True)
        dispute = self.conflict(serial)
        return self.base_url(serial) if dispute is None or dispute.kind is AddressConflict.SERIAL else None

    def expect_announcements(self) -> None:
        """Delay calls until the first announcement of a terminal, because mDNS has just started."""
        self._first_until = monotonic() + FIRST_SECONDS

    async def _is_announced(self, member: Member) -> bool:
        """Wait for the first announcement of a terminal; return whether it came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._first_until):
                while not member.claims and monotonic() < self._first_until:
                    await self._announced.wait()
        return bool(member.claims)

    async def _look_where_it_may_be(self, member: Member) -> None:
        if not member.moves_freely:
            await self._look_for_others(member)
        elif member.configured is None and len(member.candidates) > 1:
            await self._look_for_the_best(member)
        elif member.best is None:  # not announced: it may be at its last address
            await self._look_at_all(member, self._fresh(member))

    async def _look_for_the_best(self, member: Member) -> None:
        # A result without any reply expires soon: a terminal that restarts does not announce itself again.
        since = self._fresh(member)
        looks = {self._look(member, item.base_url) for item in member.claims.stale(since)}
        while looks and not member.claims.decided(since):
            _, looks = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)

    async def _look_for_others(self, member: Member) -> None:
        """Probe the last trusted address and all candidates, unless there is only one."""
        place, candidates = member.place, member.candidates
        if len(candidates) < 2 and (place is None or member.claims.find(place.base_url)):
            return
        await self._look_at_all(member, self._fresh(member))
        if isinstance(member.use, AddressConflict):  # the terminal may be moving at this moment
            await self._look_at_all(member, monotonic())
        while member.moves_soon:
            await asyncio.sleep(CHECK_SECONDS)
            await self._look_at_all(member, monotonic())

    async def _look_at_all(self, member: Member, since: float) -> None:
        place = member.place
        stale = {item.base_url for item in member.candidates if item.tried < since}
        looks = {url: self._look(member, url) for url in sorted(stale)}
        if place is not None and place.base_url in looks:
            await asyncio.wait({looks.pop(place.base_url)})
        if looks:
            answers = place is not None and place.verdict is CandidateVerdict.ANSWERS
            await asyncio.wait(looks.values(), timeout=OTHERS_SECONDS if answers else None)

    @staticmethod
    def _fresh(member: Member) -> float:
        return monotonic() - (FRESH_SECONDS if member.reachable else CHECK_SECONDS)

    def announce(self, announcement: Announcement) -> bool:
        """Apply an announcement; return whether it has news. For a terminal in the cloud it never has."""
        serial, name = announcement.serial, announcement.name
        old = self.strangers.pop(name, None)
        for other in self._members.current.values():
            self._compare(other, announcement)
            if other.config.serial != serial:
                other.claims.withdraw(name)
        member = self._members.current.get(serial)
        if member is None:
            if len(self.strangers) >= MAX_STRANGERS:
                del self.strangers[next(iter(self.strangers))]  # the oldest
            self.strangers[name] = announcement
            return old is None or msgspec.structs.replace(old, seen_at=announcement.seen_at) != announcement
        if not member.on_lan:
            return False
        with self._watched(member):
            new = member.claims.announce(announcement)
            member.last_seen = announcement.seen_at
        self._announced.set()
        self._announced = asyncio.Event()
        if member.configured is None and (new or member.reachable is not True):
            self.on_news(serial, AddressChange.WANTED)
        return new

    def withdraw(self, name: str) -> Announcement | None:
        """Remove an announcement by its instance name; return it."""
        gone = self.strangers.pop(name, None)
        for serial, member in self._members.current.items():
            if member.announced is not None and member.announced.name == name:
                member.announced = None
                self._state(member)
            with self._watched(member):
                withdrawn = member.claims.withdraw(name)
                gone = withdrawn or gone
                place = member.place
                if withdrawn is not None and place is not None and not member.claims.find(place.base_url):
                    # Any device can send a goodbye, so it proves nothing. A probe shows whether the terminal is gone.
                    place.verdict, place.tried = CandidateVerdict.UNCHECKED, float("-inf")
                    self.on_news(serial, AddressChange.WANTED)
        return gone

    def mark_stale(self) -> None:
        """Mark all announcements as stale, because the network has changed.

        One that is not repeated is removed once its address is unreachable as well.
        """
        self.strangers.clear()
        for member in self._members.current.values():
            member.announced = None
            member.claims.mark_stale()

    def network_changed(self) -> None:
        """Request a probe of every terminal, because this machine's addresses or links changed."""
        for serial in self._members.current:
            self.on_news(serial, AddressChange.WANTED)

    def reached(
        self, serial: str, reachable: bool, at: str, *, base_url: str | None = None, reason: str | None = None
    ) -> None:
        """Record whether a call to a terminal connected: the address, and the reason of a failure."""
        member = self._members.current.get(serial)
        best = member.best if member else None
        if member is None or best is None:
            return
        verdict = CandidateVerdict.ANSWERS if reachable else CandidateVerdict.SILENT
        words = None if reachable else reason or "the last call did not reach it"
        with self._watched(member):
            member.judge(base_url or best.base_url, verdict, words, at, monotonic())
        self.on_news(serial, AddressChange.REACHED if reachable else AddressChange.MISSED)

    def note_result(self, serial: str, base_url: str, attempt: Attempt, *, connected: bool = False) -> None:
        """Record the result of a call to an address. `connected`: it connected, even if nothing was sent."""
        reason = attempt.reason if isinstance(attempt, NotSent) and not connected else None
        self.reached(serial, reason is None, iso(self._now()), base_url=base_url, reason=reason)

    def note_certificate(self, serial: str, base_url: str, certificate: str | None) -> None:
        """Record the certificate (fingerprint) that verified at an address of a terminal."""
        self._members.of(serial).note_certificate(base_url, certificate)

    def can_be_looked_at(self, serial: str) -> bool:
        """Return whether there is a device on this network to probe."""
        member = self._members.of(serial)
        return member.on_lan and bool(member.candidates)

    async def check(self, serial: str) -> None:
        """Probe all addresses of a terminal: connect, and close again. Join running probes."""
        member = self._members.of(serial)
        looks = {self._look(member, item.base_url) for item in member.candidates} if member.on_lan else None
        if looks:
            await asyncio.wait(looks)
            self._state(member, looked=True)

    def asked_for(self) -> None:
        """Request probes older than `READ_SECONDS`, because a call shows the terminals."""
        since = monotonic() - READ_SECONDS
        for serial, member in self._members.current.items():
            if any(item.tried < since for item in member.candidates):
                self.on_news(serial, AddressChange.WANTED)

    async def check_stale(self, seconds: float) -> None:
        """Probe each terminal without a recent probe; wait at most `seconds`."""
        since = monotonic() - CHECK_SECONDS
        looks = {
            self._look(member, item.base_url)
            for member in self._members.current.values()
            for item in member.candidates
            if member.on_lan and item.tried < since
        }
        if looks:
            await asyncio.wait(looks, timeout=seconds)

    def _look(self, member: Member, base_url: str) -> "asyncio.Task[None]":
        """Start a probe of an address, or join a running one."""
        key = (member.config.serial, base_url)
        if key not in self._looks:
            self._looks[key] = asyncio.create_task(self._take_look(member, base_url), name=f"look-{key[0]}")
        return self._looks[key]

    async def _take_look(self, member: Member, base_url: str) -> None:
        serial = member.config.serial
        try:
            seen = await self._members.device(member).probe(base_url)
        finally:
            del self._looks[serial, base_url]
        at, tried = iso(self._now()), monotonic()
        with self._watched(member):
            match seen:
                case Reached(certificate):
                    self.note_certificate(serial, base_url, certificate)
                    here = member.place is not None and member.place.base_url == base_url
                    if not here or not member.must_prove(None) or member.device.proves(certificate):
                        member.judge(base_url, CandidateVerdict.ANSWERS, None, at, tried)
                    else:
                        member.judge(base_url, CandidateVerdict.REFUSED, NOT_BORNE, at, tried)
                case Unreached(reason, refused):
                    member.judge(
                        base_url, CandidateVerdict.REFUSED if refused else CandidateVerdict.SILENT, reason, at, tried
                    )
            if not any(looked_at == serial for looked_at, _ in self._looks):
                self._settle(member)
        self.on_news(serial, AddressChange.REACHED if member.reachable else AddressChange.MISSED)

    def _settle(self, member: Member) -> None:
        """Remove announcements that probes disproved, and report devices that contradict each other."""
        serial = member.config.serial
        for gone in member.claims.sweep():
            log.info("discovery.gone", terminal=serial, host=gone.hosts[0], reason="it is not there any more")
        self._state(member)
        self.on_looked(serial)
        rivals = (
            member.claims.rivals if member.configured is None and not isinstance(member.use, AddressConflict) else None
        )
        if rivals is None:
            self._rivals.pop(serial, None)
        elif self._rivals.get(serial) != rivals:
            self._rivals[serial] = rivals
            others = ", ".join(rivals.others)
            log.warning(
                "discovery.claim",
                terminal=serial,
                host=rivals.believed,
                count=1 + len(rivals.others),
                detail=f"several devices announce themselves as terminal {serial}: {rivals.believed} is used; {others} "
                + (
                    "is trusted as well. Find out which is the right one, and give the terminal a base_url or pin "
                    "it in the configuration"
                    if rivals.both_verified
                    else "is not: its certificate is not the one that the configuration trusts. Find out what it is"
                ),
            )

    def _state(self, member: Member, *, looked: bool = False, at_once: bool = False) -> None:
        """Update the conflict of a terminal; report its beginning and its end.

        `looked`: all devices were just probed. `at_once`: the operator has decided; earlier sightings do not count.
        """
        serial, now, use = member.config.serial, monotonic(), member.use
        old = self._disputes.get(serial)
        if not isinstance(use, AddressConflict):
            if old is None:
                return
            calm = now - old[1] >= CALM_SECONDS or member.moves_freely or old[0].kind is not AddressConflict.RIVALS
            if calm or at_once:
                del self._disputes[serial]
                log.info("terminal.identity_settled", terminal=serial, host=member.best and member.best.base_url)
                for listener in self._listeners:
                    listener(serial)
                self.on_looked(serial)
            return
        answering = [item for item in member.candidates if item.verdict is CandidateVerdict.ANSWERS]
        if not looked and old is None and use is not AddressConflict.SERIAL:
            self._confirm(serial)  # the device may just be moving: all addresses are probed once more
            return
        claims, trusted = member.dispute_claims(), member.trusted
        others = tuple(item.base_url for item in answering if trusted is None or item.base_url != trusted.base_url)
        here = member.configured or trusted
        other = member.other_at(here.base_url) if use is AddressConflict.SERIAL and here is not None else None
        what = identity.words(use, serial, others, here.base_url if here else None, other)
        todo = identity.todo(serial, other.serial if other else None)
        same = old is not None and old[0].kind is use
        since = old[0].since if old is not None and same else iso(self._now())
        self._disputes[serial] = (OpenConflict(use, since, claims, what, todo), now)
        if not same:
            detail = self._disputes[serial][0].detail
            log.warning("terminal.identity_conflict", terminal=serial, kind=use, detail=detail)
            self.on_news(serial, AddressChange.WANTED)
            self.on_looked(serial)

    def _confirm(self, serial: str) -> None:
        """Probe all addresses of a terminal, once for all requests meanwhile."""
        if serial not in self._confirming:
            look = asyncio.get_running_loop().create_task(self.check(serial), name=f"confirm-{serial}")
            self._confirming[serial] = look
            look.add_done_callback(lambda _look: self._confirming.pop(serial, None))

    @contextmanager
    def _watched(self, member: Member) -> Iterator[None]:
        """Report a terminal that has another address after the block, or is reachable again."""
        before, reachable = member.best, member.reachable
        where = before.base_url if before else None
        yield
        best = member.best
        if best is not None and (best.base_url != where or (reachable is False and member.reachable)):
            for listener in self._listeners:
                listener(member.config.serial)

    def cancel_looks(self) -> list[asyncio.Task[None]]:
        """Cancel the running probes; return them. End each wait for an announcement."""
        self._first_until = float("-inf")
        self._announced.set()
        looks = [*self._looks.values(), *self._confirming.values()]
        for look in looks:
            look.cancel()
        return looks
