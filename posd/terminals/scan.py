"""Looking for terminals in a subnet by what identifies them: a pinned certificate, or a name that a CA vouches for.

For when mDNS is silent; only ever on a person's request, and politely: few connections at once, few a second, a TCP
connection and a TLS handshake to each address and nothing more. No request is sent, so that nothing can start there.
First comes the plan, which is pure: which addresses, or why not; then the scan, which keeps to it.
"""

import asyncio
import errno
import hashlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

#: A /22: the largest network that a shop has, and one that is looked through within a minute.
MOST_ADDRESSES = 1024
#: New connections a second: a small router forgets other connections where it has to remember many new ones.
CONNECTS_PER_SECOND = 32.0
#: Connections that are open or being opened at one time.
MOST_AT_ONCE = 32
#: How long an address may take to take a connection, in seconds: a terminal on Wi-Fi may have to wake up first.
CONNECT_SECONDS = 3.0
#: How long a handshake may take, in seconds: terminals are slow at it.
HANDSHAKE_SECONDS = 10.0
#: How long a device has for its part of the goodbye, in seconds.
GOODBYE_SECONDS = 0.5

#: Networks of shops: RFC 1918, RFC 4193 (unique local IPv6), link-local IPv4, and loopback.
_HOMES: Final = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 127.0.0.0/8 fc00::/7 ::1/128"
PRIVATE: Final = tuple(ipaddress.ip_network(text) for text in _HOMES.split())

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class NotScanned(Exception):
    """That is not looked through; the message says why, and what to do."""


def subnet(text: str) -> Network:
    """Read a subnet in CIDR notation; bits of a host in it are left out. Raise NotScanned."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise NotScanned(f"{text!r} is no subnet; write it as in 192.168.1.0/24, or a single address") from None
    if not any(network.version == home.version and network.subnet_of(home) for home in PRIVATE):  # type: ignore[arg-type]
        raise NotScanned(f"{network} is not a private network: only the shop's own network is looked through")
    if network.num_addresses > MOST_ADDRESSES:
        largest = network.max_prefixlen - (MOST_ADDRESSES - 1).bit_length()
        raise NotScanned(
            f"{network} has too many addresses; name the part of it in which the terminal can be, a /{largest} or "
            f"smaller ({MOST_ADDRESSES} addresses)"
        )
    return network


def addresses(network: Network) -> Iterator[str]:
    """Yield the addresses that a device can have in a subnet, ascending."""
    return (str(address) for address in network.hosts())


@dataclass(frozen=True, slots=True)
class Limits:
    """How politely: see the constants above."""

    per_second: float = CONNECTS_PER_SECOND
    at_once: int = MOST_AT_ONCE
    connect_seconds: float = CONNECT_SECONDS
    handshake_seconds: float = HANDSHAKE_SECONDS


@dataclass(frozen=True, slots=True)
class Wanted:
    """A terminal that is looked for: by its fingerprint (64 hex digits), else by its name, which `context` verifies."""

    serial: str
    fingerprint_sha256: str = ""
    server_name: str = ""
    context: ssl.SSLContext | None = None


class Answer(StrEnum):
    """What came of one address."""

    SILENT = "silent"  # nothing answers there
    REFUSED = "refused"  # a device is there, and nothing listens on the port
    NO_TLS = "no_tls"  # something listens, and does not speak TLS that can be spoken
    HANGS = "hangs"  # something listens, and the handshake does not come to an end
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class Seen:
    """One address: what came of it; the fingerprint where there was a handshake; the terminal that it showed to be."""

    address: str
    answer: Answer
    fingerprint_sha256: str | None = None
    serial: str | None = None


@dataclass(slots=True)
class Report:
    """What was looked at so far: how many addresses, what listens, which terminal is where; `whole`: that was all.

    `unroutable`: this machine has no way to an address.
    """

    tried: int = 0
    answers: dict[Answer, int] = field(default_factory=lambda: dict.fromkeys(Answer, 0))
    listening: list[Seen] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)  # serial -> address
    unroutable: int = 0
    whole: bool = False

    def take(self, seen: Seen) -> None:
        """Add what came of one more address."""
        self.tried += 1
        self.answers[seen.answer] += 1
        if seen.answer not in (Answer.SILENT, Answer.REFUSED):
            self.listening.append(seen)
        if seen.serial is not None:
            self.found.setdefault(seen.serial, seen.address)


class Scan:
    """One scan. `report` has what was seen so far; `on_progress` is called after each address."""

    def __init__(
        self,
        targets: Sequence[str],
        port: int,
        wanted: Sequence[Wanted],
        on_progress: Callable[[Report], None] = lambda _report: None,
        limits: Limits = Limits(),
    ) -> None:
        self.report = Report()
        self._targets = targets
        self._port = port
        self._wanted = wanted
        self._on_progress = on_progress
        self._limits = limits
        self._next = 0.0  # when the next connection may be opened, by the loop's clock

    async def run(self) -> None:
        """Look through the targets until every wanted terminal is found. It can be cancelled."""
        targets = iter(self._targets)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._limits.at_once):
                group.create_task(self._work(targets))
        self.report.whole = self.report.tried == len(self._targets)

    async def _work(self, targets: Iterator[str]) -> None:
        for target in targets:
            await self._look(target)
            if all(item.serial in self.report.found for item in self._wanted):
                return

    async def _look(self, address: str) -> None:
        """Look at one address: which certificate does it show, and whose is that."""
        async with self._handshake(address, _unverified()) as (answer, certificate):
            fingerprint = hashlib.sha256(certificate).hexdigest() if certificate else None
            pinned = next((item for item in self._wanted if fingerprint == item.fingerprint_sha256), None)
            if certificate is None or pinned is not None:
                self._take(Seen(address, answer, fingerprint, pinned.serial if pinned else None))
                return
        for item in self._wanted:
            if item.context is None or item.serial in self.report.found:
                continue
            async with self._handshake(address, item.context, item.server_name) as (verified, _):
                if verified is Answer.TLS:
                    self._take(Seen(address, answer, fingerprint, item.serial))
                    return
        self._take(Seen(address, answer, fingerprint))

    def _take(self, seen: Seen) -> None:
        self.report.take(seen)
        self._on_progress(self.report)

    @asynccontextmanager
    async def _handshake(
        self, address: str, context: ssl.SSLContext, server_name: str = ""
    ) -> AsyncIterator[tuple[Answer, bytes | None]]:
        """Connect and shake hands; give what came of it, and the certificate (DER) where there was one; hang up."""
        await self._turn()
        writer = None
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as raw:
            raw.setblocking(False)
            try:
                async with asyncio.timeout(self._limits.connect_seconds):
                    await asyncio.get_running_loop().sock_connect(raw, (address, self._port))
            except ConnectionRefusedError:
                answer = Answer.REFUSED
            except OSError as error:  # a TimeoutError is one
                self.report.unroutable += error.errno == errno.ENETUNREACH
                answer = Answer.SILENT
            else:
                answer, writer = await self._secure(raw, context, server_name)
            try:
                yield answer, writer.get_extra_info("ssl_object").getpeercert(binary_form=True) if writer else None
            finally:
                if writer is not None:
                    await _goodbye(writer)

    async def _secure(
        self, raw: socket.socket, context: ssl.SSLContext, server_name: str
    ) -> tuple[Answer, asyncio.StreamWriter | None]:
        seconds = self._limits.handshake_seconds
        try:
            _, writer = await asyncio.open_connection(
                sock=raw, ssl=context, server_hostname=server_name, ssl_handshake_timeout=seconds
            )
        except ConnectionAbortedError:  # what asyncio makes of a handshake that takes too long
            return Answer.HANGS, None
        except OSError:  # an SSLError is one
            return Answer.NO_TLS, None
        return Answer.TLS, writer

    async def _turn(self) -> None:
        """Wait until one more connection may be opened."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + 1 / self._limits.per_second
        await asyncio.sleep(at - now)


async def _goodbye(writer: asyncio.StreamWriter) -> None:
    """Hang up as TLS wants it, or without an answer where there is none soon."""
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await writer.wait_closed()
    writer.transport.abort()


def _unverified() -> ssl.SSLContext:
    """Return a context that takes any certificate: it is looked at, and nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
