"""What a certificate says, read from its DER form: enough to tell people why it is refused. It decides nothing.

The daemon has no library for certificates in memory (`posd.tls`), and OpenSSL keeps one that it refuses to itself. So
this reads the few fields that matter out of X.509 (RFC 5280, 4.1) by DER's rule that everything is a tag, a length and
content (X.690, 8.1). What comes is a stranger's: lengths are checked, texts are cut and cleaned.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

#: Tags (X.690, 8.1.2): universal types, and the context-specific ones of X.509.
SEQUENCE, UTC_TIME, GENERALIZED_TIME = 0x30, 0x17, 0x18
VERSION, EXTENSIONS, DNS_NAME, IP_ADDRESS = 0xA0, 0xA3, 0x82, 0x87

#: Object identifiers, encoded: subjectAltName (2.5.29.17), and the parts of a name that people know (2.5.4.x).
SUBJECT_ALT_NAME: Final = b"\x55\x1d\x11"
NAME_PARTS: Final = {b"\x55\x04\x03": "CN", b"\x55\x04\x0a": "O", b"\x55\x04\x0b": "OU", b"\x55\x04\x06": "C"}

#: Names that are shown of one certificate, and characters of one text.
MAX_NAMES = 8
MAX_TEXT = 80

Item = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields, cleaned for people; `names` are DNS names and addresses, `self_signed` as its names say."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    self_signed: bool


def read(der: bytes) -> Certificate:
    """Read a certificate. Raise ValueError where it is none."""
    certificate = _only(der, SEQUENCE)
    fields = list(_items(_only(certificate, SEQUENCE, rest=True)))
    if fields and fields[0][0] == VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate has at least six fields")
    issuer, validity, subject = (content for _, content in fields[2:5])
    times = [_time(item) for item in _items(validity)]
    if len(times) != 2:
        raise ValueError("a validity has two times")
    extensions = next((content for tag, content in fields[6:] if tag == EXTENSIONS), None)
    return Certificate(
        subject=_name(subject),
        issuer=_name(issuer),
        names=tuple(_alternatives(extensions))[:MAX_NAMES] if extensions is not None else (),
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


def _alternatives(data: bytes) -> Iterator[str]:
    for _, extension in _items(_only(data, SEQUENCE)):
        parts = list(_items(extension))
        if len(parts) < 2 or parts[0][1] != SUBJECT_ALT_NAME:
            continue
        for tag, value in _items(_only(parts[-1][1], SEQUENCE)):
            if tag == DNS_NAME:
                yield clean(value.decode("ascii", "replace"))
            elif tag == IP_ADDRESS and len(value) in (4, 16):
                yield str(ipaddress.ip_address(value))


def clean(text: str) -> str:
    """Return a text that can stand in a log and on a screen: printable, and not long."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_TEXT])
    return shown + ("…" if len(text) > MAX_TEXT else "")
