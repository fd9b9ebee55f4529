"""One terminal of the fleet: its configuration, where it is, and what is known of it now."""

import functools
import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never

import msgspec

from posd.base.clocks import monotonic, wall
from posd.config import TerminalConfig
from posd.terminals import identity, trust
from posd.terminals.auth import schemes
from posd.terminals.auth.webhooks import Verifier
from posd.terminals.claims import Announcement, Candidate, Claims, Verdict, is_at
from posd.terminals.documents import Claim, Claimant, Identity, State, Terminal
from posd.terminals.identity import Claimants, Conflict, Old, Other, Proof, Situation, Trusted, Use

if TYPE_CHECKING:
    from posd.terminals.client import Device

Source = Literal["config", "mdns"]

#: What the last connection to the address that was trusted last says of it.
OLD: Mapping[Verdict, Old] = {
    Verdict.ANSWERS: Old.ANSWERS,
    Verdict.UNCHECKED: Old.UNKNOWN,
    Verdict.SILENT: Old.SILENT,
    Verdict.REFUSED: Old.SILENT,
}
#: What the last connection to its address says of a terminal: whether it can be reached.
REACHABLE: Mapping[Verdict, bool | None] = {
    Verdict.ANSWERS: True,
    Verdict.UNCHECKED: None,
    Verdict.SILENT: False,
    Verdict.REFUSED: False,
}
#: The same in the words of the local API, for each address.
STATES: Mapping[Verdict, State] = {
    Verdict.ANSWERS: "answers",
    Verdict.UNCHECKED: "unchecked",
    Verdict.SILENT: "silent",
    Verdict.REFUSED: "refused",
}

#: A terminal whose address is configured: whatever else is known of it decides nothing.
CONFIGURED = Situation(configured=True, pinned=False, proven=False, old=Old.NEVER, claimants=Claimants.NONE)


class Started(msgspec.Struct, frozen=True):
    """The newest start: the base URL that it went to, and the fingerprint that the device there showed, if any."""

    base_url: str
    certificate: str | None


class Member:
    """A terminal that the configuration names.

    `configured` is its address there, None where it is discovered. `last_seen` and the times of the candidates are
    ISO 8601. `make` makes the device to call it by, at its first use. `webhooks` verifies the signatures of its
    webhooks, None where none is expected.
    """

    def __init__(self, config: TerminalConfig, make: "Callable[[], Device]", webhooks: Verifier | None = None) -> None:
        self.config = config
        self.webhooks = webhooks
        self._make = make
        self.configured = Candidate(config.base_url.rstrip("/")) if config.base_url else None
        self.claims = Claims(config.scheme)
        self.trusted: Trusted | None = None
        #: The address that was trusted last, of a terminal that is discovered: also where it is not announced now.
        self.place: Candidate | None = None
        #: Whether a payment of it is open.
        self.is_open: Callable[[], bool] = lambda: False
        #: Which terminal was announced last at its configured address, whoever that is.
        self.announced: Announcement | None = None
        self.started: Started | None = None
        self.last_seen: str | None = None
        self.brand: str | None = None
        self.model: str | None = None

    def take_over(self, old: "Member") -> None:
        """Know what was known of the terminal before its configuration was read anew."""
        self.started, self.last_seen, self.brand, self.model = old.started, old.last_seen, old.brand, old.model
        self.trust(old.trusted)
        if self.config == old.config:
            self.claims, self.configured, self.place = old.claims, old.configured, old.place
            self.announced = old.announced
        elif self.on_lan:  # an address that answered is looked at anew: perhaps another certificate is right now
            for announcement in old.claims.announcements:
                self.claims.announce(announcement)

    @cached_property
    def device(self) -> "Device":
        """The client for calls to it; one, also where loop and thread ask for it at once."""
        return vars(self).setdefault("device", self._make())  # type: ignore[no-any-return]

    @property
    def is_called(self) -> bool:
        """Whether its device was made."""
        return "device" in vars(self)

    @property
    def on_lan(self) -> bool:
        """Whether it is called over this network, not through the cloud."""
        return self.config.access_mode == "local"

    def trust(self, trusted: Trusted | None) -> None:
        """Know where it was trusted last. An address that is called by another scheme than it is now counts no more."""
        self.trusted = trusted
        if trusted is None or self.configured is not None or not trusted.base_url.startswith(f"{self.config.scheme}:"):
            self.place = None
        elif self.place is None or self.place.base_url != trusted.base_url:
            known = self.claims.find(trusted.base_url)
            self.place = msgspec.structs.replace(known[0]) if known else Candidate(trusted.base_url, trusted.at)

    @property
    def pinned(self) -> bool:
        """Whether it is called at no device but the one that shows the pinned certificate."""
        return bool(self.config.fingerprint_sha256) and self.config.scheme == "https"

    @property
    def moves_freely(self) -> bool:
        """Whether any address may be tried: it is configured, or what is there has to prove itself."""
        return self.configured is not None or self.pinned or not self.on_lan

    @property
    def use(self) -> Use | Conflict:
        """Which address may be used, by what is known now: see `identity`."""
        chosen = self._chosen
        address = self._address(chosen) if isinstance(chosen, Use) else None
        if address is None or not self.on_lan or self.other_at(address.base_url) is None:
            return chosen
        return Conflict.SERIAL

    def other_at(self, base_url: str) -> Other | None:
        """Return which other terminal the device at an address of it is, by what is known now; None: no other.

        What the device itself said comes before what is announced there, which anything on the network can do.
        """
        trusted = self.trusted
        here = trusted is not None and trusted.base_url == base_url
        if trusted is not None and here and trusted.other_serial is not None:
            return Other(trusted.other_serial, announced=False)
        announced, configured = self.announced, self.configured
        if announced is None or configured is None or self.pinned or configured.proven:
            return None
        if announced.serial == self.config.serial or not self.is_announced_at(announced):
            return None
        turned_down = trusted is not None and here and announced.serial in trusted.turned_down
        return None if turned_down else Other(announced.serial, announced=True)

    def is_announced_at(self, announcement: Announcement) -> bool:
        """Whether what announces itself is at the configured address of it."""
        return self.configured is not None and self.on_lan and is_at(announcement, self.configured.base_url)

    @property
    def _chosen(self) -> Use | Conflict:
        if self.configured is not None or not self.on_lan:
            return identity.judge(CONFIGURED)
        trusted, place, old = self.trusted, self.place, self._old
        same = place.base_url if place is not None and old not in (Old.SILENT, Old.LOST) else None
        others = [item for item in self.claims.answering(same) if place is None or item.base_url != place.base_url]
        return identity.judge(
            Situation(
                configured=False,
                pinned=self.pinned,
                proven=any(_proves(item) for item in self.candidates),
                old=old,
                claimants=Claimants(min(len(others), 2)),
                proved=self._proved,
                decided=trusted is not None and trusted.decided,
                contested=trusted is not None and bool(trusted.turned_down),
                open=len(others) == 1 and self.is_open(),  # with none, and with several, it does not matter
            )
        )

    @property
    def _old(self) -> Old:
        """What is known of the address that was trusted last."""
        if self.place is None:
            return Old.NEVER
        old, silent_since = OLD[self.place.verdict], self.place.silent_since
        lost = silent_since is not None and monotonic() - silent_since >= identity.LOST_SECONDS
        return Old.LOST if old is Old.SILENT and lost else old

    @property
    def moves_soon(self) -> bool:
        """Whether nothing is missing for another address to be used but some seconds of silence at this one."""
        return self._old is Old.SILENT and self.use is Use.TRUSTED and bool(self.claims.answering(None))

    def _address(self, use: Use) -> Candidate | None:
        match use:
            case Use.CONFIGURED:
                return self.configured
            case Use.NEWEST:
                return best[1] if (best := self.claims.best) else None
            case Use.PROVEN:
                return next(item for item in self.candidates if _proves(item))
            case Use.TRUSTED:
                return self.place if self._is_there else None
            case Use.NEW:
                return self.claims.answering(None)[0]
            case _:
                assert_never(use)

    @property
    def _is_there(self) -> bool:
        """Whether the address that was trusted last is announced, or answers."""
        place = self.place
        return place is not None and (place.verdict is Verdict.ANSWERS or bool(self.claims.find(place.base_url)))

    @property
    def best(self) -> Candidate | None:
        """The address to use now, None where none is known; in a conflict the one that was trusted last."""
        use = self.use
        if isinstance(use, Use):
            return self._address(use)
        if self.configured is not None or self.place is not None:
            return self.configured or self.place
        best = self.claims.best
        return best[1] if best else None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The addresses at which it may be."""
        if self.configured is not None:
            return (self.configured,)
        announced = self.claims.candidates
        if self.place is None or any(item.base_url == self.place.base_url for item in announced):
            return announced
        return (*announced, self.place)

    def proof(self, candidate: Candidate | None = None) -> Proof:
        """What shows that the device at an address is the terminal; without one, the terminal where it was last."""
        if self.pinned:
            return Proof.PINNED
        if candidate is not None:
            return Proof.CA if candidate.proven else Proof.NONE
        return Proof.CA if self.must_prove(None) else Proof.NONE

    def must_prove(self, base_url: str | None) -> bool:
        """Whether nothing may be sent to that address unless its certificate bears the serial: it had done so before.

        At a configured address any device that is trusted there may answer.
        """
        if self.configured is not None or self.pinned or not self.on_lan:
            return False
        return self._proved or any(item.proven for item in self.find(base_url or ""))

    @property
    def _proved(self) -> bool:
        """Whether the device that was trusted last had shown a certificate of the named CA with the serial."""
        by_ca = self.trusted is not None and self.trusted.proof is Proof.CA
        return by_ca and self.place is not None and self.config.ca_file is not None

    def dispute_claims(self) -> tuple[identity.Claim, ...]:
        """Return what is said of where it is, each address once."""
        announced = self.claims.candidates
        return tuple(
            identity.Claim(
                base_url=item.base_url,
                source="config" if item is self.configured else "mdns" if item in announced else "trusted",
                since=item.since,
                proof=self.proof(item),
            )
            for item in self.candidates
        )

    def note_certificate(self, base_url: str, certificate: str | None) -> None:
        """Note the certificate (fingerprint) that verified at an address of it."""
        for candidate in self.find(base_url):
            candidate.certificate, candidate.proven = certificate, self.device.proves(certificate)

    @property
    def reachable(self) -> bool | None:
        """Whether the last call or look at its address got through; None where there was none."""
        best = self.best
        return None if best is None else REACHABLE[best.verdict]

    @property
    def source(self) -> Source:
        """Where its address comes from."""
        return "config" if self.configured is not None else "mdns"

    def find(self, base_url: str) -> list[Candidate]:
        """Return what is known of an address of it; nothing where it has that one no more."""
        if self.configured is not None:
            return [self.configured] if self.configured.base_url == base_url else []
        here = [self.place] if self.place is not None and self.place.base_url == base_url else []
        return here + self.claims.find(base_url)

    def same_as(self, sent_to: str, base_url: str) -> bool | str:
        """Tell whether the device at `base_url` is the one that its newest start was sent to, at `sent_to`.

        A fingerprint: it is, where it shows the certificate of that. An address alone is no proof, for addresses are
        given to other devices. So what shows the same certificate is the same; without one (plain HTTP, or a start
        before posd was restarted) the same address is taken for the same device, and another address for another one.
        What is pinned is the same wherever it is, for no other is ever spoken to; in the cloud the path has the serial.
        """
        if not self.on_lan or (self.config.fingerprint_sha256 and base_url.startswith("https:")):
            return True
        if self.started is not None and self.started.base_url == sent_to and self.started.certificate is not None:
            return self.started.certificate
        return base_url == sent_to

    def document(self, transaction: str | None, no_address: str, *, conflict: bool) -> Terminal:
        """Return it as the local API shows it; `no_address` says why none is known."""
        best = self.best
        believed = next((claim for claim in self.claims if best is None or claim.has(best.base_url)), None)
        announcement = believed.announcement if believed else None
        return Terminal(
            serial=self.config.serial,
            brand=self.brand or (announcement.brand if announcement else None),
            model=self.model or (announcement.model if announcement else None),
            base_url=best.base_url if best else None,
            source=self.source if best else None,
            reachable=self.reachable if best else None,
            last_seen=self.last_seen,
            transaction=transaction,
            reason=best.reason if best else no_address,
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
                conflict=conflict,
                claims=[Claimant(item.base_url, item.source, item.since, item.proof) for item in self.dispute_claims()],
            ),
        )

    def judge(self, base_url: str, verdict: Verdict, reason: str | None, at: str, tried: float) -> None:
        """Take what a connection to an address of it showed; `reason` is for one that does not answer."""
        for candidate in self.find(base_url):
            candidate.verdict, candidate.reason, candidate.checked_at, candidate.tried = verdict, reason, at, tried
            candidate.since = candidate.since or at
            if verdict is Verdict.ANSWERS:
                candidate.silent_since = None
            elif candidate.silent_since is None:
                candidate.silent_since = tried
        if verdict is Verdict.ANSWERS:
            self.last_seen = at


def _proves(candidate: Candidate) -> bool:
    return candidate.proven and candidate.verdict is Verdict.ANSWERS


class Members:
    """The terminals by serial: those of the fleet now, and those that calls may still be under way to."""

    def __init__(self, made: dict[str, Member], clock_sure: Callable[[], bool] = lambda: True) -> None:
        """`clock_sure`: whether the dates of certificates can be judged by the clock of this machine now."""
        self._clock_sure = clock_sure
        #: The terminals of the fleet, in the order of the configuration.
        self.current = made
        self._former: dict[str, Member] = {}  # no longer in the fleet
        self._outdated: list[Member] = []  # what members were before their configuration changed
        self._hurried = False
        #: Whether a payment of that terminal is open.
        self.is_open: Callable[[str], bool] = lambda _serial: False
        self._tell_open()

    def _tell_open(self) -> None:
        for serial, member in self.current.items():
            member.is_open = functools.partial(self._is_open, serial)

    def _is_open(self, serial: str) -> bool:
        return self.is_open(serial)

    def of(self, serial: str) -> Member:
        """Return a terminal that is in the fleet, or was when it was looked up."""
        return self.current.get(serial) or self._former[serial]

    def adopt(self, made: dict[str, Member]) -> list[Member]:
        """Be these from now on; return the members that are no longer in the fleet."""
        known = self._former | self.current
        for serial, member in made.items():
            if (old := known.pop(serial, None)) is not None:
                member.take_over(old)
                self._outdated.append(old)
        self._former, self.current = known, made
        self._tell_open()
        self._outdated = [member for member in self._outdated if member.is_called and member.device.busy]
        if self._hurried:
            self.hurry()
        return list(known.values())

    def device(self, member: Member) -> "Device":
        """Return the client for calls to a terminal."""
        made = member.device
        made.judge_dates(self._clock_sure())
        if self._hurried:
            made.hurry()
        return made

    def devices(self) -> "list[Device]":
        """Return the clients that were made."""
        known = (*self.current.values(), *self._former.values(), *self._outdated)
        return [member.device for member in known if member.is_called]

    def hurry(self) -> None:
        """End the calls under way; later ones are not sent."""
        self._hurried = True
        for device in self.devices():
            device.hurry()


def made(terminals: Iterable[TerminalConfig], now: Callable[[], datetime] = wall) -> dict[str, Member]:
    """Resolve trust, headers and secrets of each terminal; return the members by serial. Blocking.

    Raise OSError or HeaderError where a file cannot be used.
    """
    contexts = functools.cache(trust.context)  # reading the system's CAs takes long: once is enough
    return {
        terminal.serial: Member(terminal, maker(terminal, contexts, now), schemes.of_webhooks(terminal))
        for terminal in terminals
    }


def maker(
    terminal: TerminalConfig,
    contexts: Callable[[Path | None, str], ssl.SSLContext],
    now: Callable[[], datetime],
) -> "Callable[[], Device]":
    """Read what a terminal's calls need; return what makes the client, which is large and not needed to be ready.

    Raise OSError or HeaderError.
    """
    authenticates = schemes.of(terminal, now)
    if terminal.ca_file is not None or terminal.fingerprint_sha256:
        contexts(terminal.ca_file, terminal.fingerprint_sha256)  # a file that cannot be used is told of at the start
    secure = (terminal.base_url or f"{terminal.scheme}:").lower().startswith("https:")

    def make() -> "Device":
        from posd.terminals.client import Device

        return Device(
            trust=contexts(terminal.ca_file, terminal.fingerprint_sha256) if secure else trust.nobody(),
            connect_timeout=terminal.connect_timeout_seconds,
            reply_timeout=terminal.reply_timeout_seconds,
            authentication=authenticates,
            server_name=terminal.server_name,
            ca_file=terminal.ca_file,
            serial=terminal.serial if terminal.ca_file is not None else "",
            window=None if terminal.auth == "none" else terminal.hash_encrypt.window_seconds,
            now=now,
        )

    return make


def load(members: Iterable[Member]) -> "list[Device]":
    """Load what calls to terminals need; return their devices, made. Blocking."""
    return [member.device for member in members]
