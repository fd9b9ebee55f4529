"""TLS towards terminals: a CA, or a pinned fingerprint; verification is never off.

A connection that fails here carries no request: it is provably not sent. Why it failed is told in words that a person
in the shop can act on, which takes a look at the certificate that was refused; OpenSSL does not hand that one out, so
it is fetched once more over a connection on which nothing is sent and nothing believed.
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
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from posd.tls import server_hostname

# OpenSSL's X509_V_ERR numbers (x509_vfy.h); Python's ssl passes them on without naming them.
_NOT_YET_VALID = 9
_EXPIRED = 10
_WRONG_NAME = frozenset({62, 64})  # host name, IP address
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})  # no issuer, signed by itself (2), no local issuer, no leaf signature


#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME (x509_vfy.h).
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)


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


@functools.cache
def nobody() -> ssl.SSLContext:
    """Return a context that trusts no certificate, for terminals that are called over plain HTTP.

    To read the system's CAs takes 20 ms, and 1 MB for good.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def judge_dates(context: ssl.SSLContext, judged: bool) -> None:
    """Have the dates of certificates judged or not; what a wrong clock says of them must not keep payments away.

    Chain and name are verified in any case.
    """
    flags = context.verify_flags
    wanted = flags & ~_NO_CHECK_TIME if judged else flags | _NO_CHECK_TIME
    if wanted != flags:
        context.verify_flags = wanted


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
        certificate = read_certificate(shown) if shown is not None else None
    what = _reason(error, certificate, expected, ca_file, now)
    found = f" (its fingerprint is {hashlib.sha256(shown).hexdigest()})" if shown is not None else ""
    return f"the terminal's certificate {what}{found}"


def _reason(
    error: ssl.SSLCertVerificationError,
    certificate: "Certificate | None",
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
        server_hostname=server_hostname(called(base_url, server_name)),
    )
    try:
        certificate: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport fails so where it is closed
            writer.transport.abort()
    return certificate


# Looking whether a terminal is there: TCP, TLS as for a payment, and goodbye. No request is sent.

#: How long the terminal has for its part of the goodbye, in seconds.
GOODBYE_SECONDS = 1.0

#: Why a connection does not come about -> words.
WORDS: Mapping[int, str] = {
    errno.ECONNREFUSED: "nothing listens there: the device is on, but it takes no connections on that port",
    errno.EHOSTUNREACH: "nothing answers at that address: is the terminal switched on and in this network?",
    errno.ENETUNREACH: "this machine has no network in which that address lies",
    errno.ECONNRESET: "the device closed the connection at once",
}


class Reached(msgspec.Struct, frozen=True):
    """Something is there, and over https it is trusted: the SHA-256 fingerprint (hex) of its certificate, and that."""

    certificate: str | None
    der: bytes | None = None


class Unreached(msgspec.Struct, frozen=True):
    """Why not, in words; `refused`: something is there, but its certificate is not the one that is trusted."""

    reason: str
    refused: bool = False


def fingerprint(certificate: bytes | None) -> str | None:
    """Return the SHA-256 fingerprint (hex, lower case) of a certificate."""
    return hashlib.sha256(certificate).hexdigest() if certificate else None


#: Says why the certificate at a base URL was refused.
Explain = Callable[[ssl.SSLCertVerificationError, str], Awaitable[str]]


async def probe(
    base_url: str, trust: ssl.SSLContext, server_name: str, seconds: float, explain: Explain
) -> Reached | Unreached:
    """Connect and close again, within `seconds` for the first. `server_name` is what the certificate must name."""
    parts = urlsplit(base_url)
    host = unquote(parts.hostname or "")  # a scope stands in a URL as %25eth0 (RFC 6874)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(seconds):
            _, writer = await (
                asyncio.open_connection(
                    host, port, ssl=trust, server_hostname=server_hostname(server_name or host.partition("%")[0])
                )
                if secure
                else asyncio.open_connection(host, port)
            )
    except TimeoutError:
        return Unreached(f"no connection within {seconds:g} s: is the terminal switched on and in this network?")
    except ssl.SSLCertVerificationError as error:
        return Unreached(await explain(error, base_url), refused=True)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; ValueError: a name that cannot be looked up
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
    writer.transport.abort()  # it does not answer the goodbye


def _unreached(error: OSError | ValueError) -> Unreached:
    if isinstance(error, ssl.SSLError):
        return Unreached(f"it does not speak TLS as it should ({error.reason or type(error).__name__})")
    if isinstance(error, OSError):
        return Unreached(WORDS.get(error.errno or 0) or f"cannot connect: {error.strerror or error}")
    return Unreached("its name cannot be looked up")


# What a certificate says, read from its DER form: enough to tell people why it is refused, and whether one that was
# verified bears a serial (`bears`). Nothing else is decided by it.
#
# The daemon has no library for certificates in memory (`posd.tls`), and OpenSSL keeps one that it refuses to
# itself. So this reads the few fields that matter out of X.509 (RFC 5280, 4.1) by DER's rule that everything is a
# tag, a length and content (X.690, 8.1). What comes is a stranger's: lengths are checked, texts are cut and
# cleaned.

#: Tags (X.690, 8.1.2): universal types, and the context-specific ones of X.509.
SEQUENCE, UTC_TIME, GENERALIZED_TIME = 0x30, 0x17, 0x18
VERSION, EXTENSIONS, DNS_NAME, URI, IP_ADDRESS = 0xA0, 0xA3, 0x82, 0x86, 0x87

#: Object identifiers, encoded: subjectAltName (2.5.29.17), and the parts of a name that people know (2.5.4.x).
SUBJECT_ALT_NAME: Final = b"\x55\x1d\x11"
#: The parts of a name that may be a serial: common name, serial number (2.5.4.5).
SERIAL_PARTS: Final = (b"\x55\x04\x03", b"\x55\x04\x05")
NAME_PARTS: Final = {b"\x55\x04\x03": "CN", b"\x55\x04\x0a": "O", b"\x55\x04\x0b": "OU", b"\x55\x04\x06": "C"}

#: Names that are shown of one certificate, and characters of one text.
MAX_NAMES = 8
MAX_TEXT = 80

Item = tuple[int, bytes]


class Certificate(msgspec.Struct, frozen=True):
    """The fields, cleaned for people; `names` are DNS names and addresses, `self_signed` as its names say."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    self_signed: bool


def bears(der: bytes, serial: str) -> bool:
    """Whether a certificate bears a serial, in any case of its letters.

    It does as common name or serial number of its subject, or in its subjectAltName: as a label of a DNS name, or as a
    whole DNS name or URI. Whether the certificate is to be believed is not looked at.
    """
    with suppress(ValueError):
        fields = _fields(der)
        return serial.casefold() in {text.casefold() for text in _said(fields)}
    return False


def _said(fields: list[Item]) -> Iterator[str]:
    """Yield what may be the serial of the device that a certificate is for."""
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
    """Return the fields of a certificate, without its version. Raise ValueError where it is none."""
    fields = list(_items(_only(_only(der, SEQUENCE), SEQUENCE, rest=True)))
    if fields and fields[0][0] == VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate has at least six fields")
    return fields


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate. Raise ValueError where it is none."""
    fields = _fields(der)
    issuer, validity, subject = (content for _, content in fields[2:5])
    times = [_time(item) for item in _items(validity)]
    if len(times) != 2:
        raise ValueError("a validity has two times")
    return Certificate(
        subject=_name(subject),
        issuer=_name(issuer),
        names=tuple(_alternatives(fields))[:MAX_NAMES],
        not_before=times[0],
        not_after=times[1],
        self_signed=issuer == subject,
    )


def _items(data: bytes) -> Iterator[Item]:
    """Yield tag and content of each item that stands in `data`. Raise ValueError."""
    at = 0
    while at < len(data):
        try:
            tag, size = data[at], data[at + 1]
        except IndexError:
            raise ValueError("an item is cut off") from None
        at += 2
        if size & 0x80:  # the length stands in so many further bytes
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
    """Write the parts of a name that people know, the most particular first; its bytes decide nothing."""
    found = []
    for _, part in _items(data):
        for _, pair in _items(part):
            (_, kind), (_, value) = (*_items(pair), (0, b""), (0, b""))[:2]
            if kind in NAME_PARTS:
                found.append(f"{NAME_PARTS[kind]}={clean(value.decode('utf-8', 'replace'))}")
    return ", ".join(reversed(found[-MAX_NAMES:])) or "nobody"


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
    """Return a text that can stand in a log and on a screen: printable, and not long."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_TEXT])
    return shown + ("…" if len(text) > MAX_TEXT else "")
