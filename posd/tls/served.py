"""A certificate with its key as the listener serves it: loaded into a fresh context and tried before it is served.

The trial is a handshake in memory with a client that trusts exactly this certificate. It needs nothing but `ssl`, finds
what a terminal would find (a key of another certificate, an end that has passed, a certificate that is not for
servers), and yields what the certificate says about itself.
"""

import contextlib
import hashlib
import re
import socket
import ssl
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from posd.tls.files import CURE, TlsError, read
from posd.tls.required_names import CertificateInfo, canonical

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME (x509_vfy.h), which Python's ssl does not name.
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: How RFC 4514 abbreviates what OpenSSL writes out.
_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C"}


class Expired(TlsError):
    """The certificate has ended."""


class NotYetValid(TlsError):
    """The certificate begins only later: it was made under a clock that was ahead, or the clock is behind now."""


class Served(msgspec.Struct, frozen=True):
    """A context that serves a certificate, and what the certificate says."""

    context: ssl.SSLContext
    info: CertificateInfo


def server_context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """Return the context of `load`, valid now. Raises TlsError."""
    return load(certificate, private_key, datetime.now(UTC)).context


def load(certificate: Path, private_key: Path, at: datetime | None) -> Served:
    """Load a certificate with its key into a fresh server context (TLS 1.2 or newer, HTTP/1.1 by ALPN) and try it.

    Raises TlsError where a file is missing or unreadable, the two do not belong together, or the certificate is not
    for servers, or not valid `at` that moment (Expired, NotYetValid; None: no clock is asked).
    """
    leaf = read(certificate, "certificate")
    read(private_key, "private key")

    def passphrase() -> str:
        raise TlsError(f"private key {private_key}: is encrypted; store it without a passphrase, with mode 0600")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, private_key, password=passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"private key {private_key}: does not belong to the certificate {certificate}; {CURE}"
            ) from error
        raise TlsError(
            f"certificate {certificate} and private key {private_key}: cannot be read as PEM ({error}); {CURE}"
        ) from error
    except OSError as error:  # replaced at this very moment
        raise TlsError(f"certificate {certificate} and private key {private_key}: {error.strerror}; {CURE}") from error
    info = _try(context, certificate, leaf)
    if at is not None:
        _judge(info, certificate, at)
    return Served(context, info)


def _judge(info: CertificateInfo, certificate: Path, at: datetime) -> None:
    """Raise Expired or NotYetValid where a certificate is not valid at that moment."""
    day = at.date().isoformat()
    if at > info.not_after:
        raise Expired(
            f"certificate {certificate}: has expired (today is {day}); renew it (posd tls renew), or put a valid pair "
            "of the shop's own PKI there"
        )
    if at < info.not_before:
        reason = f"is not valid yet (today is {day}; is the clock of this machine right?)"
        raise NotYetValid(f"certificate {certificate}: {reason}; {CURE}")


def _try(context: ssl.SSLContext, certificate: Path, leaf: bytes) -> CertificateInfo:
    """Shake hands in memory with a client that trusts exactly this certificate, at any time.

    Raise TlsError as it judges.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # which name a terminal calls is not known here
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    first = re.search(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----", leaf)
    if first is None:
        raise TlsError(f"certificate {certificate}: has no block BEGIN CERTIFICATE; {CURE}")
    client.load_verify_locations(cadata=first[0].decode("ascii"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    judge = client.wrap_bio(to_client, to_server, server_side=False)
    ends = (judge, context.wrap_bio(to_server, to_client, server_side=True))
    try:
        for _ in range(3):  # a TLS handshake needs two flights from each side; one more than that
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        reason = f"would be refused by the terminals ({error.verify_message})"
        raise TlsError(f"certificate {certificate}: {reason}; {CURE}") from error
    except ssl.SSLError as error:
        raise TlsError(f"certificate {certificate}: cannot be served over TLS ({error}); {CURE}") from error
    return _information(judge)


def _information(judge: ssl.SSLObject) -> CertificateInfo:
    found: Any = judge.getpeercert() or {}
    subjects = found.get("subjectAltName", ())
    return CertificateInfo(
        subject=_name(found.get("subject", ())),
        issuer=_name(found.get("issuer", ())),
        names=tuple(value for kind, value in subjects if kind == "DNS"),
        addresses=tuple(canonical(value) for kind, value in subjects if kind == "IP Address"),
        not_before=_time(found["notBefore"]),
        not_after=_time(found["notAfter"]),
        fingerprint_sha256=hashlib.sha256(judge.getpeercert(binary_form=True) or b"").hexdigest(),
    )


def _name(parts: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Write a name as RFC 4514 does, its most particular part first."""
    pairs = [f"{_SHORT.get(kind, kind)}={value}" for part in parts for kind, value in part]
    return ",".join(reversed(pairs))


def _time(text: str) -> datetime:
    """Read a time as OpenSSL prints it (`Jan  5 09:34:43 2018 GMT`), without what `time.strptime` loads for that."""
    month, day, clock, year, _ = text.split()
    return datetime.fromisoformat(f"{year}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{clock}+00:00")


# The certificate that a listener shows: one handshake, in which nothing is trusted and nothing is sent.


class NotShown(Exception):
    """No certificate came; the message says why, in words that follow on an address."""


def shown_certificate(host: str, port: int, *, seconds: float, server_name: str = "") -> bytes:
    """Return the certificate (DER) that a listener shows when asked for `server_name` (default: the host).

    Blocking, `seconds` at most for the connection and for each step of the handshake. Raises NotShown.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is read here, not trusted; no request follows
    try:
        with (
            closing(socket.create_connection((host, port), seconds)) as raw,
            context.wrap_socket(raw, server_hostname=server_name or host) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise NotShown(f"does not speak TLS 1.2 or newer there ({error.reason or error})") from error
    except TimeoutError as error:
        raise NotShown(f"does not answer within {seconds:g} s") from error
    except (OSError, ValueError) as error:  # ValueError: a host that cannot be a name (UnicodeError too)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise NotShown(f"cannot be reached ({reason})") from error
    if not certificate:
        raise NotShown("shows no certificate")
    return certificate
