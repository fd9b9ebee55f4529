"""mDNS: what terminals announce themselves, asked for and read as posd does it."""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from posd.cli.doctor.context import DoctorContext, Findings
from posd.config.schema import DiscoveryConfig
from posd.terminals.announcements import Announcement, AnnouncementRules, MalformedAnnouncement
from posd.terminals.interfaces import snapshot

if TYPE_CHECKING:
    from posd.terminals.discovery import InterfaceSelection

#: How long is listened, and how long one service is then asked for what it has left out, in seconds. The first three
#: queries are sent in the first three seconds.
LISTEN_SECONDS, RESOLVE_SECONDS = 3.5, 1.0


def check(shop: DoctorContext) -> Findings:
    """Check which terminals announce themselves, and which have no other address and do not."""
    from posd.terminals.discovery import names, select  # which loads what other checks do not need

    discovery = shop.settings.discovery
    if not discovery.enabled:
        yield shop.tell("mdns.off", "discovery")
        return
    needing = [one.serial for one in shop.terminals if not one.base_url and one.access_mode == "local"]
    status = "failure" if needing else "warning"
    selection = select(snapshot(), discovery.interfaces)
    for address in selection.missing:
        yield shop.tell("mdns.no_interface", address)
    if not selection.spoken:
        if not selection.missing:
            yield shop.tell("mdns.no_network", "interfaces", status)
        return
    try:
        found = asyncio.run(_listen(discovery, selection))
    except (OSError, RuntimeError) as error:
        yield shop.tell("mdns.broken", names(selection), status, reason=error)
        return
    fleet = {terminal.serial: terminal for terminal in shop.terminals}
    for item in found:
        one = fleet.get(item.serial)
        if one is not None and not one.base_url:
            shop.addresses.setdefault(item.serial, f"{one.scheme}://{item.hosts[0]}:{item.port}")
    heard = sorted({item.serial for item in found})
    strangers = ", ".join(serial for serial in heard if serial not in fleet)
    lost = [serial for serial in needing if serial not in heard and serial not in shop.addresses]
    code = ("another" if strangers else "silent") if lost else "heard"
    yield shop.tell(
        f"mdns.{code}",
        names(selection),
        ours=", ".join(serial for serial in heard if serial in fleet) or "none",
        others=f"; {strangers} too, which the configuration does not name" if strangers else "",
        lost=", ".join(lost),
        section=next((f"terminals[{n}]" for n, one in enumerate(shop.settings.terminals) if one.serial in lost), ""),
    )


async def _listen(discovery: DiscoveryConfig, selection: "InterfaceSelection") -> list[Announcement]:
    """Return what is announced now. Raise OSError or RuntimeError where mDNS cannot be spoken."""
    from zeroconf import ServiceStateChange
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    from posd.terminals.discovery import Browser, closed, read

    logging.getLogger("zeroconf").disabled = True  # what it could not send shows by what is not heard
    services: dict[str, AsyncServiceInfo] = {}

    def take(*, service_type: str, name: str, state_change: ServiceStateChange, **_: object) -> None:
        if state_change is ServiceStateChange.Removed:
            services.pop(name, None)
        else:
            services[name] = AsyncServiceInfo(service_type, name)

    network = AsyncZeroconf(interfaces=selection.interfaces)
    browser = Browser(network.zeroconf, list(discovery.service_types), handlers=[take])
    try:
        await asyncio.sleep(LISTEN_SECONDS)
        found = list(services.values())
        await asyncio.gather(*(info.async_request(network.zeroconf, RESOLVE_SECONDS * 1000) for info in found))
    finally:
        await closed(browser, network)
    rules, announced = AnnouncementRules(discovery.serial_keys, discovery.interfaces), []
    for info in found:
        with suppress(MalformedAnnouncement):
            announced.append(read(info, rules, datetime.now(UTC)))
    return announced
