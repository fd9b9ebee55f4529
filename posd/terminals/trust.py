"""TLS to terminals, verified with a CA or a pinned fingerprint. Verification is never off.

If verification fails, no byte of a request is sent on that connection. The message about the failure says what to do.
This advice depends on the refused certificate, which OpenSSL does not return. So a second connection reads it.
Nothing is sent on that connection, and nothing from it is trusted.
"""

import asyncio
import errno
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from posd.base import tls_contexts
from posd.base.tls_contexts import NO_CHECK_TIME
from posd.config import Pin, TerminalConfig
from posd.tls.certificate import CertificateInfo, digest, read_certificate, server_hostname

# Error numbers X509_V_ERR of OpenSSL (x509_vfy.h), for which Python's ssl has no names.
_NOT_YET_VALID = 9
_EXPIRED = 10
DATES = frozenset({_NOT_YET_VALID, _EXPIRED})
_WRONG_NAME = frozenset({62, 64})  # host name, IP address
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})  # issuer not found (2, 20), self-signed (18, 19), unverified (21)


#: Maximum length of a certificate's names, and of its issuer, in a message.
MAX_TEXT = 240


class AnotherFingerprint(ssl.SSLCertVerificationError):
    """Certificate or public key that differs from the pinned one. The message has both fingerprints."""


def context(ca_file: Path | None, pin: Pin | None = None, *, system: bool = False) -> ssl.SSLContext:
    """Return the context for connections to one terminal.

    With a pin, only that certificate or public key is accepted, with any name and issuer. Otherwise chain and name are
    verified with `ca_file`, or with the CAs of the system if `system` is true. With neither, no certificate is
    accepted. Raise OSError with the name of the file if the CA file cannot be used.
    """
    if pin is None:
        try:
            return tls_contexts.client(ca_file, system=system)
        except OSError as error:  # ssl.SSLError is an OSError; the error does not name the file
            raise OSError(
                f"the CA file {ca_file} contains no readable certificate ({error}); it must be the CA of the "
                "terminal, in PEM form"
            ) from error
    pinned = tls_contexts.unverified_client()
    pinned.sslobject_class = _pinned_object(pin)  # the TLS object accepts only the pinned certificate or key
    return pinned


def judge_dates(context: ssl.SSLContext, judged: bool) -> None:
    """Set whether the dates of certificates are checked. `judged`: whether the clock is trusted.

    A wrong clock must not prevent payments. Chain and name are always verified.
    """
    flags = context.verify_flags
    wanted = flags & ~NO_CHECK_TIME if judged else flags | NO_CHECK_TIME
    if wanted != flags:
        context.verify_flags = wanted


def _pinned_object(pin: Pin) -> type[ssl.SSLObject]:
    class PinnedObject(ssl.SSLObject):
        """TLS object that ends the handshake if the certificate or key is not the pinned one.

        The handshake ends before a request is sent.
        """

        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert(binary_form=True) or b""
            try:
                found = digest(certificate, pin.kind)
            except ValueError:
                found = "none"
            if not hmac.compare_digest(found, pin.sha256):
                raise AnotherFingerprint(
                    1, f"the terminal's {pin.kind} has fingerprint {found}, the configuration expects {pin.sha256}"
                )

    return PinnedObject


def refusal(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the certificate error that caused an error, or None."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def words(
    error: ssl.SSLCertVerificationError, shown: bytes | None, base_url: str, given: TerminalConfig, now: datetime
) -> str:
    """Return as text why a certificate at a base URL was refused, and what to do.

    `shown`: the certificate (DER), or None if it could not be read. `given`: the configuration of the terminal.
    """
    if isinstance(error, AnotherFingerprint):
        return f"{error}: it may be another device. If it is the terminal, pin it: posd terminals pin {given.serial}"
    certificate = None
    with suppress(ValueError):
        certificate = read_certificate(shown) if shown is not None else None
    what = _reason(error, certificate, called(base_url, given.server_name), given, now)
    found = f" (its fingerprint is {hashlib.sha256(shown).hexdigest()})" if shown is not None else ""
    return f"the terminal's certificate {what}{found}"


def _reason(
    error: ssl.SSLCertVerificationError,
    certificate: CertificateInfo | None,
    expected: str,
    given: TerminalConfig,
    now: datetime,
) -> str:
    code, pin = error.verify_code, f"posd terminals pin {given.serial}"
    if code == _EXPIRED:
        ended = certificate.not_after if certificate is not None else None
        since = f" (on {ended:%Y-%m-%d}, {(now - ended).days} days ago)" if ended is not None else ""
        return f"has expired{since}: renew it on the terminal, or correct the clock of this machine"
    if code == _NOT_YET_VALID:
        since = f" (valid from {certificate.not_before:%Y-%m-%d %H:%M} UTC)" if certificate is not None else ""
        return f"is not valid yet{since}: correct the clock of this machine ({now:%Y-%m-%d %H:%M} UTC)"
    if code in _WRONG_NAME:
        if certificate is None or not (has := clean(", ".join((*certificate.names, *certificate.addresses)))):
            return f"is not for {expected}: pin its fingerprint ({pin}), if it is the right terminal"
        return f"is not for {expected}, it is for {has}: if it is the right terminal, set server_name to one of these"
    if code in _UNKNOWN_ISSUER:
        by = "was issued by a CA" if certificate is None else f"was issued by {clean(certificate.issuer)}"
        if certificate is not None and certificate.self_signed:
            by = "is signed by itself"
        if given.ca_file is None and not given.trusts_system:
            return (
                f"{by}, and the configuration trusts no certificate for this terminal, whose address was announced: "
                f"set ca_file to the CA of the terminal, pin the certificate ({pin}), or set trust to "
                '"system" if its certificate is from a public CA'
            )
        trusted = f"the CA in {given.ca_file} does" if given.ca_file is not None else "the CAs of this system do"
        return (
            f"{by}, and {trusted} not certify it: it may be another device. If it is the terminal, set ca_file to its "
            f"CA, or pin the certificate ({pin})"
        )
    return (
        f"or its CA breaks a rule ({error.verify_message}), and another ca_file does not help: pin the "
        f"certificate ({pin}), or have its CA issue a right one"
    )


def called(base_url: str, server_name: str) -> str:
    """Return the name that a certificate at a base URL must have."""
    return server_name or unquote(urlsplit(base_url).hostname or "").partition("%")[0]


async def shown(base_url: str, server_name: str) -> bytes | None:
    """Connect to a base URL, and return the certificate there (DER). Nothing is sent. Raise OSError, ValueError."""
    parts = urlsplit(base_url)
    _, writer = await asyncio.open_connection(
        unquote(parts.hostname or ""),
        parts.port or 443,
        ssl=tls_contexts.unverified_client(),
        server_hostname=server_hostname(called(base_url, server_name)),
    )
    try:
        certificate: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a closed TLS transport raises it
            writer.transport.abort()
    return certificate


#: Number of the error of a failed connection -> its meaning as text.
WORDS: Mapping[int, str] = {
    errno.ECONNREFUSED: "nothing listens there: the device is on; start its payment application, or correct the port",
    errno.EHOSTUNREACH: "nothing answers at that address: is the terminal switched on and in this network?",
    errno.ENETUNREACH: "this machine has no network for that address: check its network, or correct base_url",
    errno.ECONNRESET: "the device closed the connection at once: restart its payment application",
}


class ProbeResult(msgspec.Struct, frozen=True):
    """Result of a probe. `reason`: why it failed, as text, or None if it succeeded.

    `refused`: whether it failed because the device's certificate is not trusted. `of_dates`: whether its dates are
    the only cause. This is known, because OpenSSL checks them last. `certificate`: SHA-256 fingerprint (hex) of the
    trusted certificate.
    """

    reason: str | None = None
    refused: bool = False
    of_dates: bool = False
    certificate: str | None = None


def why_not(error: OSError | ValueError) -> str:
    """Return why a connection failed, as text."""
    if isinstance(error, ssl.SSLError):
        return f"it does not speak TLS correctly ({error.reason or type(error).__name__}): correct base_url"
    if isinstance(error, OSError):
        code = errno.ECONNRESET if isinstance(error, ConnectionResetError) else error.errno
        return WORDS.get(code or 0) or error.strerror or str(error)
    return "its name cannot be looked up: correct base_url, or the DNS of this machine"


def clean(text: str) -> str:
    """Return a text from a certificate, shortened for a message."""
    return text[:MAX_TEXT] + ("…" if len(text) > MAX_TEXT else "")
