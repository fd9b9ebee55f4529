"""Certificates of the webhook listener: a local CA, a server certificate, and the context that serves it.

Terminals are given `ca.crt` once and then trust every server certificate that this machine makes; so the CA is kept
for as long as it can be, and only the server certificate is made anew. Both keys stay on this machine.

Importing this module costs only `ssl`: cryptography is imported by the functions that make or describe a certificate.
"""

import contextlib
import ipaddress
import os
import re
import secrets
import socket
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]

#: Terminals are handed the CA once, by hand: it outlives the POS machine.
CA_LIFETIME = timedelta(days=3652)
#: The longest that strict clients accept of a server certificate is 398 days; one day of margin.
SERVER_LIFETIME = timedelta(days=397)
#: Terminals' clocks run behind; a certificate that is valid only from this minute on would be refused by them.
BACKDATED = timedelta(days=1)
#: An X.520 common name has at most this many characters.
MAX_COMMON_NAME = 64

#: One host name as it can stand in a certificate: labels of letters, digits, hyphen and underscore.
HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")

# OpenSSL's X509_V_ERR numbers (x509_vfy.h); Python's ssl passes them on without naming them.
_NOT_YET_VALID = 9
_EXPIRED = 10


class TlsError(Exception):
    """A certificate or key cannot be made or used; the message names the file, the reason and the cure."""


class SubjectError(TlsError):
    """A name or address cannot stand in a certificate."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the files of one TLS directory lie. `certificate` holds the server certificate, then the CA's."""

    ca_certificate: Path
    ca_key: Path
    certificate: Path
    private_key: Path


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """What a certificate says about itself; times in UTC, the fingerprint in lower hex without colons."""

    subject: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint_sha256: str


def files(directory: Path) -> TlsFiles:
    """Name the files of `directory`, whether they exist or not."""
    return TlsFiles(directory / "ca.crt", directory / "ca.key", directory / "server.crt", directory / "server.key")


def init(directory: Path, *, names: Sequence[str], addresses: Sequence[str], overwrite: bool = False) -> TlsFiles:
    """Make the server certificate for `names` and `addresses`, and the CA where there is none yet.

    A CA that is there is kept, because the terminals trust it; `overwrite` makes a new one all the same, and every
    terminal then needs the new `ca.crt`. The directory gets mode 0700, keys 0600; each file appears whole or not at
    all. Blocking. Raises TlsError.
    """
    _check_subjects(names, addresses)
    made = files(directory)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        if overwrite or not (made.ca_certificate.exists() or made.ca_key.exists()):
            issuer = _make_ca()
            _write(made.ca_key, _key_pem(issuer[1]), mode=0o600)
            _write(made.ca_certificate, _pem(issuer[0]), mode=0o644)
        else:
            issuer = _load_ca(made)
        certificate, key = _make_server(issuer, names, addresses)
        _write(made.private_key, _key_pem(key), mode=0o600)
        # The CA follows the server certificate: a terminal that does not trust it yet can then say whose it is,
        # and a person can read it from the connection. Terminals that do trust it ignore the copy.
        _write(made.certificate, _pem(certificate) + _pem(issuer[0]), mode=0o644)
    except OSError as error:
        raise TlsError(
            f"cannot read or write the certificates in {directory}: {error.strerror or error}; "
            "run the command as the user of the daemon, or give the directory to that user"
        ) from error
    return made


def describe(certificate_path: Path) -> CertificateInfo:
    """Describe the first certificate of a PEM file. Raises TlsError."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        certificate = x509.load_pem_x509_certificate(_read(certificate_path, "certificate"))
    except ValueError as error:
        raise TlsError(f"certificate {certificate_path}: is not a PEM certificate ({error}); {_CURE}") from error
    try:
        subjects = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        subjects = x509.SubjectAlternativeName([])
    return CertificateInfo(
        subject=certificate.subject.rfc4514_string(),
        names=tuple(subjects.get_values_for_type(x509.DNSName)),
        addresses=tuple(str(address) for address in subjects.get_values_for_type(x509.IPAddress)),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint_sha256=certificate.fingerprint(SHA256()).hex(),
    )


def server_context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """Load a certificate with its key into a fresh server context (TLS 1.2 or newer, HTTP/1.1 by ALPN) and try it.

    Raises TlsError where a file is missing or unreadable, the two do not belong together, or the certificate is not
    valid at this moment or not for servers.
    """
    leaf = _read(certificate, "certificate")
    _read(private_key, "private key")

    def passphrase() -> str:
        raise TlsError(f"private key {private_key}: is encrypted; store it without a passphrase, with mode 0600")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, private_key, password=passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"private key {private_key}: does not belong to the certificate {certificate}; {_CURE}"
            ) from error
        raise TlsError(
            f"certificate {certificate} and private key {private_key}: cannot be read as PEM ({error}); {_CURE}"
        ) from error
    _try(context, certificate, leaf)
    return context


def local_addresses() -> list[str]:
    """List the addresses of this machine's interfaces, loopback among them, link-local ones left out."""
    import ifaddr

    found: dict[str, None] = {}
    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            text = entry.ip if isinstance(entry.ip, str) else entry.ip[0]
            address = ipaddress.ip_address(text.partition("%")[0])
            if not address.is_link_local:
                found[str(address)] = None
    return sorted(found, key=lambda text: (ipaddress.ip_address(text).version, ipaddress.ip_address(text).packed))


_CURE = "give the matching pair in [webhooks] certificate and private_key, or make one with: posd tls init"


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TlsError(f"{what} {path}: does not exist; {_CURE}") from error
    except OSError as error:
        raise TlsError(
            f"{what} {path}: cannot be read ({error.strerror}); make it readable for the user of the daemon"
        ) from error


def _try(context: ssl.SSLContext, certificate: Path, leaf: bytes) -> None:
    """Shake hands in memory with a client that trusts exactly this certificate; raise TlsError as it judges."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # which name a terminal calls is not known here
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    first = re.search(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----", leaf)
    if first is None:
        raise TlsError(f"certificate {certificate}: has no block BEGIN CERTIFICATE; {_CURE}")
    client.load_verify_locations(cadata=first[0].decode("ascii"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_side=False),
        context.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(3):  # a TLS handshake needs two flights from each side; one more than that
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        day = datetime.now(UTC).date().isoformat()
        reason = {
            _EXPIRED: f"has expired (today is {day})",
            _NOT_YET_VALID: f"is not valid yet (today is {day}; is the clock of this machine right?)",
        }.get(error.verify_code, f"would be refused by the terminals ({error.verify_message})")
        raise TlsError(f"certificate {certificate}: {reason}; {_CURE}") from error
    except ssl.SSLError as error:
        raise TlsError(f"certificate {certificate}: cannot be served over TLS ({error}); {_CURE}") from error


def _check_subjects(names: Sequence[str], addresses: Sequence[str]) -> None:
    if not names and not addresses:
        raise SubjectError("a server certificate needs at least one name or address; give --name or --address")
    for name in names:
        if _is_address(name):
            raise SubjectError(f"{name!r} is an address, not a name; give it as an address (--address)")
        if HOST_NAME.fullmatch(name) is None:
            raise SubjectError(f"{name!r} is not a host name; write it with letters, digits, hyphens and dots only")
    for address in addresses:
        if not _is_address(address):
            raise SubjectError(f"{address!r} is not an IP address; write it like 192.168.1.10, or give it as --name")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _make_ca() -> "Issuer":
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    # A terminal may know the CAs of several machines, and of this machine before it was set up anew: two CAs of the
    # same name but with different keys confuse some clients, so the name is new each time.
    tag = f" {secrets.token_hex(4)}"
    name = _name(f"posd CA {socket.gethostname()}"[: MAX_COMMON_NAME - len(tag)] + tag)
    key = ec.generate_private_key(ec.SECP256R1())
    start = datetime.now(UTC) - BACKDATED
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return certificate, key


def _make_server(issuer: "Issuer", names: Sequence[str], addresses: Sequence[str]) -> "Issuer":
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ca, ca_key = issuer
    key = ec.generate_private_key(ec.SECP256R1())
    start = datetime.now(UTC) - BACKDATED
    subjects: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(names)]
    subjects += [x509.IPAddress(ip) for ip in dict.fromkeys(ipaddress.ip_address(text) for text in addresses)]
    ca_identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name((*names, *addresses)[0][:MAX_COMMON_NAME]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(start, ca.not_valid_before_utc))
        .not_valid_after(min(start + SERVER_LIFETIME, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_identifier),
            critical=False,
        )
        .sign(ca_key, SHA256())
    )
    return certificate, key


def _load_ca(made: TlsFiles) -> "Issuer":
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    cure = "put both files back from a backup, or make a new CA with --force (each terminal then needs its ca.crt)"
    for path in (made.ca_certificate, made.ca_key):
        if not path.exists():
            raise TlsError(f"{path}: does not exist, though its other half does; {cure}")
    try:
        certificate = x509.load_pem_x509_certificate(made.ca_certificate.read_bytes())
        key = load_pem_private_key(made.ca_key.read_bytes(), password=None)
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise TlsError(f"the CA in {made.ca_certificate} and {made.ca_key} cannot be read ({error}); {cure}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise TlsError(f"{made.ca_key}: does not belong to {made.ca_certificate}; {cure}")
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        end = certificate.not_valid_after_utc.date().isoformat()
        raise TlsError(f"{made.ca_certificate}: the CA has expired ({end}); make a new one with --force")
    return certificate, key


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file so that it is there whole, with its mode, or as it was before; also after a power loss."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
