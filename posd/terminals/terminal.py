"""One terminal of the fleet: its configuration, addresses, conflict, calls, and its document in the local API.

A terminal is identified by its serial. The address of a terminal comes from the configuration, which overrides
announcements, or from an announcement. The address may change at any time. The next request uses the newest usable
address (see `announcements`). A terminal in the cloud is called only at the configured address. Announcements on this
network do not apply to such a terminal.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import Enum, auto
from typing import Annotated, Literal, assert_never

import msgspec
import structlog
from msgspec import UNSET, Meta, UnsetType

from posd.base.clocks import monotonic, wall
from posd.base.json_types import OPEN, Moment, Uuid
from posd.base.problems import Problem
from posd.base.times import iso
from posd.config.profile import EDITIONS, Profiles, Table, resolve_path
from posd.terminals import identity
from posd.terminals.announcements import (
    Announcement,
    Candidate,
    CandidateVerdict,
    SerialAnnouncements,
    is_at,
)
from posd.terminals.attempt import Attempt, NotSent, refuser
from posd.terminals.authentication import Headers
from posd.terminals.client import TerminalAccess
from posd.terminals.identity import (
    AddressConflict,
    Claimant,
    Commission,
    LastTrusted,
    OpenConflict,
    OtherTerminal,
    Part,
    Proof,
    ProofWord,
    Trusted,
    UsableAddress,
)

# Documents of terminals in the local API (Terminals).

State = Literal["answers", "unchecked", "silent", "refused"]


class Claim(msgspec.Struct, frozen=True):
    """Another address at which the terminal is announced."""

    base_url: Annotated[str, Meta(description="the address")]
    same_device: Annotated[bool, Meta(description="another address of the device in use")]
    last_seen: Annotated[Moment, Meta(description="time of the last announcement")]
    state: Annotated[
        State,
        OPEN,
        Meta(description="result of the last connection to it; `refused`: its certificate is not trusted"),
    ]
    reason: Annotated[str | None, Meta(description="why it does not answer")]


class Identity(msgspec.Struct, frozen=True):
    """Proof that the device at an address is the terminal."""

    proof: ProofWord
    conflict: Annotated[bool, Meta(description="nothing is sent to it until a person decides, or it ends by itself")]
    claims: Annotated[list[Claimant], Meta(description="every claimed address of the terminal")]


class Commissioned(msgspec.Struct, frozen=True):
    """Functions that an operator has seen working with a terminal."""

    at: Annotated[Moment, Meta(description="when it was recorded")]
    by: Annotated[str, Meta(description="who saw it")]
    proven: Annotated[list[Annotated[Part, OPEN]], Meta(description="what was seen working")]


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """A terminal of the fleet, or a terminal that is announced in this network."""

    serial: Annotated[str, Meta(description="its serial number")]
    brand: Annotated[str | None, Meta(description="as it says itself")]
    model: Annotated[str | None, Meta(description="as it says itself")]
    base_url: Annotated[str | None, Meta(description="its address for calls, null if none is known")]
    source: Annotated[Annotated[Literal["config", "mdns"], OPEN] | None, Meta(description="where it comes from")]
    reachable: Annotated[bool | None, Meta(description="whether the last call or check succeeded, null without one")]
    last_seen: Annotated[Moment | None, Meta(description="its last sign of life")]
    transaction: Annotated[Uuid | None, Meta(description="the payment that holds it")]
    reason: Annotated[str | None, Meta(description="why it cannot be reached, or why no address is known")]
    checked_at: Annotated[Moment | None, Meta(description="time of the last call or check")]
    claims: Annotated[list[Claim], Meta(description="other announced addresses of it")]
    identity: Annotated[Identity, Meta(description="the proof of its identity, and the devices that claim to be it")]
    commissioned: Annotated[
        Commissioned | None, Meta(description="what was seen working under its present profile, null if nothing")
    ] = None
    commission_lapsed: Annotated[
        Moment | None, Meta(description="time of its commissioning under an earlier profile; null otherwise")
    ] = None
    in_fleet: Annotated[
        bool | UnsetType,
        Meta(description="only for an announced terminal outside the fleet, and false: it is never called"),
    ] = UNSET


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
#: Result of a connection -> word of the local API.
STATES: Mapping[CandidateVerdict, State] = {
    CandidateVerdict.ANSWERS: "answers",
    CandidateVerdict.UNCHECKED: "unchecked",
    CandidateVerdict.SILENT: "silent",
    CandidateVerdict.REFUSED: "refused",
}

log = structlog.get_logger("posd.fleet")


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

    `commissions` and `trusted`: stored data by serial, even for terminals that are not configured now.
    `announced_until`: time until which calls wait for a first announcement, in monotonic seconds.
    """

    now: Callable[[], datetime] = wall
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
    #: Listeners, called with a serial in this order.
    listeners: dict[AddressChange, list[Callable[[str], None]]] = {}

    def tell(self, serial: str, news: AddressChange) -> None:
        """Report an event of a terminal to the listeners."""
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
    """A terminal of the configuration. The object exists while posd runs, and a reload changes its settings.

    `configured`: the configured address, or None for a discovered terminal. `last_seen` and the times of the candidates
    are ISO 8601.
    """

    def __init__(self, device: TerminalAccess, fleet: FleetState) -> None:
        self._fleet = fleet
        self.serial = device.config.serial
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
        self._probes: dict[str, asyncio.Task[None]] = {}  # by base URL
        self._confirming: asyncio.Task[None] | None = None
        self._rivals = ""  # the last logged text about rival devices
        self._conflict: OpenConflict | None = None
        self._conflict_seen = 0.0  # when the conflict was last found, in monotonic seconds
        self._set_device(device)
        self._begin()

    def _set_device(self, device: TerminalAccess) -> None:
        config = device.config
        #: The client for calls.
        self.device = device
        self._version: str | None = None
        #: Table of the profile: operation -> request.
        self.rows: Table = self._fleet.profiles[config.edition][config.access_mode]
        #: Unit of the amounts that the terminal sends.
        self.answer_unit = config.unit_of_answers

    def _begin(self) -> None:
        """Set the configured address (or none), and drop the announcements."""
        self.config = config = self.device.config
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

    def configure(self, device: TerminalAccess) -> None:
        """Apply settings of a reloaded configuration, with the present profiles. The state stays.

        The addresses are probed again if the configuration has changed.
        """
        announcements = self.claims.announcements
        self._set_device(device)
        if device.config == self.config:
            return
        self._begin()
        self.place = None
        self._set_trusted(self.trusted)
        if self.on_lan:  # probe every address again: after the change another certificate may be right
            for announcement in announcements:
                self.claims.announce(announcement)

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

    def webhook_fault(self, headers: Headers, body: bytes) -> str:
        """Return why the signature of a webhook is refused, or an empty text if it is valid or not required."""
        verifier = self.device.webhooks
        if verifier is None or not (fault := verifier.fault(headers, body)):
            return ""
        return (
            f'{fault}; terminal {self.serial} has webhook_signature = "{verifier.name}". If that or its secret '
            "differs from the vendor's data, correct it"
        )

    # The address to use. Nothing here makes a connection.

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

    def find(self, base_url: str) -> list[Candidate]:
        """Return the terminal's candidates with this address."""
        if self.configured is not None:
            return [self.configured] if self.configured.base_url == base_url else []
        here = [self.place] if self.place is not None and self.place.base_url == base_url else []
        return here + self.claims.find(base_url)

    @property
    def base_url(self) -> str | None:
        """The best known address."""
        best = self.best
        return None if best is None else best.base_url

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
        return not self.moves_freely and bool(self.claims.rivals)

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
            candidate.certificate, candidate.proven = certificate, self.device.proves(certificate)

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
            if seen.reason is not None:
                verdict = CandidateVerdict.REFUSED if seen.refused else CandidateVerdict.SILENT
                self._judge(base_url, verdict, seen.reason)
            else:
                self.note_certificate(base_url, seen.certificate)
                here = self.place is not None and self.place.base_url == base_url
                if here and self.must_prove(None) and not self.device.proves(seen.certificate):
                    self._judge(base_url, CandidateVerdict.REFUSED, NOT_BORNE)
                else:
                    self._judge(base_url, CandidateVerdict.ANSWERS, None)
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
        rivals = [] if decided_here else self.claims.rivals
        before, self._rivals = self._rivals, _words_of_rivals(self.serial, *rivals) if rivals else ""
        if self._rivals and self._rivals != before:
            host, count = rivals[0].base_url, len(rivals)
            log.warning("discovery.claim", terminal=self.serial, host=host, count=count, detail=self._rivals)

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
            source=("mdns" if self.configured is None else "config") if best else None,
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


def _proves(candidate: Candidate) -> bool:
    return candidate.proven and candidate.verdict is CandidateVerdict.ANSWERS


def _words_of_rivals(serial: str, believed: Candidate, *others: Candidate) -> str:
    """Return text about several reachable devices with one serial. `believed`: the address in use."""
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
