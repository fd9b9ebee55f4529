"""Announcements on the simulated network, as a substitute for mDNS.

An announcement stays until the device changes it.
"""

import asyncio
import ipaddress
from typing import Any, Final

from zeroconf.asyncio import AsyncServiceInfo

from posd.terminals.discovery import Discovery

SERVICE: Final = "_card-terminal._tcp.local."


class Air:
    """The present announcements, by name. One daemon receives all announcements."""

    def __init__(self) -> None:
        self._announced: dict[str, AsyncServiceInfo] = {}
        self._heard: asyncio.Queue[tuple[str, AsyncServiceInfo | None]] = asyncio.Queue()

    def announce(self, name: str, serial: str, address: str, port: int) -> None:
        """Announce a terminal. A new announcement replaces an earlier announcement of the same name."""
        full = f"{name}.{SERVICE}"
        addresses = [ipaddress.ip_address(address).packed]
        info = AsyncServiceInfo(SERVICE, full, port=port, properties={"serial": serial}, addresses=addresses)
        self._announced[full] = info
        self._heard.put_nowait((full, info))

    def withdraw(self, name: str) -> None:
        """Withdraw an announcement."""
        full = f"{name}.{SERVICE}"
        self._announced.pop(full, None)
        self._heard.put_nowait((full, None))

    def listen(self) -> "asyncio.Queue[tuple[str, AsyncServiceInfo | None]]":
        """Report the present announcements, and then each change."""
        self._heard = asyncio.Queue()
        for name, info in self._announced.items():
            self._heard.put_nowait((name, info))
        return self._heard


class Heard(Discovery):
    """Discovery that passes the announcements of the simulated network to the fleet."""

    def __init__(self, air: Air, *parts: Any) -> None:
        super().__init__(*parts)
        self._air = air

    async def run(self) -> None:
        """Listen until cancelled."""
        self._say(None)
        heard = self._air.listen()
        while True:
            name, info = await heard.get()
            if info is None:
                self._fleet.withdraw(name)
            else:
                self._take(info)
