"""mDNS on each interface: does a query get out, and what is heard."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from posd.base.times import iso
from posd.cli.doctor.context import Address, Shop
from posd.cli.doctor.findings import Findings, Said, failure, ok, warning
from posd.cli.doctor.multicast import Ear, is_up, listen
from posd.terminals import announcements
from posd.terminals.announcements import Announcement, Malformed, Rules

#: Interfaces that are looked at; containers can make hundreds.
MAX_INTERFACES = 16


def check(shop: Shop) -> Findings:
    """Tell for each interface whether multicast works there, and which terminals were heard."""
    discovery = shop.settings.discovery
    if not discovery.enabled:
        yield ok("discovery", "switched off in the configuration: terminals are found at their base_url alone")
        return
    needing = [one.serial for one in shop.terminals if not one.base_url and one.access_mode == "local"]
    ears, missing = _ears(discovery.interfaces)
    for address in missing:
        yield failure(
            address,
            "discovery.interfaces names this address, and no interface of this machine has it: no terminal is found "
            "there",
            "did this machine get another address? Correct discovery.interfaces, or leave it empty for all interfaces",
        )
    if not ears and not missing:
        tell = failure if needing else warning
        yield tell(
            "interfaces",
            "this machine has no network interface with an address, except to itself",
            "check cable, WLAN and DHCP of this machine",
        )
        return
    listen(ears, discovery.service_types)
    found = list(_announced(shop, ears))
    for item in found:
        known = shop.terminals_by_serial.get(item.serial)
        if known is not None and item.serial not in shop.addresses and not known.base_url:
            shop.addresses[item.serial] = Address(f"{known.scheme}://{item.hosts[0]}:{item.port}", "mdns")
    heard = {item.serial for item in found}
    lost = [serial for serial in needing if serial not in heard and serial not in shop.addresses]
    for ear in ears:
        yield _judge(ear, [item.serial for item in _of(ear, shop)], {*shop.terminals_by_serial}, needing, lost)


def _judge(ear: Ear, serials: list[str], fleet: set[str], needing: list[str], lost: list[str]) -> Said:
    """Say how it stands on one interface: which terminals were heard there, and whether that is enough."""
    if ear.error:
        tell = failure if needing else warning
        return tell(
            ear.name, f"mDNS does not work here: {ear.error}", "check this interface, and the firewall (UDP 5353)"
        )
    known, strangers = sorted({*serials} & fleet), ", ".join(sorted({*serials} - fleet))
    if known or (strangers and not lost):
        beside = f"; {strangers} too, which the configuration does not name" if strangers else ""
        return ok(ear.name, f"a query was sent and answered; terminals here: {', '.join(known) or 'none'}{beside}")
    if strangers:
        return warning(
            ear.name,
            f"a query was sent and answered, by {strangers}, which the configuration does not name; "
            f"{', '.join(lost)} can be found by mDNS alone, and was not heard",
            "is that the same device? Then write its serial into the configuration as it announces it",
        )
    others = f"; {len(ear.heard)} other devices answered" if ear.heard else " and nobody answered"
    if not lost:
        return ok(ear.name, f"a query was sent{others}; no terminal is missing")
    return warning(
        ear.name,
        f"a query was sent{others}: {', '.join(lost)} can be found by mDNS alone, and was not heard",
        "are they switched on, and in this network? Does the WLAN hold multicast back (client isolation, IGMP "
        "snooping)? Does a firewall of this machine keep UDP 5353 out? Else write base_url for them",
    )


def _ears(chosen: tuple[str, ...]) -> tuple[list[Ear], list[str]]:
    """Return where to listen, and the chosen addresses that this machine does not have."""
    import ifaddr

    wanted = {ipaddress.ip_address(text) for text in chosen}
    found: dict[Any, Ear] = {}
    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            text = entry.ip if isinstance(entry.ip, str) else entry.ip[0]
            address = ipaddress.ip_address(text.partition("%")[0])
            if address in wanted:
                found[address] = Ear(adapter.name, adapter.index or 0, str(address))
            elif not wanted and not address.is_loopback and is_up(adapter.name):
                # One a kind and interface is enough: they all share the cable.
                found.setdefault((adapter.name, address.version), Ear(adapter.name, adapter.index or 0, str(address)))
    missing = [str(address) for address in wanted if address not in found]
    return list(found.values())[:MAX_INTERFACES], missing


def _announced(shop: Shop, ears: list[Ear]) -> Iterator[Announcement]:
    for ear in ears:
        yield from _of(ear, shop)


def _of(ear: Ear, shop: Shop) -> Iterator[Announcement]:
    """Yield the terminals that were announced on an interface, read as posd reads them."""
    from zeroconf import DNSAddress, DNSPointer, DNSService, DNSText, ServiceInfo  # type: ignore[attr-defined]

    discovery = shop.settings.discovery
    rules = Rules(discovery.serial_keys, discovery.interfaces)
    services = {record.key: record for record in ear.records if isinstance(record, DNSService)}
    texts = {record.key: record for record in ear.records if isinstance(record, DNSText)}
    addresses = defaultdict(list)
    for record in ear.records:
        if isinstance(record, DNSAddress) and len(record.address) in (4, 16):
            address = str(ipaddress.ip_address(record.address))
            own = ipaddress.ip_address(address)
            scope = f"%{ear.interface}" if own.is_link_local and own.version == 6 else ""
            addresses[record.key].append(f"{address}{scope}")
    pointers = {
        record.alias: record
        for record in ear.records
        if isinstance(record, DNSPointer) and record.name in discovery.service_types and record.ttl
    }
    for instance, pointer in pointers.items():
        service = services.get(instance.lower())
        if service is None:
            continue
        text = texts.get(instance.lower())
        info = ServiceInfo(pointer.name, instance, properties=text.text if text else b"")
        with suppress(Malformed, ValueError):
            yield announcements.read(
                instance,
                pointer.name,
                info.decoded_properties,
                addresses[service.server.lower()],
                service.port,
                rules,
                iso(datetime.now(UTC)),
            )
