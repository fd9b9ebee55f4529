"""Creation and check of certificates. Only commands import this module, because the library cryptography takes too much
memory for the daemon.

`make_ca` and `make_server` follow the rules of strict clients (RFC 5280, and the CA/Browser Forum's limits on server
certificates). These rules are: version 3, key usages, basic constraints, key identifiers, and addresses as IP
addresses.

Terminals trust a root (`ca.crt`). The root's key signs one other CA, the signer, and is then deleted. The signer's key
stays (`ca.key`, with its certificate) and signs server certificates. The signer is limited to private networks, local
names and the machine's own names. The root has the same limits, but Java ignores the limits of a certificate in its
store.

A CA is valid for two years. Before its end a new CA is created with other keys, and waits (the overlap):

- terminals with the old root verify the server certificate with that root, as before;
- terminals with the new root verify by a cross-certificate, in which the new root signs the old root;
- at the end of the old CA, or at the operator's command, the new CA signs, and the old key is deleted.
"""

import ipaddress
import os
import secrets
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
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
from posd.config.values import HOST_NAME, is_address
from posd.tls import certificate
from posd.tls.certificate import (
    OVERLAP_DAYS,
    CertificateInfo,
    Subjects,
    Validity,
    has_followed,
    local_addresses,
    local_names,
)
from posd.tls.files import (
    SubjectError,
    TlsError,
    TlsFiles,
    describe,
    files_in,
    fingerprint,
    given,
    make_directory,
    read,
    there,
    write_given,
    writing,
)

# The local CA.

#: Lifetime of a CA. The lifetime limits the use of a stolen key. The operator installs the new CA on the terminals
#: within the overlap.
CA_LIFETIME = timedelta(days=730)
#: The validity of a new certificate starts this long before the present. A terminal with a slow clock would refuse a
#: certificate that starts now.
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

#: Name of the systemd credential that has the key if `ca.key` is missing.
CREDENTIAL = "posd-ca.key"

#: Certificate and key of the signer.
Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


class Authority(msgspec.Struct, frozen=True):
    """CA: the root that terminals trust, its signer (in earlier versions the root itself), the cross-certificate."""

    root: x509.Certificate
    issuer: Issuer
    cross: x509.Certificate | None = None

    @property
    def key_file(self) -> bytes:
        """Content of `ca.key`: the key of the signer, its certificate, and the cross-certificate."""
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
    named = _named(f"posd CA {socket.gethostname()}"[: MAX_COMMON_NAME - len(tag)] + tag)
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
    signer = signed(_named(f"posd signer{tag}"), key.public_key(), below=0)
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
    """Return those of `subjects` that a CA may sign. Clients refuse a certificate with other names."""
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
    """Replace the CA and its key by the next CA and its key. The caller holds the lock. Raise OSError."""
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
            raise TlsError(f"{path}: does not exist, but the other file of the pair does; {_CURE}")
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
    """Return the extension that names the key of a certificate's CA."""
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _named(common_name: str) -> x509.Name:
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


# Server certificates.

#: Lifetime of a server certificate. Strict clients accept at most 398 days, and one day is a margin.
SERVER_LIFETIME = timedelta(days=397)


def init(
    directory: Path,
    *,
    names: Sequence[str],
    addresses: Sequence[str],
    given: Subjects | None = None,
    overwrite: bool = False,
) -> TlsFiles:
    """Create the server certificate for `names` and `addresses`, and the CA if there is none.

    An existing CA is kept, because the terminals trust it. With `overwrite` a new CA is created, and every terminal
    then needs the new `ca.crt`. `given`: the names that renewals keep, because the operator chose them (default: all of
    `names` and `addresses`). The directory has mode 0700, and keys have 0600. Each file is written atomically. The call
    blocks. Raise TlsError.
    """
    subjects = Subjects(tuple(names), tuple(addresses))
    _check_subjects(subjects)
    made = files_in(directory)
    make_directory(directory)
    with writing(directory):
        finish(made)
        if overwrite or not (made.ca_certificate.exists() or made.ca_key.exists()):
            ca = make_ca(subjects | Subjects(tuple(local_names()), tuple(local_addresses())))
            for path in (made.next_ca_certificate, made.next_ca_key):
                path.unlink(missing_ok=True)
            if overwrite:
                replace(made.new_ca, ca.root.fingerprint(SHA256()).hex().encode())
            replace(made.ca_key, ca.key_file, mode=0o600)
            replace(made.ca_certificate, pem(ca.root), mode=0o644)
        else:
            ca = load_ca(made)
            _check_permitted(made, ca.root, subjects if given is None else given)
        key = ec.generate_private_key(ec.SECP256R1())
        chain = _chain(made, ca, key, subjects)
        write_given(made, subjects if given is None else given)
        replace(made.private_key, key_pem(key), mode=0o600)
        replace(made.certificate, chain, mode=0o644)
    return made


def renew(
    directory: Path, *, new_ca: bool = False, end_old_ca: bool = False, called: Subjects | None = None
) -> TlsFiles:
    """Create a new server certificate with the same key, for the present names of this machine.

    The names from `init` are kept. Only one file of the served pair is replaced, so that no reader sees a mismatched
    pair. Near the end of the CA, or with `new_ca`, the next CA is created. At the end of the CA, or with `end_old_ca`,
    the next CA signs. `called`: the names of this machine in terminals' calls. A new CA may also sign these names. The
    call blocks. Raise TlsError.
    """
    made = files_in(directory)
    if not there(made.certificate) and not there(made.ca_certificate):
        raise TlsError(f"there is no certificate in {directory} yet; make one with: posd tls init")
    with writing(directory):
        finish(made)
        subjects = _kept(made) | Subjects(tuple(local_names()), tuple(local_addresses()))
        if (next_ca := following(made)) is None and end_old_ca:
            raise TlsError("no new CA was made yet: posd tls renew --new-ca; then put it on every terminal")
        if next_ca is not None and (
            end_old_ca or has_followed(describe(made.ca_certificate), describe(made.next_ca_certificate), now())
        ):
            end_overlap(made)
        ca = load_ca(made)
        if new_ca or certificate.ca_reasons(describe(made.ca_certificate), now()):
            begin_overlap(made, subjects if called is None else subjects | called)
        replace(made.certificate, _chain(made, ca, _load_key(made.private_key), subjects), mode=0o644)
    return made


def ca_reasons(made: TlsFiles) -> tuple[str, ...]:
    """Return the reasons to create the next CA, if any. Raise TlsError."""
    if there(made.next_ca_certificate) or not there(made.ca_certificate):
        return ()
    return certificate.ca_reasons(describe(made.ca_certificate), now())


def _check_permitted(made: TlsFiles, ca: x509.Certificate, given: Subjects) -> None:
    """Raise SubjectError for a name that the CA cannot sign."""
    found = permitted(ca, given)
    names = tuple(item for item in given.names if item not in found.names)
    addresses = tuple(item for item in given.addresses if item not in found.addresses)
    if left := Subjects(names, addresses):
        raise SubjectError(
            f"the CA in {made.ca_certificate} cannot certify {left}: it is limited to private networks, local names "
            "and the names that this machine had when it was made; make a new CA with --force (each terminal then "
            "needs its ca.crt)"
        )


def _kept(made: TlsFiles) -> Subjects:
    """Return the names from `init`. If they were not stored, return the names in the certificate."""
    named = given(made)
    if named is not None:
        return named
    present = describe(made.certificate)
    return Subjects(present.names, present.addresses)


def _chain(made: TlsFiles, ca: Authority, key: ec.EllipticCurvePrivateKey, subjects: Subjects) -> bytes:
    """Return the served chain (PEM): the server certificate, and its CA.

    With the CA in the chain, a terminal that does not trust the CA can show the name of the CA, and the operator can
    read the CA from the connection. Terminals that trust the CA ignore the copy. In an overlap the cross-certificate is
    between the two. Raise TlsError.
    """
    next_ca = following(made)
    for root in [ca.root] if next_ca is None else [ca.root, next_ca.root]:
        subjects = permitted(root, subjects)
    if not subjects:
        raise TlsError(
            f"the CA in {made.ca_certificate} can certify none of the names and addresses of this machine; make a "
            "new CA with --force (each terminal then needs its ca.crt)"
        )
    signer = ca.issuer[0]
    chain = [make_server(ca.issuer, key, subjects), *([] if signer == ca.root else [signer])]
    if next_ca is None or next_ca.cross is None:
        chain.append(ca.root)
    else:
        chain += [next_ca.cross, next_ca.root]
    return b"".join(map(pem, chain))


def ca_finding(made: TlsFiles, now: datetime) -> tuple[str, CertificateInfo]:
    """Check the CA of a folder: its dates, whether the next CA waits, and its limits. Raise TlsError.

    Return the finding (a `Validity`, "next_ca" or "unlimited_ca") and the description of the CA.
    """
    ca = describe(made.ca_certificate)
    found = ca.validity(now, OVERLAP_DAYS)
    if found in (Validity.VALID, Validity.ENDS) and made.next_ca_certificate.exists():
        return "next_ca", ca
    try:
        limited = is_limited(x509.load_pem_x509_certificate(made.ca_certificate.read_bytes()))
    except ValueError as error:
        raise TlsError(f"certificate {made.ca_certificate}: has extensions that cannot be read ({error})") from error
    return ("unlimited_ca" if found is Validity.VALID and not limited else found), ca


def chain_finding(certificate_path: Path) -> tuple[str, int, str]:
    """Check a chain of the shop's own PKI. Return the finding, the number of certificates, and the last issuer.

    Findings: "own_chain", "broken_chain", or "leaf_alone" if the CA is missing.
    """
    chain = x509.load_pem_x509_certificates(certificate_path.read_bytes())
    found = "leaf_alone" if len(chain) == 1 and chain[0].issuer != chain[0].subject else "own_chain"
    if not all(signs(above, below) for below, above in pairwise(chain)):
        found = "broken_chain"
    return found, len(chain), chain[-1].issuer.rfc4514_string()


def issued_by(certificate_path: Path, ca_path: Path) -> bool:
    """Return whether the chain in a PEM file leads to a CA. Raise TlsError if a certificate cannot be read."""
    chain, root = read(certificate_path, "certificate"), read(ca_path, "CA certificate")
    try:
        ca = x509.load_pem_x509_certificate(root)
        at, *others = x509.load_pem_x509_certificates(chain)
    except ValueError:
        return False
    for above in others:
        if signs(ca, at) or not signs(above, at):
            break
        at = above
    return signs(ca, at)


def _check_subjects(subjects: Subjects) -> None:
    if not subjects:
        raise SubjectError("a server certificate needs at least one name or address; give --name or --address")
    for name in subjects.names:
        if is_address(name):
            raise SubjectError(f"{name!r} is an address, not a name; give it as an address (--address)")
        if HOST_NAME.fullmatch(name) is None:
            raise SubjectError(f"{name!r} is not a host name; write it with letters, digits, hyphens and dots only")
    for address in subjects.addresses:
        if not is_address(address):
            raise SubjectError(f"{address!r} is not an IP address; write it like 192.168.1.10, or give it as --name")


def make_server(issuer: Issuer, key: ec.EllipticCurvePrivateKey, subjects: Subjects) -> x509.Certificate:
    """Create the server certificate of a key, for these names and addresses, signed by `issuer`."""
    ca, ca_key = issuer
    start = now() - BACKDATED
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(subjects.names)]
    addresses = dict.fromkeys(ipaddress.ip_address(text) for text in subjects.addresses)
    alternatives += [x509.IPAddress(address) for address in addresses]
    return (
        x509.CertificateBuilder()
        .subject_name(_named(_common_name(subjects)))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(start, ca.not_valid_before_utc))
        .not_valid_after(min(start + SERVER_LIFETIME, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority_of(ca), critical=False)
        .sign(ca_key, SHA256())
    )


def _common_name(subjects: Subjects) -> str:
    """Return the first DNS name, or without one a common name with spaces.

    OpenSSL takes a common name without spaces for a DNS name.
    """
    return subjects.names[0][:MAX_COMMON_NAME] if subjects.names else f"posd at {subjects.addresses[0]}"


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    cure = "make a new pair with: posd tls init (the CA is kept, so the terminals still trust it)"
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise TlsError(f"private key {path}: does not exist; {cure}") from error
    except (ValueError, TypeError) as error:
        raise TlsError(f"private key {path}: cannot be read as PEM ({error}); {cure}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TlsError(f"private key {path}: is not one that posd tls init made; {cure}")
    return key
