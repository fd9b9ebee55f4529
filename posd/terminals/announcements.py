"""Announcements of a terminal, its announced addresses, and the choice between several devices with its serial. No I/O.

mDNS reports everything that a device announces on any interface, such as loopback, link-local and invalid addresses. An
address is a candidate if it can be a device on this network. Loopback and link-local addresses are candidates only if
such an interface is configured. A public address is never a candidate. A terminal with a public address needs a
`base_url`.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from urllib.parse import urlsplit

import msgspec

from posd.config.schema import DiscoveryConfig

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Largest number of candidates of one announcement. A device has one or two addresses of each kind.
MAX_CANDIDATES = 4


def candidates(announced: Iterable[str], chosen: Iterable[str]) -> tuple[str, ...]:
    """Return the usable addresses in URL form, IPv4 before IPv6, otherwise in the announced order.

    `announced`: addresses as text, IPv6 link-local addresses with their scope (`fe80::1%eth0`). Texts that are no
    addresses are omitted. `chosen`: addresses of the configured interfaces; empty: all interfaces.
    """
    wanted = [address for text in chosen if (address := _read(text)) is not None]
    usable = [address for text in announced if (address := _read(text)) is not None and _usable(address, wanted)]
    ordered = sorted(dict.fromkeys(usable), key=lambda address: address.version)
    return tuple(in_url(address) for address in ordered[:MAX_CANDIDATES])


def in_url(address: Address) -> str:
    """Return an address in URL form. The scope of an IPv6 address is written as in RFC 6874."""
    return str(address) if address.version == 4 else f"[{str(address).replace('%', '%25')}]"


def _read(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _usable(address: Address, chosen: list[Address]) -> bool:
    if address.is_loopback:
        return any(item.is_loopback for item in chosen)
    if address.is_link_local:
        # An IPv6 link-local address without a scope is not reachable.
        reachable = isinstance(address, ipaddress.IPv4Address) or address.scope_id is not None
        return reachable and any(item.is_link_local and item.version == address.version for item in chosen)
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped is not None or address.is_site_local):
        return False
    if address.is_global or (isinstance(address, ipaddress.IPv6Address) and (address.sixtofour or address.teredo)):
        return False  # on the internet anyone can have a certificate of a public CA
    return not (address.is_unspecified or address.is_multicast or address.is_reserved)


# Content of an mDNS announcement of a terminal: a serial, addresses, a port.
#
# Any device on the network can announce any content. An incomplete or unprintable announcement is ignored.

#: Longest serial, in characters, as in the configuration. A longer one belongs to no terminal of the fleet.
MAX_SERIAL = 64
#: Longest stored brand and model, in characters.
MAX_TEXT = 128


class MalformedAnnouncement(Exception):
    """Announcement that cannot be one of a terminal. The message is the reason, without a quotation."""


class Announcement(msgspec.Struct, frozen=True):
    """Announcement of a terminal: `name` is the full instance name in lower case, `seen_at` ISO 8601.

    `hosts`: the announced addresses in URL form, the best first.
    """

    name: str
    serial: str
    hosts: tuple[str, ...]
    port: int
    brand: str | None
    model: str | None
    seen_at: str


def read_announcement(
    name: str,
    service_type: str,
    properties: Mapping[str, str | None],
    announced: Iterable[str],
    port: int | None,
    rules: DiscoveryConfig,
    seen_at: str,
) -> Announcement:
    """Return the announcement. Raise MalformedAnnouncement.

    `name` ends with `service_type`. `properties`: content of the TXT record. `announced`: addresses as text. `rules`
    has the TXT keys of the serial in order, and the addresses of the chosen interfaces.
    """
    lowered = {key.lower(): value for key, value in properties.items()}
    serial = _serial(lowered, name.removesuffix(f".{service_type}"), rules.serial_keys)
    if not port or not 0 < port < 65_536:
        raise MalformedAnnouncement("it names no port")
    hosts = candidates(announced, rules.interfaces)
    if not hosts:
        raise MalformedAnnouncement("it names no address that can be used")
    return Announcement(name.lower(), serial, hosts, port, _text(lowered, "brand"), _text(lowered, "model"), seen_at)


def _serial(properties: Mapping[str, str | None], instance: str, keys: tuple[str, ...]) -> str:
    """Return the serial: the value of the first TXT key (in any case) with a value, else the instance name."""
    named = ((properties.get(key.lower()) or "").strip() for key in keys)
    serial = next((value for value in named if value), instance)
    if not serial or len(serial) > MAX_SERIAL or not _plain(serial):
        raise MalformedAnnouncement("its serial is empty, too long or not made of visible characters")
    return serial


def _text(properties: Mapping[str, str | None], key: str) -> str | None:
    value = (properties.get(key) or "").strip()[:MAX_TEXT]
    return value if value and _plain(value) else None


def _plain(text: str) -> bool:
    return text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text


#: HTTP and HTTPS port of terminals. A terminal may announce one and be called at the other.
PORTS_OF_ONE = frozenset({6868, 6869})


def is_at(announcement: Announcement, base_url: str) -> bool:
    """Return whether the announced addresses and port fit a base URL. A host name in the URL is not resolved."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if port != announcement.port and not {port, announcement.port} <= PORTS_OF_ONE:
        return False
    return (parts.hostname or "") in {host.strip("[]").lower() for host in announcement.hosts}


# Claims to be a terminal of the fleet, and the choice between them. No I/O.
#
# Each announcement of a serial is a claim, with one candidate for each of its addresses. A connection checks each
# candidate: TCP, and TLS as configured for that terminal. Rules of the choice:
#
# - The order is: replies, not tried yet, unreachable, TLS does not verify. Among equals the newest announcement comes
#   first, and within one the order of its addresses.
# - An announcement under a known instance name replaces the previous one. The old addresses stay while they reply and
# the new ones do not, because the newest announcement may be false.
# - Two reachable devices with one serial are rivals. The operator has to decide between them.

#: Largest number of claims of one serial, because devices on the LAN can send any number.
MAX_CLAIMS = 4


class CandidateVerdict(IntEnum):
    """Result of the last connection to a candidate, in the order of preference."""

    ANSWERS = 0
    UNCHECKED = 1
    SILENT = 2
    REFUSED = 3


#: Order of preference by (result of the last connection, the claim was replaced).
PREFERENCE: Mapping[tuple[CandidateVerdict, bool], int] = {
    (CandidateVerdict.ANSWERS, False): 0,
    (CandidateVerdict.UNCHECKED, False): 1,
    (CandidateVerdict.ANSWERS, True): 2,  # only while the newer addresses with its name do not reply
    (CandidateVerdict.SILENT, False): 3,
    (CandidateVerdict.REFUSED, False): 4,
    (CandidateVerdict.UNCHECKED, True): 5,
    (CandidateVerdict.SILENT, True): 6,
    (CandidateVerdict.REFUSED, True): 7,
}


class Candidate(msgspec.Struct):
    """One address of one device, and its state.

    `reason`: why the device does not reply, as text. `checked_at` is ISO 8601, and `tried` the same moment in monotonic
    seconds. `certificate`: SHA-256 fingerprint (hex) of the last certificate that verified there. `proven`: that
    certificate has the serial. `since`: first announcement or probe of the address, ISO 8601. `silent_since`: monotonic
    seconds since which no connection succeeded; None if the last connection succeeded.
    """

    base_url: str
    since: str | None = None
    verdict: CandidateVerdict = CandidateVerdict.UNCHECKED
    reason: str | None = None
    checked_at: str | None = None
    tried: float = float("-inf")
    certificate: str | None = None
    proven: bool = False
    silent_since: float | None = None


class AnnouncedSerial(msgspec.Struct):
    """One announcement of a serial. `replaced`: a newer announcement with the same instance name has other addresses.

    `heard`: False if the interfaces have changed since the last announcement.
    """

    announcement: Announcement
    candidates: tuple[Candidate, ...]
    replaced: bool = False
    heard: bool = True

    @property
    def best(self) -> Candidate:
        """The candidate to use for this claim."""
        return min(self.candidates, key=lambda candidate: candidate.verdict)

    def has(self, base_url: str | None) -> bool:
        """Return whether a base URL is one of the announced addresses."""
        return any(item.base_url == base_url for item in self.candidates)

    @property
    def service_type(self) -> str:
        """Service type of the device, such as `_card-terminal._tcp.local.`."""
        return ".".join(self.announcement.name.rsplit(".", 4)[1:])

    @property
    def certificates(self) -> frozenset[str]:
        """Fingerprints of the certificates at the candidates."""
        return frozenset(item.certificate for item in self.candidates if item.certificate is not None)


class SerialAnnouncements(msgspec.Struct):
    """Announcements of one serial. `scheme`: scheme of the terminal's URLs."""

    scheme: str
    _claims: list[AnnouncedSerial] = []  # in the order of arrival

    def __iter__(self) -> Iterator[AnnouncedSerial]:
        """Yield the claims, the preferred one first."""
        newest_first = reversed(self._claims)
        return iter(sorted(newest_first, key=lambda claim: PREFERENCE[claim.best.verdict, claim.replaced]))

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def announcements(self) -> tuple[Announcement, ...]:
        """Present announcements, in the order of arrival."""
        return tuple(claim.announcement for claim in self._claims if not claim.replaced)

    @property
    def best(self) -> tuple[AnnouncedSerial, Candidate] | None:
        """The preferred claim and its candidate to use, or None without claims."""
        claim = next(iter(self), None)
        return None if claim is None else (claim, claim.best)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, those of the preferred claim first."""
        return tuple(candidate for claim in self for candidate in claim.candidates)

    def stale(self, before: float) -> list[Candidate]:
        """Return the candidates that were not tried since `before` (monotonic seconds)."""
        return [candidate for candidate in self.candidates if candidate.tried < before]

    def decided(self, before: float) -> bool:
        """Return whether the best candidate is known. The best candidate is known if no untried candidate is newer than
        one that replied since `before`.
        """
        newest_first = reversed(self._claims)
        for claim in sorted(newest_first, key=lambda claim: claim.replaced):
            fresh = [candidate for candidate in claim.candidates if candidate.tried >= before]
            if any(candidate.verdict is CandidateVerdict.ANSWERS for candidate in fresh):
                return True
            if len(fresh) < len(claim.candidates):
                return False
        return True

    def find(self, base_url: str) -> list[Candidate]:
        """Return the candidates with that address. Two claims can have the same address."""
        return [candidate for candidate in self.candidates if candidate.base_url == base_url]

    def announce(self, announcement: Announcement) -> bool:
        """Add an announcement. Return whether it has an address that is new for its instance name."""
        known = {item.base_url: item for claim in self._claims for item in claim.candidates}
        before = [claim for claim in self._claims if claim.announcement.name == announcement.name]
        urls = [f"{self.scheme}://{host}:{announcement.port}" for host in announcement.hosts]
        here = {item.base_url for claim in before if not claim.replaced for item in claim.candidates}
        claim = AnnouncedSerial(
            announcement, tuple(known.get(url) or Candidate(url, announcement.seen_at) for url in urls)
        )
        if here == set(urls):  # a repeated announcement keeps its place in the order
            self._claims[next(n for n, old in enumerate(self._claims) if old in before and not old.replaced)] = claim
            return False
        for old in before:
            left = tuple(item for item in old.candidates if item.base_url not in urls)
            old.candidates, old.replaced = left, True
            if not left or min(item.verdict for item in left) is not CandidateVerdict.ANSWERS:
                self._claims.remove(old)
        self._claims.append(claim)
        while len(self._claims) > MAX_CLAIMS:
            # Keep a candidate whose certificate verified, even if it is silent: the device does not announce itself
            # again when it returns.
            least_first = reversed([old for old in self if old is not claim])
            self._claims.remove(min(least_first, key=lambda old: bool(old.certificates)))
        return not here >= set(urls)

    def withdraw(self, name: str) -> Announcement | None:
        """Remove the announcements with an instance name. Return the newest announcement."""
        gone = [claim for claim in self._claims if claim.announcement.name == name]
        for claim in gone:
            self._claims.remove(claim)
        return gone[-1].announcement if gone else None

    def mark_stale(self) -> None:
        """Mark every claim as not announced on the present network."""
        for claim in self._claims:
            claim.heard = False

    def sweep(self) -> list[Announcement]:
        """Remove, and return, the claims that the probes disproved.

        A replaced claim is removed if it does not reply or is the same device. A claim that was not announced since the
        interfaces changed is removed if it is unreachable.
        """
        answering = [claim for claim in self._claims if claim.best.verdict is CandidateVerdict.ANSWERS]
        gone = []
        for claim in list(self._claims):
            answers = claim.best.verdict is CandidateVerdict.ANSWERS
            moved = [item for item in answering if not item.replaced and _same_name(item, claim)]
            same = any(item.certificates & claim.certificates or not item.certificates for item in moved)
            if (claim.replaced and (not answers or same)) or (
                not claim.heard and claim.best.verdict is CandidateVerdict.SILENT
            ):
                self._claims.remove(claim)
                gone.append(claim.announcement)
        return gone

    def answering(self, old: str | None) -> list[Candidate]:
        """Return the best address of each device that replies, the preferred one first.

        `old`: an address known to be the terminal's, or None. Other addresses of that device are omitted.
        """
        known = [claim for claim in self if claim.has(old)]
        devices: list[AnnouncedSerial] = []
        for claim in self:
            if claim.best.verdict is CandidateVerdict.ANSWERS and not any(_one_device(claim, other) for other in known):
                known.append(claim)
                devices.append(claim)
        return [claim.best for claim in devices]

    @property
    def rivals(self) -> list[Candidate]:
        """Best addresses of reachable devices at different hosts, the preferred device first. Empty without rivals.

        The operator has to decide between them.
        """
        reached = [
            claim for claim in self if claim.best.verdict in (CandidateVerdict.ANSWERS, CandidateVerdict.REFUSED)
        ]
        others = [claim.best for claim in reached[1:] if not _one_device(claim, reached[0])]
        if not others or reached[0].best.verdict is not CandidateVerdict.ANSWERS:
            return []
        return [reached[0].best, *others]


def _same_name(one: AnnouncedSerial, other: AnnouncedSerial) -> bool:
    return one.announcement.name == other.announcement.name


def _one_device(one: AnnouncedSerial, other: AnnouncedSerial) -> bool:
    """Return whether both announcements come from one device.

    Announcements of two service types with one host are one device, if they have the same certificate or none. Two
    announcements of one name with the same certificate are one device.
    """
    if one is other:
        return True
    if one.certificates != other.certificates:
        return False
    if set(one.announcement.hosts) & set(other.announcement.hosts) and one.service_type != other.service_type:
        return True
    return bool(one.certificates) and _same_name(one, other)
