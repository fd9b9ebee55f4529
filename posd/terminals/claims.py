"""What is announced of a terminal: its addresses, its announcements, and which claims to be it are believed. No I/O.

mDNS hands on what a device says of itself, from every interface: loopback, link-local addresses, nonsense. An address
is a candidate where it can be a device on this network; loopback and link-local ones only where the configuration
chose such an interface.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from urllib.parse import urlsplit

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Candidates that are kept of one announcement: a device has one or two of each kind; more are of no use.
MAX_CANDIDATES = 4


def candidates(announced: Iterable[str], chosen: Iterable[str]) -> tuple[str, ...]:
    """Return the usable addresses as they stand in a URL: IPv4 before IPv6, in the order announced.

    `announced`: addresses as text, an IPv6 link-local one with its scope (`fe80::1%eth0`); what is none is left out.
    `chosen`: the addresses of the interfaces that the configuration chose, none for all.
    """
    wanted = [address for text in chosen if (address := _read(text)) is not None]
    usable = [address for text in announced if (address := _read(text)) is not None and _usable(address, wanted)]
    ordered = sorted(dict.fromkeys(usable), key=lambda address: address.version)
    return tuple(in_url(address) for address in ordered[:MAX_CANDIDATES])


def in_url(address: Address) -> str:
    """Write an address for a URL; the scope of an IPv6 one as RFC 6874 says."""
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
        # Without its scope an IPv6 one leads nowhere.
        reachable = isinstance(address, ipaddress.IPv4Address) or address.scope_id is not None
        return reachable and any(item.is_link_local and item.version == address.version for item in chosen)
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped is not None or address.is_site_local):
        return False
    return not (address.is_unspecified or address.is_multicast or address.is_reserved)


# What an announcement over mDNS says of a terminal: a serial, addresses, a port.
#
# Any device on the network can announce anything. What is not whole and plain is no announcement.

#: Longest serial, in characters: as in the configuration, so that a longer one can be of no terminal of the fleet.
MAX_SERIAL = 64
#: Longest brand and model that are kept, in characters.
MAX_TEXT = 128


class Malformed(Exception):
    """It is no announcement of a terminal; the message says why, and quotes nothing of it."""


class Announcement(msgspec.Struct, frozen=True):
    """What a terminal says of itself: `name` is the instance name in full, `seen_at` ISO 8601.

    `hosts` are its addresses as they stand in a URL, the best first: one device at each of them.
    """

    name: str
    serial: str
    hosts: tuple[str, ...]
    port: int
    brand: str | None
    model: str | None
    seen_at: str


class Rules(msgspec.Struct, frozen=True):
    """What the configuration says of announcements: TXT keys of the serial in order, addresses of chosen interfaces."""

    serial_keys: tuple[str, ...]
    interfaces: tuple[str, ...] = ()


def read_announcement(
    name: str,
    service_type: str,
    properties: Mapping[str, str | None],
    announced: Iterable[str],
    port: int | None,
    rules: Rules,
    seen_at: str,
) -> Announcement:
    """Return what it says. Raise Malformed.

    `name` ends with `service_type`; `properties` are the TXT record's, `announced` the addresses as text.
    """
    lowered = {key.lower(): value for key, value in properties.items()}
    serial = _serial(lowered, name.removesuffix(f".{service_type}"), rules.serial_keys)
    if not port or not 0 < port < 65_536:
        raise Malformed("it names no port")
    hosts = candidates(announced, rules.interfaces)
    if not hosts:
        raise Malformed("it names no address that can be used")
    return Announcement(name, serial, hosts, port, _text(lowered, "brand"), _text(lowered, "model"), seen_at)


def _serial(properties: Mapping[str, str | None], instance: str, keys: tuple[str, ...]) -> str:
    """Return the serial: the value of the first TXT key (in any case) that has one, else the instance name."""
    named = ((properties.get(key.lower()) or "").strip() for key in keys)
    serial = next((value for value in named if value), instance)
    if not serial or len(serial) > MAX_SERIAL or not _plain(serial):
        raise Malformed("its serial is empty, too long or not made of visible characters")
    return serial


def _text(properties: Mapping[str, str | None], key: str) -> str | None:
    value = (properties.get(key) or "").strip()[:MAX_TEXT]
    return value if value and _plain(value) else None


def _plain(text: str) -> bool:
    return text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text


#: The two ports of one terminal, for HTTP and HTTPS: it may announce one of them, and be called at the other.
PORTS_OF_ONE = frozenset({6868, 6869})


def is_at(announcement: Announcement, base_url: str) -> bool:
    """Whether the device that announces itself is the one at a base URL. A host name there is not looked up."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if port != announcement.port and not {port, announcement.port} <= PORTS_OF_ONE:
        return False
    return (parts.hostname or "") in {host.strip("[]").lower() for host in announcement.hosts}


# Who claims to be a terminal of the fleet, and which of them is believed. No I/O.
#
# Each announcement of a serial is a claim, with one candidate for each of its addresses. Whether a candidate is
# right is found out by a connection: TCP, and TLS as the configuration says for that terminal. Then:
#
# - one that answers comes before one that was not tried yet, before one that cannot be reached, before one whose
# TLS does not verify; among equals the newest announcement comes first, and within one the order of its addresses;
# - an announcement under a known instance name takes the place of the one before. Where it names other addresses,
# the old ones are kept for as long as they answer and the new ones do not: what is announced last may be a lie, or
# a mistake; - two devices that both can be reached under one serial are rivals: a person has to look, whichever is
# believed.

#: Claims that are kept of one serial; the LAN can announce without end.
MAX_CLAIMS = 4


class Verdict(IntEnum):
    """What the last connection to a candidate showed; the order is that of preference."""

    ANSWERS = 0
    UNCHECKED = 1
    SILENT = 2
    REFUSED = 3


#: What is preferred: (what its last connection showed, whether its name has announced other addresses since).
PREFERENCE: Mapping[tuple[Verdict, bool], int] = {
    (Verdict.ANSWERS, False): 0,
    (Verdict.UNCHECKED, False): 1,
    (Verdict.ANSWERS, True): 2,  # for as long as what its name announces now does not answer
    (Verdict.SILENT, False): 3,
    (Verdict.REFUSED, False): 4,
    (Verdict.UNCHECKED, True): 5,
    (Verdict.SILENT, True): 6,
    (Verdict.REFUSED, True): 7,
}


class Candidate(msgspec.Struct):
    """One address of one device, and what is known of it.

    `reason` says in words why it does not answer. `checked_at` is ISO 8601 and `tried` the same moment in seconds of
    the monotonic clock. `certificate` is the SHA-256 fingerprint (hex) of the last one that verified there; `proven`,
    that it bears the serial. `since`: when the address was announced, or looked at, first, ISO 8601. `silent_since`:
    from when on no connection has succeeded, monotonic seconds; None where the last one did.
    """

    base_url: str
    since: str | None = None
    verdict: Verdict = Verdict.UNCHECKED
    reason: str | None = None
    checked_at: str | None = None
    tried: float = float("-inf")
    certificate: str | None = None
    proven: bool = False
    silent_since: float | None = None


class Claim(msgspec.Struct):
    """One announcement of a serial. `replaced`: its name has announced other addresses since.

    `heard`: over the network as it is now; not, where the interfaces changed since and it was not heard again.
    """

    announcement: Announcement
    candidates: tuple[Candidate, ...]
    replaced: bool = False
    heard: bool = True

    @property
    def best(self) -> Candidate:
        """The candidate to use, if this claim is."""
        return min(self.candidates, key=lambda candidate: candidate.verdict)

    def has(self, base_url: str | None) -> bool:
        """Whether that is one of its addresses."""
        return any(item.base_url == base_url for item in self.candidates)

    @property
    def service_type(self) -> str:
        """What its device offers, as in `_card-terminal._tcp.local.`."""
        return ".".join(self.announcement.name.rsplit(".", 4)[1:])

    @property
    def certificates(self) -> frozenset[str]:
        """The fingerprints that its candidates showed."""
        return frozenset(item.certificate for item in self.candidates if item.certificate is not None)


class Rivals(msgspec.Struct, frozen=True):
    """Two devices that can be reached under one serial: the one that is believed, and the others."""

    believed: str
    others: tuple[str, ...]
    both_verified: bool


class Claims(msgspec.Struct):
    """The claims of one serial; `scheme` is how its addresses are called."""

    scheme: str
    _claims: list[Claim] = []  # in the order of their announcements: the newest is the last

    def __iter__(self) -> Iterator[Claim]:
        """Yield them, the one to believe first."""
        newest_first = reversed(self._claims)
        return iter(sorted(newest_first, key=lambda claim: PREFERENCE[claim.best.verdict, claim.replaced]))

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def announcements(self) -> tuple[Announcement, ...]:
        """What is announced now, in the order in which it was."""
        return tuple(claim.announcement for claim in self._claims if not claim.replaced)

    @property
    def best(self) -> tuple[Claim, Candidate] | None:
        """The claim to believe and its address to use, None without any."""
        claim = next(iter(self), None)
        return None if claim is None else (claim, claim.best)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, those of the claim to believe first."""
        return tuple(candidate for claim in self for candidate in claim.candidates)

    def stale(self, before: float) -> list[Candidate]:
        """Return the candidates that were not tried since then (monotonic seconds)."""
        return [candidate for candidate in self.candidates if candidate.tried < before]

    def decided(self, before: float) -> bool:
        """Whether it is known which is the best: none is newer than the first that answered since `before`."""
        newest_first = reversed(self._claims)
        for claim in sorted(newest_first, key=lambda claim: claim.replaced):
            fresh = [candidate for candidate in claim.candidates if candidate.tried >= before]
            if any(candidate.verdict is Verdict.ANSWERS for candidate in fresh):
                return True
            if len(fresh) < len(claim.candidates):
                return False
        return True

    def find(self, base_url: str) -> list[Candidate]:
        """Return the candidates with that address: two claims can name the same."""
        return [candidate for candidate in self.candidates if candidate.base_url == base_url]

    def announce(self, announcement: Announcement) -> bool:
        """Take an announcement; tell whether it brought an address that was not known under its name."""
        known = {item.base_url: item for claim in self._claims for item in claim.candidates}
        before = [claim for claim in self._claims if claim.announcement.name == announcement.name]
        urls = [f"{self.scheme}://{host}:{announcement.port}" for host in announcement.hosts]
        here = {item.base_url for claim in before if not claim.replaced for item in claim.candidates}
        claim = Claim(announcement, tuple(known.get(url) or Candidate(url, announcement.seen_at) for url in urls))
        if here == set(urls):  # it says the same again: that makes it no newer than another
            self._claims[next(n for n, old in enumerate(self._claims) if old in before and not old.replaced)] = claim
            return False
        for old in before:
            left = tuple(item for item in old.candidates if item.base_url not in urls)
            old.candidates, old.replaced = left, True
            if not left or min(item.verdict for item in left) is not Verdict.ANSWERS:
                self._claims.remove(old)
        self._claims.append(claim)
        while len(self._claims) > MAX_CLAIMS:
            # One whose certificate verified is kept while it is silent: it will not be announced anew when it is back.
            least_first = reversed([old for old in self if old is not claim])
            self._claims.remove(min(least_first, key=lambda old: bool(old.certificates)))
        return not here >= set(urls)

    def withdraw(self, name: str) -> Announcement | None:
        """Forget what was announced under an instance name; return it."""
        gone = [claim for claim in self._claims if claim.announcement.name == name]
        for claim in gone:
            self._claims.remove(claim)
        return gone[-1].announcement if gone else None

    def unheard(self) -> None:
        """Note that none of them was heard over the network as it is now."""
        for claim in self._claims:
            claim.heard = False

    def sweep(self) -> list[Announcement]:
        """Forget, and return, the claims that cannot be right any more, after their candidates were tried.

        Those are: one whose name has moved on and that does not answer, or is the same device as the one that does;
        one that was not heard since the interfaces changed and cannot be reached.
        """
        answering = [claim for claim in self._claims if claim.best.verdict is Verdict.ANSWERS]
        gone = []
        for claim in list(self._claims):
            answers = claim.best.verdict is Verdict.ANSWERS
            moved = [item for item in answering if not item.replaced and _same_name(item, claim)]
            same = any(item.certificates & claim.certificates or not item.certificates for item in moved)
            if (claim.replaced and (not answers or same)) or (not claim.heard and claim.best.verdict is Verdict.SILENT):
                self._claims.remove(claim)
                gone.append(claim.announcement)
        return gone

    def answering(self, old: str | None) -> list[Candidate]:
        """Return the best address of each device that answers, one a device, the one to believe first.

        `old` is an address that is known to be the terminal's, None for none: what is of one device with it does not
        count.
        """
        known = [claim for claim in self if claim.has(old)]
        devices: list[Claim] = []
        for claim in self:
            if claim.best.verdict is Verdict.ANSWERS and not any(_one_device(claim, other) for other in known):
                known.append(claim)
                devices.append(claim)
        return [claim.best for claim in devices]

    @property
    def rivals(self) -> Rivals | None:
        """The devices between which a person has to decide: reached at different hosts, the one believed first."""
        reached = [claim for claim in self if claim.best.verdict in (Verdict.ANSWERS, Verdict.REFUSED)]
        others = [claim for claim in reached[1:] if not _one_device(claim, reached[0])]
        if not others or reached[0].best.verdict is not Verdict.ANSWERS:
            return None
        return Rivals(
            believed=reached[0].best.base_url,
            others=tuple(sorted(claim.best.base_url for claim in others)),
            both_verified=any(claim.best.verdict is Verdict.ANSWERS for claim in others),
        )


def _same_name(one: Claim, other: Claim) -> bool:
    return one.announcement.name == other.announcement.name


def _one_device(one: Claim, other: Claim) -> bool:
    """Whether both are of one device.

    So are the claims of two service types of it: one host, one certificate or none (of one type a device announces
    itself once). And what one name announces anew, where the same certificate is shown.
    """
    if one is other:
        return True
    if one.certificates != other.certificates:
        return False
    if set(one.announcement.hosts) & set(other.announcement.hosts) and one.service_type != other.service_type:
        return True
    return bool(one.certificates) and _same_name(one, other)
