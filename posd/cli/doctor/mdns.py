"""mDNS on each interface: does a query get out, and what is heard."""

import errno
import fcntl
import ipaddress
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from posd.base.times import iso
from posd.cli.doctor.context import Address, Findings, Said, Shop, failure, ok, warning
from posd.terminals.claims import Announcement, Malformed, Rules, read_announcement

# Multicast on one interface: a query goes out, what comes back is kept.
#
# One socket an interface, beside the other programs on port 5353 (posd itself, avahi). A query is sent twice,
# because multicast is lost now and then; the second one also asks for what the first answers left out.

#: RFC 6762, 3.
PORT, GROUP_IPV4, GROUP_IPV6 = 5353, "224.0.0.251", "ff02::fb"
#: When the two queries go out, and how long is listened in all; seconds. Responders wait up to 120 ms (RFC 6762, 6).
QUERIES_AT, LISTEN_SECONDS = (0.0, 1.0), 2.5
#: Datagrams that are read; a network can chatter without end.
MAX_DATAGRAMS = 2000

#: linux/sockios.h, linux/if.h, linux/in.h: not in Python's socket module.
_SIOCGIFFLAGS, _IFF_UP, _IFF_MULTICAST, _IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 0x8913, 0x1, 0x1000, 49, 29


@dataclass(slots=True)
class Ear:
    """One address of an interface: what was sent and heard there. `error` is why nothing can be."""

    interface: str
    index: int
    address: str
    error: str = ""
    heard: set[str] = field(default_factory=set)  # addresses of responders
    records: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """How it is shown."""
        return f"{self.interface} ({self.address.partition('%')[0]})"


def is_up(interface: str) -> bool:
    """Tell whether an interface is switched on."""
    return bool(_flags(interface) & _IFF_UP)


def _flags(interface: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sH14x", interface.encode()[:15], 0))
        return int(struct.unpack_from("16xH", answer)[0])
    return 0


def listen(ears: list[Ear], service_types: Iterable[str]) -> None:
    """Send the queries on each interface and keep what is heard."""
    import selectors

    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for ear in ears:
            if not _flags(ear.interface) & _IFF_MULTICAST and not ipaddress.ip_address(ear.address).is_loopback:
                ear.error = "the interface does not do multicast (a tunnel, a modem?)"
                continue
            try:
                sock = stack.enter_context(_socket(ear))
            except OSError as error:
                ear.error = _why(error)
                continue
            selector.register(sock, selectors.EVENT_READ, ear)
        start = time.monotonic()
        pending, left = list(QUERIES_AT), MAX_DATAGRAMS
        while (passed := time.monotonic() - start) < LISTEN_SECONDS and selector.get_map() and left:
            if pending and passed >= pending[0]:
                pending.pop(0)
                for key in list(selector.get_map().values()):
                    _ask(key.fileobj, key.data, tuple(service_types))
            until = pending[0] if pending else LISTEN_SECONDS
            for key, _ in selector.select(max(0.0, until - passed)):
                _hear(key.fileobj, key.data)
                left -= 1


def _socket(ear: Ear) -> socket.socket:
    """Open a socket on the mDNS port that hears this interface alone. Raise OSError."""
    address = ipaddress.ip_address(ear.address)
    six = address.version == 6
    sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if six:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
            sock.bind(("::", PORT))
            group = socket.inet_pton(socket.AF_INET6, GROUP_IPV6) + struct.pack("@I", ear.index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, ear.index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        else:
            sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
            sock.bind(("", PORT))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP_IPV4) + address.packed)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address.packed)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
    except OSError:
        sock.close()
        raise
    return sock


def _ask(sock: Any, ear: Ear, service_types: tuple[str, ...]) -> None:
    """Ask for the services, and for what is not yet known of those that answered."""
    from zeroconf import DNSOutgoing, DNSPointer, DNSQuestion, DNSService, const  # type: ignore[attr-defined]

    query = DNSOutgoing(const._FLAGS_QR_QUERY)
    for service_type in service_types:
        query.add_question(DNSQuestion(service_type, const._TYPE_PTR, const._CLASS_IN))
    for record in list(ear.records):
        if isinstance(record, DNSPointer) and record.name in service_types:
            for kind in (const._TYPE_SRV, const._TYPE_TXT):
                query.add_question(DNSQuestion(record.alias, kind, const._CLASS_IN))
        elif isinstance(record, DNSService):
            for kind in (const._TYPE_A, const._TYPE_AAAA):
                query.add_question(DNSQuestion(record.server, kind, const._CLASS_IN))
    six = sock.family == socket.AF_INET6
    to = (GROUP_IPV6, PORT, 0, ear.index) if six else (GROUP_IPV4, PORT)
    for packet in query.packets():
        try:
            sock.sendto(packet, to)
        except OSError as error:
            ear.error = f"a query cannot be sent ({_why(error)})"


def _hear(sock: Any, ear: Ear) -> None:
    """Keep the records of one datagram, where it is an answer."""
    from zeroconf import DNSIncoming  # type: ignore[attr-defined]

    try:
        datagram, sender = sock.recvfrom(9000)
    except OSError:
        return
    message = DNSIncoming(datagram)
    if message.valid and message.is_response():
        ear.heard.add(sender[0])
        ear.records += message.answers()


def _why(error: OSError) -> str:
    words = {
        errno.EADDRINUSE: "another program keeps port 5353 to itself",
        errno.EPERM: "a firewall of this machine forbids it",
        errno.ENETUNREACH: "there is no way out for multicast",
        errno.ENODEV: "the interface cannot do multicast",
    }
    return words.get(error.errno or 0) or error.strerror or str(error)


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
            "ip -brief address",
            shop.edit("discovery.interfaces"),
        )
    if not ears and not missing:
        tell = failure if needing else warning
        yield tell(
            "interfaces",
            "this machine has no network interface with an address, except to itself",
            "check cable, WLAN and DHCP of this machine",
            "ip -brief address",
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
        yield _judge(shop, ear, [item.serial for item in _of(ear, shop)], {*shop.terminals_by_serial}, needing, lost)


def _judge(shop: Shop, ear: Ear, serials: list[str], fleet: set[str], needing: list[str], lost: list[str]) -> Said:
    """Say how it stands on one interface: which terminals were heard there, and whether that is enough."""
    if ear.error:
        tell = failure if needing else warning
        todo = "check this interface, and the firewall (UDP 5353)"
        listening = shop.as_root("ss", "-lunp", "sport = :5353")
        return tell(ear.name, f"mDNS does not work here: {ear.error}", todo, "ip -brief address", listening)
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
            shop.edit_terminal(lost[0], "serial"),
        )
    others = f"; {len(ear.heard)} other devices answered" if ear.heard else " and nobody answered"
    if not lost:
        return ok(ear.name, f"a query was sent{others}; no terminal is missing")
    return warning(
        ear.name,
        f"a query was sent{others}: {', '.join(lost)} can be found by mDNS alone, and was not heard",
        "are they switched on, and in this network? Does the WLAN hold multicast back (client isolation, IGMP "
        "snooping)? Does a firewall of this machine keep UDP 5353 out? Else write base_url for them",
        shop.command("terminals", "--all"),
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
            yield read_announcement(
                instance,
                pointer.name,
                info.decoded_properties,
                addresses[service.server.lower()],
                service.port,
                rules,
                iso(datetime.now(UTC)),
            )
