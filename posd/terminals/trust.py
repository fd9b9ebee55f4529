"""TLS towards terminals: a CA, or a pinned fingerprint; verification is never off.

A connection that fails here carries no request: it is provably not sent. Why it failed is told in words that a person
in the shop can act on, which takes a look at the certificate that was refused; OpenSSL does not hand that one out, so
it is fetched once more over a connection on which nothing is sent and nothing believed.
"""

import asyncio
import hashlib
import hmac
import ssl
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from posd.terminals import der

# OpenSSL's X509_V_ERR numbers (x509_vfy.h); Python's ssl passes them on without naming them.
_NOT_YET_VALID = 9
_EXPIRED = 10
_WRONG_NAME = frozenset({62, 64})  # host name, IP address
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})  # no issuer, signed by itself (2), no local issuer, no leaf signature


class AnotherFingerprint(ssl.SSLCertVerificationError):
    """The certificate is another one than the pinned one; the message says both fingerprints."""


def context(ca_file: Path | None, fingerprint_sha256: str) -> ssl.SSLContext:
    """Return the context for connections to one terminal.

    With a fingerprint (64 hex digits, lower case) exactly that certificate is accepted, with any name and issuer.
    Otherwise the chain and the name are verified against `ca_file`, or the system's CAs where there is none.
    Raise OSError, which names the file, where the CA file cannot be used.
    """
    if not fingerprint_sha256:
        try:
            verified = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except OSError as error:  # ssl.SSLError is one; neither names the file
            raise OSError(
                f"the CA file {ca_file} holds no certificate that can be read ({error}); it must be the CA of the "
                "terminal, in PEM form"
            ) from error
        verified.minimum_version = ssl.TLSVersion.TLSv1_2
        return verified
    pinned = _unverified()
    pinned.sslobject_class = _pinned_object(fingerprint_sha256)  # accepts one certificate and no other
    return pinned


def _unverified() -> ssl.SSLContext:
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.minimum_version = ssl.TLSVersion.TLSv1_2
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    return unverified


def _pinned_object(expected: str) -> type[ssl.SSLObject]:
    class PinnedObject(ssl.SSLObject):
        """Ends the handshake, before anything is sent, where the peer's certificate is another one."""

        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert(binary_form=True)
            found = hashlib.sha256(certificate or b"").hexdigest()
            if not hmac.compare_digest(found, expected):
                raise AnotherFingerprint(
                    1,
                    f"the terminal's certificate has fingerprint {found}, the configuration expects {expected}; if the "
                    "terminal was given a new certificate, compare it there and pin it: posd terminals pin",
                )

    return PinnedObject


def refusal(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return what an error comes from where that is a certificate that was refused, else None."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def words(
    error: ssl.SSLCertVerificationError, shown: bytes | None, expected: str, ca_file: Path | None, now: datetime
) -> str:
    """Say why a certificate was refused, and what to do.

    `shown` is the certificate (DER), None where it could not be looked at; `expected` the name that it has to be for,
    `ca_file` who has to vouch for it (None: this system).
    """
    if isinstance(error, AnotherFingerprint):
        return str(error)
    certificate = None
    with suppress(ValueError):
        certificate = der.read(shown) if shown is not None else None
    what = _reason(error, certificate, expected, ca_file, now)
    found = f" (its fingerprint is {hashlib.sha256(shown).hexdigest()})" if shown is not None else ""
    return f"the terminal's certificate {what}{found}"


def _reason(
    error: ssl.SSLCertVerificationError,
    certificate: der.Certificate | None,
    expected: str,
    ca_file: Path | None,
    now: datetime,
) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        since = ""
        if certificate is not None:
            since = f" on {certificate.not_after:%Y-%m-%d}, {(now - certificate.not_after).days} days ago"
        return f"has expired{since}: renew it on the terminal, or set the clock of this machine right"
    if code == _NOT_YET_VALID:
        since = f" before {certificate.not_before:%Y-%m-%d %H:%M} UTC" if certificate is not None else ""
        return f"is not valid yet{since}: set the clock of this machine right ({now:%Y-%m-%d %H:%M} UTC)"
    if code in _WRONG_NAME:
        has = ", ".join(certificate.names) if certificate is not None else ""
        if not has:
            return f"is not for {expected}: pin its fingerprint (posd terminals pin), if it is the right terminal"
        return f"is not for {expected}, it is for {has}: if it is the right terminal, set server_name to one of these"
    if code in _UNKNOWN_ISSUER:
        by = "was issued by a CA" if certificate is None else f"was issued by {certificate.issuer}"
        if certificate is not None and certificate.self_signed:
            by = "is signed by itself"
        trusted = f"the CA in {ca_file} does" if ca_file is not None else "the CAs of this system do"
        return (
            f"{by}, for which {trusted} not vouch: set ca_file to the CA of the terminal, or pin the certificate "
            "(posd terminals pin)"
        )
    return f"is not trusted ({error.verify_message}): set ca_file, or pin it (posd terminals pin)"


def called(base_url: str, server_name: str) -> str:
    """Return the name that the certificate at a base URL has to be for."""
    return server_name or unquote(urlsplit(base_url).hostname or "").partition("%")[0]


async def shown(base_url: str, server_name: str) -> bytes | None:
    """Return the certificate (DER) that is shown there. Nothing is sent. Raise OSError, ValueError."""
    parts = urlsplit(base_url)
    _, writer = await asyncio.open_connection(
        unquote(parts.hostname or ""),
        parts.port or 443,
        ssl=_unverified(),
        server_hostname=called(base_url, server_name),
    )
    try:
        certificate: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport fails so where it is closed
            writer.transport.abort()
    return certificate
