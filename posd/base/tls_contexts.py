"""TLS contexts of posd, independent of the Python version, its build and OpenSSL's configuration.

With the same configuration, all supported Python versions trust the same terminals.
"""

import ssl
from pathlib import Path

#: TLS 1.2 or newer, up to OpenSSL's newest.
OLDEST = ssl.TLSVersion.TLSv1_2

#: Suites of TLS 1.2, forward secrecy first. Keys have at least 112 bits of security (RSA: 2048), and certificates
#: signed by SHA-1 are refused. The list of suites depends on the build of Python: Debian's uses OpenSSL's list, others
#: use their own. Static RSA and CBC stay allowed, for old terminals.
CIPHERS = (
    "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:ECDHE+AES:DHE+AES:RSA+AESGCM:RSA+AES"
    ":!aNULL:!eNULL:!aDSS:!PSK:!SRP:!AESCCM:@SECLEVEL=2"
)

#: Verification of a chain. Each certificate of a CA file is a trust anchor, even an intermediate CA. This is the
#: default since Python 3.13. VERIFY_X509_STRICT, also a default since then, is off. It would refuse some terminals in
#: use, because their CAs have no key usage, no critical basic constraints or no key identifiers.
VERIFY = ssl.VerifyFlags.VERIFY_X509_TRUSTED_FIRST | ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME (x509_vfy.h), which Python's ssl does not name.
NO_CHECK_TIME = ssl.VerifyFlags(0x200000)

#: No compression and no renegotiation. A connection may end without close_notify, because many devices never send it,
#: and HTTP marks the end of a response.
OPTIONS = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_IGNORE_UNEXPECTED_EOF


def _stated(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = OLDEST
    context.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    context.set_ciphers(CIPHERS)
    context.options |= OPTIONS
    context.verify_flags = VERIFY
    return context


def client(ca_file: Path | None = None, *, system: bool = False) -> ssl.SSLContext:
    """Return the context of a client that verifies chain and name.

    The client trusts the CAs of `ca_file`, and the system's CAs if `system`. With neither, it trusts no certificate.
    Raise OSError if the file cannot be used.
    """
    context = _stated(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = True
    context.verify_mode = ssl.CERT_REQUIRED
    context.hostname_checks_common_name = True
    if ca_file is not None:
        context.load_verify_locations(cafile=str(ca_file))
    if system:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def strict_client(ca_file: Path | None = None, *, system: bool = False) -> ssl.SSLContext:
    """Return the context of a verifying client with OpenSSL's strict rules (RFC 5280), as other programs use them.

    Raise OSError.
    """
    context = client(ca_file, system=system)
    context.verify_flags = ssl.VerifyFlags.VERIFY_X509_TRUSTED_FIRST | ssl.VerifyFlags.VERIFY_X509_STRICT
    return context


def unverified_client() -> ssl.SSLContext:
    """Return the context of a client that accepts any certificate, for display or comparison with a fingerprint."""
    context = _stated(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def server() -> ssl.SSLContext:
    """Return the context of a listener: HTTP/1.1 by ALPN, no client certificate. The caller adds its certificate."""
    context = _stated(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
