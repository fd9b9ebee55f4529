"""TLS towards terminals: a CA, or a pinned fingerprint; verification is never off.

A connection that fails here carries no request: it is provably not sent. The message about the failure names a cure,
which requires the refused certificate. OpenSSL does not return it, so a second connection fetches it. On that
connection nothing is sent and nothing is trusted.
"""

import asyncio
import errno
import functools
import hashlib
import hmac
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from posd.base import tls_contexts
from posd.base.tls_contexts import NO_CHECK_TIME
from posd.config import Pin
from posd.tls import server_hostname

# OpenSSL's X509_V_ERR numbers (x509_vfy.h); Python's ssl has no names for them.
_NOT_YET_VALID = 9
_EXPIRED = 10
_WRONG_NAME = frozenset({62, 64})  # host name, IP address
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})  # no issuer, self-signed (2), no local issuer, no leaf signature


class AnotherFingerprint(ssl.SSLCertVerificationError):
    """Certificate, or public key, other than the pinned one; the message has both fingerprints."""


class TerminalTrust(msgspec.Struct, frozen=True):
    """What a device must show on a connection.

    `context`: checks it. `server_name`: the name that a certificate must carry ("" for the host). `ca_file` and
    `trusts_system`: already in `context`; named in the message about a refused certificate. `serial`: a certificate of
    that CA with this serial proves the terminal's identity ("": none does).
    """

    context: ssl.SSLContext
    server_name: str = ""
    ca_file: Path | None = None
    trusts_system: bool = False
    serial: str = ""


def context(ca_file: Path | None, pin: Pin | None = None, *, system: bool = False) -> ssl.SSLContext:
    """Return the context for connections to one terminal.

    With a pin exactly that certificate, or that public key, is accepted, with any name and issuer. Otherwise chain and
    name are verified against `ca_file`, or the system's CAs if `system`; with neither, none is accepted. Raise OSError,
    which names the file, if the CA file cannot be used.
    """
    if pin is None:
        try:
            return tls_contexts.client(ca_file, system=system)
        except OSError as error:  # ssl.SSLError is one; neither names the file
            raise OSError(
                f"the CA file {ca_file} holds no certificate that can be read ({error}); it must be the CA of the "
                "terminal, in PEM form"
            ) from error
    pinned = tls_contexts.unverified_client()
    pinned.sslobject_class = _pinned_object(pin)  # accepts one certificate or key and no other
    return pinned


@functools.cache
def nobody() -> ssl.SSLContext:
    """Return a context that trusts no certificate, for terminals that are called over plain HTTP.

    Reading the system's CAs takes 20 ms, and 1 MB permanently.
    """
    return tls_contexts.client()


def judge_dates(context: ssl.SSLContext, judged: bool) -> None:
    """Set whether the dates of certificates are checked; a wrong clock must not prevent payments.

    Chain and name are verified in any case.
    """
    flags = context.verify_flags
    wanted = flags & ~NO_CHECK_TIME if judged else flags | NO_CHECK_TIME
    if wanted != flags:
        context.verify_flags = wanted


def _pinned_object(pin: Pin) -> type[ssl.SSLObject]:
    class PinnedObject(ssl.SSLObject):
        """TLS object that ends the handshake, before anything is sent, if certificate or key is not the pinned one."""

        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert(binary_form=True) or b""
            try:
                found = digest(certificate, pin.kind)
            except ValueError:
                found = "none"
            if not hmac.compare_digest(found, pin.sha256):
                raise AnotherFingerprint(
                    1,
                    f"the terminal's {pin.kind} has fingerprint {found}, the configuration expects {pin.sha256}; if "
                    f"the terminal was given a new {pin.kind}, compare it there and pin it: posd terminals pin",
                )

    return PinnedObject


def digest(certificate: bytes, kind: Literal["certificate", "public key"]) -> str:
    """Return the SHA-256 (hex) of a certificate (DER), or of its public key. Raise ValueError if it is none."""
    return hashlib.sha256(certificate if kind == "certificate" else public_key(certificate)).hexdigest()


def refusal(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the refused certificate's error behind an error, else None."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def words(
    error: ssl.SSLCertVerificationError, shown: bytes | None, base_url: str, given: TerminalTrust, now: datetime
) -> str:
    """Return why a certificate at a base URL was refused and the cure, in words.

    `shown`: the certificate (DER), None if it could not be fetched.
    """
    if isinstance(error, AnotherFingerprint):
        return str(error)
    certificate = None
    with suppress(ValueError):
        certificate = read_certificate(shown) if shown is not None else None
    what = _reason(error, certificate, called(base_url, given.server_name), given, now)
    found = f" (its fingerprint is {hashlib.sha256(shown).hexdigest()})" if shown is not None else ""
    return f"the terminal's certificate {what}{found}"


def _reason(
    error: ssl.SSLCertVerificationError,
    certificate: "PeerCertificate | None",
    expected: str,
    given: TerminalTrust,
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
        if given.ca_file is None and not given.trusts_system:
            return (
                f"{by}, and the configuration trusts no certificate for this terminal, whose address was announced: "
                "set ca_file to the CA of the terminal, pin the certificate (posd terminals pin), or set trust to "
                '"system" if its certificate is from a public CA'
            )
        trusted = f"the CA in {given.ca_file} does" if given.ca_file is not None else "the CAs of this system do"
        return (
            f"{by}, for which {trusted} not vouch: set ca_file to the CA of the terminal, or pin the certificate "
            "(posd terminals pin)"
        )
    return (
        f"breaks a rule, itself or its CA ({error.verify_message}), and another ca_file does not help: pin the "
        "certificate (posd terminals pin), or have its CA issue a right one"
    )


def called(base_url: str, server_name: str) -> str:
    """Return the name that the certificate at a base URL must have."""
    return server_name or unquote(urlsplit(base_url).hostname or "").partition("%")[0]


async def shown(base_url: str, server_name: str) -> bytes | None:
    """Return the certificate (DER) shown at a base URL. Nothing is sent. Raise OSError, ValueError."""
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


# Probe of a terminal: TCP, TLS as for a payment, and goodbye. No request is sent.

#: Seconds that the terminal has for its part of the goodbye.
GOODBYE_SECONDS = 1.0

#: Error of a failed connection -> words.
WORDS: Mapping[int, str] = {
    errno.ECONNREFUSED: "nothing listens there: the device is on, but it takes no connections on that port",
    errno.EHOSTUNREACH: "nothing answers at that address: is the terminal switched on and in this network?",
    errno.ENETUNREACH: "this machine has no network in which that address lies",
    errno.ECONNRESET: "the device closed the connection at once",
}


class Reached(msgspec.Struct, frozen=True):
    """A device replies, and over https it is trusted: the SHA-256 fingerprint (hex) of its certificate, and the
    certificate.
    """

    certificate: str | None
    der: bytes | None = None


class Unreached(msgspec.Struct, frozen=True):
    """The reason of a failure, in words; `refused`: a device replies, but its certificate is not trusted."""

    reason: str
    refused: bool = False


def fingerprint(certificate: bytes | None) -> str | None:
    """Return the SHA-256 fingerprint (hex, lower case) of a certificate."""
    return hashlib.sha256(certificate).hexdigest() if certificate else None


#: Returns why the certificate at a base URL was refused, in words.
Explain = Callable[[ssl.SSLCertVerificationError, str], Awaitable[str]]


async def probe(base_url: str, given: TerminalTrust, seconds: float, explain: Explain) -> Reached | Unreached:
    """Connect within `seconds`, and close again."""
    parts = urlsplit(base_url)
    host = unquote(parts.hostname or "")  # a scope in a URL is written as %25eth0 (RFC 6874)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(seconds):
            _, writer = await (
                asyncio.open_connection(
                    host,
                    port,
                    ssl=given.context,
                    server_hostname=server_hostname(called(base_url, given.server_name)),
                )
                if secure
                else asyncio.open_connection(host, port)
            )
    except TimeoutError:
        return Unreached(f"no connection within {seconds:g} s: is the terminal switched on and in this network?")
    except ssl.SSLCertVerificationError as error:
        return Unreached(await explain(error, base_url), refused=True)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; ValueError: a name that cannot be resolved
        return _unreached(error)
    connection = writer.get_extra_info("ssl_object")
    der = connection.getpeercert(binary_form=True) if connection is not None else None
    seen = Reached(fingerprint(der), der)
    await _goodbye(writer)
    return seen


async def _goodbye(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await writer.wait_closed()
            return
    writer.transport.abort()  # it does not reply to the goodbye


def _unreached(error: OSError | ValueError) -> Unreached:
    if isinstance(error, ssl.SSLError):
        return Unreached(f"it does not speak TLS as it should ({error.reason or type(error).__name__})")
    if isinstance(error, OSError):
        return Unreached(WORDS.get(error.errno or 0) or f"cannot connect: {error.strerror or error}")
    return Unreached("its name cannot be looked up")


# Fields of a certificate, read from its DER form. They explain a refusal, and show whether a verified certificate has a
# serial (`bears`). They decide nothing else.
#
# The daemon loads no library for certificates (`posd.tls`), and OpenSSL does not return a refused one. So this reads a
# few fields of X.509 (RFC 5280, 4.1): in DER everything is a tag, a length and content (X.690, 8.1). The input is
# untrusted: lengths are checked, texts are cut and cleaned.

#: Tags (X.690, 8.1.2): universal types, and the context-specific ones of X.509.
SEQUENCE, UTC_TIME, GENERALIZED_TIME = 0x30, 0x17, 0x18
VERSION, EXTENSIONS, DNS_NAME, URI, IP_ADDRESS = 0xA0, 0xA3, 0x82, 0x86, 0x87

#: Object identifiers, encoded: subjectAltName (2.5.29.17), and the familiar parts of a name (2.5.4.x).
SUBJECT_ALT_NAME: Final = b"\x55\x1d\x11"
#: Parts of a name that may be a serial: common name, serial number (2.5.4.5).
SERIAL_PARTS: Final = (b"\x55\x04\x03", b"\x55\x04\x05")
NAME_PARTS: Final = {b"\x55\x04\x03": "CN", b"\x55\x04\x0a": "O", b"\x55\x04\x0b": "OU", b"\x55\x04\x06": "C"}

#: Most names shown of one certificate, and most characters of one text.
MAX_NAMES = 8
MAX_TEXT = 80

Item = tuple[int, bytes]


class PeerCertificate(msgspec.Struct, frozen=True):
    """Fields of a certificate, cleaned for display; `names` are DNS names and addresses, `self_signed` by its names."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    self_signed: bool


def bears(der: bytes, serial: str) -> bool:
    """Return whether a certificate has a serial, in any case of its letters.

    The serial may be the common name or the serial number of the subject. In the subjectAltName it may be a label of a
    DNS name, or a whole DNS name or URI. The function does not verify the certificate.
    """
    with suppress(ValueError):
        fields = _fields(der)
        return serial.casefold() in {text.casefold() for text in _said(fields)}
    return False


def _said(fields: list[Item]) -> Iterator[str]:
    """Yield the texts that may be the serial of the certificate's device."""
    for _, part in _items(fields[4][1]):
        for _, pair in _items(part):
            (_, kind), (_, value) = (*_items(pair), (0, b""), (0, b""))[:2]
            if kind in SERIAL_PARTS:
                yield value.decode()
    for tag, value in _names(fields):
        if tag in (DNS_NAME, URI):
            yield (name := value.decode("ascii"))
            if tag == DNS_NAME:
                yield from name.split(".")


def _fields(der: bytes) -> list[Item]:
    """Return the fields of a certificate, without its version. Raise ValueError if it is none."""
    fields = list(_items(_only(_only(der, SEQUENCE), SEQUENCE, rest=True)))
    if fields and fields[0][0] == VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate has at least six fields")
    return fields


def public_key(der: bytes) -> bytes:
    """Return the public key of a certificate with its algorithm (SubjectPublicKeyInfo, DER). Raise ValueError."""
    tag, content = _fields(der)[5]
    if tag != SEQUENCE:
        raise ValueError("a public key has another shape")
    size = len(content).to_bytes(4, "big").lstrip(b"\0")
    return bytes((tag, len(content)) if len(content) < 0x80 else (tag, 0x80 | len(size), *size)) + content


def read_certificate(der: bytes) -> PeerCertificate:
    """Read a certificate. Raise ValueError if it is none."""
    fields = _fields(der)
    issuer, validity, subject = (content for _, content in fields[2:5])
    times = [_time(item) for item in _items(validity)]
    if len(times) != 2:
        raise ValueError("a validity has two times")
    return PeerCertificate(
        subject=_name(subject),
        issuer=_name(issuer),
        names=tuple(_alternatives(fields))[:MAX_NAMES],
        not_before=times[0],
        not_after=times[1],
        self_signed=issuer == subject,
    )


def _items(data: bytes) -> Iterator[Item]:
    """Yield tag and content of each item in `data`. Raise ValueError."""
    at = 0
    while at < len(data):
        try:
            tag, size = data[at], data[at + 1]
        except IndexError:
            raise ValueError("an item is cut off") from None
        at += 2
        if size & 0x80:  # the length is in so many further bytes
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
            if not 1 <= count <= 4:
                raise ValueError("a length is not DER's")
        if at + size > len(data):
            raise ValueError("an item is longer than what it stands in")
        yield tag, data[at : at + size]
        at += size


def _only(data: bytes, tag: int, *, rest: bool = False) -> bytes:
    """Return the content of the first item, which must have that tag; `rest`: others may follow it."""
    found = next(_items(data), None)
    if found is None or found[0] != tag or (not rest and len(list(_items(data))) != 1):
        raise ValueError("it has another shape")
    return found[1]


def _time(item: Item) -> datetime:
    tag, content = item
    text = content.decode("ascii")
    if tag == UTC_TIME:  # years 50 to 99 are of the last century (RFC 5280, 4.1.2.5.1)
        text = ("19" if text >= "50" else "20") + text
    elif tag != GENERALIZED_TIME:
        raise ValueError("a time has another type")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _name(data: bytes) -> str:
    """Return the familiar parts of a name as text, the most specific first; for display only."""
    found = []
    for _, part in _items(data):
        for _, pair in _items(part):
            (_, kind), (_, value) = (*_items(pair), (0, b""), (0, b""))[:2]
            if kind in NAME_PARTS:
                found.append(f"{NAME_PARTS[kind]}={clean(value.decode('utf-8', 'replace'))}")
    return ", ".join(reversed(found[-MAX_NAMES:])) or "an empty name"


def _names(fields: list[Item]) -> Iterator[Item]:
    """Yield the items of the subjectAltName."""
    extensions = next((content for tag, content in fields[6:] if tag == EXTENSIONS), None)
    for _, extension in _items(_only(extensions, SEQUENCE)) if extensions is not None else ():
        parts = list(_items(extension))
        if len(parts) >= 2 and parts[0][1] == SUBJECT_ALT_NAME:
            yield from _items(_only(parts[-1][1], SEQUENCE))


def _alternatives(fields: list[Item]) -> Iterator[str]:
    for tag, value in _names(fields):
        if tag == DNS_NAME:
            yield clean(value.decode("ascii", "replace"))
        elif tag == IP_ADDRESS and len(value) in (4, 16):
            yield str(ipaddress.ip_address(value))


def clean(text: str) -> str:
    """Return a text that is safe in a log and on a screen: printable, and short."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_TEXT])
    return shown + ("…" if len(text) > MAX_TEXT else "")
