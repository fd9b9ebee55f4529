"""Judgement of a certificate: its dates, and the names and addresses that it must have. No I/O.

Serving, renewal, `GET /status`, `posd tls status` and `posd doctor` judge by these rules.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from posd.config.values import is_address

#: Days before its end at which a server certificate is renewed, or the operator informed.
RENEWAL_DAYS = 30
#: Days before its end at which a new CA is made and the operator is informed: every terminal needs it.
OVERLAP_DAYS = 180


class Validity(StrEnum):
    """Judgement of the dates of a certificate."""

    VALID = "valid"
    ENDS = "ends"  # it has to be renewed soon
    EXPIRED = "expired"
    FUTURE = "future"  # it was made with a fast clock, or the present clock is slow


class CertificateInfo(msgspec.Struct, frozen=True):
    """Description of a certificate: times in UTC, the fingerprint in lower hex without colons; subject and issuer as in
    RFC 4514 (`CN=…`), in printable characters.
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
        """Whether it names itself as its issuer."""
        return self.issuer == self.subject

    def days_left(self, now: datetime) -> int:
        """Return the whole days until it ends; negative after its end."""
        return (self.not_after - now).days

    def validity(self, now: datetime, soon: int = RENEWAL_DAYS) -> Validity:
        """Judge the dates. `soon`: days before the end at which it has to be renewed."""
        if now > self.not_after:
            return Validity.EXPIRED
        if now < self.not_before:
            return Validity.FUTURE
        return Validity.ENDS if self.days_left(now) < soon else Validity.VALID

    @property
    def next_ca_from(self) -> datetime:
        """Time from which the next CA signs. A later certificate of this CA would need a renewal at once."""
        return self.not_after - timedelta(days=RENEWAL_DAYS)


class Subjects(msgspec.Struct, frozen=True):
    """Names and addresses of one machine."""

    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def __or__(self, other: "Subjects") -> "Subjects":
        """Return the names and addresses of both without duplicates, these first."""
        return Subjects(
            tuple(dict.fromkeys((*self.names, *other.names))),
            tuple(dict.fromkeys(map(canonical, (*self.addresses, *other.addresses)))),
        )

    def __bool__(self) -> bool:
        return bool(self.names or self.addresses)

    def __str__(self) -> str:
        return ", ".join((*self.names, *self.addresses))


def canonical(address: str) -> str:
    """Return an IP address in its canonical spelling (IPv6 has many); other texts unchanged."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def missing(info: CertificateInfo, wanted: Subjects) -> Subjects:
    """Return the part of `wanted` that a certificate lacks; a wildcard covers one label (RFC 6125, 6.4.3)."""
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
        Validity.EXPIRED: f"it has expired on {info.not_after:%Y-%m-%d}",
        Validity.ENDS: f"it ends in {info.days_left(now)} days",
        Validity.FUTURE: f"it is not valid yet: valid only from {info.not_before:%Y-%m-%d} on",
    }
    reasons = [words for validity, words in of_dates.items() if validity is info.validity(now)]
    if lacking := missing(info, wanted):
        reasons.append(f"it is not for {lacking}")
    return tuple(reasons)


def ca_reasons(ca: CertificateInfo, now: datetime) -> tuple[str, ...]:
    """Return the reasons for a new CA after this one, if any."""
    days = ca.days_left(now)
    return (f"its CA ends in {days} days",) if days < OVERLAP_DAYS + RENEWAL_DAYS else ()


def has_followed(ca: CertificateInfo, following: CertificateInfo, now: datetime) -> bool:
    """Return whether the new CA must sign: the old one ends, or ends soon after enough time to install the new one.

    A certificate of the old one ends with it, and would have to be renewed at once.
    """
    left, waited = ca.days_left(now), (now - following.not_before).days
    return left < 1 or (left < RENEWAL_DAYS and waited >= OVERLAP_DAYS // 2)


# Present names of this machine.

#: A host name in a certificate: labels of letters, digits, hyphen and underscore.
HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")


def server_hostname(name: str) -> Any:
    """Return a client's `server_hostname` for a name or address: an address as bytes, which `ssl` accepts too.

    A text passes the IDNA codec, which loads a megabyte of Unicode tables. An address does not need them.
    """
    return name.encode("ascii") if is_address(name) else name


def local_addresses() -> list[str]:
    """Return the addresses of this machine's interfaces, with loopback, without link-local ones."""
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
    """Return the names by which terminals may call the listener, which its certificate must carry.

    `listen_host`: the address that it binds. `advertise_host`: the configured name or address ("" for none: then each
    terminal gets the address that faces it). `own`: returns the addresses of this machine.
    """
    if advertise_host:
        return Subjects(addresses=(advertise_host,)) if is_address(advertise_host) else Subjects((advertise_host,))
    bound = ipaddress.ip_address(listen_host)
    if not bound.is_unspecified:
        return Subjects(addresses=(str(bound),))
    # [::] accepts IPv4 connections too, 0.0.0.0 accepts only them.
    addresses = (ipaddress.ip_address(text) for text in own())
    return Subjects(
        addresses=tuple(
            str(address)
            for address in addresses
            if not address.is_loopback and (bound.version == 6 or address.version == 4)
        )
    )
