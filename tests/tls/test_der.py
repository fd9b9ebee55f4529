"""Data from a certificate. The data is right for every certificate. The parser refuses other bytes without an
unexpected error.
"""

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from posd.terminals import trust
from posd.tls.certificate import digest, public_key, read_certificate
from tests.rig.access import configured
from tests.rig.certificates import issued, public_key_sha256

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(
    *,
    names: tuple[str, ...] = (),
    subject: tuple[tuple[x509.ObjectIdentifier, str], ...] = ((NameOID.COMMON_NAME, "leaf"),),
    not_after: datetime = datetime(2040, 2, 29, 23, 59, 59, tzinfo=UTC),
) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(kind, text) for kind, text in subject]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Bank, Inc.")]))
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1999, 12, 31, tzinfo=UTC))
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.DER)


def test_the_read_data_equals_the_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    names = ("terminal.example", "10.1.2.3", "fd00::2")
    raw = issued(tmp_path, authority, *names).der
    found, real = read_certificate(raw), x509.load_der_x509_certificate(raw)
    assert {*found.names, *found.addresses} == set(names)
    assert (found.not_before, found.not_after) == (real.not_valid_before_utc, real.not_valid_after_utc)
    assert (found.subject, found.issuer) == (real.subject.rfc4514_string(), real.issuer.rfc4514_string())
    assert not found.self_signed


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["EC", "Ed25519", "RSA"],
)
def test_the_public_key_is_the_same_for_every_certificate_of_the_key(key: Any) -> None:
    """A pin of the key therefore stays valid after a renewal of the certificate."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "terminal")])
    for year in (2027, 2090):
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        builder = builder.serial_number(year).not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        builder = builder.not_valid_after(datetime(year, 1, 1, tzinfo=UTC))
        signed = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else SHA256())
        der = signed.public_bytes(Encoding.DER)
        assert digest(der, "public key") == public_key_sha256(der)
        assert public_key(der) == key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("year", [2027, 2049, 2050, 2150])
def test_both_forms_of_a_time_are_read(year: int) -> None:
    """Until 2049 a time has a year of two digits. From 2050 on the year has four digits (RFC 5280, 4.1.2.5)."""
    end = datetime(year, 3, 1, 12, 30, 1, tzinfo=UTC)
    found = read_certificate(certificate(not_after=end))
    assert (found.not_before, found.not_after) == (datetime(1999, 12, 31, tzinfo=UTC), end)


def test_certificates_without_names_or_subject_are_read() -> None:
    assert read_certificate(certificate()).names == ()
    found = read_certificate(certificate(subject=()))
    assert (found.subject, found.issuer) == ("", r"O=Bank\, Inc.")


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.sampled_from(' ,+"<>;#='), min_size=1)
KINDS = st.sampled_from(
    [
        *(NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.LOCALITY_NAME, NameOID.TITLE),
        *(NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS, NameOID.USER_ID, NameOID.ORGANIZATION_IDENTIFIER),
    ]
)


@given(st.lists(st.tuples(KINDS, TEXTS.filter(lambda text: len(text.encode()) <= 64)), max_size=4))
def test_a_name_has_the_form_of_rfc_4514(subject: list[tuple[x509.ObjectIdentifier, str]]) -> None:
    der = certificate(subject=tuple(subject))
    assert read_certificate(der).subject == x509.load_der_x509_certificate(der).subject.rfc4514_string()


def test_a_stranger_cannot_fill_or_control_the_screen() -> None:
    names = tuple(f"{number}.example" for number in range(50))
    der = certificate(names=names, subject=((NameOID.ORGANIZATION_NAME, "\x1b[2J" + "x" * 60),) * 30)
    assert read_certificate(der).names == names
    assert read_certificate(der).subject.isprintable()
    refused = configured()
    error = ssl.SSLCertVerificationError(1, "it is for another name")
    error.verify_code = 62
    words = trust.words(error, der, "https://terminal.example", refused, datetime.now(UTC))
    assert words.isprintable()
    assert len(words) < trust.MAX_TEXT + 300
    assert trust.clean("y" * 1000) == "y" * trust.MAX_TEXT + "…"


@pytest.mark.parametrize("raw", [b"", b"0", b"0\x80", b"0\x85\0\0\0\0\0", b"0\x03\x02\x01", b"\x02\x01\x00"], ids=repr)
def test_bytes_that_are_not_a_certificate_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        read_certificate(raw)


def of_version_1(name: bytes) -> bytes:
    """Return a certificate with this name, without the field of its version (RFC 5280, 4.1.2.1)."""
    time = b"\x17\x0d" + b"270301123001Z"
    validity = b"\x30" + bytes([2 * len(time)]) + 2 * time
    algorithm = bytes.fromhex("3000")
    fields = bytes.fromhex("020101") + algorithm + name + validity + name + algorithm
    whole = b"\x30" + bytes([len(fields)]) + fields + algorithm + bytes.fromhex("030100")
    return b"\x30\x81" + bytes([len(whole)]) + whole


def test_a_certificate_of_version_1_is_read() -> None:
    """The certificate has no field for the version. The parser still reads the fields after the version."""
    found = read_certificate(of_version_1(bytes.fromhex("300f 310d 300b 0603550403 0c04 6c656166")))  # CN=leaf
    assert (found.subject, found.self_signed) == ("CN=leaf", True)
    assert found.not_before == found.not_after == datetime(2027, 3, 1, 12, 30, 1, tzinfo=UTC)


def test_a_name_in_bmpstring_is_read() -> None:
    name = bytes.fromhex("3017 3115 3013 0603550403 1e0c 004200fc0063006800650072")  # BMPString
    assert read_certificate(of_version_1(name)).subject == "CN=Bücher"


WHOLE = certificate(names=("a.example",))


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_a_damaged_certificate_raises_only_valueerror(at: int, put: bytes, cut: int) -> None:
    with suppress(ValueError):
        found = read_certificate(WHOLE[:at] + put + WHOLE[at + cut :])
        assert all(name.isprintable() for name in found.names)


@given(st.binary(max_size=200))
def test_any_bytes_raise_only_valueerror(raw: bytes) -> None:
    with suppress(ValueError):
        read_certificate(raw)
