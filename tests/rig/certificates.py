"""Certificates with one fault each, and servers that use them and record every received byte."""

import asyncio
import hashlib
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from posd.tls.issue import key_pem
from tests.rig.connections import serving
from tests.rig.waits import until

NOW = datetime.now(UTC)
LONG_AGO, YESTERDAY = NOW - timedelta(days=30), NOW - timedelta(days=1)
TOMORROW, LATER = NOW + timedelta(days=1), NOW + timedelta(days=30)


@dataclass(frozen=True)
class Leaf:
    """Files of a server certificate and its key, and the fingerprint."""

    certificate: Path
    private_key: Path

    @property
    def der(self) -> bytes:
        return x509.load_pem_x509_certificate(self.certificate.read_bytes()).public_bytes(Encoding.DER)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.der).hexdigest()

    def context(self) -> ssl.SSLContext:
        """Return a server context with the certificate, even if the certificate is invalid."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.private_key)
        return context


def issued(
    directory: Path, authority: trustme.CA, *names: str, not_before: datetime = YESTERDAY, not_after: datetime = LATER
) -> Leaf:
    """Return a certificate for these names and addresses, signed by a CA."""
    made = authority.issue_cert(*names, not_before=not_before, not_after=not_after)
    chain = b"".join(pem.bytes() for pem in made.cert_chain_pems)
    return _written(directory, chain, made.private_key_pem.bytes())


def self_signed(directory: Path, *names: str) -> Leaf:
    """Return a self-signed certificate that is not a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _begun("terminal", "terminal", key, *names).sign(key, SHA256())
    return _written(directory, certificate.public_bytes(Encoding.PEM), key_pem(key))


def _begun(issuer: str, subject: str, key: ec.EllipticCurvePrivateKey, *names: str) -> x509.CertificateBuilder:
    """Begin a certificate for these names and addresses. A CA has none."""
    issued_by, named = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (issuer, subject))
    builder = x509.CertificateBuilder(issued_by, named, key.public_key(), x509.random_serial_number(), YESTERDAY, LATER)
    if not names:
        return builder
    return builder.add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False)


def _written(directory: Path, certificate: bytes, key: bytes) -> Leaf:
    leaf = Leaf(directory / "leaf.crt", directory / "leaf.key")
    leaf.certificate.write_bytes(certificate)
    leaf.private_key.write_bytes(key)
    return leaf


def public_key_sha256(der: bytes) -> str:
    """Return the SHA-256 of a certificate's public key. The code is independent of posd."""
    key = x509.load_der_x509_certificate(der).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


@dataclass
class Recorder:
    """A TLS server that never replies. `received` holds the bytes of each connection."""

    received: list[bytes] = field(default_factory=list)
    port: int = 0
    _open: int = 0

    @property
    def base_url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read until the client closes or a head is complete."""
        self._open += 1
        data = bytearray()
        with suppress(OSError):
            while b"\r\n\r\n" not in data and (part := await reader.read(65536)):
                data += part
        self.received.append(bytes(data))
        self._open -= 1

    async def quiet(self) -> None:
        """Wait until no connection is open."""
        await until(lambda: not self._open)


@asynccontextmanager
async def recording(context: ssl.SSLContext) -> AsyncIterator[Recorder]:
    """Run a recorder on loopback for the block."""
    recorder = Recorder()
    async with serving(recorder.serve, tls=context) as recorder.port:
        yield recorder


@dataclass(frozen=True)
class PrivateCa:
    """A private CA of a shop or vendor, without extensions that strict rules require (RFC 5280)."""

    key_usage: bool = True
    critical: bool = True
    identifiers: bool = True
    path_length: int | None = None

    def write(self, directory: Path, *names: str) -> tuple[Path, Leaf]:
        """Make the CA and a server certificate for these names. Return the CA's file and the certificate."""
        directory.mkdir(parents=True, exist_ok=True)
        authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        root = _begun("shop CA", "shop CA", authority).add_extension(
            x509.BasicConstraints(ca=True, path_length=self.path_length), critical=self.critical
        )
        if self.key_usage:  # keyCertSign and cRLSign
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            root = root.add_extension(usage, critical=True)
        leaf = _begun("shop CA", "terminal", own, *names)
        if self.identifiers:
            identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
            root = root.add_extension(identifier, critical=False)
            by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
            leaf = leaf.add_extension(by, critical=False)
        (directory / "ca.key").write_bytes(key_pem(authority))
        (directory / "ca.pem").write_bytes(root.sign(authority, SHA256()).public_bytes(Encoding.PEM))
        signed = leaf.sign(authority, SHA256()).public_bytes(Encoding.PEM)
        return directory / "ca.pem", _written(directory, signed, key_pem(own))


def _alternative(text: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    return x509.DNSName(text)


#: Private CAs that strict rules refuse. The default verification of Python accepted such CAs until version 3.12.
OLD_STYLE = {
    "not critical": PrivateCa(critical=False),
    "no key usage": PrivateCa(key_usage=False),
    "no key identifiers": PrivateCa(identifiers=False),
}
