"""Creation and check of certificates. Only commands import this module, because the library cryptography takes too much
memory for the daemon.

`authority.make_ca` and `make_server` follow the rules of strict clients (RFC 5280, and the CA/Browser Forum's limits on
server certificates). These rules are: version 3, key usages, basic constraints, key identifiers, and addresses as IP
addresses.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from posd.base.files import replace
from posd.config.values import HOST_NAME, is_address
from posd.tls import authority, certificate
from posd.tls.authority import BACKDATED, MAX_COMMON_NAME, Authority, Issuer, key_pem, pem
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
    given,
    make_directory,
    read,
    there,
    write_given,
    writing,
)

#: Lifetime of a server certificate. Strict clients accept 398 days, and one day is a margin.
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
    then needs the new `ca.crt`. `given`: the operator's names (default: all), which renewals keep. The directory has
    mode 0700, and keys have 0600. Each file is written atomically. Blocking. Raise TlsError.
    """
    subjects = Subjects(tuple(names), tuple(addresses))
    _check_subjects(subjects)
    made = files_in(directory)
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
    """Create a new server certificate with the same key, for the present names of this machine.

    The names from `init` are kept. Only one file of the served pair is replaced, so that no reader sees a mismatched
    pair. Near the end of the CA, or with `new_ca`, the next CA is created. At the end, or with `end_old_ca`, the next
    CA signs (`posd.tls.authority`). `called`: names by which terminals call this machine, which a new CA may also sign.
    Blocking. Raise TlsError.
    """
    made = files_in(directory)
    if not there(made.certificate) and not there(made.ca_certificate):
        raise TlsError(f"there is no certificate in {directory} yet; make one with: posd tls init")
    with writing(directory):
        authority.finish(made)
        subjects = _kept(made) | Subjects(tuple(local_names()), tuple(local_addresses()))
        if (following := authority.following(made)) is None and end_old_ca:
            raise TlsError("no new CA was made yet: posd tls renew --new-ca; then put it on every terminal")
        if following is not None and (
            end_old_ca
            or has_followed(describe(made.ca_certificate), describe(made.next_ca_certificate), authority.now())
        ):
            authority.end_overlap(made)
        ca = authority.load_ca(made)
        if new_ca or certificate.ca_reasons(describe(made.ca_certificate), authority.now()):
            authority.begin_overlap(made, subjects if called is None else subjects | called)
        replace(made.certificate, _chain(made, ca, _load_key(made.private_key), subjects), mode=0o644)
    return made


def ca_reasons(made: TlsFiles) -> tuple[str, ...]:
    """Return the reasons for a renewal of the CA, if any. Raise TlsError."""
    if there(made.next_ca_certificate) or not there(made.ca_certificate):
        return ()
    return certificate.ca_reasons(describe(made.ca_certificate), authority.now())


def _check_permitted(made: TlsFiles, ca: x509.Certificate, given: Subjects) -> None:
    """Raise SubjectError for a name that the CA may not sign."""
    found = authority.permitted(ca, given)
    names = tuple(item for item in given.names if item not in found.names)
    addresses = tuple(item for item in given.addresses if item not in found.addresses)
    if left := Subjects(names, addresses):
        raise SubjectError(
            f"the CA in {made.ca_certificate} may not certify {left}: it is limited to private networks, local names "
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

    With the CA in the chain, a terminal that does not yet trust the CA can show its name, and the operator can read the
    CA from the connection. Terminals that trust the CA ignore the copy. In an overlap the cross-certificate is between
    the two. Raise TlsError.
    """
    following = authority.following(made)
    for root in [ca.root] if following is None else [ca.root, following.root]:
        subjects = authority.permitted(root, subjects)
    if not subjects:
        raise TlsError(
            f"the CA in {made.ca_certificate} may certify none of the names and addresses of this machine; make a "
            "new CA with --force (each terminal then needs its ca.crt)"
        )
    signer = ca.issuer[0]
    chain = [make_server(ca.issuer, key, subjects), *([] if signer == ca.root else [signer])]
    if following is None or following.cross is None:
        chain.append(ca.root)
    else:
        chain += [following.cross, following.root]
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
        is_limited = authority.is_limited(x509.load_pem_x509_certificate(made.ca_certificate.read_bytes()))
    except ValueError as error:
        raise TlsError(f"certificate {made.ca_certificate}: has extensions that cannot be read ({error})") from error
    return ("unlimited_ca" if found is Validity.VALID and not is_limited else found), ca


def chain_finding(certificate_path: Path) -> tuple[str, int, str]:
    """Check the chain of the shop's own PKI: "own_chain", "broken_chain", or "leaf_alone" if the CA is missing.

    Return the finding, the number of certificates, and the issuer of the last one.
    """
    chain = x509.load_pem_x509_certificates(certificate_path.read_bytes())
    found = "leaf_alone" if len(chain) == 1 and chain[0].issuer != chain[0].subject else "own_chain"
    if not all(authority.signs(above, below) for below, above in pairwise(chain)):
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
        if authority.signs(ca, at) or not authority.signs(above, at):
            break
        at = above
    return authority.signs(ca, at)


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
    """Create the server certificate of a key for these names and addresses. Raise TlsError if the CA has ended."""
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

    If there is no DNS name, the common name contains spaces, because OpenSSL takes a name without spaces for a DNS
    name.
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
