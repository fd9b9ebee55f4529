"""Network of a terminal: its address, its listener, its announcement and the certificate that it shows."""

import asyncio
import ipaddress
import itertools
import socket
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ifaddr
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from starlette.applications import Starlette
from zeroconf import Error, InterfaceChoice, NonUniqueNameException, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from posd.simulator.clock import cancel
from posd.simulator.journal import SettingsError
from posd.simulator.ledger import Ledger
from posd.simulator.listener import Listener, bind, server_context
from posd.simulator.scenario import Certificate
from posd.simulator.settings import Settings

#: Type of service that a terminal announces over mDNS.
SERVICE_TYPE = "_card-terminal._tcp.local."
#: Name in a certificate of another terminal.
WRONG_NAME = "another-terminal.invalid"
#: Lifetime of generated certificates: within the limit of strict clients.
LIFETIME = timedelta(days=397)
#: Age of an expired certificate: longer than the error of any clock.
EXPIRED_FOR = timedelta(days=30)

_Issuer = tuple[x509.Name, CertificateIssuerPrivateKeyTypes]


class NotPossible(RuntimeError):
    """Action that the terminal cannot perform; the message has the reason and an alternative."""


class Network:
    """One address, bound from beginning to end, so that a terminal returns to it after an outage."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        """Bind the first address, without listening. Raise SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._certificates = _certificates(settings)
        #: Certificate for the next `listen`.
        self.certificate = Certificate.OWN
        self._ports: Iterator[int] = itertools.cycle(settings.move_ports or (0,))
        self._listener: Listener | None = None
        self._announcer: Announcer | None = None
        self._bound: socket.socket = bind(settings.host, settings.port)
        self._port: int = self._bound.getsockname()[1]

    @property
    def base_url(self) -> str:
        """Base URL of the terminal, without a slash at the end."""
        return url("http" if self._certificates is None else "https", self._addresses()[0], self._port)

    async def up(self, app: Starlette) -> None:
        """Listen and announce. Raise SettingsError if another program listens there."""
        await self.listen(app)
        if self._settings.mdns and self._announcer is None:
            self._announcer = Announcer(self._settings, self._ledger, self._addresses(), self._port)

    async def listen(self, app: Starlette) -> None:
        """Start listening, unless it already listens."""
        if self._listener is None:
            tls = None if self._certificates is None else self._certificates.context(self.certificate)
            listener = Listener(app, tls, clock_offset=self._settings.clock_offset)
            listener.start(self._bound)
            self._listener = listener

    async def refuse(self) -> None:
        """Close every connection and refuse calls; the address stays bound."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.close()
            self._bound = bind(self._settings.host, self._port)
            await listener.stop()

    async def down(self, *, goodbye: bool = False) -> None:
        """Refuse calls and end the announcement; `goodbye`: announce its end."""
        await self.refuse()
        if self._announcer is not None:
            announcer, self._announcer = self._announcer, None
            await announcer.stop(goodbye=goodbye)

    def move(self) -> None:
        """Bind the next address; the network must be down. Raise SettingsError if it is not available."""
        bound = bind(self._settings.host, next(self._ports))
        self._bound.close()
        self._bound, self._port = bound, bound.getsockname()[1]

    def choose(self, which: Certificate) -> None:
        """Set the certificate for the next `listen`. Raise NotPossible, SettingsError."""
        if self._certificates is None:
            raise NotPossible("this terminal speaks plain HTTP and shows no certificate: leave out --http")
        self._certificates.context(which)  # loaded here, so that a failure does not leave the listener down
        self.certificate = which

    async def close(self) -> None:
        """Announce the end, and release the address."""
        await self.down(goodbye=True)
        self._bound.close()

    def _addresses(self) -> list[str]:
        return reachable_addresses(self._settings.host, self._settings.mdns_interfaces)


def url(scheme: str, host: str, port: int) -> str:
    """Return the URL of an IP address, without a slash at the end."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def reachable_addresses(host: str, interfaces: Sequence[str]) -> list[str]:
    """Return the addresses at which a listener on `host` can be called, the best first.

    A listener on every address has those of the chosen interfaces, else all of this machine's: loopback last, without
    link-local ones.
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


class Announcer:
    """mDNS announcement of the terminal, named by its serial, in the background: it takes over a second."""

    def __init__(self, settings: Settings, ledger: Ledger, addresses: list[str], port: int) -> None:
        self._interfaces = settings.mdns_interfaces
        self._ledger = ledger
        self._info = ServiceInfo(
            SERVICE_TYPE,
            f"{settings.serial}.{SERVICE_TYPE}",
            port=port,
            properties={"serial": settings.serial, "brand": settings.brand, "model": settings.model},
            server=f"terminal-{settings.serial}.local.",
            parsed_addresses=addresses,
        )
        self._zeroconf: AsyncZeroconf | None = None
        self._registering = asyncio.create_task(self._register())

    async def stop(self, *, goodbye: bool) -> None:
        """Close; a terminal without power or network sends no goodbye."""
        await cancel([self._registering])
        if self._zeroconf is not None:
            registry = self._zeroconf.zeroconf.registry
            if not goodbye:  # the close sends it for registered services
                registry.async_remove(registry.async_get_service_infos())
            await self._zeroconf.async_close()

    async def _register(self) -> None:
        """Announce. Without multicast on the LAN the failure is recorded and the terminal continues."""
        try:
            for address in self._interfaces:
                _check_local(address)
            self._zeroconf = AsyncZeroconf(interfaces=list(self._interfaces) or InterfaceChoice.All)
            await (await self._zeroconf.async_register_service(self._info))
        except NonUniqueNameException:
            self._ledger.add("mdns", result="failed", detail="another terminal with this serial is on the LAN")
        except (OSError, Error, RuntimeError) as error:
            self._ledger.add("mdns", result="failed", detail=f"cannot announce over mDNS: {error}")
        else:
            self._ledger.add("mdns", result="announced", detail=self._info.name)


def _check_local(address: str) -> None:
    """Raise OSError if no interface has this address; zeroconf detects it too late to close its sockets."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))


class Certificates:
    """TLS contexts by certificate: the terminal's own, and those that no client should trust.

    The others are generated at first use, and stay the same for the life of the process.
    """

    def __init__(self, certificate: Path, private_key: Path, ca: tuple[Path, Path] | None) -> None:
        """Load the terminal's own pair. `ca`: certificate and key of its CA; without it one is generated.

        Raise SettingsError.
        """
        self._own = server_context(certificate, private_key)
        self._certificate = certificate
        self._ca = ca
        self._made: dict[Certificate, ssl.SSLContext] = {}

    def context(self, which: Certificate) -> ssl.SSLContext:
        """Return the context with this certificate. Raise SettingsError if the CA cannot be used."""
        if which is Certificate.OWN:
            return self._own
        if which not in self._made:
            self._made[which] = self._make(which)
        return self._made[which]

    def _make(self, which: Certificate) -> ssl.SSLContext:
        try:
            own = x509.load_pem_x509_certificate(self._certificate.read_bytes())
            issuer = self._issuer()
        except (OSError, ValueError, TypeError) as error:
            raise SettingsError(f"no {which} certificate can be made: {error}") from error
        key = ec.generate_private_key(ec.SECP256R1())
        if which is Certificate.SELF_SIGNED:
            issuer = own.subject, key
        begin = datetime.now(UTC) - timedelta(days=1)
        if which is Certificate.EXPIRED:
            begin -= LIFETIME + EXPIRED_FOR
        return _serving(_signed(own, key, issuer, begin, wrong_name=which is Certificate.WRONG_NAME), key)

    def _issuer(self) -> _Issuer:
        """Return the CA's name and key; generate one without a given CA."""
        if self._ca is None:
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Simulated terminals CA")])
            return name, ec.generate_private_key(ec.SECP256R1())
        certificate, private_key = self._ca
        ca = x509.load_pem_x509_certificate(certificate.read_bytes())
        key = load_pem_private_key(private_key.read_bytes(), password=None)
        return ca.subject, key  # type: ignore[return-value]  # a key that cannot sign is refused when it should


def _signed(
    own: x509.Certificate, key: ec.EllipticCurvePrivateKey, issuer: _Issuer, begin: datetime, *, wrong_name: bool
) -> x509.Certificate:
    """Return a signed certificate for the names of the terminal's own one, or for a wrong one."""
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
    plain = isinstance(signing_key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    return builder.sign(signing_key, None if plain else SHA256())


def _names(own: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _serving(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    """Return the context. `ssl` loads a key only from a file; the file is removed at once."""
    with tempfile.TemporaryDirectory(prefix="posd-simulate-") as directory:
        chain, private_key = Path(directory) / "certificate.pem", Path(directory) / "key.pem"
        chain.write_bytes(certificate.public_bytes(Encoding.PEM))
        private_key.touch(mode=0o600)
        private_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return server_context(chain, private_key)


def _certificates(settings: Settings) -> Certificates | None:
    if settings.certificate is None or settings.private_key is None:
        return None
    ca = (
        None
        if settings.ca_certificate is None or settings.ca_private_key is None
        else (settings.ca_certificate, settings.ca_private_key)
    )
    return Certificates(settings.certificate, settings.private_key, ca)
