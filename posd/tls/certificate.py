"""Fields of a certificate, parsed from DER, and checks of its dates and names. No file is read here.

Serving, renewal, `GET /status`, `posd tls status` and `posd doctor` use these rules.
"""

import hashlib
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from posd.config.values import HOST_NAME, is_address

#: posd renews a server certificate, or informs the operator, this number of days before its end.
RENEWAL_DAYS = 30
#: posd creates the next CA, and informs the operator, this number of days before the end of the CA. Every terminal
#: needs the next CA.
OVERLAP_DAYS = 180


class Validity(StrEnum):
    """Judgement of the dates of a certificate."""

    VALID = "valid"
    ENDS = "ends"  # the certificate must be renewed soon
    EXPIRED = "expired"
    FUTURE = "future"  # the clock was fast when the certificate was created, or is slow now


class CertificateInfo(msgspec.Struct, frozen=True):
    """Description of a certificate. Times are in UTC.

    The fingerprint is in lower hex without colons. Subject and issuer are in the form of RFC 4514 (`CN=…`), in
    printable characters.
    """

    subject: str
    issuer: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint_sha256: str

    @property
    def self_signed(self) -> bool:
        """Whether subject and issuer are the same."""
        return self.issuer == self.subject

    def days_left(self, now: datetime) -> int:
        """Return the number of whole days until the certificate ends. The number is negative after the end."""
        return (self.not_after - now).days

    def validity(self, now: datetime, soon: int = RENEWAL_DAYS) -> Validity:
        """Judge the dates. `soon`: the certificate must be renewed this number of days before its end."""
        if now > self.not_after:
            return Validity.EXPIRED
        if now < self.not_before:
            return Validity.FUTURE
        return Validity.ENDS if self.days_left(now) < soon else Validity.VALID

    @property
    def next_ca_from(self) -> datetime:
        """Time from which the next CA signs. A new certificate of this CA would then have to be renewed at once."""
        return self.not_after - timedelta(days=RENEWAL_DAYS)


class Subjects(msgspec.Struct, frozen=True):
    """Names and addresses of one machine."""

    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def __or__(self, other: "Subjects") -> "Subjects":
        """Return the names and addresses of both objects, without duplicates. Those of this object come first."""
        return Subjects(
            tuple(dict.fromkeys((*self.names, *other.names))),
            tuple(dict.fromkeys(map(canonical, (*self.addresses, *other.addresses)))),
        )

    def __bool__(self) -> bool:
        return bool(self.names or self.addresses)

    def __str__(self) -> str:
        return ", ".join((*self.names, *self.addresses))


def canonical(address: str) -> str:
    """Return an IP address in canonical form (an IPv6 address has many forms). Other texts are returned unchanged."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def missing_names(info: CertificateInfo, wanted: Subjects) -> Subjects:
    """Return the names of `wanted` that a certificate lacks. A wildcard covers one label (RFC 6125, 6.4.3)."""
    has = {name.lower() for name in info.names}
    return Subjects(
        tuple(name for name in wanted.names if not _named(name.lower(), has)),
        tuple(address for address in wanted.addresses if canonical(address) not in info.addresses),
    )


def _named(name: str, has: set[str]) -> bool:
    _, _, rest = name.partition(".")
    return name in has or (bool(rest) and f"*.{rest}" in has)


def renewal_reasons(info: CertificateInfo, wanted: Subjects, now: datetime) -> tuple[str, ...]:
    """Return the reasons for a renewal of a certificate, if any."""
    of_dates = {
        Validity.EXPIRED: f"it expired on {info.not_after:%Y-%m-%d}",
        Validity.ENDS: f"it ends in {info.days_left(now)} days",
        Validity.FUTURE: f"it is not valid yet: valid only from {info.not_before:%Y-%m-%d} on",
    }
    reasons = [words for validity, words in of_dates.items() if validity is info.validity(now)]
    if lacking := missing_names(info, wanted):
        reasons.append(f"it is not for {lacking}")
    return tuple(reasons)


def ca_reasons(ca: CertificateInfo, now: datetime) -> tuple[str, ...]:
    """Return the reasons to create the next CA, if any."""
    days = ca.days_left(now)
    return (f"its CA ends in {days} days",) if days < OVERLAP_DAYS + RENEWAL_DAYS else ()


def has_followed(ca: CertificateInfo, following: CertificateInfo, now: datetime) -> bool:
    """Return whether `following`, the next CA, must sign.

    The next CA must sign if `ca` has ended, or if `ca` ends soon and there was enough time to install the next CA. A
    certificate ends with its CA, so a new certificate of `ca` would have to be renewed at once.
    """
    left, waited = ca.days_left(now), (now - following.not_before).days
    return left < 1 or (left < RENEWAL_DAYS and waited >= OVERLAP_DAYS // 2)


# Present names of this machine.


def server_hostname(name: str) -> Any:
    """Return a client's `server_hostname` for a name or address. An address becomes bytes, which `ssl` accepts too.

    For a text, `ssl` uses the IDNA codec, which loads a megabyte of Unicode tables. An address does not need them.
    """
    return name.encode("ascii") if is_address(name) else name


def local_addresses() -> list[str]:
    """Return the addresses of this machine's interfaces, including loopback, except link-local addresses."""
    import ifaddr

    found: dict[str, None] = {}
    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            text = entry.ip if isinstance(entry.ip, str) else entry.ip[0]
            address = ipaddress.ip_address(text.partition("%")[0])
            if not address.is_link_local:
                found[str(address)] = None
    return sorted(found, key=lambda text: (ipaddress.ip_address(text).version, ipaddress.ip_address(text).packed))


def local_names() -> list[str]:
    """Return this machine's names: its host name, its full name, and localhost."""
    candidates = (socket.gethostname(), socket.getfqdn(), "localhost")
    return [name for name in dict.fromkeys(candidates) if HOST_NAME.fullmatch(name)]


def called_as(listen_host: str, advertise_host: str, own: Callable[[], Iterable[str]] = local_addresses) -> Subjects:
    """Return the names by which terminals may call the listener. The listener's certificate must have these names.

    `listen_host`: the address to which it binds. `advertise_host`: the configured name or address; "": each terminal
    receives the address of the interface that faces it. `own`: returns the addresses of this machine.
    """
    if advertise_host:
        return Subjects(addresses=(advertise_host,)) if is_address(advertise_host) else Subjects((advertise_host,))
    bound = ipaddress.ip_address(listen_host)
    if not bound.is_unspecified:
        return Subjects(addresses=(str(bound),))
    # [::] accepts IPv4 connections too, and 0.0.0.0 accepts only IPv4.
    addresses = (ipaddress.ip_address(text) for text in own())
    return Subjects(
        addresses=tuple(
            str(address)
            for address in addresses
            if not address.is_loopback and (bound.version == 6 or address.version == 4)
        )
    )


# Fields of a certificate, from its DER form.
#
# The certificate of this machine, its CA, and the certificates of terminals are parsed by the same code. The daemon
# loads no library for certificates, and OpenSSL does not return a refused certificate. So this code parses a few fields
# of X.509 (RFC 5280, 4.1). In DER every item is a tag, a length and content (X.690, 8.1). The input is untrusted, so
# lengths are checked, and texts are made printable.

#: Tags (X.690, 8.1.2): universal types, and context-specific types of X.509.
SEQUENCE, UTC_TIME, GENERALIZED_TIME = 0x30, 0x17, 0x18
VERSION, EXTENSIONS, DNS_NAME, URI, IP_ADDRESS = 0xA0, 0xA3, 0x82, 0x86, 0x87
#: Tag of a text that is not UTF-8 (BMPString, UniversalString) -> its codec.
CODECS: Final = {0x1E: "utf-16-be", 0x1C: "utf-32-be"}

#: Encoded object identifiers: subjectAltName (2.5.29.17), and the parts of a name that have a short form in RFC 4514.
SUBJECT_ALT_NAME: Final = b"\x55\x1d\x11"
SHORT: Final = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x09": "STREET",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01": "UID",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19": "DC",
}
#: Parts of a name that may contain a terminal's serial: common name, serial number (2.5.4.5).
SERIAL_PARTS: Final = (b"\x55\x04\x03", b"\x55\x04\x05")

_TIME = re.compile(r"\d{14}Z", re.ASCII)
#: Characters of a value that RFC 4514 escapes.
_SPECIAL = re.compile(r'[\\,+"<>;]|^[ #]| $')

Item = tuple[int, bytes]


def read_certificate(der: bytes) -> CertificateInfo:
    """Read a certificate. Raise ValueError if the data is not a certificate."""
    fields = _fields(der)
    issuer, validity, subject = (content for _, content in fields[2:5])
    times = [_time(item) for item in _items(validity)]
    if len(times) != 2:
        raise ValueError("a validity has two times")
    alternatives = list(_alternatives(fields))
    return CertificateInfo(
        subject=_name(subject),
        issuer=_name(issuer),
        names=tuple(_printable(value.decode("ascii", "replace")) for tag, value in alternatives if tag == DNS_NAME),
        addresses=tuple(
            str(ipaddress.ip_address(value))
            for tag, value in alternatives
            if tag == IP_ADDRESS and len(value) in (4, 16)
        ),
        not_before=times[0],
        not_after=times[1],
        fingerprint_sha256=hashlib.sha256(der).hexdigest(),
    )


def has_serial(der: bytes, serial: str) -> bool:
    """Return whether a certificate contains a terminal's serial, in upper or lower case.

    The serial may be the common name or the serial number of the subject. In the subjectAltName it may be a label of a
    DNS name, or a whole DNS name or URI. The certificate is not verified here.
    """
    with suppress(ValueError):
        return serial.casefold() in {text.casefold() for text in _possible_serials(_fields(der))}
    return False


def _possible_serials(fields: list[Item]) -> Iterator[str]:
    for kind, (_, value) in _parts(fields[4][1]):
        if kind in SERIAL_PARTS:
            yield value.decode()
    for tag, value in _alternatives(fields):
        if tag in (DNS_NAME, URI):
            yield (name := value.decode("ascii"))
            if tag == DNS_NAME:
                yield from name.split(".")


def digest(certificate: bytes, kind: Literal["certificate", "public key"]) -> str:
    """Return the SHA-256 (hex) of a certificate (DER), or of its public key.

    Raise ValueError if the data is not a certificate.
    """
    return hashlib.sha256(certificate if kind == "certificate" else public_key(certificate)).hexdigest()


def public_key(der: bytes) -> bytes:
    """Return the public key of a certificate with its algorithm (SubjectPublicKeyInfo, DER). Raise ValueError."""
    tag, content = _fields(der)[5]
    if tag != SEQUENCE:
        raise ValueError("its public key is not a DER sequence")
    size = len(content).to_bytes(4, "big").lstrip(b"\0")
    return bytes((tag, len(content)) if len(content) < 0x80 else (tag, 0x80 | len(size), *size)) + content


def _fields(der: bytes) -> list[Item]:
    """Return the fields of a certificate, without its version. Raise ValueError if the data is not a certificate."""
    fields = list(_items(_only(_only(der, SEQUENCE), SEQUENCE, rest=True)))
    if fields and fields[0][0] == VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate has at least six fields")
    return fields


def _items(data: bytes) -> Iterator[Item]:
    """Yield tag and content of each DER item in `data`. Raise ValueError if an item is cut off."""
    at = 0
    while at < len(data):
        try:
            tag, size = data[at], data[at + 1]
        except IndexError:
            raise ValueError("an item is cut off") from None
        at += 2
        if size & 0x80:  # the other bits are the number of bytes that contain the length
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
            if not 1 <= count <= 4:
                raise ValueError("a length is not DER's")
        if at + size > len(data):
            raise ValueError("an item is longer than its container")
        yield tag, data[at : at + size]
        at += size


def _only(data: bytes, tag: int, *, rest: bool = False) -> bytes:
    """Return the content of the first item, which must have the given tag. `rest`: whether other items may follow."""
    found = next(_items(data), None)
    if found is None or found[0] != tag or (not rest and len(list(_items(data))) != 1):
        raise ValueError("its items are not the expected ones")
    return found[1]


def _time(item: Item) -> datetime:
    tag, content = item
    text = content.decode("ascii")
    if tag == UTC_TIME:  # years 50 to 99 are in the 20th century (RFC 5280, 4.1.2.5.1)
        text = ("19" if text >= "50" else "20") + text
    elif tag != GENERALIZED_TIME:
        raise ValueError("a time has another type")
    if _TIME.fullmatch(text) is None:
        raise ValueError("a time has another form")
    return datetime.fromisoformat(f"{text[:8]}T{text[8:14]}").replace(tzinfo=UTC)


def _parts(data: bytes) -> Iterator[tuple[bytes, Item]]:
    """Yield type and value of each part of a name, the most general part first."""
    for _, part in _items(data):
        for _, pair in _items(part):
            (_, kind), value = (*_items(pair), (0, b""), (0, b""))[:2]
            yield kind, value


def _name(data: bytes) -> str:
    """Return a name in the form of RFC 4514, its most specific part first."""
    found = []
    for kind, (tag, value) in _parts(data):
        text = _printable(value.decode(CODECS.get(tag, "utf-8"), "replace"))
        escaped = _SPECIAL.sub(r"\\\g<0>", text)
        found.append(f"{SHORT.get(kind) or _dotted(kind)}={escaped}")
    return ",".join(reversed(found))


def _dotted(identifier: bytes) -> str:
    """Return an object identifier as numbers with points between them (X.690, 8.19)."""
    numbers, number = list[int](), 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        return "?"
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _alternatives(fields: list[Item]) -> Iterator[Item]:
    """Yield the items of the subjectAltName."""
    extensions = next((content for tag, content in fields[6:] if tag == EXTENSIONS), None)
    for _, extension in _items(_only(extensions, SEQUENCE)) if extensions is not None else ():
        parts = list(_items(extension))
        if len(parts) >= 2 and parts[0][1] == SUBJECT_ALT_NAME:
            yield from _items(_only(parts[-1][1], SEQUENCE))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
