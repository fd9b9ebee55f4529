"""Local CA: its limits, and its replacement by a new CA. Only commands import this module.

Terminals trust a root (`ca.crt`). The root's key signs one other CA, the signer, and is then deleted. The signer's key
stays (`ca.key`, with its certificate) and signs server certificates. The signer is limited to private networks, local
names and the machine's own names. The root has the same limits, but Java ignores the limits of a certificate in its
store.

A CA is valid for two years. Before its end a new CA is created with other keys, and waits (the overlap):

- terminals with the old root verify the server certificate with that root, as before;
- terminals with the new root verify by a cross-certificate, with which it signs the old root;
- at the end of the old CA, or at the operator's command, the new CA signs, and the old key is deleted.
"""

import ipaddress
import os
import secrets
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from posd.base.files import replace
from posd.base.times import released
from posd.tls.certificate import Subjects, Validity
from posd.tls.files import TlsError, TlsFiles, describe, fingerprint, there

#: Lifetime of a CA. The lifetime limits the use of a stolen key. The operator installs the new CA on the terminals
#: within the overlap.
CA_LIFETIME = timedelta(days=730)
#: Time by which the validity starts before the present. A terminal with a slow clock would refuse a certificate that
#: starts now.
BACKDATED = timedelta(days=1)
#: Maximum number of characters of an X.520 common name.
MAX_COMMON_NAME = 64

#: Networks of shops: RFC 1918, 6598 (shared), 3927 (link-local), 4193 (unique local), loopback.
NETWORKS = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8"),
    *("fc00::/7", "fe80::/10", "::1/128"),
)
#: Domains that are local to one network (RFC 6761, 6762, 8375; reserved by ICANN, or not delegated).
DOMAINS = ("localhost", "local", "localdomain", "lan", "home.arpa", "internal", "home", "corp")

#: Systemd credential with the key, if `ca.key` is missing.
CREDENTIAL = "posd-ca.key"

#: Certificate and key of the signer.
Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


class Authority(msgspec.Struct, frozen=True):
    """Root that terminals trust, its signer (in earlier versions the root itself), and the cross-certificate."""

    root: x509.Certificate
    issuer: Issuer
    cross: x509.Certificate | None = None

    @property
    def key_file(self) -> bytes:
        """Content of the key's file."""
        certificates = [self.issuer[0], *([self.cross] if self.cross else [])]
        return key_pem(self.issuer[1]) + b"".join(map(pem, certificates))


def now() -> datetime:
    """Return the time of the clock, but at least the release day.

    The clock of a machine without a battery starts in an earlier year.
    """
    return max(datetime.now(UTC), released())


def make_ca(own: Subjects, old: x509.Certificate | None = None) -> Authority:
    """Make a CA. `own`: names of this machine, which the CA may also sign.

    The CA signs a cross-certificate for the `old` root.
    """
    # A terminal may have the CAs of several machines, and older CAs of this machine. Some clients fail with two CAs
    # that have the same name and different keys, so each CA has a new name.
    tag = f" {secrets.token_hex(4)}"
    named = name(f"posd CA {socket.gethostname()}"[: MAX_COMMON_NAME - len(tag)] + tag)
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    limits, start = _constraints(own), now() - BACKDATED
    end = start + CA_LIFETIME

    def signed(
        subject: x509.Name, public: CertificatePublicKeyTypes, *, below: int, until: datetime = end
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(named)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=below), critical=True)
            .add_extension(usage(signs_certificates=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
            .add_extension(limits, critical=True)
            .sign(root_key, SHA256())
        )

    root = signed(named, root_key.public_key(), below=2)
    signer = signed(name(f"posd signer{tag}"), key.public_key(), below=0)
    if old is None:
        return Authority(root, (signer, key))
    until = min(end, old.not_valid_after_utc)
    return Authority(root, (signer, key), signed(old.subject, old.public_key(), below=1, until=until))


def _constraints(own: Subjects) -> x509.NameConstraints:
    names = [x509.DNSName(text) for text in dict.fromkeys((*DOMAINS, *filter(_is_outside, own.names)))]
    networks = [ipaddress.ip_network(text) for text in NETWORKS]
    addresses = [ipaddress.ip_network(text) for text in own.addresses]
    networks += [item for item in addresses if not any(_within(item, home) for home in networks)]
    return x509.NameConstraints([*names, *map(x509.IPAddress, networks)], None)


def _is_outside(name: str) -> bool:
    return not any(f".{name.lower()}".endswith(f".{domain}") for domain in DOMAINS)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _within(network: Network, home: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(home, ipaddress.IPv4Network) and network.subnet_of(home)
    return isinstance(home, ipaddress.IPv6Network) and network.subnet_of(home)


def is_limited(ca: x509.Certificate) -> bool:
    """Return whether a CA is limited to certain names. CAs of earlier versions are not limited."""
    return any(isinstance(item.value, x509.NameConstraints) for item in ca.extensions)


def permitted(ca: x509.Certificate, subjects: Subjects) -> Subjects:
    """Return the names and addresses that a CA may sign. Clients refuse a certificate with other names."""
    try:
        trees = ca.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    except x509.ExtensionNotFound:
        return subjects
    domains = [item.value.lower() for item in trees if isinstance(item, x509.DNSName)]
    networks = [item.value for item in trees if isinstance(item, x509.IPAddress)]
    return Subjects(
        tuple(text for text in subjects.names if any(f".{text.lower()}".endswith(f".{item}") for item in domains)),
        tuple(
            text
            for text in subjects.addresses
            if any(
                # A single address is written as a network.
                isinstance(item, Network) and _within(ipaddress.ip_network(text), item)
                for item in networks
            )
        ),
    )


def begin_overlap(made: TlsFiles, own: Subjects) -> None:
    """Create the next CA if there is none. The caller holds the lock. Raise OSError."""
    if following(made) is None:
        new = make_ca(own, load_ca(made).root)
        replace(made.next_ca_key, new.key_file, mode=0o600)
        replace(made.next_ca_certificate, pem(new.root), mode=0o644)


def end_overlap(made: TlsFiles) -> None:
    """Make the next CA the signer, and delete the old key. The caller holds the lock. Raise OSError."""
    replace(made.new_ca, (fingerprint(made.next_ca_certificate) or "").encode())
    made.next_ca_key.replace(made.ca_key)
    made.next_ca_certificate.replace(made.ca_certificate)


def finish(made: TlsFiles) -> None:
    """Complete an `end_overlap` or `begin_overlap` that a power loss interrupted. Raise OSError."""
    key, certificate = made.next_ca_key.exists(), made.next_ca_certificate.exists()
    if certificate and not key:
        made.next_ca_certificate.replace(made.ca_certificate)
    elif key and not certificate:
        made.next_ca_key.unlink()


def following(made: TlsFiles) -> Authority | None:
    """Return the next CA, or None. Raise TlsError."""
    return _load(made.next_ca_certificate, made.next_ca_key) if there(made.next_ca_certificate) else None


def load_ca(made: TlsFiles) -> Authority:
    """Return the present CA. Raise TlsError."""
    for path in (made.ca_certificate, made.ca_key):
        if not path.exists() and not (path == made.ca_key and _credential().exists()):
            raise TlsError(f"{path}: does not exist, though its other half does; {_CURE}")
    found = _load(made.ca_certificate, made.ca_key if made.ca_key.exists() else _credential())
    ca = describe(made.ca_certificate)
    if ca.validity(datetime.now(UTC)) is Validity.EXPIRED:
        raise TlsError(
            f"{made.ca_certificate}: the CA has expired ({ca.not_after:%Y-%m-%d}); make a new one with: posd tls init "
            "--force (each terminal then needs its ca.crt)"
        )
    return found


_CURE = "put both files back from a backup, or make a new CA with --force (each terminal then needs its ca.crt)"


def _credential() -> Path:
    return Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / CREDENTIAL


def _load(certificate_path: Path, key_path: Path) -> Authority:
    try:
        root = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        content = key_path.read_bytes()
        key = load_pem_private_key(content, password=None)
        below = x509.load_pem_x509_certificates(content) if b"-----BEGIN CERTIFICATE" in content else [root]
        root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise TlsError(f"the CA in {certificate_path} and {key_path} cannot be read ({error}); {_CURE}") from error
    signer, cross = below[0], below[1] if len(below) > 1 else None
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or key.public_key() != signer.public_key()
        or not signs(root, signer)
    ):
        raise TlsError(f"{key_path}: does not belong to {certificate_path}; {_CURE}")
    return Authority(root, (signer, key), cross)


def signs(ca: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether a CA signed a certificate."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def authority_of(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the extension that names a CA's key."""
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def name(common_name: str) -> x509.Name:
    """Return a name with only a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the allowed usage of a key: certificates, or the handshakes of a server."""
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


def pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
