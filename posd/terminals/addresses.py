"""Known addresses of one terminal, and the address to use. Nothing here makes a connection.

An address comes from the configuration or from an announcement. A configured address overrides announcements, whose
addresses may change at any time (see `announcements`). A terminal in the cloud is called only at the configured
address. `identity` has the rules for the choice between several addresses.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import assert_never

import msgspec

from posd.base.clocks import monotonic
from posd.base.problems import Problem
from posd.base.times import iso
from posd.config import TerminalConfig
from posd.terminals import identity
from posd.terminals.announcements import Announcement, Candidate, CandidateVerdict, SerialAnnouncements, is_at
from posd.terminals.identity import (
    AddressConflict,
    Claimant,
    LastTrusted,
    OpenConflict,
    OtherTerminal,
    Proof,
    Trusted,
    UsableAddress,
)

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


class TerminalAddresses:
    """State of a terminal's addresses.

    `configured`: the configured address, or None for a terminal that is discovered by its announcements. `claims`: the
    announcements of its serial. `trusted`: the trust record, or None.
    """

    def __init__(
        self, config: TerminalConfig, now: Callable[[], datetime], is_open: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_open`: returns whether the terminal has an open payment."""
        self._now = now
        self._is_open = is_open
        self.trusted: Trusted | None = None
        #: The trusted address of a discovered terminal, even while it is not announced.
        self.place: Candidate | None = None
        #: Base URL of the newest start, and the fingerprint of the device's certificate (None without TLS).
        self.started: tuple[str, str | None] | None = None
        self._begin(config)

    def _begin(self, config: TerminalConfig) -> None:
        """Set the configured address (or none), and drop the announcements."""
        self.config = config
        self.on_lan = config.access_mode == "local"
        #: Whether calls are sent only to a device with the pinned certificate or key.
        self.pinned = config.pin is not None and config.scheme == "https"
        self.configured = Candidate(config.base_url.rstrip("/")) if config.base_url else None
        self.claims = SerialAnnouncements(config.scheme)
        #: Whether any address may be tried: the address is configured, or the device there has to prove its identity.
        self.moves_freely = self.configured is not None or self.pinned or not self.on_lan
        #: The last announcement that names the configured address. It may be from another terminal.
        self.announced: Announcement | None = None

    def configure(self, config: TerminalConfig) -> None:
        """Apply a changed configuration, which may trust other certificates. So each address is probed again."""
        announcements = self.claims.announcements
        self._begin(config)
        self.place = None
        self.trust(self.trusted)
        if self.on_lan:
            for announcement in announcements:
                self.claims.announce(announcement)

    def trust(self, trusted: Trusted | None) -> None:
        """Set the trust record. An address whose scheme is no longer configured is ignored."""
        self.trusted = trusted
        if trusted is None or self.configured is not None or not trusted.base_url.startswith(f"{self.config.scheme}:"):
            self.place = None
        elif self.place is None or self.place.base_url != trusted.base_url:
            known = self.claims.find(trusted.base_url)
            self.place = msgspec.structs.replace(known[0]) if known else Candidate(trusted.base_url, trusted.at)

    # The address to use.

    @property
    def use(self) -> UsableAddress | AddressConflict:
        """Which address may be used at present, or the conflict that forbids every address (see `identity`)."""
        chosen = self._chosen
        address = self._address(chosen) if isinstance(chosen, UsableAddress) else None
        if address is None or not self.on_lan or self.other_at(address.base_url) is None:
            return chosen
        return AddressConflict.SERIAL

    def other_at(self, base_url: str) -> OtherTerminal | None:
        """Return the other terminal that is known at an address of this terminal, or None.

        A serial that the device itself reported takes precedence over announcements, which any device can send.
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
        """Return whether an announcement names the configured address."""
        return self.configured is not None and self.on_lan and is_at(announcement, self.configured.base_url)

    @property
    def _chosen(self) -> UsableAddress | AddressConflict:
        if self.configured is not None or not self.on_lan:
            return UsableAddress.CONFIGURED  # announcements are not used
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
            # `judge` reads this value only if there is exactly one other device
            is_open=len(others) == 1 and self._is_open(),
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
        """Whether another address may be used soon, if the trusted address stays silent for some more seconds."""
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
                # use it only while it is announced, or a device replies there
                place = self.place
                answers = place is not None and place.verdict is CandidateVerdict.ANSWERS
                return place if place is not None and (answers or self.claims.find(place.base_url)) else None
            case UsableAddress.NEW:
                return self.claims.answering(None)[0]
            case _:
                assert_never(use)

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
    def base_url(self) -> str | None:
        """Base URL of the address to use, or None."""
        best = self.best
        return None if best is None else best.base_url

    @property
    def reachable(self) -> bool | None:
        """Whether the last call or probe connected to the terminal's address, or None if there was none."""
        best = self.best
        return None if best is None else REACHABLE[best.verdict]

    @property
    def may_answer(self) -> bool:
        """Whether the terminal has an address whose last connection did not fail."""
        best = self.best
        return best is not None and REACHABLE[best.verdict] is not False

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Possible addresses of the terminal."""
        if self.configured is not None:
            return (self.configured,)
        announced = self.claims.candidates
        if self.place is None or any(item.base_url == self.place.base_url for item in announced):
            return announced
        return (*announced, self.place)

    @property
    def can_be_probed(self) -> bool:
        """Whether the terminal has an address on this network that can be probed."""
        return self.on_lan and bool(self.candidates)

    def find(self, base_url: str) -> list[Candidate]:
        """Return the candidates of the terminal with this base URL."""
        if self.configured is not None:
            return [self.configured] if self.configured.base_url == base_url else []
        here = [self.place] if self.place is not None and self.place.base_url == base_url else []
        return here + self.claims.find(base_url)

    @property
    def answering(self) -> list[Candidate]:
        """Addresses of the terminal at which the last connection succeeded."""
        return [item for item in self.candidates if item.verdict is CandidateVerdict.ANSWERS]

    @property
    def has_rivals(self) -> bool:
        """Whether several devices without proof of their identity are reachable under this terminal's serial."""
        return not self.moves_freely and bool(self.claims.rivals)

    # Proof that a device is the terminal.

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
        """Return whether a device at an address must have a certificate with the serial.

        This is required if an earlier certificate had the serial. At a configured address it is not required.
        """
        if self.configured is not None or self.pinned or not self.on_lan:
            return False
        return self._proved or any(item.proven for item in self.find(base_url or ""))

    @property
    def _proved(self) -> bool:
        """Whether the device at the last trusted address proved the serial by a certificate of the configured CA."""
        by_ca = self.trusted is not None and self.trusted.proof is Proof.CA
        return by_ca and self.place is not None and self.config.ca_file is not None

    def claimants(self) -> tuple[Claimant, ...]:
        """Return the claims to be this terminal, one for each address."""
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

    def describe(self, conflict: AddressConflict, since: str) -> OpenConflict:
        """Return a conflict with its claims, and the text for an operator."""
        trusted, serial = self.trusted, self.config.serial
        others = tuple(item.base_url for item in self.answering if trusted is None or item.base_url != trusted.base_url)
        here = self.configured or trusted
        other = self.other_at(here.base_url) if conflict is AddressConflict.SERIAL and here is not None else None
        what = identity.words(conflict, serial, others, here.base_url if here else None, other)
        steps = identity.steps(serial, other.serial if other else None)
        return OpenConflict(conflict, since, self.claimants(), what, steps)

    def same_device(self, sent_to: str, base_url: str) -> bool | str:
        """Return whether the device at `base_url` received the newest start. `sent_to`: address of that start.

        If that depends on its certificate, return the fingerprint that the certificate must have.

        An address alone proves nothing, because another device can get it. A device with the same certificate is the
        same device, even if the configured pin or CA has changed since. The certificate is unknown over plain HTTP, and
        if posd was restarted since the payment was sent. Then a pinned terminal counts as the same at each address,
        because only the pinned device is called. Without a pin, an equal address counts as the same device. In the
        cloud the result is always true, because the serial is in the path of each call.
        """
        if not self.on_lan:
            return True
        started_at, certificate = self.started or (None, None)
        if started_at == sent_to and certificate is not None:
            return certificate
        return base_url == sent_to or (self.config.pin is not None and base_url.startswith("https:"))

    def was_same_device(self, sent_to: str, base_url: str, certificate: str | None) -> bool:
        """Return whether the device at `base_url`, which has this certificate, received the newest start."""
        same = self.same_device(sent_to, base_url)
        return same if isinstance(same, bool) else certificate == same

    # Results of connections, and the trust records that a call or an operator creates.

    def record(self, base_url: str, verdict: CandidateVerdict, reason: str | None, at: str) -> None:
        """Record the result of a connection to an address of the terminal. `reason`: why it failed, or None."""
        tried = monotonic()
        for candidate in self.find(base_url):
            candidate.verdict, candidate.reason, candidate.checked_at, candidate.tried = verdict, reason, at, tried
            candidate.since = candidate.since or at
            if verdict is CandidateVerdict.ANSWERS:
                candidate.silent_since = None
            elif candidate.silent_since is None:
                candidate.silent_since = tried

    def to_trust(self, base_url: str) -> Trusted | None:
        """Return the trust record that a start at an address creates, or None if the address is trusted already."""
        old = self.trusted
        if not self.on_lan or (old is not None and old.base_url == base_url):
            return None
        return Trusted(base_url, self.proof(next(iter(self.find(base_url)), None)), iso(self._now()))

    def proved(self, base_url: str) -> Trusted | None:
        """Return the trust record with the proof of the device at an address, or None if it has no new proof."""
        old = self.trusted
        if old is None or old.base_url != base_url or old.proof is Proof.CA or self.proof() is Proof.PINNED:
            return None
        proven = any(item.proven for item in self.find(base_url))
        return msgspec.structs.replace(old, proof=Proof.CA) if proven else None

    def decision(self, base_url: str, operator: str, note: str, uid: int | None) -> Trusted:
        """Return the trust record of an operator's decision. Raise Problem if no device claims that address."""
        found = next((item for item in self.candidates if item.base_url == base_url.rstrip("/")), None)
        if found is None:
            known = ", ".join(item.base_url for item in self.candidates) or "none is known"
            errors = [{"path": "/base_url", "message": f"must be one of the claimed addresses: {known}"}]
            raise Problem("invalid_request", f"nothing was decided: base_url {errors[0]['message']}", errors=errors)
        others = (item.base_url for item in self.answering if item is not found)
        other = self.other_at(found.base_url)
        turned_down = (other.serial,) if other is not None and other.announced else ()
        return Trusted(
            found.base_url, self.proof(found), iso(self._now()), operator, note, uid, (*others, *turned_down)
        )


def _proves(candidate: Candidate) -> bool:
    return candidate.proven and candidate.verdict is CandidateVerdict.ANSWERS
