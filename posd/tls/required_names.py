"""Which names and addresses a certificate has to carry, and when it has to be made anew. No I/O here."""

import ipaddress
from dataclasses import dataclass
from datetime import datetime

from posd.tls.information import CertificateInfo

#: From here on a server certificate is made anew, and people are told where that cannot be done, in days.
RENEWAL_DAYS = 30


@dataclass(frozen=True, slots=True)
class Subjects:
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
    if lacking := missing(info, wanted):
        reasons.append(f"it is not for {lacking}")
    return tuple(reasons)
