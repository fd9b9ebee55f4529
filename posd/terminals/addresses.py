"""Where terminals are: what is announced of them, the looks at their addresses, and the address to use now."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import Enum, auto
from urllib.parse import urlsplit

import msgspec
import structlog

from posd.base.clocks import monotonic
from posd.base.problems import Problem
from posd.base.times import iso
from posd.terminals import identity
from posd.terminals.attempt import Attempt, NotSent
from posd.terminals.claims import Announcement, Rivals, Verdict
from posd.terminals.identity import Conflict, Dispute, Proof, Trusted
from posd.terminals.members import Member, Members, Source
from posd.terminals.trust import Reached, Unreached

#: Announcements of terminals outside the fleet that are remembered, to be shown; the LAN can announce without end.
MAX_STRANGERS = 64
#: So long it counts that an address has answered, in seconds, where there are several to choose from.
FRESH_SECONDS = 30.0
#: When a call shows the terminals, what is older than this is looked at meanwhile, in seconds.
READ_SECONDS = 10.0
#: When a call wants them looked at first, or none answered, what is older than this.
CHECK_SECONDS = 1.0
#: Where the trusted address answers, a call waits so much longer for the others that are announced, in seconds: one
#: that is slow to answer must not hold up every payment, and is sent nothing.
OTHERS_SECONDS = 0.3
#: Of several devices that answered, so long one alone has to be there until the conflict is over, in seconds.
CALM_SECONDS = 15.0

#: Why something is not the terminal that had proven itself before.
NOT_BORNE = (
    "the certificate there is of the trusted CA, and does not bear the serial, which that of this terminal did before: "
    "another device is there, or it was given another certificate"
)
#: Why no address of a terminal is known.
NOT_ANNOUNCED = "it has not announced itself: check that it is switched on and in this network, or give it a base_url"

log = structlog.get_logger("posd.fleet")


class News(Enum):
    """What `Fleet.on_news` tells of a terminal."""

    WANTED = auto()  # a call wants to know how it is, or it is announced where posd has not looked yet
    HEARD = auto()  # it said something by itself
    REACHED = auto()  # a call or a look got through
    MISSED = auto()  # one did not
    CHANGED = auto()  # its addresses are others


class Addresses:
    """The addresses of terminals, as the configuration, announcements, looks and calls tell them."""

    def __init__(self, members: Members, now: Callable[[], datetime]) -> None:
        self._members = members
        self._now = now
        #: What is announced of terminals outside the fleet, by the name of the announcement.
        self.strangers: dict[str, Announcement] = {}
        self._looks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._confirming: dict[str, asyncio.Task[None]] = {}
        self._rivals: dict[str, Rivals] = {}
        self._remembered: dict[str, Trusted] = {}
        self._disputes: dict[str, tuple[Dispute, float]] = {}  # with when it was seen last, monotonic seconds
        #: Why the address of a terminal that has none in the configuration is not known, in words.
        self.no_address = NOT_ANNOUNCED
        self._listeners: list[Callable[[str], None]] = []
        #: Called with the serial of a terminal when a conflict about it begins or ends, and when it was looked at.
        self.on_looked: Callable[[str], None] = lambda _serial: None
        #: Called with what decides when a terminal is to be looked at again.
        self.on_news: Callable[[str, News], None] = lambda _serial, _news: None

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the serial of each terminal that can be reached again, or is announced anew."""
        self._listeners.append(listener)

    def sort_strangers(self, gone: list[Member]) -> None:
        """Take another fleet into account: announcements of terminals that left it, and of those that joined."""
        self.remember({})
        for member in gone:
            self.strangers |= {item.name: item for item in member.claims.announcements}
        for stranger in list(self.strangers.values()):
            if stranger.serial in self._members.current:
                self.announce(stranger)
        known = [item for member in self._members.current.values() for item in member.claims.announcements]
        for member in self._members.current.values():
            if member.announced is None:  # its address is another one: which of them came last is not known
                self._compare(member, *known, *self.strangers.values())
        self.network_changed()

    def is_open(self, tells: Callable[[str], bool]) -> None:
        """Take what tells whether a payment of a terminal is open: it is not followed to a new address then."""
        self._members.is_open = tells

    def conflict(self, serial: str) -> Dispute | None:
        """Return why nothing may be sent to a terminal: devices that contradict each other; None where all is well."""
        found = self._disputes.get(serial)
        return found[0] if found is not None and serial in self._members.current else None

    def has_rivals(self, serial: str) -> bool:
        """Whether something else answers as a terminal, which is sent nothing."""
        member = self._members.current[serial]
        others = [item for item in member.candidates if item.verdict in (Verdict.ANSWERS, Verdict.REFUSED)]
        claims = member.claims.rivals
        return not member.moves_freely and len(others) > 1 and claims is not None

    def trusted(self, serial: str) -> Trusted | None:
        """Return where a terminal was trusted last."""
        return self._members.of(serial).trusted

    def to_trust(self, serial: str, base_url: str) -> Trusted | None:
        """Return what a request to that address makes of where the terminal was trusted last, None for no change."""
        member = self._members.of(serial)
        old = member.trusted
        if not member.on_lan or (old is not None and old.base_url == base_url):
            return None
        return Trusted(base_url, member.proof(next(iter(member.find(base_url)), None)), iso(self._now()))

    def proved(self, serial: str, base_url: str) -> Trusted | None:
        """Return where a terminal is trusted, where the device there has proven itself and had not before."""
        member = self._members.of(serial)
        old = member.trusted
        if old is None or old.base_url != base_url or old.proof is Proof.CA or member.proof() is Proof.PINNED:
            return None
        proven = any(item.proven for item in member.find(base_url))
        return msgspec.structs.replace(old, proof=Proof.CA) if proven else None

    def remember(self, known: Mapping[str, Trusted]) -> None:
        """Know where terminals were trusted before posd was started, those too that a later configuration names."""
        self._remembered |= known
        for serial, member in self._members.current.items():
            if member.trusted is None and serial in self._remembered:
                self.trust(serial, self._remembered[serial])

    def trust(self, serial: str, trusted: Trusted) -> None:
        """Know where a terminal is trusted from now on: a payment goes there, a person decided, or posd starts."""
        member = self._members.current.get(serial)
        if member is None:
            return
        before = member.trusted
        with self._watched(member):
            member.trust(trusted)
        self.on_news(serial, News.CHANGED)
        if before is not None and before.base_url != trusted.base_url and not trusted.decided:
            log.info("terminal.moved", terminal=serial, host=trusted.base_url, kind=trusted.proof)
        self._state(member, at_once=trusted.decided)

    def decision(self, serial: str, base_url: str, operator: str, note: str, uid: int | None) -> Trusted:
        """Return what a person's word makes of where a terminal is. Raise Problem where nothing claims to be there."""
        member = self._members.current[serial]
        found = next((item for item in member.candidates if item.base_url == base_url.rstrip("/")), None)
        if found is None:
            known = ", ".join(item.base_url for item in member.candidates) or "none is known"
            errors = [{"path": "/base_url", "message": f"must be one of the addresses that claim to be it: {known}"}]
            raise Problem("invalid_request", f"nothing was decided: base_url {errors[0]['message']}", errors=errors)
        others = (item for item in member.candidates if item is not found and item.verdict is Verdict.ANSWERS)
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

    def says_it_is(self, serial: str, base_url: str, other_serial: str | None) -> None:
        """Note what the device at an address of a terminal says it is: another terminal, or None, that one."""
        member = self._members.current.get(serial)
        trusted = member.trusted if member is not None else None
        if member is None or trusted is None or trusted.base_url != base_url or trusted.other_serial == other_serial:
            return
        member.trusted = msgspec.structs.replace(trusted, other_serial=other_serial)
        self._state(member)

    def _compare(self, member: Member, *announcements: Announcement) -> None:
        """Note which terminal is announced at the configured address of one, and tell where that is another."""
        before = member.announced
        for item in announcements:
            if member.is_announced_at(item):
                member.announced = item
            elif member.announced is not None and member.announced.name == item.name:
                member.announced = None  # it is elsewhere now
        if member.announced != before:
            self._state(member)

    def base_url(self, serial: str) -> tuple[str, Source] | None:
        """Return the address of a fleet member by what is known now and where it comes from, None where none is."""
        member = self._members.of(serial)
        best = member.best
        return None if best is None else (best.base_url, member.source)

    def reachable(self, serial: str) -> bool:
        """Whether the last call or look at a fleet member got through."""
        return self._members.current[serial].reachable is True

    def may_answer(self, serial: str) -> bool:
        """Whether a fleet member has an address, and nothing shows that it cannot be reached there."""
        member = self._members.current[serial]
        return member.best is not None and member.reachable is not False

    def hosts(self) -> dict[str, str]:
        """Return the hosts that are configured or have answered, of the terminals of this network, with the serial."""
        return {
            urlsplit(item.base_url).hostname or "": member.config.serial
            for member in self._members.current.values()
            for item in member.candidates
            if member.on_lan and (member.configured is not None or item.verdict is Verdict.ANSWERS)
        }

    async def choose(self, serial: str) -> tuple[str, Source] | None:
        """Return the address of a fleet member for a call, None where none is known or `conflict` says why not.

        At one that says it is another terminal what was sent there is asked for; nothing may be started there.

        Where several are announced they are connected to first, unless it is known already which of them is right: so
        a call goes to one address, once, and that is one that answers, if any does. Where nothing proves which device
        is the terminal, that none contradicts it has to be seen too.
        """
        member = self._members.of(serial)
        if member.moves_freely:
            if member.configured is None and len(member.candidates) > 1:
                await self._look_for_the_best(member)
        else:
            await self._look_for_others(member)
        self._state(member, looked=True)
        dispute = self.conflict(serial)
        return self.base_url(serial) if dispute is None or dispute.kind is Conflict.SERIAL else None

    async def _look_for_the_best(self, member: Member) -> None:
        # That none answers is not believed for long: a terminal that starts again does not announce itself anew.
        since = self._fresh(member)
        looks = {self._look(member, item.base_url) for item in member.claims.stale(since)}
        while looks and not member.claims.decided(since):
            _, looks = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)

    async def _look_for_others(self, member: Member) -> None:
        """Look where it was trusted last, and at all that claims to be it; not where there is nothing to choose."""
        place, candidates = member.place, member.candidates
        if len(candidates) < 2 and (place is None or member.claims.find(place.base_url)):
            return
        await self._look_at_all(member, self._fresh(member))
        if isinstance(member.use, Conflict):  # perhaps it is moving just now
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
            answers = place is not None and place.verdict is Verdict.ANSWERS
            await asyncio.wait(looks.values(), timeout=OTHERS_SECONDS if answers else None)

    @staticmethod
    def _fresh(member: Member) -> float:
        return monotonic() - (FRESH_SECONDS if member.reachable else CHECK_SECONDS)

    def announce(self, announcement: Announcement) -> bool:
        """Take an announcement; tell whether it brought anything new. Of a terminal in the cloud it never does."""
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
        if member.configured is None and (new or member.reachable is not True):
            self.on_news(serial, News.WANTED)
        return new

    def withdraw(self, name: str) -> Announcement | None:
        """Forget an announcement by its instance name, and return it."""
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
                    # A goodbye proves nothing: anybody can say it. Whether the terminal is gone, a look tells.
                    place.verdict, place.tried = Verdict.UNCHECKED, float("-inf")
                    self.on_news(serial, News.WANTED)
        return gone

    def unheard(self) -> None:
        """Note that what was announced was heard over a network that is another one now.

        What is not heard again is forgotten as soon as it cannot be reached either.
        """
        self.strangers.clear()
        for member in self._members.current.values():
            member.announced = None
            member.claims.unheard()

    def network_changed(self) -> None:
        """Note that this machine has other addresses or links than before: every terminal is looked at."""
        for serial in self._members.current:
            self.on_news(serial, News.WANTED)

    def reached(
        self, serial: str, reachable: bool, at: str, *, base_url: str | None = None, reason: str | None = None
    ) -> None:
        """Note whether a call to a terminal got through: at which address, and in words why it did not."""
        member = self._members.current.get(serial)
        best = member.best if member else None
        if member is None or best is None:
            return
        verdict = Verdict.ANSWERS if reachable else Verdict.SILENT
        words = None if reachable else reason or "the last call did not reach it"
        with self._watched(member):
            member.judge(base_url or best.base_url, verdict, words, at, monotonic())
        self.on_news(serial, News.REACHED if reachable else News.MISSED)

    def note_result(self, serial: str, base_url: str, attempt: Attempt, *, connected: bool = False) -> None:
        """Note what came of a call to an address. `connected`: it got through, even if nothing was sent."""
        reason = attempt.reason if isinstance(attempt, NotSent) and not connected else None
        self.reached(serial, reason is None, iso(self._now()), base_url=base_url, reason=reason)

    def note_certificate(self, serial: str, base_url: str, certificate: str | None) -> None:
        """Note the certificate (fingerprint) that verified at an address of a terminal."""
        self._members.of(serial).note_certificate(base_url, certificate)

    def can_be_looked_at(self, serial: str) -> bool:
        """Whether there is a device on this network to look at."""
        member = self._members.of(serial)
        return member.on_lan and bool(member.candidates)

    async def check(self, serial: str) -> None:
        """Look at all addresses of a terminal: connect, and close again. Join the looks that are under way."""
        member = self._members.of(serial)
        looks = {self._look(member, item.base_url) for item in member.candidates} if member.on_lan else None
        if looks:
            await asyncio.wait(looks)
            self._state(member, looked=True)

    def asked_for(self) -> None:
        """Note that a call shows the terminals: what was not looked at for `READ_SECONDS` is looked at."""
        since = monotonic() - READ_SECONDS
        for serial, member in self._members.current.items():
            if any(item.tried < since for item in member.candidates):
                self.on_news(serial, News.WANTED)

    async def check_stale(self, seconds: float) -> None:
        """Look at each terminal that was not looked at just now; wait for that, but no longer than `seconds`."""
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
        """Connect to an address; join the look that is under way."""
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
                        member.judge(base_url, Verdict.ANSWERS, None, at, tried)
                    else:
                        member.judge(base_url, Verdict.REFUSED, NOT_BORNE, at, tried)
                case Unreached(reason, refused):
                    member.judge(base_url, Verdict.REFUSED if refused else Verdict.SILENT, reason, at, tried)
            if not any(looked_at == serial for looked_at, _ in self._looks):
                self._settle(member)
        self.on_news(serial, News.REACHED if member.reachable else News.MISSED)

    def _settle(self, member: Member) -> None:
        """Forget what the looks have shown to be wrong, and tell of devices that contradict each other."""
        serial = member.config.serial
        for gone in member.claims.sweep():
            log.info("discovery.gone", terminal=serial, host=gone.hosts[0], reason="it is not there any more")
        self._state(member)
        self.on_looked(serial)
        rivals = member.claims.rivals if member.configured is None and not isinstance(member.use, Conflict) else None
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
                    "is trusted as well. Find out which is the right one, and give the terminal a base_url or a "
                    "fingerprint_sha256 in the configuration"
                    if rivals.both_verified
                    else "is not: its certificate is not the one that the configuration trusts. Find out what it is"
                ),
            )

    def _state(self, member: Member, *, looked: bool = False, at_once: bool = False) -> None:
        """Note whether devices contradict each other now; tell where that begins or ends.

        `looked`: at all of them, just now. `at_once`: a person has decided; what was seen before counts no more.
        """
        serial, now, use = member.config.serial, monotonic(), member.use
        old = self._disputes.get(serial)
        if not isinstance(use, Conflict):
            if old is None:
                return
            calm = now - old[1] >= CALM_SECONDS or member.moves_freely or old[0].kind is not Conflict.RIVALS
            if calm or at_once:
                del self._disputes[serial]
                log.info("terminal.identity_settled", terminal=serial, host=member.best and member.best.base_url)
                for listener in self._listeners:
                    listener(serial)
                self.on_looked(serial)
            return
        answering = [item for item in member.candidates if item.verdict is Verdict.ANSWERS]
        if not looked and old is None and use is not Conflict.SERIAL:
            self._confirm(serial)  # what answered a moment ago may just be moving: all are looked at once more
            return
        claims, trusted = member.dispute_claims(), member.trusted
        others = tuple(item.base_url for item in answering if trusted is None or item.base_url != trusted.base_url)
        here = member.configured or trusted
        other = member.other_at(here.base_url) if use is Conflict.SERIAL and here is not None else None
        what = identity.words(use, serial, others, here.base_url if here else None, other)
        todo = identity.todo(serial, other.serial if other else None)
        same = old is not None and old[0].kind is use
        since = old[0].since if old is not None and same else iso(self._now())
        self._disputes[serial] = (Dispute(use, since, claims, what, todo), now)
        if not same:
            detail = self._disputes[serial][0].detail
            log.warning("terminal.identity_conflict", terminal=serial, kind=use, detail=detail)
            self.on_news(serial, News.WANTED)
            self.on_looked(serial)

    def _confirm(self, serial: str) -> None:
        """Look at all addresses of a terminal; once, however often it is asked for meanwhile."""
        if serial not in self._confirming:
            look = asyncio.get_running_loop().create_task(self.check(serial), name=f"confirm-{serial}")
            self._confirming[serial] = look
            look.add_done_callback(lambda _look: self._confirming.pop(serial, None))

    @contextmanager
    def _watched(self, member: Member) -> Iterator[None]:
        """Tell of a terminal that is elsewhere after the block, or can be reached again."""
        before, reachable = member.best, member.reachable
        where = before.base_url if before else None
        yield
        best = member.best
        if best is not None and (best.base_url != where or (reachable is False and member.reachable)):
            for listener in self._listeners:
                listener(member.config.serial)

    def cancel_looks(self) -> list[asyncio.Task[None]]:
        """Cancel the looks under way; return them."""
        looks = [*self._looks.values(), *self._confirming.values()]
        for look in looks:
            look.cancel()
        return looks
