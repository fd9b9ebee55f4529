"""Location of a terminal: its addresses, their state, and the address to use. This module makes no connection."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import Enum, auto
from typing import Literal, assert_never

import msgspec

from posd.base.clocks import monotonic, wall
from posd.base.times import iso
from posd.config import TerminalConfig
from posd.config.profile import EDITIONS, Profiles
from posd.terminals import identity
from posd.terminals.announcements import Announcement, Candidate, CandidateVerdict, SerialAnnouncements, is_at
from posd.terminals.identity import (
    AddressConflict,
    Claimant,
    Commission,
    LastTrusted,
    OtherTerminal,
    Proof,
    Trusted,
    UsableAddress,
)

Source = Literal["config", "mdns"]

#: Reason why no address of a terminal is known.
NOT_ANNOUNCED = "it has not announced itself: check that it is switched on and in this network, or give it a base_url"

#: Result of the last connection to the trusted address -> state of that address.
OLD: Mapping[CandidateVerdict, LastTrusted] = {
    CandidateVerdict.ANSWERS: LastTrusted.ANSWERS,
    CandidateVerdict.UNCHECKED: LastTrusted.UNKNOWN,
    CandidateVerdict.SILENT: LastTrusted.SILENT,
    CandidateVerdict.REFUSED: LastTrusted.SILENT,
}
#: Result of the last connection to a terminal -> whether it is reachable.
REACHABLE: Mapping[CandidateVerdict, bool | None] = {
    CandidateVerdict.ANSWERS: True,
    CandidateVerdict.UNCHECKED: None,
    CandidateVerdict.SILENT: False,
    CandidateVerdict.REFUSED: False,
}
#: Results of connections to a device that replies.
REPLYING = (CandidateVerdict.ANSWERS, CandidateVerdict.REFUSED)


class AddressChange(Enum):
    """Kinds of events of a terminal (see `FleetState.tell`)."""

    WANTED = auto()  # a call shows its state, or it is announced at an address without a probe
    HEARD = auto()  # it sent a message
    REACHED = auto()  # a call or a probe connected
    MISSED = auto()  # a call or a probe did not connect
    CHANGED = auto()  # its addresses changed
    RETURNED = auto()  # it is reachable again, or has a new address
    OPENED = auto()  # a payment on it has started
    PROBED = auto()  # its probes have ended, or a conflict began or ended


class FleetState(msgspec.Struct, eq=False):
    """Shared state of the terminals of a fleet.

    `clock_sure`: returns whether this machine's clock can judge the dates of certificates. `commissions` and `trusted`:
    stored data by serial, even for terminals that are not configured now. `announced_until`: time until which calls
    wait for a first announcement, in monotonic seconds.
    """

    now: Callable[[], datetime] = wall
    clock_sure: Callable[[], bool] = lambda: True
    profiles: Profiles = EDITIONS
    commissions: dict[str, Commission] = {}
    trusted: dict[str, Trusted] = {}
    #: Returns whether a terminal has an open payment. During a payment the terminal keeps its address.
    is_open: Callable[[str], bool] = lambda _serial: False
    #: Reason why no address is known of a terminal without a configured one, as text.
    no_address: str = NOT_ANNOUNCED
    announced_until: float = float("-inf")
    #: Event that is set, and then replaced, at each announcement.
    announced: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    stopping: bool = False
    #: Listeners, called with a serial in this order.
    listeners: dict[AddressChange, list[Callable[[str], None]]] = {}

    def tell(self, serial: str, news: AddressChange) -> None:
        """Report an event of a terminal to the listeners."""
        for listener in self.listeners.get(news, ()):
            listener(serial)


class TerminalLocation:
    """Addresses of one terminal, including the trusted one.

    `configured`: the configured address, or None for a discovered terminal. `last_seen` and the times of the candidates
    are ISO 8601.
    """

    def __init__(self, config: TerminalConfig, fleet: FleetState) -> None:
        self._fleet = fleet
        self.serial = config.serial
        #: False after the removal from the fleet. Open calls go on.
        self.in_fleet = True
        self.last_seen: str | None = None  # ISO 8601
        self.brand: str | None = None
        self.model: str | None = None
        self.trusted: Trusted | None = None
        #: The last trusted address of a discovered terminal, also while it is not announced.
        self.place: Candidate | None = None
        #: Base URL of the newest start, and the fingerprint that the device there showed, if any.
        self.started: tuple[str, str | None] | None = None
        self._begin(config)

    def _begin(self, config: TerminalConfig) -> None:
        """Set the configured address (or none), and drop the announcements."""
        self.config = config
        #: How it is called: over this network, or through the cloud.
        self.access_mode = config.access_mode
        self.on_lan = config.access_mode == "local"
        #: Whether only a device with the pinned certificate or key is called.
        self.pinned = config.pin is not None and config.scheme == "https"
        self.configured = Candidate(config.base_url.rstrip("/")) if config.base_url else None
        self.claims = SerialAnnouncements(config.scheme)
        #: Whether any address may be tried, because it is configured, or the device has to prove its identity.
        self.moves_freely = self.configured is not None or self.pinned or not self.on_lan
        #: The last announcement from the configured address, of this or another terminal.
        self.announced: Announcement | None = None

    def _relocate(self, config: TerminalConfig) -> None:
        """Apply a changed configuration. The addresses are probed again."""
        announcements = self.claims.announcements
        self._begin(config)
        self.place = None
        self._set_trusted(self.trusted)
        if self.on_lan:  # probe every address again: after the change another certificate may be right
            for announcement in announcements:
                self.claims.announce(announcement)

    def _set_trusted(self, trusted: Trusted | None) -> None:
        """Set the trust record. An address whose scheme is no longer configured is ignored."""
        self.trusted = trusted
        if trusted is None or self.configured is not None or not trusted.base_url.startswith(f"{self.config.scheme}:"):
            self.place = None
        elif self.place is None or self.place.base_url != trusted.base_url:
            known = self.claims.find(trusted.base_url)
            self.place = msgspec.structs.replace(known[0]) if known else Candidate(trusted.base_url, trusted.at)

    @property
    def use(self) -> UsableAddress | AddressConflict:
        """The address that may be used in the present state, or the conflict (see `identity`)."""
        chosen = self._chosen
        address = self._address(chosen) if isinstance(chosen, UsableAddress) else None
        if address is None or not self.on_lan or self.other_at(address.base_url) is None:
            return chosen
        return AddressConflict.SERIAL

    def other_at(self, base_url: str) -> OtherTerminal | None:
        """Return the other terminal that is known at an address of this terminal, or None.

        The device's own report takes precedence over announcements, which any device on the network can send.
        """
        trusted = self.trusted
        here = trusted is not None and trusted.base_url == base_url
        if trusted is not None and here and trusted.other_serial is not None:
            return OtherTerminal(trusted.other_serial, announced=False)
        announced, configured = self.announced, self.configured
        if announced is None or configured is None or self.pinned or configured.proven:
            return None
        if announced.serial == self.serial or not self.is_announced_at(announced):
            return None
        turned_down = trusted is not None and here and announced.serial in trusted.turned_down
        return None if turned_down else OtherTerminal(announced.serial, announced=True)

    def is_announced_at(self, announcement: Announcement) -> bool:
        """Return whether an announcement comes from the configured address."""
        return self.configured is not None and self.on_lan and is_at(announcement, self.configured.base_url)

    @property
    def _chosen(self) -> UsableAddress | AddressConflict:
        if self.configured is not None or not self.on_lan:
            return UsableAddress.CONFIGURED  # it decides alone
        trusted, place, old = self.trusted, self.place, self._old
        same = place.base_url if place is not None and old not in (LastTrusted.SILENT, LastTrusted.LOST) else None
        others = [item for item in self.claims.answering(same) if place is None or item.base_url != place.base_url]
        return identity.judge(
            pinned=self.pinned,
            proven=any(_proves(item) for item in self.candidates),
            old=old,
            claimants=len(others),
            proved=self._proved,
            decided=trusted is not None and trusted.decided,
            contested=trusted is not None and bool(trusted.turned_down),
            # the result matters only with exactly one other device
            is_open=len(others) == 1 and self._fleet.is_open(self.serial),
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
        """Whether another address may be used after some more seconds of silence at the trusted one."""
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
        """The address to use, or None if none is known. In a conflict, the configured or last trusted address."""
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
        """Return the proof that the device at an address is the terminal.

        Without `candidate`, return the proof of the last trusted device.
        """
        if self.pinned:
            return Proof.PINNED
        if candidate is not None:
            return Proof.CA if candidate.proven else Proof.NONE
        return Proof.CA if self.must_prove(None) else Proof.NONE

    def must_prove(self, base_url: str | None) -> bool:
        """Return whether an address may be used only with a certificate that has the serial. This is required if an
        earlier certificate had the serial.

        At a configured address any trusted device may reply.
        """
        if self.configured is not None or self.pinned or not self.on_lan:
            return False
        return self._proved or any(item.proven for item in self.find(base_url or ""))

    @property
    def _proved(self) -> bool:
        """Whether the last trusted device had a certificate of the named CA with the serial."""
        by_ca = self.trusted is not None and self.trusted.proof is Proof.CA
        return by_ca and self.place is not None and self.config.ca_file is not None

    def identity_claims(self) -> tuple[Claimant, ...]:
        """Return the claims to be this terminal, each address once."""
        announced = self.claims.candidates
        return tuple(
            Claimant(
                base_url=item.base_url,
                source="config" if item is self.configured else "mdns" if item in announced else "trusted",
                since=item.since,
                proof=self.proof(item),
            )
            for item in self.candidates
        )

    @property
    def reachable(self) -> bool | None:
        """Whether the last call or probe connected to the terminal's address, or None if there was none."""
        best = self.best
        return None if best is None else REACHABLE[best.verdict]

    @property
    def source(self) -> Source:
        """Source of the terminal's address."""
        return "config" if self.configured is not None else "mdns"

    def find(self, base_url: str) -> list[Candidate]:
        """Return the terminal's candidates with this address."""
        if self.configured is not None:
            return [self.configured] if self.configured.base_url == base_url else []
        here = [self.place] if self.place is not None and self.place.base_url == base_url else []
        return here + self.claims.find(base_url)

    @property
    def base_url(self) -> str | None:
        """The best known address."""
        return None if self.best is None else self.best.base_url

    @property
    def may_answer(self) -> bool:
        """Whether the terminal has an address whose last connection did not fail."""
        best = self.best
        return best is not None and REACHABLE[best.verdict] is not False

    @property
    def can_be_probed(self) -> bool:
        """Whether there is a device on this network to probe."""
        return self.on_lan and bool(self.candidates)

    @property
    def _answering(self) -> list[Candidate]:
        return [item for item in self.candidates if item.verdict is CandidateVerdict.ANSWERS]

    @property
    def has_rivals(self) -> bool:
        """Whether another device replies as this terminal. Nothing is sent to that device."""
        replying = [item for item in self.candidates if item.verdict in REPLYING]
        return not self.moves_freely and len(replying) > 1 and self.claims.rivals is not None

    def same_device(self, sent_to: str, base_url: str) -> bool | str:
        """Return whether the device at `base_url` is the one that received the newest start, at `sent_to`.

        If a fingerprint is returned, the device is the same if its certificate has that fingerprint.

        An address alone is no proof, because other devices can get it. A device with the same certificate is the same
        device, even if the configured pin or CA has changed since. The certificate is unknown over plain HTTP, and for
        a start before a restart of posd. Then a pinned terminal is the same at each address, because no other device is
        called. Without a pin, an equal address counts as the same device. In the cloud the path has the serial.
        """
        if not self.on_lan:
            return True
        started_at, certificate = self.started or (None, None)
        if started_at == sent_to and certificate is not None:
            return certificate
        return base_url == sent_to or (self.config.pin is not None and base_url.startswith("https:"))

    def was_same_device(self, sent_to: str, base_url: str, certificate: str | None) -> bool:
        """Return whether the device with this certificate at `base_url` received the newest start."""
        same = self.same_device(sent_to, base_url)
        return same if isinstance(same, bool) else certificate == same

    # Results of connections, calls and events.

    def _judge(self, base_url: str, verdict: CandidateVerdict, reason: str | None) -> None:
        """Record the result of a connection to an address of the terminal. `reason`: why the device does not reply."""
        at, tried = iso(self._fleet.now()), monotonic()
        for candidate in self.find(base_url):
            candidate.verdict, candidate.reason, candidate.checked_at, candidate.tried = verdict, reason, at, tried
            candidate.since = candidate.since or at
            if verdict is CandidateVerdict.ANSWERS:
                candidate.silent_since = None
            elif candidate.silent_since is None:
                candidate.silent_since = tried
        if verdict is CandidateVerdict.ANSWERS:
            self.last_seen = at

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Report the terminal if it has another address after the block, or is reachable again."""
        where, reachable = self.base_url, self.reachable
        yield
        best = self.best
        if best is not None and (best.base_url != where or (reachable is False and self.reachable)):
            self._fleet.tell(self.serial, AddressChange.RETURNED)

    def heard_from(self, at: str, brand: str | None = None, model: str | None = None) -> None:
        """Record a message from the terminal, and the brand and model in it."""
        self.last_seen = at
        self.brand = brand or self.brand
        self.model = model or self.model
        self._fleet.tell(self.serial, AddressChange.HEARD)

    def reached(self, reachable: bool, *, base_url: str | None = None, reason: str | None = None) -> None:
        """Record whether a call connected. `reason`: reason of a failure."""
        best = self.best
        if best is None or not self.in_fleet:
            return
        verdict = CandidateVerdict.ANSWERS if reachable else CandidateVerdict.SILENT
        words = None if reachable else reason or "the last call did not reach it"
        with self._watched():
            self._judge(base_url or best.base_url, verdict, words)
        self._fleet.tell(self.serial, AddressChange.REACHED if reachable else AddressChange.MISSED)

    # The trust record that a call creates.

    def to_trust(self, base_url: str) -> Trusted | None:
        """Return the trust record that a request to that address creates, or None if it changes nothing."""
        old = self.trusted
        if not self.on_lan or (old is not None and old.base_url == base_url):
            return None
        return Trusted(base_url, self.proof(next(iter(self.find(base_url)), None)), iso(self._fleet.now()))

    def proved(self, base_url: str) -> Trusted | None:
        """Return the trust record of a device that has proven its identity for the first time, else None."""
        old = self.trusted
        if old is None or old.base_url != base_url or old.proof is Proof.CA or self.proof() is Proof.PINNED:
            return None
        proven = any(item.proven for item in self.find(base_url))
        return msgspec.structs.replace(old, proof=Proof.CA) if proven else None


def _proves(candidate: Candidate) -> bool:
    return candidate.proven and candidate.verdict is CandidateVerdict.ANSWERS
