"""Which of the addresses that a terminal announces are used, and in which order.

mDNS hands on whatever a device says of itself, whatever interface it was heard on: loopback, link-local addresses,
nonsense. An address is a candidate where it can be a device on this network; loopback and link-local ones only where
the configuration chose such an interface.
"""

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Candidates that are kept of one announcement: a device has one or two of each kind; more are of no use to anybody.
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
    """Write an address as it stands in a URL; the scope of an IPv6 one as RFC 6874 says."""
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
