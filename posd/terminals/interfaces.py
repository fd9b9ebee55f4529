"""The network interfaces of this machine: its addresses, and word of every change.

The kernel tells of changes over a netlink socket, so nothing is polled; where a sandbox has none, a slow tick compares.
Who listens is called in the event loop, after the dust has settled: an interface that comes up reports several times.
"""

import asyncio
import fcntl
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import ifaddr
import msgspec
import structlog

#: What the kernel is asked to report (linux/rtnetlink.h): links, IPv4 addresses, IPv6 addresses.
GROUPS: Final = 0x1 | 0x10 | 0x100
#: After a report, so long until the state is read, in seconds: one change reports several times.
SETTLE_SECONDS = 0.25
#: Between two looks where the kernel does not report, in seconds.
TICK_SECONDS = 15.0

#: linux/sockios.h and linux/if.h: whether an interface is up and has a carrier.
_SIOCGIFFLAGS: Final = 0x8913
_IFF_RUNNING: Final = 0x40
_MAX_REPORT: Final = 65_536

log = structlog.get_logger("posd.interfaces")


class Interface(msgspec.Struct, frozen=True):
    """One interface: `running` is up with a carrier; an IPv6 link-local address bears its scope (`fe80::1%eth0`)."""

    name: str
    index: int
    addresses: frozenset[str]
    running: bool


class Snapshot(msgspec.Struct, frozen=True):
    """What the interfaces are at one moment."""

    interfaces: frozenset[Interface] = frozenset()

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of all of them."""
        return frozenset(address for interface in self.interfaces for address in interface.addresses)


def snapshot() -> Snapshot:
    """Read the interfaces as they are now. Raise OSError where the system does not tell."""
    addresses: dict[str, set[str]] = {}
    for adapter in ifaddr.get_adapters():
        mine = addresses.setdefault(adapter.name, set())
        for entry in adapter.ips:
            if isinstance(entry.ip, str):
                mine.add(entry.ip)
            else:
                address, _, scope = entry.ip
                mine.add(f"{address}%{adapter.name}" if scope else address)
    return Snapshot(
        frozenset(
            Interface(name, index, frozenset(addresses.get(name, ())), _is_running(name))
            for index, name in socket.if_nameindex()
        )
    )


def _is_running(name: str) -> bool:
    request = struct.pack("16sH14x", name.encode()[:15], 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        except OSError:
            return False  # it has just gone
    flags: int = struct.unpack_from("16xH", answer)[0]
    return bool(flags & _IFF_RUNNING)


async def reports() -> AsyncIterator[None]:
    """Yield at once, and after each change that the kernel reports. Raise OSError at the first step where it does not.

    What the reports say is not read: the state is looked at anew.
    """
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, GROUPS))
        yield  # what changed before the kernel was asked to report
        while True:
            with suppress(OSError):  # more came than the socket holds (ENOBUFS): that is a report too
                await asyncio.get_running_loop().sock_recv(kernel, _MAX_REPORT)
            await asyncio.sleep(SETTLE_SECONDS)
            with suppress(OSError):  # BlockingIOError: that was all
                while kernel.recv(_MAX_REPORT):
                    pass
            yield


class Interfaces:
    """This machine's interfaces. Run `run` as a task; cancel it to stop."""

    def __init__(
        self, read: Callable[[], Snapshot] = snapshot, reports: Callable[[], AsyncIterator[None]] = reports
    ) -> None:
        #: Reads them as they are now. Raise OSError where the system does not tell.
        self.read = read
        self._reports = reports
        self.state = Snapshot()
        self._listeners: list[Callable[[], None]] = []
        self._look()

    @property
    def addresses(self) -> frozenset[str]:
        """All addresses of this machine, loopback among them; IPv6 link-local ones as in `fe80::1%eth0`."""
        return self.state.addresses

    def listen(self, callback: Callable[[], None]) -> None:
        """Call back, in the event loop, whenever an address came or went, or a link came up or went down."""
        self._listeners.append(callback)

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async for _ in self._reports():
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
            # Each by itself: one that fails is logged by the loop's handler and keeps no other from being called.
            asyncio.get_running_loop().call_soon(callback)
