"""Network of a terminal: addresses, listener, mDNS announcement and certificates, and the switches that change them.

The listener uses hypercorn's protocol with an accept loop of its own. Hypercorn's `serve` does not report its port, and
an idle TLS connection delays its stop.
"""

import asyncio
import ipaddress
import itertools
import logging
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import partial
from pathlib import Path

import ifaddr
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import LifespanState
from starlette.applications import Starlette
from starlette.types import ASGIApp
from zeroconf import Error, InterfaceChoice, NonUniqueNameException, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from posd.simulator.clock import Clock, cancel
from posd.simulator.delivery import Poster, QueuedEvent, Sender
from posd.simulator.ledger import Ledger
from posd.simulator.printer import Printer
from posd.simulator.scenario import Certificate
from posd.simulator.settings import Settings
from posd.simulator.wire import SettingsError

#: Time-out for the end of aborted connections, in seconds. It takes only milliseconds.
STOP_SECONDS = 0.5
#: Seconds after which an idle connection is closed. Hypercorn also waits this long if the client has closed it.
IDLE_SECONDS = 5
#: Time-out of a TLS handshake, in seconds. A slow device needs two.
HANDSHAKE_SECONDS = 15
#: Key in the state of a request. Its value is the function that closes the connection without a response.
HANG_UP = "hang_up"
#: Maximum number of connections that wait to be accepted.
BACKLOG = 128


def bind(host: str, port: int) -> socket.socket:
    """Bind an address without listening. Calls are refused, and no other program can use the address.

    Port 0 is a free port. Raise SettingsError if the address is not available.
    """
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit this option. asyncio sets it only on connections that it accepts itself. Without
        # the option each response would wait 40 ms for a delayed ACK.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family is socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise _not_had(f"{host}:{port}", error) from error
    return bound


class _Config(Config):
    """Configuration of hypercorn, with a date header from a clock that is wrong by an offset."""

    def __init__(self, clock_offset: float) -> None:
        super().__init__()
        self._clock_offset = clock_offset
        self.include_date_header = False

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        date = formatdate(time.time() + self._clock_offset, usegmt=True)
        return [(b"date", date.encode()), *super().response_headers(protocol)]


class Listener:
    """Server of one app on a bound socket. Its stop closes the socket."""

    def __init__(self, app: ASGIApp, tls: ssl.SSLContext | None, *, clock_offset: float = 0.0) -> None:
        """`clock_offset`: number of seconds by which the clock of the date header is ahead."""
        self._app = ASGIWrapper(app)  # type: ignore[arg-type]
        self._tls = tls
        self._config = _Config(clock_offset)
        self._config.accesslog = None
        self._config.errorlog = logging.getLogger("posd.simulator.http")
        self._config.include_server_header = False
        self._config.keep_alive_timeout = IDLE_SECONDS
        self._config.keep_alive_max_requests = 2**31
        self._context = WorkerContext(None)
        self._bound: socket.socket | None = None
        #: Open connection -> function that closes it.
        self._connections: dict[asyncio.Task[None], Callable[[], None]] = {}

    def start(self, bound: socket.socket) -> None:
        """Listen. Raise SettingsError if another program listens at the address. Then the socket stays bound."""
        try:
            bound.listen(BACKLOG)
        except OSError as error:
            raise _not_had("{}:{}".format(*bound.getsockname()[:2]), error) from error
        self._bound = bound
        asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def close(self) -> None:
        """Close the socket. No further connection is accepted."""
        if self._bound is not None:
            asyncio.get_running_loop().remove_reader(self._bound)
            self._bound.close()
            self._bound = None

    async def stop(self) -> None:
        """Close the socket and every connection, idle or not."""
        self.close()
        await self._context.terminated.set()
        for hang_up in self._connections.values():
            hang_up()
        if self._connections:
            _, late = await asyncio.wait(list(self._connections), timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _accept(self, bound: socket.socket) -> None:
        # Not asyncio's server: Python 3.11 loses a connection that it accepted just before `close`.
        with suppress(OSError):  # the client has disconnected, or no file descriptor is free
            connection, _ = bound.accept()
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._connections[task] = partial(_shut, connection)
            task.add_done_callback(self._connections.pop)

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        timeout = HANDSHAKE_SECONDS if self._tls else None
        try:
            connection.setblocking(False)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except (OSError, EOFError):  # ssl.SSLError and time-outs are OSErrors
            connection.close()
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._connections[task] = partial(_hang_up, transport)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        state: LifespanState = {HANG_UP: partial(_hang_up, transport)}
        try:
            await TCPServer(self._app, loop, self._config, self._context, state, reader, writer)
        finally:
            _hang_up(transport)


def _shut(connection: socket.socket) -> None:
    """Shut down a connection during its TLS handshake. Then asyncio reads end of file, and closes it."""
    with suppress(OSError):  # the peer has disconnected
        connection.shutdown(socket.SHUT_RDWR)


def _hang_up(transport: asyncio.Transport) -> None:
    """Abort a connection. Unsent data is lost."""
    with suppress(AttributeError):  # Python 3.11.2 (Debian 12) raises it if the TLS transport has no connection
        transport.abort()


def _not_had(address: str, error: Exception) -> SettingsError:
    return SettingsError(
        f"cannot listen on {address}: {error}; "
        "choose an address of this machine and a free port, by --listen or --control (port 0 takes a free one)"
    )


def server_context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """Return the TLS context of the listener: TLS 1.2 or newer, HTTP/1.1. Raise SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot use certificate {certificate} with key {private_key}: {error}") from error
    return context


def client_context(trust: Path | None) -> ssl.SSLContext:
    """Return the TLS context of the deliveries.

    It trusts only the CA in `trust`, or the system's CAs if `trust` is None. Raise SettingsError.
    """
    try:
        return ssl.create_default_context(cafile=None if trust is None else str(trust))
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot read CA certificates from {trust}: {error}") from error


#: Type of service that a terminal announces over mDNS.
SERVICE_TYPE = "_card-terminal._tcp.local."
#: Name in a certificate of another terminal.
WRONG_NAME = "another-terminal.invalid"
#: Lifetime of generated certificates: within the limit of strict clients.
LIFETIME = timedelta(days=397)
#: Time since the certificate expired: longer than the error of any clock.
EXPIRED_FOR = timedelta(days=30)

_Issuer = tuple[x509.Name, CertificateIssuerPrivateKeyTypes]


def url(scheme: str, host: str, port: int) -> str:
    """Return the URL of an IP address, without a slash at the end."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def reachable_addresses(host: str, interfaces: Sequence[str]) -> list[str]:
    """Return the addresses at which a listener on `host` can be called, the best first.

    If `host` is a wildcard (0.0.0.0 or ::), return `interfaces`, or without them all addresses of this machine.
    Loopback is last, and link-local addresses are omitted.
    """
    listening = ipaddress.ip_address(host)
    if not listening.is_unspecified:
        return [host]
    if interfaces:
        return list(interfaces)
    mine = [entry for adapter in ifaddr.get_adapters() for entry in adapter.ips]
    found = [ipaddress.ip_address(entry.ip if isinstance(entry.ip, str) else entry.ip[0]) for entry in mine]
    usable = [address for address in found if address.version == listening.version and not address.is_link_local]
    return [str(address) for address in sorted(usable, key=lambda address: address.is_loopback)] or [host]


async def announce(
    settings: Settings, ledger: Ledger, addresses: list[str], port: int, says_goodbye: Callable[[], bool]
) -> None:
    """Announce the terminal over mDNS, with its serial as name, until cancelled.

    If the announcement fails, the ledger records the failure and the terminal continues. `says_goodbye`: returns
    whether to announce the end. Without power or network it returns false.
    """
    info = ServiceInfo(
        SERVICE_TYPE,
        f"{settings.serial}.{SERVICE_TYPE}",
        port=port,
        properties={"serial": settings.serial, "brand": settings.brand, "model": settings.model},
        server=f"terminal-{settings.serial}.local.",
        parsed_addresses=addresses,
    )
    zeroconf = None
    try:
        for address in settings.mdns_interfaces:
            _check_local(address)
        zeroconf = AsyncZeroconf(interfaces=list(settings.mdns_interfaces) or InterfaceChoice.All)
        await (await zeroconf.async_register_service(info))
        ledger.add("mdns", result="announced", detail=info.name)
        await asyncio.Event().wait()
    except NonUniqueNameException:
        ledger.add("mdns", result="failed", detail="another terminal with this serial is on the LAN")
    except (OSError, Error, RuntimeError) as error:
        ledger.add("mdns", result="failed", detail=f"cannot announce over mDNS: {error}")
    finally:
        if zeroconf is not None:
            registry = zeroconf.zeroconf.registry
            if not says_goodbye():  # `close` sends the goodbye for registered services
                registry.async_remove(registry.async_get_service_infos())
            await zeroconf.async_close()


def _check_local(address: str) -> None:
    """Raise OSError if no interface has this address. Zeroconf would detect it too late to close its sockets."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))


def certificate_context(settings: Settings, which: Certificate) -> ssl.SSLContext | None:
    """Return the TLS context with this certificate: the terminal's own, or a new one that no client should trust.

    None: the terminal uses plain HTTP. Raise SettingsError.
    """
    if settings.certificate is None or settings.private_key is None:
        return None
    if which == "own":
        return server_context(settings.certificate, settings.private_key)
    try:
        own = x509.load_pem_x509_certificate(settings.certificate.read_bytes())
        issuer, signer = _issuer(settings)
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"no {which} certificate can be made: {error}") from error
    key = ec.generate_private_key(ec.SECP256R1())
    if which == "self-signed":
        issuer, signer = (own.subject, key), None
    begin = datetime.now(UTC) - timedelta(days=1)
    if which == "expired":
        begin -= LIFETIME + EXPIRED_FOR
    made = _signed(own, key, issuer, begin, wrong_name=which == "wrong-name")
    return _serving([made, *([signer] if signer else [])], key)


def _issuer(settings: Settings) -> tuple[_Issuer, x509.Certificate | None]:
    """Return the CA's name and key, and its certificate if it is an intermediate CA.

    Generate a CA if none is given.
    """
    if settings.ca_certificate is None or settings.ca_private_key is None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Simulated terminals CA")])
        return (name, ec.generate_private_key(ec.SECP256R1())), None
    pem = settings.ca_private_key.read_bytes()
    key = load_pem_private_key(pem, password=None)
    signer = x509.load_pem_x509_certificate(pem) if b"BEGIN CERTIFICATE" in pem else None
    ca = signer or x509.load_pem_x509_certificate(settings.ca_certificate.read_bytes())
    # A key that cannot sign is refused when it is used.
    return (ca.subject, key), signer  # type: ignore[return-value]


def _signed(
    own: x509.Certificate, key: ec.EllipticCurvePrivateKey, issuer: _Issuer, begin: datetime, *, wrong_name: bool
) -> x509.Certificate:
    """Return a signed certificate, for the names of the terminal's own certificate or for a wrong name."""
    name, signing_key = issuer
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(own.subject)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority, critical=False)
    )
    names = x509.SubjectAlternativeName([x509.DNSName(WRONG_NAME)]) if wrong_name else _names(own)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signing_key, SHA256())


def _names(own: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _serving(certificates: Iterable[x509.Certificate], key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    """Return a context that serves this chain."""
    with tempfile.TemporaryDirectory(prefix="posd-simulate-") as directory:
        chain, private_key = Path(directory) / "certificate.pem", Path(directory) / "key.pem"
        chain.write_bytes(b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates))
        private_key.touch(mode=0o600)
        private_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return server_context(chain, private_key)


# Switches of one running terminal.


class Switchboard:
    """Power, network, address and certificate of one terminal, with the parts that stop without power.

    Setting a switch to its present state has no effect. A scenario and the control API can use the switches at the same
    time, so changes are made one after the other.
    """

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, *, seed: str) -> None:
        """Open and lock the queue of events. Raise OSError, SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        #: Certificate for the next connections.
        self.certificate: Certificate = "own"
        #: TLS contexts by certificate. A generated certificate does not change while the process runs.
        self._contexts: dict[Certificate, ssl.SSLContext | None] = {"own": certificate_context(settings, "own")}
        self._poster = Poster(client_context(settings.trust), clock)
        self.printer = Printer(settings, ledger, clock, self._poster, seed=seed)
        self._sender = Sender(
            settings.state / "queue.jsonl",
            ledger,
            clock,
            self._poster,
            timeout=settings.delivery_timeout,
            seed=seed,
            unruly=settings.unruly,
        )
        #: App that serves the calls.
        self._app: Starlette
        #: The bound socket of the present address. It stays bound during an outage of the network.
        self._bound: socket.socket | None = None
        self._port = settings.port
        self._ports: Iterator[int] = itertools.cycle(settings.move_ports or (0,))
        self._listener: Listener | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._says_goodbye = False
        self._powered = asyncio.Event()
        self._plugged = True
        self._switching = asyncio.Lock()

    @property
    def powered(self) -> bool:
        """Whether the terminal has power."""
        return self._powered.is_set()

    @property
    def plugged(self) -> bool:
        """Whether the terminal is connected to the network while it has power."""
        return self._plugged

    @property
    def waiting_events(self) -> int:
        """Number of events that wait for delivery."""
        return len(self._sender.waiting)

    @property
    def base_url(self) -> str:
        """Base URL of the terminal, without a slash at the end."""
        return url("http" if self._contexts["own"] is None else "https", self._addresses()[0], self._port)

    def submit(self, item: QueuedEvent) -> None:
        """Queue an event. The event is in the file on return. Without power or network the event waits."""
        self._sender.submit(item)

    async def close(self) -> None:
        """Stop permanently. Undelivered and unprinted work stays in the files."""
        await self.disconnect()
        await self.printer.stop()
        await self._poster.close()
        self._sender.close()
        if self._bound is not None:
            self._bound.close()

    async def start(self, app: Starlette) -> None:
        """Switch the terminal on for the first time. `app` serves its calls. Raise OSError, SettingsError."""
        self._app = app
        self._bind(self._port)
        async with self._one_at_a_time():
            self._powered.set()
            await self._settle()

    async def set_plugged(self, plugged: bool) -> None:
        """Connect the terminal to the network, or disconnect it.

        Without network, calls are refused, connections end, events wait, and no goodbye is sent. With network, the
        terminal announces itself at the same address, and sends its events in order.
        """
        async with self._one_at_a_time():
            if self._plugged is not plugged:
                self._plugged = plugged
                self._ledger.add("plugged" if plugged else "unplugged")
                await self._settle()

    async def set_powered(self, powered: bool) -> None:
        """Restore or cut the power. The running payment continues, unless the caller stops it."""
        async with self._one_at_a_time():
            if self.powered is not powered:
                if powered:
                    self._powered.set()
                else:
                    self._powered.clear()
                self._ledger.add("power_on" if powered else "power_off")
                await self._settle()

    async def power_cycle(self, seconds: float) -> None:
        """Switch the terminal off for `seconds` of its time and on again. Return when it is on.

        With 0 it stays off until another call switches it on. The queue, the record of finals and the print jobs
        survive. The running payment continues with its remaining steps.
        """
        await self.set_powered(False)
        if seconds:
            await self._clock.sleep(seconds)
            await self.set_powered(True)
        await self._powered.wait()

    async def move(self) -> None:
        """Move the terminal to the next address, and announce it.

        Raise SettingsError if the next address is not available.
        """
        async with self._one_at_a_time():
            await self._refuse()
            try:
                self._bind(next(self._ports))
                self._ledger.add("moved", base_url=self.base_url)
            finally:
                await self._stop_announcing()
                await self._settle()

    async def show_certificate(self, which: Certificate) -> None:
        """Show another certificate from the next connection on. Open connections end.

        Raise SettingsError over plain HTTP.
        """
        async with self._one_at_a_time():
            if which == self.certificate:
                return
            if self._contexts["own"] is None:
                raise SettingsError("this terminal speaks plain HTTP and shows no certificate: leave out --http")
            if which not in self._contexts:  # first, so that after a failure the terminal still accepts calls
                self._contexts[which] = certificate_context(self._settings, which)
            self.certificate = which
            self._ledger.add("certificate", which=which)
            await self._refuse()
            await self._settle()

    async def disconnect(self, *, goodbye: bool = False) -> None:
        """Refuse calls, and end the announcement and the deliveries. `goodbye`: whether to announce the end."""
        self._poster.offline = True  # print webhooks are lost
        await self._refuse()
        await self._stop_announcing(goodbye=goodbye)
        await self._sender.stop()

    async def _settle(self) -> None:
        """Start or stop the listener, the deliveries and the printer as the switches require."""
        if not self.powered:
            await self.disconnect()
            await self.printer.stop()
            return
        self.printer.start()
        if not self._plugged:
            await self.disconnect()
            return
        try:
            self._listen()
        except SettingsError:  # another program uses the address; `set_plugged` works again when the address is free
            self._plugged = False
            self._ledger.add("unplugged")
            await self.disconnect()
            raise
        self._poster.offline = False
        self._sender.start()

    def _listen(self) -> None:
        """Start to listen and to announce, unless the terminal already does. Raise SettingsError."""
        assert self._bound is not None  # noqa: S101 - it is bound at the start
        if self._listener is None:
            listener = Listener(self._app, self._contexts[self.certificate], clock_offset=self._settings.clock_offset)
            listener.start(self._bound)
            self._listener = listener
        if self._settings.mdns and self._announcing is None:
            work = announce(self._settings, self._ledger, self._addresses(), self._port, lambda: self._says_goodbye)
            self._announcing = asyncio.create_task(work)

    async def _refuse(self) -> None:
        """Close every connection and refuse calls. The address stays bound."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.close()
            self._bind(self._port)
            await listener.stop()

    def _bind(self, port: int) -> None:
        """Bind a port without listening. Raise SettingsError if it is not available."""
        bound = bind(self._settings.host, port)
        if self._bound is not None:
            self._bound.close()
        self._bound, self._port = bound, bound.getsockname()[1]

    async def _stop_announcing(self, *, goodbye: bool = False) -> None:
        if self._announcing is not None:
            announcing, self._announcing, self._says_goodbye = self._announcing, None, goodbye
            await cancel([announcing])

    def _addresses(self) -> list[str]:
        return reachable_addresses(self._settings.host, self._settings.mdns_interfaces)

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        async with self._switching:
            with self._clock.held():  # the change takes real time, so virtual time stops during it
                yield
