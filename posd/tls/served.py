"""A certificate with its key as the listener serves it: loaded into a new context and tested first.

The test is a handshake in memory with a client that trusts exactly this certificate. It needs only `ssl`, and detects
what a terminal would detect: a mismatched key, a passed end, a certificate that is not for servers. It also returns the
certificate's fields.
"""

import contextlib
import hashlib
import re
import socket
import ssl
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from posd.base import tls_contexts
from posd.tls.check import RENEWAL_DAYS, CertificateInfo, Validity, canonical
from posd.tls.files import CURE, TlsError, TlsFiles, read

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Abbreviations of RFC 4514 for OpenSSL's names.
_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C"}


class OutsideDates(TlsError):
    """Certificate that has ended, or is from the future."""

    def __init__(self, words: str, validity: Validity) -> None:
        super().__init__(words)
        self.validity = validity


class ServingContext(msgspec.Struct, frozen=True):
    """A context with its certificate, and the certificate's fields."""

    context: ssl.SSLContext
    info: CertificateInfo


def load(certificate: Path, private_key: Path, at: datetime | None) -> ServingContext:
    """Load a certificate with its key into a new server context (TLS 1.2 or newer, HTTP/1.1 by ALPN), and test it.

    Raise TlsError if a file is missing or unreadable, the two do not match, or the certificate is not for servers.
    Raise OutsideDates if it is not valid at `at` (None: dates are not checked).
    """
    leaf = read(certificate, "certificate")
    read(private_key, "private key")

    def passphrase() -> str:
        raise TlsError(f"private key {private_key}: is encrypted; store it without a passphrase, with mode 0600")

    context = tls_contexts.server()
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
    return ServingContext(context, info)


def _judge(info: CertificateInfo, certificate: Path, at: datetime) -> None:
    """Raise OutsideDates if a certificate is not valid at that moment."""
    day, validity = at.date().isoformat(), info.validity(at)
    words = {
        Validity.EXPIRED: f"has expired (today is {day}); renew it (posd tls renew), or put a valid pair of the shop's "
        "own PKI there",
        Validity.FUTURE: f"is not valid yet (today is {day}; is the clock of this machine right?); {CURE}",
    }
    if validity in words:
        raise OutsideDates(f"certificate {certificate}: {words[validity]}", validity)


def _try(context: ssl.SSLContext, certificate: Path, leaf: bytes) -> CertificateInfo:
    """Make a handshake in memory with a client that trusts exactly this certificate, without a check of dates.

    Raise TlsError if it fails.
    """
    client = tls_contexts.client()
    client.check_hostname = False  # the name that a terminal calls is unknown here
    client.verify_flags |= tls_contexts.NO_CHECK_TIME
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
    """Return a name in the form of RFC 4514, its most specific part first."""
    pairs = [f"{_SHORT.get(kind, kind)}={value}" for part in parts for kind, value in part]
    return ",".join(reversed(pairs))


def _time(text: str) -> datetime:
    """Parse a time in OpenSSL's format (`Jan  5 09:34:43 2018 GMT`), without the modules of `time.strptime`."""
    month, day, clock, year, _ = text.split()
    return datetime.fromisoformat(f"{year}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{clock}+00:00")


def new_ca_signs_from(made: TlsFiles) -> datetime | None:
    """Return the time from which the waiting CA signs, None without one. Raise OSError if the CA cannot be read."""
    if not made.next_ca_certificate.exists():
        return None
    old: Any = tls_contexts.client(made.ca_certificate).get_ca_certs()[0]
    return _time(old["notAfter"]) - timedelta(days=RENEWAL_DAYS)


# The certificate that a listener shows: one handshake, in which nothing is trusted and nothing is sent.


class CertificateNotShown(Exception):
    """Certificate that was not shown; the message has the reason, in words that follow an address."""


def shown_certificate(host: str, port: int, *, seconds: float, server_name: str = "") -> bytes:
    """Return the certificate (DER) that a listener shows for `server_name` (default: the host).

    Blocking, `seconds` at most for the connection and for each step of the handshake. Raise CertificateNotShown.
    """
    context = tls_contexts.unverified_client()  # it is read, not trusted; no request follows
    try:
        with (
            closing(socket.create_connection((host, port), seconds)) as raw,
            context.wrap_socket(raw, server_hostname=server_name or host) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise CertificateNotShown(f"does not speak TLS 1.2 or newer there ({error.reason or error})") from error
    except TimeoutError as error:
        raise CertificateNotShown(f"does not answer within {seconds:g} s") from error
    except (OSError, ValueError) as error:  # ValueError: a host that cannot be a name (UnicodeError too)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CertificateNotShown(f"cannot be reached ({reason})") from error
    if not certificate:
        raise CertificateNotShown("shows no certificate")
    return certificate
