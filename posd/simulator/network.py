"""Where a terminal can be called: its address, the listener there, its announcement and the certificate it shows."""

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

#: The type of service that a terminal announces over mDNS.
SERVICE_TYPE = "_card-terminal._tcp.local."
#: The name in a certificate that is of another terminal.
WRONG_NAME = "another-terminal.invalid"
#: How long the made ones hold: within what strict clients take.
LIFETIME = timedelta(days=397)
#: How long an expired one has been so: longer than any clock is wrong.
EXPIRED_FOR = timedelta(days=30)

_Issuer = tuple[x509.Name, CertificateIssuerPrivateKeyTypes]


class NotPossible(RuntimeError):
    """The terminal cannot do what was asked of it; the message says why and what to do instead."""


class Network:
    """One address. It is held from the beginning to the end, so that a terminal that was away comes back to it."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        """Take the first address, without listening there. Raises SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._certificates = _certificates(settings)
        #: What is shown at the next `listen`.
        self.certificate = Certificate.OWN
        self._ports: Iterator[int] = itertools.cycle(settings.move_ports or (0,))
        self._listener: Listener | None = None
        self._announcer: Announcer | None = None
        self._bound: socket.socket = bind(settings.host, settings.port)
        self._port: int = self._bound.getsockname()[1]

    @property
    def base_url(self) -> str:
        """Where the terminal can be called, without a slash at the end."""
        return url("http" if self._certificates is None else "https", self._addresses()[0], self._port)

    async def up(self, app: Starlette) -> None:
        """Listen and announce. Raises SettingsError where another program listens there."""
        await self.listen(app)
        if self._settings.mdns and self._announcer is None:
            self._announcer = Announcer(self._settings, self._ledger, self._addresses(), self._port)

    async def listen(self, app: Starlette) -> None:
        """Listen, where it does not yet."""
        if self._listener is None:
            tls = None if self._certificates is None else self._certificates.context(self.certificate)
            listener = Listener(app, tls, clock_offset=self._settings.clock_offset)
            listener.start(self._bound)
            self._listener = listener

    async def refuse(self) -> None:
        """Close every connection and refuse calls; the address stays taken."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.close()
            self._bound = bind(self._settings.host, self._port)
            await listener.stop()

    async def down(self, *, goodbye: bool = False) -> None:
        """Refuse calls, and be announced no more; whether that is said tells `goodbye`."""
        await self.refuse()
        if self._announcer is not None:
            announcer, self._announcer = self._announcer, None
            await announcer.stop(goodbye=goodbye)

    def move(self) -> None:
        """Take the next address; the network must be down. Raises SettingsError where it cannot be had."""
        bound = bind(self._settings.host, next(self._ports))
        self._bound.close()
        self._bound, self._port = bound, bound.getsockname()[1]

    def choose(self, which: Certificate) -> None:
        """Choose what is shown from the next `listen` on. Raises NotPossible, SettingsError."""
        if self._certificates is None:
            raise NotPossible("this terminal speaks plain HTTP and shows no certificate: leave out --http")
        self._certificates.context(which)  # made now: it fails here, and not when the listener is down
        self.certificate = which

    async def close(self) -> None:
        """Say goodbye, and give the address back."""
        await self.down(goodbye=True)
        self._bound.close()

    def _addresses(self) -> list[str]:
        return reachable_addresses(self._settings.host, self._settings.mdns_interfaces)


def url(scheme: str, host: str, port: int) -> str:
    """Return the URL of an IP address, without a slash at the end."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def reachable_addresses(host: str, interfaces: Sequence[str]) -> list[str]:
    """Return the addresses at which a listener on `host` can be called, the best first.

    A listener on every address is called at those of the chosen interfaces, else at all of this machine's: loopback
    comes last and link-local addresses not at all.
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
    """Announces the terminal over mDNS, named by its serial number; in the background, for it takes over a second."""

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
        """Close; a terminal that has lost its power or its network says no goodbye."""
        await cancel([self._registering])
        if self._zeroconf is not None:
            registry = self._zeroconf.zeroconf.registry
            if not goodbye:  # the close says it for what is still registered
                registry.async_remove(registry.async_get_service_infos())
            await self._zeroconf.async_close()

    async def _register(self) -> None:
        """Announce. A LAN without multicast is no fault of the terminal: it is reported and the terminal goes on."""
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
    """Raise OSError where no interface has this address; zeroconf would find out too late to close its sockets."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))


class Certificates:
    """TLS contexts by the certificate that they show: the terminal's own, and those that no client should trust.

    The others are made when first asked for. One that was made stays the same for as long as the process lives.
    """

    def __init__(self, certificate: Path, private_key: Path, ca: tuple[Path, Path] | None) -> None:
        """Load the terminal's own pair. `ca` is certificate and key of its CA; without it one is made to sign with.

        Raises SettingsError.
        """
        self._own = server_context(certificate, private_key)
        self._certificate = certificate
        self._ca = ca
        self._made: dict[Certificate, ssl.SSLContext] = {}

    def context(self, which: Certificate) -> ssl.SSLContext:
        """Return the context that shows this certificate. Raises SettingsError where the CA cannot be used."""
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
        """Return the CA's name and key; of one that exists nowhere else, where none was given."""
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
    """Make a certificate for the names of the terminal's own one, or for a wrong one."""
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
    """Make the context; `ssl` loads a key from a file alone, which is gone again when this returns."""
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
