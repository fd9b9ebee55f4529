"""What this machine is called now."""

import ipaddress
import re
import socket

from posd.tls.required_names import Subjects

#: One host name as it can stand in a certificate: labels of letters, digits, hyphen and underscore.
HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


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


def called_as(listen_host: str, advertise_host: str) -> Subjects:
    """Return by what terminals may call the listener now, and what its certificate therefore has to carry.

    `listen_host` is the address that it binds, `advertise_host` the configured name or address ("" for none: then each
    terminal is given the address that faces it).
    """
    if advertise_host:
        return Subjects(addresses=(advertise_host,)) if is_address(advertise_host) else Subjects((advertise_host,))
    bound = ipaddress.ip_address(listen_host)
    if not bound.is_unspecified:
        return Subjects(addresses=(str(bound),))
    # [::] takes IPv4 connections too, 0.0.0.0 takes no others.
    addresses = (ipaddress.ip_address(text) for text in local_addresses())
    return Subjects(
        addresses=tuple(
            str(address)
            for address in addresses
            if not address.is_loopback and (bound.version == 6 or address.version == 4)
        )
    )
