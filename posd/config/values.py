"""Readers of single values: TOML value in, typed value out, UnusableValueError with every fault otherwise.

A reader is a function of the raw value and of where the configuration file stands (`Base`).
"""

import ipaddress
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from posd.config.problems import Fault, UnusableValueError, unusable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Base:
    """What readers need to know of the file: relative paths start from `directory`; `check_files` is whether the
    files that it names are opened, to see that they can be."""

    directory: Path
    check_files: bool = True


Reader = Callable[[object, Base], T]

#: TOML's names for what tomllib makes of them.
_TYPES = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


#: TOML's integers have 64 bits.
MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a listener binds: an IP address (IPv6 without brackets) and a port, 0 for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def type_name(raw: object) -> str:
    """Name the TOML type of a value for people."""
    return next((name for kind, name in _TYPES.items() if type(raw) is kind), "a date or time")


def _typed(raw: object, kind: type[T]) -> T:
    if type(raw) is not kind:
        raise unusable(f"must be {_TYPES[kind]}, is {type_name(raw)}", f"write {_TYPES[kind]}")
    return raw


def text(raw: object, _: Base) -> str:
    """Any one-line string."""
    value = _typed(raw, str)
    if not value.isprintable():
        raise unusable("contains a control character", "write it on one line without tabs")
    return value


def boolean(raw: object, _: Base) -> bool:
    """True or false."""
    return _typed(raw, bool)


def matching(pattern: str, what: str, example: str) -> Reader[str]:
    """Make a reader of strings that match `pattern` as a whole."""
    compiled = re.compile(pattern)

    def read(raw: object, _: Base) -> str:
        value = _typed(raw, str)
        if compiled.fullmatch(value) is None:
            raise unusable(f"{value!r} is not {what}", f"write {example}")
        return value

    return read


def one_of(*words: str) -> Reader[str]:
    """Make a reader of one of some words."""

    def read(raw: object, _: Base) -> str:
        value = _typed(raw, str)
        if value not in words:
            raise unusable(f"{value!r} is not known", f"write one of: {', '.join(words)}")
        return value

    return read


def whole(least: int, most: int) -> Reader[int]:
    """Make a reader of whole numbers in a range, ends included."""

    def read(raw: object, _: Base) -> int:
        value = _typed(raw, int)
        if not least <= value <= most:
            raise unusable(f"{_written(value)} is out of range", f"write a whole number from {least} to {most}")
        return value

    return read


def _written(number: float) -> str:
    """Write a number for people; TOML's hexadecimal ones can be longer than Python writes them out."""
    return "a number of more than 19 digits" if isinstance(number, int) and abs(number) > MAX_INTEGER else str(number)


def seconds(least: float, most: float) -> Reader[float]:
    """Make a reader of a number of seconds in a range, ends included."""

    def read(raw: object, _: Base) -> float:
        if type(raw) is not int and type(raw) is not float:
            raise unusable(f"must be a number of seconds, is {type_name(raw)}", "write a number, without quotes")
        if not least <= raw <= most:  # refuses nan too
            raise unusable(f"{_written(raw)} seconds is out of range", f"write a number from {least:g} to {most:g}")
        return float(raw)

    return read


def path(raw: object, base: Base) -> Path:
    """A path, relative to the directory of the configuration file."""
    value = text(raw, base)
    if not value:
        raise unusable("is empty", "write a path")
    return base.directory / value


def readable_file(raw: object, base: Base) -> Path | None:
    """The path of a file that can be read now; None where the string is empty."""
    if text(raw, base) == "":
        return None
    found = path(raw, base)
    if not base.check_files:
        return found
    try:
        with found.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise unusable(
            f"names {found}, which cannot be read ({error.strerror})",
            "correct the path, or make the file readable for the user that runs posd",
        ) from error
    return found


def textfile(raw: object, base: Base) -> Path | None:
    """The path of a file for node_exporter, which reads `*.prom` alone; None where the string is empty."""
    if text(raw, base) == "":
        return None
    found = path(raw, base)
    if found.suffix != ".prom":
        raise unusable(
            f"{found} does not end in .prom, and node_exporter reads no other files",
            'write it as in "/var/lib/node_exporter/textfile/posd.prom"',
        )
    return found


def listen_address(raw: object, _: Base) -> ListenAddress:
    """`ADDRESS:PORT`, IPv6 in brackets."""
    value = _typed(raw, str)
    host, _colon, port = value.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not is_address(bare) or (":" in bare) != (bare != host):
        raise unusable(f"{value!r} has no IP address before the port", 'write ADDRESS:PORT, as in "0.0.0.0:8443"')
    if re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > 65535:
        raise unusable(f"{value!r} has no port from 0 to 65535", 'write ADDRESS:PORT, as in "0.0.0.0:8443"')
    return ListenAddress(bare, int(port))


def loopback_listen_address(raw: object, base: Base) -> ListenAddress | None:
    """`ADDRESS:PORT` on this machine alone; None where the string is empty."""
    if text(raw, base) == "":
        return None
    value = listen_address(raw, base)
    if not ipaddress.ip_address(value.host).is_loopback:
        raise unusable(f"{value} can be reached from the network", "write a loopback address: 127.0.0.1:PORT")
    return value


def advertised_host(raw: object, base: Base) -> str:
    """A host name or address that other machines can call, IPv6 without brackets; or the empty string."""
    value = text(raw, base)
    if value == "":
        return ""
    if is_address(value):
        if ipaddress.ip_address(value).is_unspecified:
            raise unusable(f"{value} is no address that a terminal can call", 'write this machine\'s address, or ""')
        return value
    if _HOST.fullmatch(value) is None or _ADDRESS_LIKE.fullmatch(value):
        raise unusable(f"{value!r} is neither a host name nor an IP address", "write it without scheme and port")
    return value


def certificate_name(raw: object, base: Base) -> str:
    """A host name or address that a certificate carries, IPv6 without brackets; or the empty string."""
    value = text(raw, base)
    if value == "" or is_address(value):
        return value
    if _HOST.fullmatch(value) is None or _ADDRESS_LIKE.fullmatch(value):
        raise unusable(
            f"{value!r} is neither a host name nor an IP address",
            "write one name as it stands in the certificate (posd terminals pin SERIAL shows them), without scheme, "
            "port and wildcard",
        )
    return value


def url(*schemes: str) -> Reader[str]:
    """Make a reader of base URLs with one of `schemes`; it drops a slash at the end; empty stays empty."""

    def read(raw: object, base: Base) -> str:
        value = text(raw, base)
        if value == "":
            return ""
        example = f"write {schemes[0]}://HOST:PORT"
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            raise unusable(f"{value!r} is not a URL ({error})", example) from error
        if parts.scheme not in schemes:
            raise unusable(f"{value!r} does not begin with {' or '.join(s + '://' for s in schemes)}", example)
        if "@" in parts.netloc:
            # Not shown: it may hold a password.
            raise unusable("has a user name or password in the URL", f"{example}, and give credentials as headers")
        host = parts.hostname or ""
        if not (is_address(host) or (_HOST.fullmatch(host) and not _ADDRESS_LIKE.fullmatch(host))) or port == 0:
            raise unusable(f"{value!r} has no usable host and port", example)
        if parts.query or parts.fragment or "?" in value or "#" in value or re.search(r"[\s\\{}]", value):
            raise unusable(f"{value!r} has more than a host and a path", example)
        return value.rstrip("/")

    return read


def timezone(raw: object, _: Base) -> str:
    """The name of a time zone that this machine knows."""
    value = _typed(raw, str)
    try:
        zoneinfo.ZoneInfo(value)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise unusable(f"{value!r} is no known time zone", "write its IANA name, as in America/Guayaquil") from error
    return value


def fingerprint(raw: object, base: Base) -> str:
    """A SHA-256 fingerprint, with or without colons, in any case: lower hex without colons; empty stays empty."""
    value = text(raw, base).replace(":", "").replace(" ", "").lower()
    if value and re.fullmatch(r"[0-9a-f]{64}", value) is None:
        raise unusable(
            f"is not a SHA-256 fingerprint (64 hex digits, has {len(value)} characters)",
            "copy it from: openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE",
        )
    return value


def each(reader: Reader[str], *, least: int = 0) -> Reader[tuple[str, ...]]:
    """Make a reader of lists of at least `least` strings that `reader` reads, none twice."""

    def read(raw: object, base: Base) -> tuple[str, ...]:
        items: list[object] = _typed(raw, list)
        values: list[str] = []
        faults: list[Fault] = []
        for index, item in enumerate(items):
            try:
                value = reader(item, base)
            except UnusableValueError as error:
                faults += [Fault(fault.reason, fault.cure, f"[{index}]") for fault in error.faults]
                continue
            if value in values:
                faults.append(Fault(f"{value!r} is in the list twice", "remove one of them", f"[{index}]"))
            values.append(value)
        if len(items) < least:
            faults.append(Fault("is empty", f"name at least {least}"))
        if faults:
            raise UnusableValueError(*faults)
        return tuple(values)

    return read


def address(raw: object, _: Base) -> str:
    """One IP address, without a port."""
    value = _typed(raw, str)
    if not is_address(value):
        raise unusable(f"{value!r} is not an IP address", "write it like 192.168.1.10, without a port or a mask")
    return str(ipaddress.ip_address(value))


def is_address(value: str) -> bool:
    """Whether a string is an IPv4 or IPv6 address (without brackets)."""
    if _ADDRESS_LETTERS.fullmatch(value) is None:
        return False  # the zone of an IPv6 address (%eth0) could be anything
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?")
_ADDRESS_LETTERS = re.compile(r"[0-9A-Za-z:.%_-]+")
#: Digits and dots alone are meant as an address, and mistyped.
_ADDRESS_LIKE = re.compile(r"[0-9.]+")
