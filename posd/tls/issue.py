"""Make, describe and judge certificates. Only commands import this: cryptography costs the daemon too much.

What strict clients ask of a chain (RFC 5280, and the CA/Browser Forum's limits on server certificates) is in
`make_ca` and `make_server`: version 3, key usages, basic constraints, key identifiers, addresses as addresses.
"""

import ipaddress
import secrets
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from posd.base.times import released
from posd.tls import served
from posd.tls.files import (
    CURE,
    SubjectError,
    TlsError,
    TlsFiles,
    files,
    given,
    make_directory,
    read,
    there,
    write,
    write_given,
    writing,
)
from posd.tls.required_names import (
    HOST_NAME,
    RENEWAL_DAYS,
    CertificateInfo,
    Subjects,
    is_address,
    local_addresses,
    local_names,
    missing,
)

#: Terminals are handed the CA once, by hand: it outlives the POS machine.
CA_LIFETIME = timedelta(days=3652)
#: The longest that strict clients accept of a server certificate is 398 days; one day of margin.
SERVER_LIFETIME = timedelta(days=397)
#: Terminals' clocks run behind; a certificate that is valid only from this minute on would be refused by them.
BACKDATED = timedelta(days=1)
#: An X.520 common name has at most this many characters.
MAX_COMMON_NAME = 64

Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _now() -> datetime:
    """Return the clock, or when this version was made: a machine without a battery begins in another year."""
    return max(datetime.now(UTC), released())


def init(
    directory: Path,
    *,
    names: Sequence[str],
    addresses: Sequence[str],
    given: Subjects | None = None,
    overwrite: bool = False,
) -> TlsFiles:
    """Make the server certificate for `names` and `addresses`, and the CA where there is none yet.

    A CA that is there is kept, because the terminals trust it; `overwrite` makes a new one all the same, and every
    terminal then needs the new `ca.crt`. `given` is what a person named (all of it, where left out): renewals keep it.
    The directory gets mode 0700, keys 0600; each file appears whole or not at all. Blocking. Raises TlsError.
    """
    subjects = Subjects(tuple(names), tuple(addresses))
    _check(subjects)
    made = files(directory)
    make_directory(directory)
    with writing(directory):
        if overwrite or not (made.ca_certificate.exists() or made.ca_key.exists()):
            issuer = make_ca()
            write(made.ca_key, _key_pem(issuer[1]), mode=0o600)
            write(made.ca_certificate, _pem(issuer[0]), mode=0o644)
        else:
            issuer = _load_ca(made)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = make_server(issuer, key, subjects)
        write_given(made, subjects if given is None else given)
        write(made.private_key, _key_pem(key), mode=0o600)
        _write_chain(made, certificate, issuer)
    return made


def renew(directory: Path) -> TlsFiles:
    """Make the server certificate anew with the same key and CA, for what this machine is called now.

    What was named at `init` stays in it. Only one file is replaced, so that no reader ever sees a pair that does not
    fit. Blocking. Raises TlsError.
    """
    made = files(directory)
    if not there(made.certificate) and not there(made.ca_certificate):
        raise TlsError(f"there is no certificate in {directory} yet; make one with: posd tls init")
    with writing(directory):
        issuer = _load_ca(made)
        subjects = _kept(made) | Subjects(tuple(local_names()), tuple(local_addresses()))
        _write_chain(made, make_server(issuer, _load_key(made.private_key), subjects), issuer)
    return made


def _kept(made: TlsFiles) -> Subjects:
    """Return what a person named at `init`; where that was not written down, all that the certificate carries."""
    named = given(made)
    if named is not None:
        return named
    present = describe(made.certificate)
    return Subjects(present.names, present.addresses)


def _write_chain(made: TlsFiles, certificate: x509.Certificate, issuer: Issuer) -> None:
    # The CA follows the server certificate: a terminal that does not trust it yet can then say whose it is,
    # and a person can read it from the connection. Terminals that do trust it ignore the copy.
    write(made.certificate, _pem(certificate) + _pem(issuer[0]), mode=0o644)


def describe(certificate_path: Path) -> CertificateInfo:
    """Describe the first certificate of a PEM file. Raises TlsError."""
    try:
        certificate = x509.load_pem_x509_certificate(read(certificate_path, "certificate"))
    except ValueError as error:
        raise TlsError(f"certificate {certificate_path}: is not a PEM certificate ({error}); {CURE}") from error
    return _described(certificate)


def describe_der(certificate: bytes) -> CertificateInfo:
    """Describe a certificate in DER form. Raises TlsError where it is none."""
    try:
        return _described(x509.load_der_x509_certificate(certificate))
    except ValueError as error:
        raise TlsError(f"what the other side showed is no certificate ({error})") from error


def issued_by(certificate_path: Path, ca_path: Path) -> bool:
    """Whether the first certificate of a PEM file was signed by a CA. Raises TlsError where one cannot be read."""
    certificate, ca = read(certificate_path, "certificate"), read(ca_path, "CA certificate")
    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _described(certificate: x509.Certificate) -> CertificateInfo:
    try:
        subjects = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        subjects = x509.SubjectAlternativeName([])
    return CertificateInfo(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=tuple(subjects.get_values_for_type(x509.DNSName)),
        addresses=tuple(str(address) for address in subjects.get_values_for_type(x509.IPAddress)),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint_sha256=certificate.fingerprint(SHA256()).hex(),
    )


def _check(subjects: Subjects) -> None:
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


def make_ca() -> Issuer:
    """Make a CA certificate and its key."""
    # A terminal may know the CAs of several machines, and of this machine before it was set up anew: two CAs of the
    # same name but with different keys confuse some clients, so the name is new each time.
    tag = f" {secrets.token_hex(4)}"
    name = _name(f"posd CA {socket.gethostname()}"[: MAX_COMMON_NAME - len(tag)] + tag)
    key = ec.generate_private_key(ec.SECP256R1())
    start = _now() - BACKDATED
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


def make_server(issuer: Issuer, key: ec.EllipticCurvePrivateKey, subjects: Subjects) -> x509.Certificate:
    """Make the server certificate of a key, for these names and addresses. Raises TlsError where the CA has ended."""
    ca, ca_key = issuer
    start = _now() - BACKDATED
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(subjects.names)]
    addresses = dict.fromkeys(ipaddress.ip_address(text) for text in subjects.addresses)
    alternatives += [x509.IPAddress(address) for address in addresses]
    ca_identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .subject_name(_name((*subjects.names, *subjects.addresses)[0][:MAX_COMMON_NAME]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(start, ca.not_valid_before_utc))
        .not_valid_after(min(start + SERVER_LIFETIME, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_identifier),
            critical=False,
        )
        .sign(ca_key, SHA256())
    )


def _load_ca(made: TlsFiles) -> Issuer:
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
        raise TlsError(
            f"{made.ca_certificate}: the CA has expired ({end}); make a new one with: posd tls init --force "
            "(each terminal then needs its ca.crt)"
        )
    return certificate, key


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    cure = "make a new pair with: posd tls init (the CA is kept, the terminals go on trusting it)"
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise TlsError(f"private key {path}: does not exist; {cure}") from error
    except (ValueError, TypeError) as error:
        raise TlsError(f"private key {path}: cannot be read as PEM ({error}); {cure}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TlsError(f"private key {path}: is not one that posd tls init made; {cure}")
    return key


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# What there is to say of the certificates of this machine, from its files: for `posd tls status`.

#: A new CA has to be carried to every terminal by hand: people need time for that, in days.
CA_WARNING_DAYS = 180

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what it is, how it stands, what that means and what to do ("" where nothing)."""

    level: Level
    what: str
    words: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The certificate on the disk, the CA (None for the shop's own PKI), and what was found."""

    certificate: CertificateInfo | None
    ca: CertificateInfo | None
    findings: tuple[Finding, ...] = field(default=())

    @property
    def well(self) -> bool:
        """Whether nothing has to be done."""
        return all(finding.level == "ok" for finding in self.findings)


def report(certificate: Path, private_key: Path, own: TlsFiles | None, wanted: Subjects, now: datetime) -> Report:
    """Look at the pair that the daemon is configured with, and at the CA and key of `own` (None: the shop's own PKI).

    `wanted` is by what terminals call this machine (`required_names.called_as`). Blocking. Raises TlsError where
    this user may not look at all.
    """
    if own is not None and not (there(certificate) or there(own.ca_certificate)):
        nothing = Finding("failure", "certificate", f"there is none yet in {certificate.parent}", "posd tls init")
        return Report(None, None, (nothing,))
    findings: list[Finding] = []
    found, ca = _read_described(certificate), _read_described(own.ca_certificate) if own else None
    try:
        served.load(certificate, private_key, now)
    except TlsError as error:
        words, _, cure = str(error).partition("; ")
        findings.append(Finding("failure", "certificate", words, cure))
    else:
        findings.append(Finding("ok", "certificate", "can be served"))
    if found is not None:
        findings += _certificate(found, own, wanted, now)
    findings += _keys(private_key, own)
    if own is not None:
        findings += _authority(certificate, ca, own, now)
    return Report(found, ca, tuple(findings))


def _read_described(path: Path) -> CertificateInfo | None:
    try:
        return describe(path)
    except TlsError:
        return None


def _certificate(info: CertificateInfo, own: TlsFiles | None, wanted: Subjects, now: datetime) -> Iterator[Finding]:
    renew = "posd tls renew" if own else "put a new pair of the shop's own PKI there; posd takes it up by itself"
    yield _end("expiry", info, now, RENEWAL_DAYS, renew)
    lacking = missing(info, wanted)
    if lacking:
        words = f"terminals call this machine {lacking}, which the certificate does not carry: they would refuse it"
        yield Finding("warning", "names", words, renew)
    else:
        yield Finding("ok", "names", f"covers {wanted}" if wanted else "no address of the LAN has to be covered now")


def _end(what: str, info: CertificateInfo, now: datetime, soon: int, cure: str) -> Finding:
    """Say when it ends; `soon` is within how many days something has to be done."""
    days = info.days_left(now)
    if days < 0:
        return Finding("failure", what, f"has ended on {info.not_after:%Y-%m-%d}", cure)
    if days < soon:
        return Finding("warning", what, f"ends in {days} days", cure)
    return Finding("ok", what, f"ends in {days} days")


def _keys(private_key: Path, own: TlsFiles | None) -> Iterator[Finding]:
    # The shop's own PKI may hand its key to a group; only the owner has to read those made here.
    paths, forbidden = ((private_key, own.ca_key), 0o077) if own else ((private_key,), 0o007)
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            yield _without(path, own)
            continue
        except OSError as error:
            yield Finding("warning", "private key", f"{path}: cannot be looked at ({error.strerror})", "look as root")
            continue
        if mode & forbidden:
            yield Finding(
                "warning", "private key", f"{path}: others may read it (mode {mode:04o})", f"chmod 600 {path}"
            )
        else:
            yield Finding("ok", "private key", f"{path}: mode {mode:04o}")


def _without(path: Path, own: TlsFiles | None) -> Finding:
    if own is not None and path == own.ca_key:
        words = f"{path}: does not exist: the certificate cannot be renewed before its end"
        cure = f"put it back from a backup, or: posd tls init --force, then put {own.ca_certificate} on every terminal"
        return Finding("warning", "private key", words, cure)
    cure = "posd tls init" if own else "put the pair of the shop's own PKI there"
    return Finding("failure", "private key", f"{path}: does not exist", cure)


def _authority(certificate: Path, ca: CertificateInfo | None, own: TlsFiles, now: datetime) -> Iterator[Finding]:
    anew = f"posd tls init --force, then put {own.ca_certificate} on every terminal"
    if ca is None:
        yield Finding(
            "failure", "CA", f"{own.ca_certificate}: cannot be read", f"put it back from a backup, or: {anew}"
        )
        return
    yield _end("CA", ca, now, CA_WARNING_DAYS, anew)
    try:
        fits = issued_by(certificate, own.ca_certificate)
    except TlsError:
        return  # said above
    if not fits:
        words = f"{certificate} was not signed by {own.ca_certificate}: terminals that trust that CA refuse it"
        yield Finding("failure", "CA", words, "posd tls renew")
