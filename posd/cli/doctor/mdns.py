"""mDNS: what terminals announce themselves, asked for and read as posd does it."""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from posd.cli.doctor.context import DoctorContext, Findings, TerminalAddress, failure, ok, warning
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
        yield ok("discovery", "switched off in the configuration: terminals are found at their base_url alone")
        return
    needing = [one.serial for one in shop.terminals if not one.base_url and one.access_mode == "local"]
    tell = failure if needing else warning
    selection = select(snapshot(), discovery.interfaces)
    for address in selection.missing:
        yield failure(
            address,
            "discovery.interfaces names this address, and no interface of this machine has it: no terminal is found "
            "there",
            "did this machine get another address? Correct discovery.interfaces, or leave it empty for all interfaces",
            "ip -brief address",
            shop.edit("discovery.interfaces"),
        )
    if not selection.spoken:
        if not selection.missing:
            meaning = "this machine has no network interface with an address, except to itself"
            yield tell("interfaces", meaning, "check cable, WLAN and DHCP of this machine", "ip -brief address")
        return
    try:
        found = asyncio.run(_listen(discovery, selection))
    except (OSError, RuntimeError) as error:
        listening = shop.as_root("ss", "-lunp", "sport = :5353")
        todo = "check these interfaces, and which program keeps UDP port 5353 to itself"
        yield tell(names(selection), f"mDNS does not work here: {error}", todo, "ip -brief address", listening)
        return
    yield from _judge(shop, names(selection), found, needing)


def _judge(shop: DoctorContext, interfaces: str, found: list[Announcement], needing: list[str]) -> Findings:
    """Report the announced terminals, and store their addresses."""
    fleet = shop.terminals_by_serial
    for item in found:
        one = fleet.get(item.serial)
        if one is not None and not one.base_url:
            shop.addresses.setdefault(
                item.serial, TerminalAddress(f"{one.scheme}://{item.hosts[0]}:{item.port}", "mdns")
            )
    heard = sorted({item.serial for item in found})
    ours, strangers = (
        ", ".join(serial for serial in heard if (serial in fleet) is ours_alone) for ours_alone in (True, False)
    )
    beside = f"; {strangers} too, which the configuration does not name" if strangers else ""
    lost = [serial for serial in needing if serial not in heard and serial not in shop.addresses]
    if not lost:
        yield ok(interfaces, f"queries were sent; terminals that answered: {ours or 'none'}{beside}")
        return
    meaning = f"queries were sent: {', '.join(lost)} can be found by mDNS alone, and was not heard{beside}"
    if strangers:
        todo = "is that the same device? Then write its serial into the configuration as it announces it"
        yield warning(interfaces, meaning, todo, shop.edit_terminal(lost[0], "serial"))
        return
    yield warning(
        interfaces,
        meaning,
        "are they switched on, and in this network? Does the WLAN hold multicast back (client isolation, IGMP "
        "snooping)? Does a firewall of this machine keep UDP 5353 out? Else write base_url for them",
        shop.command("terminals", "--all"),
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
