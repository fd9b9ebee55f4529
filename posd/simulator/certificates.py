"""The certificates that a terminal can show: its own, and those that nobody should trust, made when first asked for."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from posd.simulator.listener import server_context
from posd.simulator.scenario import Certificate
from posd.simulator.settings import SettingsError

#: The name in a certificate that is of another terminal.
WRONG_NAME = "another-terminal.invalid"
#: How long the made ones hold: within what strict clients take.
LIFETIME = timedelta(days=397)
#: How long an expired one has been so: longer than any clock is wrong.
EXPIRED_FOR = timedelta(days=30)

_Issuer = tuple[x509.Name, CertificateIssuerPrivateKeyTypes]


class Certificates:
    """TLS contexts by what they show. One that was made stays the same for as long as the process lives."""

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
