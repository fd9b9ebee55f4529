"""Discovery over mDNS/DNS-SD: announcements of terminals, by serial (design 8).

Trouble here never hurts payments to configured addresses: it is logged, and tried again.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from datetime import datetime

import structlog
from zeroconf import ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from posd.config.schema import DiscoveryConfig
from posd.core.times import iso
from posd.terminals.fleet import Announcement, Fleet

#: How long one service is asked for its address, in milliseconds.
RESOLVE_TIMEOUT_MS = 3000
#: An interface without an address (early at boot) makes mDNS fail: it is tried again after this, in seconds.
RETRY_SECONDS = 10.0
#: Longest serial, brand or model that is taken from a TXT record, in characters.
MAX_TXT = 128
#: Lookups of announced services under way at once; a LAN that announces without end must not pile up tasks.
MAX_RESOLVING = 32

log = structlog.get_logger("posd.discovery")


class Discovery:
    """Browses for terminals and tells the fleet. Run `run` as a task; cancel it to stop."""

    def __init__(self, config: DiscoveryConfig, fleet: Fleet, now: Callable[[], datetime]) -> None:
        self._config = config
        self._fleet = fleet
        self._now = now
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self.running = False

    async def run(self) -> None:
        """Browse until cancelled."""
        while True:
            try:
                zeroconf = AsyncZeroconf(interfaces=list(self._config.interfaces) or None)  # type: ignore[arg-type]
            except OSError as error:
                log.warning(
                    "discovery.unavailable",
                    error=str(error),
                    detail=f"mDNS cannot start on {', '.join(self._config.interfaces) or 'any interface'}; check "
                    "discovery.interfaces. Terminals with a base_url work",
                    retry_s=RETRY_SECONDS,
                )
                await asyncio.sleep(RETRY_SECONDS)
                continue
            browser = AsyncServiceBrowser(
                zeroconf.zeroconf, list(self._config.service_types), handlers=[self._on_change]
            )
            self.running = True
            log.info("discovery.started", service_types=list(self._config.service_types))
            try:
                await asyncio.Event().wait()
            finally:
                self.running = False
                await browser.async_cancel()
                await zeroconf.async_close()

    def _on_change(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            if (gone := self._fleet.withdraw(name)) is not None and gone.serial in self._fleet:
                log.info("discovery.gone", terminal=gone.serial, host=gone.host)
            return
        if name in self._resolving or len(self._resolving) >= MAX_RESOLVING:
            return
        task = asyncio.get_running_loop().create_task(self._resolve(zeroconf, service_type, name))
        self._resolving[name] = task
        task.add_done_callback(lambda _: self._resolving.pop(name, None))

    async def _resolve(self, zeroconf: Zeroconf, service_type: str, name: str) -> None:
        info = AsyncServiceInfo(service_type, name)
        if not await info.async_request(zeroconf, RESOLVE_TIMEOUT_MS):
            return
        host = choose_address(info.parsed_scoped_addresses(), self._config.interfaces)
        serial = read_serial(info.decoded_properties, name, service_type, self._config.serial_keys)
        if host is None or not info.port or not serial:
            return
        found = Announcement(
            name=name,
            serial=serial,
            host=host,
            port=info.port,
            brand=(info.decoded_properties.get("brand") or "")[:MAX_TXT] or None,
            model=(info.decoded_properties.get("model") or "")[:MAX_TXT] or None,
            seen_at=iso(self._now()),
        )
        if self._fleet.announce(found):
            in_fleet = serial in self._fleet
            # Anybody can announce anything, without end: that is a line for those who look for it.
            tell = log.info if in_fleet else log.debug
            tell("discovery.found", terminal=serial, host=host, port=info.port, in_fleet=in_fleet)


def read_serial(
    properties: Mapping[str, str | None], name: str, service_type: str, serial_keys: tuple[str, ...]
) -> str:
    """Return the serial that an announcement names: a TXT key (any case), else the instance name."""
    lowered = {key.lower(): value for key, value in properties.items()}
    for key in serial_keys:
        if value := (lowered.get(key.lower()) or "").strip():
            return value[:MAX_TXT]
    return name.removesuffix(f".{service_type}")[:MAX_TXT]


def choose_address(addresses: list[str], interfaces: tuple[str, ...]) -> str | None:
    """Return the address to use, as it stands in a URL: IPv4 before IPv6; loopback only where it was chosen."""
    loopback_chosen = any(ipaddress.ip_address(item).is_loopback for item in interfaces)
    usable = []
    for text in addresses:
        address = ipaddress.ip_address(text)
        if address.is_link_local or address.is_unspecified or address.is_multicast:
            continue
        if loopback_chosen or not address.is_loopback:
            usable.append(address)
    if not usable:
        return None
    first = next((address for address in usable if address.version == 4), usable[0])
    return f"[{first}]" if first.version == 6 else str(first)
