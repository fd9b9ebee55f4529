"""Fields of a certificate, read from its DER form. No I/O.

One reader serves for the certificate of this machine, its CA, and the certificates that terminals show. The daemon
loads no library for certificates, and OpenSSL does not return a refused one. So this reads a few fields of X.509
(RFC 5280, 4.1): in DER everything is a tag, a length and content (X.690, 8.1). The input is untrusted: lengths are
checked, and texts are printable.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal

from posd.tls.check import CertificateInfo

#: Tags (X.690, 8.1.2): universal types, and the context-specific ones of X.509.
SEQUENCE, UTC_TIME, GENERALIZED_TIME = 0x30, 0x17, 0x18
VERSION, EXTENSIONS, DNS_NAME, URI, IP_ADDRESS = 0xA0, 0xA3, 0x82, 0x86, 0x87
#: Codecs of the texts that are not UTF-8: BMPString, UniversalString.
CODECS: Final = {0x1E: "utf-16-be", 0x1C: "utf-32-be"}

#: Object identifiers, encoded: subjectAltName (2.5.29.17), and the parts of a name with a short form in RFC 4514.
SUBJECT_ALT_NAME: Final = b"\x55\x1d\x11"
SHORT: Final = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x09": "STREET",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01": "UID",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19": "DC",
}
#: Parts of a name that may be a serial: common name, serial number (2.5.4.5).
SERIAL_PARTS: Final = (b"\x55\x04\x03", b"\x55\x04\x05")

_TIME = re.compile(r"\d{14}Z", re.ASCII)
#: Characters of a value that RFC 4514 escapes.
_SPECIAL = re.compile(r'[\\,+"<>;]|^[ #]| $')

Item = tuple[int, bytes]


def read_certificate(der: bytes) -> CertificateInfo:
    """Read a certificate. Raise ValueError if it is none."""
    fields = _fields(der)
    issuer, validity, subject = (content for _, content in fields[2:5])
    times = [_time(item) for item in _items(validity)]
    if len(times) != 2:
        raise ValueError("a validity has two times")
    alternatives = list(_alternatives(fields))
    return CertificateInfo(
        subject=_name(subject),
        issuer=_name(issuer),
        names=tuple(_printable(value.decode("ascii", "replace")) for tag, value in alternatives if tag == DNS_NAME),
        addresses=tuple(
            str(ipaddress.ip_address(value))
            for tag, value in alternatives
            if tag == IP_ADDRESS and len(value) in (4, 16)
        ),
        not_before=times[0],
        not_after=times[1],
        fingerprint_sha256=hashlib.sha256(der).hexdigest(),
    )


def has_serial(der: bytes, serial: str) -> bool:
    """Return whether a certificate has a serial, in any case of its letters.

    The serial may be the common name or the serial number of the subject. In the subjectAltName it may be a label of a
    DNS name, or a whole DNS name or URI. The function does not verify the certificate.
    """
    with suppress(ValueError):
        return serial.casefold() in {text.casefold() for text in _possible_serials(_fields(der))}
    return False


def _possible_serials(fields: list[Item]) -> Iterator[str]:
    for kind, (_, value) in _parts(fields[4][1]):
        if kind in SERIAL_PARTS:
            yield value.decode()
    for tag, value in _alternatives(fields):
        if tag in (DNS_NAME, URI):
            yield (name := value.decode("ascii"))
            if tag == DNS_NAME:
                yield from name.split(".")


def digest(certificate: bytes, kind: Literal["certificate", "public key"]) -> str:
    """Return the SHA-256 (hex) of a certificate (DER), or of its public key. Raise ValueError if it is none."""
    return hashlib.sha256(certificate if kind == "certificate" else public_key(certificate)).hexdigest()


def public_key(der: bytes) -> bytes:
    """Return the public key of a certificate with its algorithm (SubjectPublicKeyInfo, DER). Raise ValueError."""
    tag, content = _fields(der)[5]
    if tag != SEQUENCE:
        raise ValueError("a public key has another shape")
    size = len(content).to_bytes(4, "big").lstrip(b"\0")
    return bytes((tag, len(content)) if len(content) < 0x80 else (tag, 0x80 | len(size), *size)) + content


def _fields(der: bytes) -> list[Item]:
    """Return the fields of a certificate, without its version. Raise ValueError if it is none."""
    fields = list(_items(_only(_only(der, SEQUENCE), SEQUENCE, rest=True)))
    if fields and fields[0][0] == VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate has at least six fields")
    return fields


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
            raise ValueError("an item is longer than its container")
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
    if _TIME.fullmatch(text) is None:
        raise ValueError("a time has another form")
    return datetime.fromisoformat(f"{text[:8]}T{text[8:14]}").replace(tzinfo=UTC)


def _parts(data: bytes) -> Iterator[tuple[bytes, Item]]:
    """Yield type and value of each part of a name, the most general first."""
    for _, part in _items(data):
        for _, pair in _items(part):
            (_, kind), value = (*_items(pair), (0, b""), (0, b""))[:2]
            yield kind, value


def _name(data: bytes) -> str:
    """Return a name in the form of RFC 4514, its most specific part first."""
    found = []
    for kind, (tag, value) in _parts(data):
        text = _printable(value.decode(CODECS.get(tag, "utf-8"), "replace"))
        escaped = _SPECIAL.sub(r"\\\g<0>", text)
        found.append(f"{SHORT.get(kind) or _dotted(kind)}={escaped}")
    return ",".join(reversed(found))


def _dotted(identifier: bytes) -> str:
    """Return an object identifier as numbers with points between them (X.690, 8.19)."""
    numbers, number = list[int](), 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        return "?"
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _alternatives(fields: list[Item]) -> Iterator[Item]:
    """Yield the items of the subjectAltName."""
    extensions = next((content for tag, content in fields[6:] if tag == EXTENSIONS), None)
    for _, extension in _items(_only(extensions, SEQUENCE)) if extensions is not None else ():
        parts = list(_items(extension))
        if len(parts) >= 2 and parts[0][1] == SUBJECT_ALT_NAME:
            yield from _items(_only(parts[-1][1], SEQUENCE))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
