"""One terminal of the fleet: its configuration, its addresses, and its present state."""

import functools
import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal, assert_never

import msgspec

from posd.base.clocks import monotonic, wall
from posd.config import TerminalConfig
from posd.terminals import identity, trust
from posd.terminals.announcements import Announcement, Candidate, CandidateVerdict, SerialAnnouncements, is_at
from posd.terminals.auth import schemes
from posd.terminals.auth.webhooks import Verifier
from posd.terminals.documents import Claim, Claimant, Identity, State, Terminal
from posd.terminals.identity import (
    AddressConflict,
    Claimants,
    LastTrusted,
    OtherTerminal,
    Proof,
    Situation,
    Trusted,
    UsableAddress,
)

if TYPE_CHECKING:
    from posd.terminals.client import TerminalAccess

Source = Literal["config", "mdns"]

#: State of the last trusted address after the last connection to it.
OLD: Mapping[CandidateVerdict, LastTrusted] = {
    CandidateVerdict.ANSWERS: LastTrusted.ANSWERS,
    CandidateVerdict.UNCHECKED: LastTrusted.UNKNOWN,
    CandidateVerdict.SILENT: LastTrusted.SILENT,
    CandidateVerdict.REFUSED: LastTrusted.SILENT,
}
#: Whether a terminal is reachable, after the last connection to its address.
REACHABLE: Mapping[CandidateVerdict, bool | None] = {
    CandidateVerdict.ANSWERS: True,
    CandidateVerdict.UNCHECKED: None,
    CandidateVerdict.SILENT: False,
    CandidateVerdict.REFUSED: False,
}
#: The same in the words of the local API, for each address.
STATES: Mapping[CandidateVerdict, State] = {
    CandidateVerdict.ANSWERS: "answers",
    CandidateVerdict.UNCHECKED: "unchecked",
    CandidateVerdict.SILENT: "silent",
    CandidateVerdict.REFUSED: "refused",
}

#: Situation of a terminal with a configured address, which decides alone.
CONFIGURED = Situation(configured=True, pinned=False, proven=False, old=LastTrusted.NEVER, claimants=Claimants.NONE)


class NewestStart(msgspec.Struct, frozen=True):
    """The newest start: its base URL, and the fingerprint that the device there showed, if any."""

    base_url: str
    certificate: str | None


class Member:
    """A terminal of the configuration.

    `configured`: its configured address, None for a discovered one. `last_seen` and the times of the candidates are ISO
    8601. `make`: makes the client for its calls, at first use. `webhooks`: verifies the signatures of its webhooks,
    None if none is expected.
    """

    def __init__(
        self, config: TerminalConfig, make: "Callable[[], TerminalAccess]", webhooks: Verifier | None = None
    ) -> None:
        self.config = config
        self.webhooks = webhooks
        self._make = make
        self.configured = Candidate(config.base_url.rstrip("/")) if config.base_url else None
        self.claims = SerialAnnouncements(config.scheme)
        self.trusted: Trusted | None = None
        #: The last trusted address of a discovered terminal, also while it is not announced.
        self.place: Candidate | None = None
        #: Returns whether a payment of it is open.
        self.is_open: Callable[[], bool] = lambda: False
        #: The last announcement at its configured address, of whichever terminal.
        self.announced: Announcement | None = None
        self.started: NewestStart | None = None
        self.last_seen: str | None = None
        self.brand: str | None = None
        self.model: str | None = None

    def take_over(self, old: "Member") -> None:
        """Copy the state of the terminal from before a reload of the configuration."""
        self.started, self.last_seen, self.brand, self.model = old.started, old.last_seen, old.brand, old.model
        self.trust(old.trusted)
        if self.config == old.config:
            self.claims, self.configured, self.place = old.claims, old.configured, old.place
            self.announced = old.announced
        elif self.on_lan:  # an address that replied is probed again: another certificate may be right after the change
            for announcement in old.claims.announcements:
                self.claims.announce(announcement)

    @cached_property
    def device(self) -> "TerminalAccess":
        """The client for calls to it; a single one, even if loop and thread create it at once."""
        return vars(self).setdefault("device", self._make())  # type: ignore[no-any-return]

    @property
    def is_called(self) -> bool:
        """Whether its client was made."""
        return "device" in vars(self)

    @property
    def on_lan(self) -> bool:
        """Whether it is called over this network, not through the cloud."""
        return self.config.access_mode == "local"

    def trust(self, trusted: Trusted | None) -> None:
        """Set the trust record. An address with another scheme than the present one is ignored."""
        self.trusted = trusted
        if trusted is None or self.configured is not None or not trusted.base_url.startswith(f"{self.config.scheme}:"):
            self.place = None
        elif self.place is None or self.place.base_url != trusted.base_url:
            known = self.claims.find(trusted.base_url)
            self.place = msgspec.structs.replace(known[0]) if known else Candidate(trusted.base_url, trusted.at)

    @property
    def pinned(self) -> bool:
        """Whether it is called only at the device that has the pinned certificate or key."""
        return self.config.pin is not None and self.config.scheme == "https"

    @property
    def moves_freely(self) -> bool:
        """Whether any address may be tried: it is configured, or its device has to prove its identity."""
        return self.configured is not None or self.pinned or not self.on_lan

    @property
    def use(self) -> UsableAddress | AddressConflict:
        """The address that may be used, by the present state (see `identity`)."""
        chosen = self._chosen
        address = self._address(chosen) if isinstance(chosen, UsableAddress) else None
        if address is None or not self.on_lan or self.other_at(address.base_url) is None:
            return chosen
        return AddressConflict.SERIAL

    def other_at(self, base_url: str) -> OtherTerminal | None:
        """Return the other terminal at one of its addresses, by the present state, or None.

        The device's own report takes precedence over announcements, which any device on the network can send.
        """
        trusted = self.trusted
        here = trusted is not None and trusted.base_url == base_url
        if trusted is not None and here and trusted.other_serial is not None:
            return OtherTerminal(trusted.other_serial, announced=False)
        announced, configured = self.announced, self.configured
        if announced is None or configured is None or self.pinned or configured.proven:
            return None
        if announced.serial == self.config.serial or not self.is_announced_at(announced):
            return None
        turned_down = trusted is not None and here and announced.serial in trusted.turned_down
        return None if turned_down else OtherTerminal(announced.serial, announced=True)

    def is_announced_at(self, announcement: Announcement) -> bool:
        """Return whether an announcement comes from the configured address."""
        return self.configured is not None and self.on_lan and is_at(announcement, self.configured.base_url)

    @property
    def _chosen(self) -> UsableAddress | AddressConflict:
        if self.configured is not None or not self.on_lan:
            return identity.judge(CONFIGURED)
        trusted, place, old = self.trusted, self.place, self._old
        same = place.base_url if place is not None and old not in (LastTrusted.SILENT, LastTrusted.LOST) else None
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
    def _old(self) -> LastTrusted:
        """State of the last trusted address."""
        if self.place is None:
            return LastTrusted.NEVER
        old, silent_since = OLD[self.place.verdict], self.place.silent_since
        lost = silent_since is not None and monotonic() - silent_since >= identity.LOST_SECONDS
        return LastTrusted.LOST if old is LastTrusted.SILENT and lost else old

    @property
    def moves_soon(self) -> bool:
        """Whether only some seconds of silence here are missing for the use of another address."""
        return (
            self._old is LastTrusted.SILENT and self.use is UsableAddress.TRUSTED and bool(self.claims.answering(None))
        )

    def _address(self, use: UsableAddress) -> Candidate | None:
        match use:
            case UsableAddress.CONFIGURED:
                return self.configured
            case UsableAddress.NEWEST:
                return best[1] if (best := self.claims.best) else self._address(UsableAddress.TRUSTED)
            case UsableAddress.PROVEN:
                return next(item for item in self.candidates if _proves(item))
            case UsableAddress.TRUSTED:
                return self.place if self._is_there else None
            case UsableAddress.NEW:
                return self.claims.answering(None)[0]
            case _:
                assert_never(use)

    @property
    def _is_there(self) -> bool:
        """Whether the last trusted address is announced, or replies."""
        place = self.place
        return place is not None and (
            place.verdict is CandidateVerdict.ANSWERS or bool(self.claims.find(place.base_url))
        )

    @property
    def best(self) -> Candidate | None:
        """The address to use, None if none is known; in a conflict the last trusted one."""
        use = self.use
        if isinstance(use, UsableAddress):
            return self._address(use)
        if self.configured is not None or self.place is not None:
            return self.configured or self.place
        best = self.claims.best
        return best[1] if best else None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Its possible addresses."""
        if self.configured is not None:
            return (self.configured,)
        announced = self.claims.candidates
        if self.place is None or any(item.base_url == self.place.base_url for item in announced):
            return announced
        return (*announced, self.place)

    def proof(self, candidate: Candidate | None = None) -> Proof:
        """Return the proof that the device at an address is the terminal; without one, the proof of the last one."""
        if self.pinned:
            return Proof.PINNED
        if candidate is not None:
            return Proof.CA if candidate.proven else Proof.NONE
        return Proof.CA if self.must_prove(None) else Proof.NONE

    def must_prove(self, base_url: str | None) -> bool:
        """Return whether an address may be used only if its certificate has the serial, as an earlier one did.

        At a configured address any trusted device may reply.
        """
        if self.configured is not None or self.pinned or not self.on_lan:
            return False
        return self._proved or any(item.proven for item in self.find(base_url or ""))

    @property
    def _proved(self) -> bool:
        """Whether the last trusted device had shown a certificate of the named CA with the serial."""
        by_ca = self.trusted is not None and self.trusted.proof is Proof.CA
        return by_ca and self.place is not None and self.config.ca_file is not None

    def dispute_claims(self) -> tuple[identity.AddressClaim, ...]:
        """Return the claims to be this terminal, each address once."""
        announced = self.claims.candidates
        return tuple(
            identity.AddressClaim(
                base_url=item.base_url,
                source="config" if item is self.configured else "mdns" if item in announced else "trusted",
                since=item.since,
                proof=self.proof(item),
            )
            for item in self.candidates
        )

    def note_certificate(self, base_url: str, certificate: str | None) -> None:
        """Record the certificate (fingerprint) that verified at one of its addresses."""
        for candidate in self.find(base_url):
            candidate.certificate, candidate.proven = certificate, self.device.proves(certificate)

    @property
    def reachable(self) -> bool | None:
        """Whether the last call to, or probe of, its address connected; None without one."""
        best = self.best
        return None if best is None else REACHABLE[best.verdict]

    @property
    def source(self) -> Source:
        """Source of its address."""
        return "config" if self.configured is not None else "mdns"

    def find(self, base_url: str) -> list[Candidate]:
        """Return the candidates with one of its addresses; none if it does not have that address."""
        if self.configured is not None:
            return [self.configured] if self.configured.base_url == base_url else []
        here = [self.place] if self.place is not None and self.place.base_url == base_url else []
        return here + self.claims.find(base_url)

    def same_as(self, sent_to: str, base_url: str) -> bool | str:
        """Return whether the device at `base_url` is the one of its newest start, at `sent_to`.

        A fingerprint instead: it is, if it shows that certificate.

        An address alone is no proof, because other devices can get it. So the device with the same certificate is the
        same. Without one (plain HTTP, or a start before posd was restarted), the same address counts as the same
        device, and another address as another. A pinned device is the same everywhere, because no other is ever called.
        In the cloud the path has the serial.
        """
        if not self.on_lan or (self.config.pin is not None and base_url.startswith("https:")):
            return True
        if self.started is not None and self.started.base_url == sent_to and self.started.certificate is not None:
            return self.started.certificate
        return base_url == sent_to

    def document(self, transaction: str | None, no_address: str, *, conflict: bool) -> Terminal:
        """Return it as in the local API; `no_address`: why no address is known."""
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

    def judge(self, base_url: str, verdict: CandidateVerdict, reason: str | None, at: str, tried: float) -> None:
        """Record the result of a connection to one of its addresses; `reason`: why it does not reply."""
        for candidate in self.find(base_url):
            candidate.verdict, candidate.reason, candidate.checked_at, candidate.tried = verdict, reason, at, tried
            candidate.since = candidate.since or at
            if verdict is CandidateVerdict.ANSWERS:
                candidate.silent_since = None
            elif candidate.silent_since is None:
                candidate.silent_since = tried
        if verdict is CandidateVerdict.ANSWERS:
            self.last_seen = at


def _proves(candidate: Candidate) -> bool:
    return candidate.proven and candidate.verdict is CandidateVerdict.ANSWERS


class Members:
    """The terminals by serial: the present fleet, and removed ones that may have open calls."""

    def __init__(self, made: dict[str, Member], clock_sure: Callable[[], bool] = lambda: True) -> None:
        """`clock_sure`: returns whether this machine's clock can judge the dates of certificates."""
        self._clock_sure = clock_sure
        #: The terminals of the fleet, in the order of the configuration.
        self.current = made
        self._former: dict[str, Member] = {}  # removed from the fleet
        self._outdated: list[Member] = []  # members with an earlier configuration
        self._hurried = False
        #: Returns whether a payment of a terminal is open.
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
        """Replace all members. Return those removed."""
        known = self._former | self.current
        for serial, member in made.items():
            if (old := known.pop(serial, None)) is not None:
                member.take_over(old)
                self._outdated.append(old)
        self._former, self.current = known, made
        self._tell_open()
        self._outdated = [member for member in self._outdated if member.is_called and member.device.busy]
        if self._hurried:
            self.cancel_calls()
        return list(known.values())

    def device(self, member: Member) -> "TerminalAccess":
        """Return the client for calls to a terminal."""
        made = member.device
        made.judge_dates(self._clock_sure())
        if self._hurried:
            made.cancel_calls()
        return made

    def devices(self) -> "list[TerminalAccess]":
        """Return the clients that were made."""
        known = (*self.current.values(), *self._former.values(), *self._outdated)
        return [member.device for member in known if member.is_called]

    def cancel_calls(self) -> None:
        """Cancel the open calls; later ones are not sent."""
        self._hurried = True
        for device in self.devices():
            device.cancel_calls()


def made(terminals: Iterable[TerminalConfig], now: Callable[[], datetime] = wall) -> dict[str, Member]:
    """Resolve trust, headers and secrets of each terminal; return the members by serial. Blocking.

    Raise OSError or HeaderError if a file cannot be used.
    """
    contexts = functools.cache(trust.context)  # reading the system's CAs takes long: once is enough
    return {
        terminal.serial: Member(terminal, maker(terminal, contexts, now), schemes.of_webhooks(terminal))
        for terminal in terminals
    }


def maker(
    terminal: TerminalConfig,
    contexts: Callable[..., ssl.SSLContext],
    now: Callable[[], datetime],
) -> "Callable[[], TerminalAccess]":
    """Read the settings of a terminal's calls; return a maker of the client, which is large and not needed at start.

    Raise OSError or HeaderError.
    """
    authenticates = schemes.of(terminal, now)
    if terminal.ca_file is not None or terminal.pin is not None:
        # reports an unusable file at the start
        contexts(terminal.ca_file, terminal.pin, system=False)
    secure = (terminal.base_url or f"{terminal.scheme}:").lower().startswith("https:")

    def make() -> "TerminalAccess":
        from posd.terminals.client import TerminalAccess

        return TerminalAccess(
            trust=(
                contexts(terminal.ca_file, terminal.pin, system=terminal.trusts_system) if secure else trust.nobody()
            ),
            connect_timeout=terminal.connect_timeout_seconds,
            reply_timeout=terminal.reply_timeout_seconds,
            authentication=authenticates,
            server_name=terminal.server_name,
            ca_file=terminal.ca_file,
            trusts_system=terminal.trusts_system,
            serial=terminal.serial if terminal.ca_file is not None else "",
            window=None if terminal.auth == "none" else terminal.hash_encrypt.window_seconds,
            now=now,
        )

    return make


def load(members: Iterable[Member]) -> "list[TerminalAccess]":
    """Load the modules of calls to terminals; return the clients. Blocking."""
    return [member.device for member in members]
