"""Which names and addresses a certificate has to carry, and when it has to be made anew. No I/O here."""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

#: From here on a server certificate is made anew, and people are told where that cannot be done, in days.
RENEWAL_DAYS = 30


class CertificateInfo(msgspec.Struct, frozen=True):
    """Times in UTC, the fingerprint in lower hex without colons; subject and issuer as in RFC 4514 (`CN=…`)."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint_sha256: str

    def days_left(self, now: datetime) -> int:
        """Return the whole days until it ends; negative once it has."""
        return (self.not_after - now).days


class Subjects(msgspec.Struct, frozen=True):
    """Names and addresses of one machine."""

    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def __or__(self, other: "Subjects") -> "Subjects":
        """Return those of both, each once, these first."""
        return Subjects(
            tuple(dict.fromkeys((*self.names, *other.names))),
            tuple(dict.fromkeys(map(canonical, (*self.addresses, *other.addresses)))),
        )

    def __bool__(self) -> bool:
        return bool(self.names or self.addresses)

    def __str__(self) -> str:
        return ", ".join((*self.names, *self.addresses))


def canonical(address: str) -> str:
    """Return an IP address in the one spelling of its kind (IPv6 has many); anything else as it is."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def missing(info: CertificateInfo, wanted: Subjects) -> Subjects:
    """Return what a certificate does not carry of `wanted`; a wildcard stands for one label (RFC 6125, 6.4.3)."""
    has = {name.lower() for name in info.names}
    return Subjects(
        tuple(name for name in wanted.names if not _named(name.lower(), has)),
        tuple(address for address in wanted.addresses if canonical(address) not in info.addresses),
    )


def _named(name: str, has: set[str]) -> bool:
    _, _, rest = name.partition(".")
    return name in has or (bool(rest) and f"*.{rest}" in has)


def renewal_reasons(info: CertificateInfo, wanted: Subjects, now: datetime) -> tuple[str, ...]:
    """Say why a certificate has to be made anew now; nothing where it need not."""
    reasons = []
    days = info.days_left(now)
    if days < 0:
        reasons.append(f"it has expired on {info.not_after:%Y-%m-%d}")
    elif days < RENEWAL_DAYS:
        reasons.append(f"it ends in {days} days")
    if info.not_before > now:
        reasons.append(f"it is from the future: valid only from {info.not_before:%Y-%m-%d} on")
    if lacking := missing(info, wanted):
        reasons.append(f"it is not for {lacking}")
    return tuple(reasons)


# What this machine is called now.

#: One host name as it can stand in a certificate: labels of letters, digits, hyphen and underscore.
HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def server_hostname(name: str) -> Any:
    """Return a name or address as `server_hostname` of a client: an address as bytes, which the `ssl` module takes too.

    A text goes through the IDNA codec. That loads a megabyte of Unicode's tables, which no address needs.
    """
    return name.encode("ascii") if is_address(name) else name


def local_addresses() -> list[str]:
    """List the addresses of this machine's interfaces, loopback among them, link-local ones left out."""
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
    """Name this machine: its host name, its full name, and localhost."""
    candidates = (socket.gethostname(), socket.getfqdn(), "localhost")
    return [name for name in dict.fromkeys(candidates) if HOST_NAME.fullmatch(name)]


def called_as(listen_host: str, advertise_host: str, own: Callable[[], Iterable[str]] = local_addresses) -> Subjects:
    """Return by what terminals may call the listener now, and what its certificate therefore has to carry.

    `listen_host` is the address that it binds, `advertise_host` the configured name or address ("" for none: then each
    terminal is given the address that faces it), `own` returns the addresses of this machine.
    """
    if advertise_host:
        return Subjects(addresses=(advertise_host,)) if is_address(advertise_host) else Subjects((advertise_host,))
    bound = ipaddress.ip_address(listen_host)
    if not bound.is_unspecified:
        return Subjects(addresses=(str(bound),))
    # [::] takes IPv4 connections too, 0.0.0.0 takes no others.
    addresses = (ipaddress.ip_address(text) for text in own())
    return Subjects(
        addresses=tuple(
            str(address)
            for address in addresses
            if not address.is_loopback and (bound.version == 6 or address.version == 4)
        )
    )
