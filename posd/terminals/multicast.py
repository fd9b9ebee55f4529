"""On which interfaces mDNS is spoken, from the interfaces that there are: no I/O.

Those that the configuration chose by their addresses, without a choice all but loopback; only what is up, with a
carrier. The library takes IPv4 addresses as text and, for IPv6, the index of the interface.
"""

import ipaddress
from collections.abc import Iterable

import msgspec

from posd.terminals.interfaces import Interface, Snapshot


class Selection(msgspec.Struct, frozen=True):
    """What mDNS is spoken on, in a fixed order: (name of the interface, what the library is given).

    `missing`: addresses that the configuration chose and that this machine does not have now.
    """

    spoken: tuple[tuple[str, str | int], ...]
    missing: tuple[str, ...] = ()

    @property
    def interfaces(self) -> list[str | int]:
        """What the library is given."""
        return [item for _, item in self.spoken]


def select(state: Snapshot, chosen: Iterable[str]) -> Selection:
    """Return the selection; `chosen` are the addresses in the configuration, none for all interfaces."""
    running = sorted((item for item in state.interfaces if item.running), key=lambda item: item.index)
    chosen = tuple(chosen)
    if not chosen:
        everything = (entry for item in running if not _is_loopback(item) for entry in _of(item))
        return Selection(tuple(everything))
    spoken: dict[tuple[str, str | int], None] = {}
    missing = []
    for text in chosen:
        found = [(item, address) for item in running for address in item.addresses if _is(address, text)]
        for item, address in found:
            spoken[item.name, item.index if ":" in address else address] = None
        if not found:
            missing.append(text)
    return Selection(tuple(spoken), tuple(missing))


def _of(interface: Interface) -> list[tuple[str, str | int]]:
    """Return what the library is given of one interface: an IPv4 address of it, and its index where it has IPv6."""
    four = sorted(address for address in interface.addresses if ":" not in address)
    six = any(":" in address for address in interface.addresses)
    return [(interface.name, address) for address in four[:1]] + [(interface.name, interface.index)] * six


def _is_loopback(interface: Interface) -> bool:
    return any(ipaddress.ip_address(address).is_loopback for address in interface.addresses)


def _is(address: str, chosen: str) -> bool:
    """Whether an address is the chosen one; one without a scope is chosen on every interface that has it."""
    same = ipaddress.ip_address(address) == ipaddress.ip_address(chosen)
    return same or ("%" not in chosen and address.partition("%")[0] == chosen)
