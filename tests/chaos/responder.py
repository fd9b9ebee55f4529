"""A device of the network that announces terminals over mDNS."""

from secrets import token_hex

from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf


class Responder:
    """A device of the network that announces terminals, on the loopback interface."""

    def __init__(self, kind: str) -> None:
        """`kind` is the service type, of this run alone: others announce on the same interface."""
        self._kind = kind
        self._zeroconf = AsyncZeroconf(interfaces=["127.0.0.1"])

    async def announce(self, serial: str, port: int, name: str) -> None:
        """Announce that a terminal of this serial can be called at a port; `name` is the device's own."""
        info = ServiceInfo(
            self._kind,
            f"{name}.{self._kind}",
            port=port,
            properties={"serial": serial},
            server=f"{name}-{token_hex(3)}.local.",
            parsed_addresses=["127.0.0.1"],
        )
        await (await self._zeroconf.async_register_service(info, cooperating_responders=True))

    async def close(self) -> None:
        """Take everything back."""
        await self._zeroconf.async_unregister_all_services()
        await self._zeroconf.async_close()
