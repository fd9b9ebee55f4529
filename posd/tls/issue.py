"""Making, description and check of certificates. Only commands import this: cryptography costs the daemon too much.

`authority.make_ca` and `make_server` follow the rules of strict clients (RFC 5280, and the CA/Browser Forum's limits on
server certificates). The rules: version 3, key usages, basic constraints, key identifiers, addresses as such.
"""

import ipaddress
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from posd.base.files import replace
from posd.tls import authority, served
from posd.tls.authority import BACKDATED, MAX_COMMON_NAME, OVERLAP_DAYS, Authority, Issuer, key_pem, pem
from posd.tls.check import (
    HOST_NAME,
    RENEWAL_DAYS,
    CertificateInfo,
    Subjects,
    Validity,
    is_address,
    local_addresses,
    local_names,
    missing,
)
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
    write_given,
    writing,
)

#: Lifetime of a server certificate: strict clients accept 398 days; one day of margin.
SERVER_LIFETIME = timedelta(days=397)


def init(
    directory: Path,
    *,
    names: Sequence[str],
    addresses: Sequence[str],
    given: Subjects | None = None,
    overwrite: bool = False,
) -> TlsFiles:
    """Make the server certificate for `names` and `addresses`, and the CA if there is none yet.

    An existing CA is kept, because the terminals trust it. `overwrite` makes a new one, and every terminal then needs
    the new `ca.crt`. `given`: the operator's names (default: all), which renewals keep. The directory gets mode 0700,
    keys 0600; each file is written atomically. Blocking. Raise TlsError.
    """
    subjects = Subjects(tuple(names), tuple(addresses))
    _check(subjects)
    made = files(directory)
    make_directory(directory)
    with writing(directory):
        authority.finish(made)
        if overwrite or not (made.ca_certificate.exists() or made.ca_key.exists()):
            ca = authority.make_ca(subjects | Subjects(tuple(local_names()), tuple(local_addresses())))
            for path in (made.next_ca_certificate, made.next_ca_key):
                path.unlink(missing_ok=True)
            if overwrite:
                replace(made.new_ca, ca.root.fingerprint(SHA256()).hex().encode())
            replace(made.ca_key, ca.key_file, mode=0o600)
            replace(made.ca_certificate, pem(ca.root), mode=0o644)
        else:
            ca = authority.load_ca(made)
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
    """Make the server certificate anew with the same key, for the present names of this machine.

    It keeps the names from `init`. Only one file of the served pair is replaced, so that no reader sees a mismatched
    pair. Near the end of the CA, or with `new_ca`, the following CA is made. At the end, or with `end_old_ca`, that one
    signs (`posd.tls.authority`). `called`: names that a new CA may sign too, by which terminals call this machine.
    Blocking. Raise TlsError.
    """
    made = files(directory)
    if not there(made.certificate) and not there(made.ca_certificate):
        raise TlsError(f"there is no certificate in {directory} yet; make one with: posd tls init")
    with writing(directory):
        authority.finish(made)
        subjects = _kept(made) | Subjects(tuple(local_names()), tuple(local_addresses()))
        if (following := authority.following(made)) is None and end_old_ca:
            raise TlsError("no new CA was made yet: posd tls renew --new-ca; then put it on every terminal")
        if following is not None and (end_old_ca or authority.has_followed(made, following.root)):
            authority.end_overlap(made)
        ca = authority.load_ca(made)
        if new_ca or authority.is_due(ca.root):
            authority.begin_overlap(made, subjects if called is None else subjects | called)
        replace(made.certificate, _chain(made, ca, _load_key(made.private_key), subjects), mode=0o644)
    return made


def ca_reasons(made: TlsFiles) -> tuple[str, ...]:
    """Return the reasons for a renewal of the CA, if any. Raise TlsError."""
    if there(made.next_ca_certificate) or not there(made.ca_certificate):
        return ()
    days = describe(made.ca_certificate).days_left(authority.now())
    return (f"its CA ends in {days} days",) if days < OVERLAP_DAYS + RENEWAL_DAYS else ()


def _check_permitted(made: TlsFiles, ca: x509.Certificate, given: Subjects) -> None:
    """Raise SubjectError for a name that the CA may not sign."""
    found = authority.permitted(ca, given)
    names = tuple(item for item in given.names if item not in found.names)
    addresses = tuple(item for item in given.addresses if item not in found.addresses)
    if left := Subjects(names, addresses):
        raise SubjectError(
            f"the CA in {made.ca_certificate} may not vouch for {left}: it is limited to private networks, local names "
            "and the names that this machine had when it was made; make a new CA with --force (each terminal then "
            "needs its ca.crt)"
        )


def _kept(made: TlsFiles) -> Subjects:
    """Return the names from `init`; if they were not stored, those in the certificate."""
    named = given(made)
    if named is not None:
        return named
    present = describe(made.certificate)
    return Subjects(present.names, present.addresses)


def _chain(made: TlsFiles, ca: Authority, key: ec.EllipticCurvePrivateKey, subjects: Subjects) -> bytes:
    """Return the served chain (PEM): the server certificate, and the CA behind it.

    A terminal that does not trust the CA yet can then name it, and the operator can read it from the connection.
    Terminals that trust it ignore the copy. In an overlap the cross-certificate is between them. Raise TlsError.
    """
    following = authority.following(made)
    for root in [ca.root] if following is None else [ca.root, following.root]:
        subjects = authority.permitted(root, subjects)
    if not subjects:
        raise TlsError(
            f"the CA in {made.ca_certificate} may vouch for none of the names and addresses of this machine; make a "
            "new CA with --force (each terminal then needs its ca.crt)"
        )
    signer = ca.issuer[0]
    chain = [make_server(ca.issuer, key, subjects), *([] if signer == ca.root else [signer])]
    if following is None or following.cross is None:
        chain.append(ca.root)
    else:
        chain += [following.cross, following.root]
    return b"".join(map(pem, chain))


def describe(certificate_path: Path) -> CertificateInfo:
    """Return the description of the first certificate in a PEM file. Raise TlsError."""
    try:
        certificate = x509.load_pem_x509_certificate(read(certificate_path, "certificate"))
    except ValueError as error:
        raise TlsError(f"certificate {certificate_path}: is not a PEM certificate ({error}); {CURE}") from error
    return _described(certificate)


def describe_der(certificate: bytes) -> CertificateInfo:
    """Return the description of a certificate in DER form. Raise TlsError if it is none."""
    try:
        return _described(x509.load_der_x509_certificate(certificate))
    except ValueError as error:
        raise TlsError(f"what the other side showed is no certificate ({error})") from error


def issued_by(certificate_path: Path, ca_path: Path) -> bool:
    """Return whether the chain in a PEM file leads to a CA. Raise TlsError if one cannot be read."""
    chain, root = read(certificate_path, "certificate"), read(ca_path, "CA certificate")
    try:
        ca = x509.load_pem_x509_certificate(root)
        at, *others = x509.load_pem_x509_certificates(chain)
    except ValueError:
        return False
    for above in others:
        if authority.signs(ca, at) or not authority.signs(above, at):
            break
        at = above
    return authority.signs(ca, at)


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


def make_server(issuer: Issuer, key: ec.EllipticCurvePrivateKey, subjects: Subjects) -> x509.Certificate:
    """Make the server certificate of a key, for these names and addresses. Raise TlsError if the CA has ended."""
    ca, ca_key = issuer
    start = authority.now() - BACKDATED
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(subjects.names)]
    addresses = dict.fromkeys(ipaddress.ip_address(text) for text in subjects.addresses)
    alternatives += [x509.IPAddress(address) for address in addresses]
    return (
        x509.CertificateBuilder()
        .subject_name(authority.name(_common_name(subjects)))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(start, ca.not_valid_before_utc))
        .not_valid_after(min(start + SERVER_LIFETIME, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(authority.usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority.authority_of(ca), critical=False)
        .sign(ca_key, SHA256())
    )


def _common_name(subjects: Subjects) -> str:
    """Return a common name.

    It has spaces without a DNS name, because OpenSSL reads one without spaces as a DNS name.
    """
    return subjects.names[0][:MAX_COMMON_NAME] if subjects.names else f"posd at {subjects.addresses[0]}"


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


# Report on this machine's certificates, from their files, for `posd tls status`.

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its subject, its level, its meaning and the cure ("" if none is needed)."""

    level: Level
    what: str
    words: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """The certificate on disk, the CA (None for the shop's own PKI), and the findings."""

    certificate: CertificateInfo | None
    ca: CertificateInfo | None
    findings: tuple[Finding, ...] = field(default=())


def report(
    certificate: Path, private_key: Path, own: TlsFiles | None, wanted: Subjects, now: datetime
) -> CertificateReport:
    """Check the configured pair of the daemon, and the CA and key of `own` (None: the shop's own PKI).

    `wanted`: names by which terminals call this machine (`check.called_as`). Blocking. Raise TlsError without
    access.
    """
    if own is not None and not (there(certificate) or there(own.ca_certificate)):
        nothing = Finding("failure", "certificate", f"there is none yet in {certificate.parent}", "posd tls init")
        return CertificateReport(None, None, (nothing,))
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
    return CertificateReport(found, ca, tuple(findings))


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
    """Return the finding about an end; `soon`: days before it from which something has to be done."""
    validity = info.validity(now, soon)
    if validity is Validity.EXPIRED:
        return Finding("failure", what, f"has ended on {info.not_after:%Y-%m-%d}", cure)
    words = f"ends in {info.days_left(now)} days"
    return Finding("warning", what, words, cure) if validity is Validity.ENDS else Finding("ok", what, words)


def _keys(private_key: Path, own: TlsFiles | None) -> Iterator[Finding]:
    # The shop's own PKI may share its key with a group; only the owner has to read keys made here.
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
        words = f"{path}: does not exist: the certificate cannot be renewed, unless posd has it as a credential"
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
    if there(own.next_ca_certificate):
        words = f"a new CA waits: it signs from {ca.next_ca_from:%Y-%m-%d} on, and terminals without it then refuse"
        cure = "put it on every terminal (posd tls ca > ca.crt); once all have it: posd tls renew --end-old-ca"
        yield Finding("warning", "new CA", words, cure)
    elif not authority.is_limited(x509.load_pem_x509_certificate(own.ca_certificate.read_bytes())):
        words = f"may vouch for any name until {ca.not_after:%Y-%m-%d}: a thief of its key could pretend to be anybody"
        yield Finding("warning", "CA", words, "posd tls renew --new-ca, then put the new CA on every terminal")
    yield _end("CA", ca, now, OVERLAP_DAYS, anew if ca.not_after < now else "posd tls renew --new-ca")
    try:
        fits = issued_by(certificate, own.ca_certificate)
    except TlsError:
        return  # reported above
    if not fits:
        words = f"{certificate} was not signed by {own.ca_certificate}: terminals that trust that CA refuse it"
        yield Finding("failure", "CA", words, "posd tls renew")
