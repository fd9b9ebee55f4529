"""Announcements of a terminal, its announced addresses, and the choice between several devices with its serial. No I/O.

mDNS reports all addresses that a device announces, including loopback, link-local and invalid ones. An address is a
candidate if it can be of a device on this network. A loopback or link-local address is a candidate only if an interface
with such an address is configured. A public address is never a candidate. A terminal with a public address needs a
configured `base_url`.
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
    """Return the usable addresses in URL form: IPv4 before IPv6, otherwise in the announced order.

    `announced`: addresses as texts, IPv6 link-local addresses with their scope (`fe80::1%eth0`). A text that is not an
    address is omitted. `chosen`: addresses of the configured interfaces; empty: all interfaces.
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
        return False  # anyone on the internet can have a certificate of a public CA, so it proves nothing
    return not (address.is_unspecified or address.is_multicast or address.is_reserved)


# Content of an mDNS announcement of a terminal: a serial, addresses, a port.
#
# Any device on the network can announce any content. An incomplete or unprintable announcement is ignored.

#: Longest serial in an announcement, in characters. A longer serial cannot be configured.
MAX_SERIAL = 64
#: Longest stored brand and model, in characters.
MAX_TEXT = 128


class Announcement(msgspec.Struct, frozen=True):
    """Announcement of a terminal. `name`: the full instance name in lower case. `seen_at`: ISO 8601.

    `hosts`: the usable addresses in URL form, the best first.
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
    """Return the announcement. Raise ValueError with the reason.

    `name` ends with `service_type`. `properties`: content of the TXT record. `announced`: addresses as texts. `rules`
    has the keys of the TXT record whose value is a serial, and the addresses of the configured interfaces.
    """
    lowered = {key.lower(): value for key, value in properties.items()}
    serial = _serial(lowered, name.removesuffix(f".{service_type}"), rules.serial_keys)
    if not port or not 0 < port < 65_536:
        raise ValueError("it names no port")
    hosts = candidates(announced, rules.interfaces)
    if not hosts:
        raise ValueError("it names no address that can be used")
    return Announcement(name.lower(), serial, hosts, port, _text(lowered, "brand"), _text(lowered, "model"), seen_at)


def _serial(properties: Mapping[str, str | None], instance: str, keys: tuple[str, ...]) -> str:
    """Return the serial: the first value under one of `keys` (in upper or lower case), else the instance name."""
    named = ((properties.get(key.lower()) or "").strip() for key in keys)
    serial = next((value for value in named if value), instance)
    if not serial or len(serial) > MAX_SERIAL or not _plain(serial):
        raise ValueError("its serial is empty, too long or not made of visible characters")
    return serial


def _text(properties: Mapping[str, str | None], key: str) -> str | None:
    value = (properties.get(key) or "").strip()[:MAX_TEXT]
    return value if value and _plain(value) else None


def _plain(text: str) -> bool:
    return text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text


#: Usual ports of terminals for HTTP and HTTPS. A terminal may announce one and be configured with the other.
PORTS_OF_ONE = frozenset({6868, 6869})


def is_at(announcement: Announcement, base_url: str) -> bool:
    """Return whether a base URL has an announced address and the port. A host name in the URL is not resolved."""
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
# - Devices that reply come first, then addresses that were not tried, unreachable ones, and those whose certificate is
#   refused. Among equals the newest announcement comes first. The addresses of one announcement stay in their order.
# - An announcement under a known instance name replaces the previous one. The old addresses stay while a device replies
#   there and none replies at the new ones, because the newest announcement may be false.
# - Two reachable devices with one serial are rivals. The operator has to decide between them.

#: Largest number of claims of one serial, because devices on the LAN can send any number.
MAX_CLAIMS = 4


class CandidateVerdict(IntEnum):
    """Result of the last connection to a candidate, in the order of preference."""

    ANSWERS = 0
    UNCHECKED = 1
    SILENT = 2
    REFUSED = 3


#: (result of the last connection, whether the claim was replaced) -> rank. The lowest rank is preferred.
PREFERENCE: Mapping[tuple[CandidateVerdict, bool], int] = {
    (CandidateVerdict.ANSWERS, False): 0,
    (CandidateVerdict.UNCHECKED, False): 1,
    (CandidateVerdict.ANSWERS, True): 2,  # the device may still be at the old address
    (CandidateVerdict.SILENT, False): 3,
    (CandidateVerdict.REFUSED, False): 4,
    (CandidateVerdict.UNCHECKED, True): 5,
    (CandidateVerdict.SILENT, True): 6,
    (CandidateVerdict.REFUSED, True): 7,
}


class Candidate(msgspec.Struct):
    """One address of one device, and its state.

    `verdict`: result of the last connection. `reason`: why it failed, as text. `checked_at` and `tried`: its time, as
    ISO 8601 and in monotonic seconds. `certificate`: SHA-256 fingerprint (hex) of the last verified certificate.
    `proven`: whether that certificate has the serial. `since`: time of the first announcement or connection, ISO 8601.
    `silent_since`: time of the first failure since the last success, in monotonic seconds, or None.
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

    `heard`: False if this machine's interfaces have changed since the announcement.
    """

    announcement: Announcement
    candidates: tuple[Candidate, ...]
    replaced: bool = False
    heard: bool = True

    @property
    def best(self) -> Candidate:
        """The preferred candidate of the announcement."""
        return min(self.candidates, key=lambda candidate: candidate.verdict)

    def has(self, base_url: str | None) -> bool:
        """Return whether a base URL is one of the announced addresses."""
        return any(item.base_url == base_url for item in self.candidates)

    @property
    def service_type(self) -> str:
        """Announced service type, such as `_card-terminal._tcp.local.`."""
        return ".".join(self.announcement.name.rsplit(".", 4)[1:])

    @property
    def certificates(self) -> frozenset[str]:
        """Fingerprints of the verified certificates of the candidates."""
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
        """The announcements that were not replaced, in the order of arrival."""
        return tuple(claim.announcement for claim in self._claims if not claim.replaced)

    @property
    def best(self) -> tuple[AnnouncedSerial, Candidate] | None:
        """The preferred claim and its preferred candidate, or None without claims."""
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
        """Return whether further probes cannot change the preferred candidate.

        That is so if a candidate replied since `before` (monotonic seconds), and all newer claims were tried too.
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
        """Add an announcement. Return whether it has an address that its instance name did not have before."""
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
            # Prefer to keep a claim with a verified certificate, even if its device is silent. When that device is
            # back, it does not announce itself again.
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
        """Mark every claim as not announced since this machine's interfaces changed."""
        for claim in self._claims:
            claim.heard = False

    def sweep(self) -> list[Announcement]:
        """Remove the claims that the probes disproved. Return their announcements.

        A replaced claim is removed if no device replies there, or if its device replies at the newer addresses too. A
        claim that was not announced since the interfaces changed is removed if no device replies there.
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
        """Return the best address of each device that replies, the preferred device first.

        `old`: an address that is known to be the terminal's, or None. Further addresses of that device are omitted.
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
        """Best address of each reachable device under this serial, the preferred device first.

        Empty if there is only one device. Otherwise the operator has to decide between the devices.
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
    """Return whether two announcements are of one device.

    Return True for the same certificate and the same instance name. Return True also for a common host and different
    service types, if both have the same certificate or none.
    """
    if one is other:
        return True
    if one.certificates != other.certificates:
        return False
    if set(one.announcement.hosts) & set(other.announcement.hosts) and one.service_type != other.service_type:
        return True
    return bool(one.certificates) and _same_name(one, other)
