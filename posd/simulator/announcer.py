"""Announces the terminal over mDNS, and takes the announcement back."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

import ifaddr
from zeroconf import Error, InterfaceChoice, NonUniqueNameException, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from posd.simulator.ledger import Ledger

SERVICE_TYPE = "_card-terminal._tcp.local."


class Announcer:
    """One service instance, named by the serial number; registers in the background, for that takes over a second."""

    def __init__(
        self, ledger: Ledger, *, serial: str, brand: str, model: str, addresses: Sequence[str], port: int
    ) -> None:
        self._ledger = ledger
        self._info = ServiceInfo(
            SERVICE_TYPE,
            f"{serial}.{SERVICE_TYPE}",
            port=port,
            properties={"serial": serial, "brand": brand, "model": model},
            server=f"terminal-{serial}.local.",
            parsed_addresses=list(addresses),
        )
        self._zeroconf: AsyncZeroconf | None = None
        self._registering: asyncio.Task[None] | None = None

    def start(self, interfaces: Sequence[str]) -> None:
        """Begin to announce on the interfaces with these addresses; none given means all."""
        self._registering = asyncio.create_task(self._register(list(interfaces)))

    async def stop(self, *, goodbye: bool) -> None:
        """Close; a terminal that has lost its power or its network says no goodbye."""
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.gather(self._registering, return_exceptions=True)
        if self._zeroconf is not None:
            registry = self._zeroconf.zeroconf.registry
            if not goodbye:  # the close says it for what is still registered
                registry.async_remove(registry.async_get_service_infos())
            await self._zeroconf.async_close()

    async def _register(self, interfaces: list[str]) -> None:
        """Announce. A LAN without multicast is no fault of the terminal: it is reported and the terminal goes on."""
        try:
            for address in interfaces:
                _check_local(address)
            self._zeroconf = AsyncZeroconf(interfaces=interfaces or InterfaceChoice.All)
            await (await self._zeroconf.async_register_service(self._info))
        except NonUniqueNameException:
            self._ledger.add("mdns", result="failed", detail="another terminal with this serial is on the LAN")
        except (OSError, Error, RuntimeError) as error:
            self._ledger.add("mdns", result="failed", detail=f"cannot announce over mDNS: {error}")
        else:
            self._ledger.add("mdns", result="announced", detail=self._info.name)


def _check_local(address: str) -> None:
    """Raise OSError where no interface has this address; zeroconf would find out too late to close its sockets."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))


def reachable_addresses(host: str, interfaces: Sequence[str]) -> list[str]:
    """Return the addresses at which a listener on `host` can be called, the best first.

    A listener on every address is called at those of the chosen interfaces, else at all of this machine's: loopback
    comes last and link-local addresses not at all.
    """
    listening = ipaddress.ip_address(host)
    if not listening.is_unspecified:
        return [host]
    if interfaces:
        return list(interfaces)
    mine = [entry for adapter in ifaddr.get_adapters() for entry in adapter.ips]
    found = [ipaddress.ip_address(entry.ip if isinstance(entry.ip, str) else entry.ip[0]) for entry in mine]
    usable = [address for address in found if address.version == listening.version and not address.is_link_local]
    return [str(address) for address in sorted(usable, key=lambda address: address.is_loopback)] or [host]
