"""What is announced on the simulated network, in place of mDNS: who is where, until it says otherwise."""

import asyncio
import ipaddress
from typing import Any, Final

from zeroconf.asyncio import AsyncServiceInfo

from posd.terminals.discovery import Discovery

SERVICE: Final = "_card-terminal._tcp.local."


class Air:
    """What is announced now, by the name of who announces it. One daemon hears it."""

    def __init__(self) -> None:
        self._announced: dict[str, AsyncServiceInfo] = {}
        self._heard: asyncio.Queue[tuple[str, AsyncServiceInfo | None]] = asyncio.Queue()

    def announce(self, name: str, serial: str, address: str, port: int) -> None:
        """Announce a terminal; who has announced itself by that name before is elsewhere now."""
        full = f"{name}.{SERVICE}"
        addresses = [ipaddress.ip_address(address).packed]
        info = AsyncServiceInfo(SERVICE, full, port=port, properties={"serial": serial}, addresses=addresses)
        self._announced[full] = info
        self._heard.put_nowait((full, info))

    def withdraw(self, name: str) -> None:
        """Say goodbye."""
        full = f"{name}.{SERVICE}"
        self._announced.pop(full, None)
        self._heard.put_nowait((full, None))

    def listen(self) -> "asyncio.Queue[tuple[str, AsyncServiceInfo | None]]":
        """Hear what is announced now, and then what comes."""
        self._heard = asyncio.Queue()
        for name, info in self._announced.items():
            self._heard.put_nowait((name, info))
        return self._heard


class Heard(Discovery):
    """Tells the fleet what the simulated network announces."""

    def __init__(self, air: Air, *parts: Any) -> None:
        super().__init__(*parts)
        self._air = air

    async def run(self) -> None:
        """Hear until cancelled."""
        self._say(None)
        heard = self._air.listen()
        while True:
            name, info = await heard.get()
            if info is None:
                self._fleet.withdraw(name)
            else:
                self._take(info)
