"""Network interfaces of this machine: their addresses, and every change.

The kernel reports changes over a netlink socket, so posd need not poll. Without such a socket (in a sandbox), posd
reads the state at a slow interval. Listeners are called in the event loop, after a short delay, because the kernel
sends several reports for one change.
"""

import asyncio
import fcntl
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import ifaddr
import msgspec
import structlog

#: Groups of reports that are requested (linux/rtnetlink.h): links, IPv4 addresses, IPv6 addresses.
GROUPS: Final = 0x1 | 0x10 | 0x100
#: Seconds from a report to the read of the state, because one change causes several reports.
SETTLE_SECONDS = 0.25
#: Seconds between two reads of the state without reports from the kernel.
TICK_SECONDS = 15.0

#: Request for the flags of an interface, and the flag "up, with a carrier" (linux/sockios.h, linux/if.h).
_SIOCGIFFLAGS: Final = 0x8913
_IFF_RUNNING: Final = 0x40
_MAX_REPORT: Final = 65_536

log = structlog.get_logger("posd.interfaces")


class Interface(msgspec.Struct, frozen=True):
    """One network interface. `running`: whether it is up and has a carrier.

    `addresses`: an IPv6 link-local address includes its scope (`fe80::1%eth0`).
    """

    name: str
    index: int
    addresses: frozenset[str]
    running: bool


def snapshot() -> frozenset[Interface]:
    """Read the present interfaces. Raise OSError if the system does not report them."""
    addresses: dict[str, set[str]] = {}
    for adapter in ifaddr.get_adapters():
        mine = addresses.setdefault(adapter.name, set())
        for entry in adapter.ips:
            if isinstance(entry.ip, str):
                mine.add(entry.ip)
            else:
                address, _, scope = entry.ip
                mine.add(f"{address}%{adapter.name}" if scope else address)
    return frozenset(
        Interface(name, index, frozenset(addresses.get(name, ())), _is_running(name))
        for index, name in socket.if_nameindex()
    )


def addresses_of(interfaces: Iterable[Interface]) -> frozenset[str]:
    """Return the addresses of all these interfaces."""
    return frozenset(address for interface in interfaces for address in interface.addresses)


def _is_running(name: str) -> bool:
    request = struct.pack("16sH14x", name.encode()[:15], 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        except OSError:
            return False  # the interface has just vanished
    flags: int = struct.unpack_from("16xH", answer)[0]
    return bool(flags & _IFF_RUNNING)


async def reports() -> AsyncIterator[None]:
    """Yield at once, and after each change that the kernel reports.

    The content of the reports is not used, because the state is read again. Raise OSError at the first step if there is
    no netlink socket.
    """
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, GROUPS))
        yield  # the state may have changed before the socket was bound
        while True:
            with suppress(OSError):  # ENOBUFS: there were more reports than the socket can hold
                await asyncio.get_running_loop().sock_recv(kernel, _MAX_REPORT)
            await asyncio.sleep(SETTLE_SECONDS)
            with suppress(OSError):  # BlockingIOError: no more reports
                while kernel.recv(_MAX_REPORT):
                    pass
            yield


@dataclass(eq=False)
class Interfaces:
    """Interfaces of this machine. Run `run` as a task; cancel it to stop."""

    #: Reads the present interfaces, or raises OSError.
    read: Callable[[], frozenset[Interface]] = snapshot
    reports: Callable[[], AsyncIterator[None]] = reports
    state: frozenset[Interface] = field(default=frozenset(), init=False)
    _listeners: list[Callable[[], None]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._look()

    @property
    def addresses(self) -> frozenset[str]:
        """All addresses of this machine, including loopback.

        IPv6 link-local addresses are written as `fe80::1%eth0`.
        """
        return addresses_of(self.state)

    def listen(self, callback: Callable[[], None]) -> None:
        """Add a listener, which is called in the event loop after each change of an address or a link."""
        self._listeners.append(callback)

    async def run(self) -> None:
        """Read the state after each change, until cancelled."""
        try:
            async for _ in self.reports():
                self._look()
        except OSError as error:
            log.info("interfaces.polled", error=str(error), retry_s=TICK_SECONDS)
            await self._poll()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._look()

    def _look(self) -> None:
        try:
            found = self.read()
        except OSError as error:
            log.warning("interfaces.unreadable", error=str(error), detail="the addresses known before are kept")
            return
        if found == self.state:
            return
        self.state = found
        for callback in self._listeners:
            # The loop calls each listener on its own, so an error in one does not stop the others.
            asyncio.get_running_loop().call_soon(callback)
