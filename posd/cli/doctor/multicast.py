"""Multicast on one interface: a query goes out, what comes back is kept.

One socket an interface, beside whatever else uses port 5353 here (posd itself, avahi). A query is sent twice, because
multicast is lost now and then; the second one also asks for what the first answers left out.
"""

import errno
import fcntl
import ipaddress
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

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
