"""Readers of single values of the configuration file, and their faults.

A reader is a function. It gets the raw value and a `ReaderContext`, and returns the typed value, or raises
UnusableValueError with every fault.
"""

import ipaddress
import os
import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from posd.base.money import parse_money

# Problems of a configuration, for people and for programs.

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class ConfigProblem(msgspec.Struct, frozen=True):
    """One problem of a configuration.

    `key`: dotted path (`terminals[1].serial`), or "" for the whole file. `line` counts from 1, and is None if unknown.
    """

    file: str
    key: str
    reason: str
    cure: str
    line: int | None = None

    @property
    def what(self) -> str:
        """The place and the reason, without the correction."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.key + ' ' if self.key else ''}{self.reason}"

    def __str__(self) -> str:
        return f"{self.what}; {self.cure}"


class ConfigError(Exception):
    """Error for an unusable configuration. `problems`: every problem, in the order of the file."""

    def __init__(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def unread(file: Path, reason: str, cure: str, line: int | None = None) -> ConfigError:
    """Return the error for an unreadable file."""
    return ConfigError((ConfigProblem(str(file), "", reason, cure, line),))


class ValueFault(msgspec.Struct, frozen=True):
    """Fault of a value. `at`: path below the value's key, or "" for the value itself.

    The message quotes `value` before the reason, unless the key may contain a secret. The reason never quotes the
    value.
    """

    reason: str
    cure: str
    at: str = ""
    value: str | None = None


class UnusableValueError(ValueError):
    """Error for a value with faults. The error has neither file nor key, because the reader does not know them."""

    def __init__(self, *faults: ValueFault) -> None:
        super().__init__("; ".join(fault.reason for fault in faults))
        self.faults = faults


def unusable(reason: str, cure: str, value: str | None = None) -> UnusableValueError:
    """Return the error for a value with a single fault."""
    return UnusableValueError(ValueFault(reason, cure, value=value))


def written_key(name: str) -> str:
    """Return a key for display: quoted if TOML requires it, with unprintable characters escaped."""
    if _BARE_KEY.fullmatch(name):
        return name
    return '"' + "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name) + '"'


# The readers.

T = TypeVar("T")


class ReaderContext(msgspec.Struct, frozen=True):
    """Context for readers. Relative paths start from `directory`.

    `check_files`: whether to open the files that the configuration names, to check that they are readable.
    """

    directory: Path
    check_files: bool = True


Reader = Callable[[object, ReaderContext], T]

#: TOML's names of the types that tomllib returns.
_TYPES = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


#: Largest integer of TOML, which has 64 bits.
MAX_INTEGER = 2**63 - 1


class ListenAddress(msgspec.Struct, frozen=True):
    """Address of a listener: an IP address (IPv6 without brackets) and a port. Port 0 is any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def type_name(raw: object) -> str:
    """Return the TOML type of a value for display."""
    return next((name for kind, name in _TYPES.items() if type(raw) is kind), "a date or time")


def _typed(raw: object, kind: type[T]) -> T:
    if type(raw) is not kind:
        raise unusable(f"must be {_TYPES[kind]}, is {type_name(raw)}", f"write {_TYPES[kind]}")
    return raw


def text(raw: object, _: ReaderContext) -> str:
    """Return any one-line string."""
    value = _typed(raw, str)
    if not value.isprintable():
        raise unusable("contains a control character", "write it on one line without tabs")
    return value


def boolean(raw: object, _: ReaderContext) -> bool:
    """Return true or false."""
    return _typed(raw, bool)


def matching(pattern: str, what: str, example: str) -> Reader[str]:
    """Make a reader of strings that match `pattern` completely."""
    compiled = re.compile(pattern)

    def read(raw: object, _: ReaderContext) -> str:
        value = _typed(raw, str)
        if compiled.fullmatch(value) is None:
            raise unusable(f"is not {what}", f"write {example}", value)
        return value

    return read


def one_of(*words: str) -> Reader[str]:
    """Make a reader of one of several words."""

    def read(raw: object, _: ReaderContext) -> str:
        value = _typed(raw, str)
        if value not in words:
            raise unusable("is not known", f"write one of: {', '.join(words)}", value)
        return value

    return read


def whole(least: int, most: int) -> Reader[int]:
    """Make a reader of whole numbers in a range, including both ends."""

    def read(raw: object, _: ReaderContext) -> int:
        value = _typed(raw, int)
        if not least <= value <= most:
            raise unusable(f"{_written(value)} is out of range", f"write a whole number from {least} to {most}")
        return value

    return read


def money(raw: object, _: ReaderContext) -> Decimal:
    """Return an amount above 0, from a string or a whole number. TOML's numbers with a point are binary floats."""
    cure = 'write it in quotes, as in "5000.00"'
    if type(raw) is not str and type(raw) is not int:
        raise unusable(f"must be an amount, is {type_name(raw)}", cure)
    try:
        value = parse_money(raw)
    except ValueError as error:
        raise unusable(str(error), cure) from error
    if not value:
        raise unusable("is 0, and no payment could be started", cure)
    return value


def _written(number: float) -> str:
    """Return a number for display. TOML's hexadecimal numbers can exceed Python's limit of digits."""
    return "a number of more than 19 digits" if isinstance(number, int) and abs(number) > MAX_INTEGER else str(number)


def seconds(least: float, most: float) -> Reader[float]:
    """Make a reader of a number of seconds in a range, including both ends."""

    def read(raw: object, _: ReaderContext) -> float:
        if type(raw) is not int and type(raw) is not float:
            raise unusable(f"must be a number of seconds, is {type_name(raw)}", "write a number, without quotes")
        if not least <= raw <= most:  # also refuses nan
            raise unusable(f"{_written(raw)} seconds is out of range", f"write a number from {least:g} to {most:g}")
        return float(raw)

    return read


def path(raw: object, base: ReaderContext) -> Path:
    """Return a path, relative to the directory of the configuration file."""
    value = text(raw, base)
    if not value:
        raise unusable("is empty", "write a path")
    return base.directory / value


def optional(reader: Reader[T]) -> Reader[T | None]:
    """Make a reader that returns None for an empty string, and the result of `reader` for any other value."""

    def read(raw: object, base: ReaderContext) -> T | None:
        return None if raw == "" else reader(raw, base)

    return read


def readable_file(raw: object, base: ReaderContext) -> Path:
    """Return the path of a readable file."""
    found = path(raw, base)
    if not base.check_files:
        return found
    try:
        with found.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise unusable(
            f"cannot be read ({error.strerror})",
            "correct the path, or make the file readable for the user that runs posd",
            str(found),
        ) from error
    return found


def textfile(raw: object, base: ReaderContext) -> Path:
    """Return the path of a file for node_exporter, which reads only `*.prom`."""
    found = path(raw, base)
    if found.suffix != ".prom":
        raise unusable(
            "does not end in .prom, and node_exporter reads no other files",
            'write it as in "/run/posd/posd.prom"',
            str(found),
        )
    return found


def listen_address(raw: object, _: ReaderContext) -> ListenAddress:
    """Return the address from `ADDRESS:PORT`, IPv6 in brackets."""
    value = _typed(raw, str)
    host, _colon, port = value.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not is_address(bare) or (":" in bare) != (bare != host):
        raise unusable("has no IP address before the port", 'write ADDRESS:PORT, as in "0.0.0.0:8443"', value)
    if re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > 65535:
        raise unusable("has no port from 0 to 65535", 'write ADDRESS:PORT, as in "0.0.0.0:8443"', value)
    return ListenAddress(bare, int(port))


def advertised_host(raw: object, base: ReaderContext) -> str:
    """Return a host name or address that other machines can call, IPv6 without brackets; or an empty string."""
    value = text(raw, base)
    if value == "":
        return ""
    if is_address(value):
        if ipaddress.ip_address(value).is_unspecified:
            raise unusable("is not an address that a terminal can call", 'write this machine\'s address, or ""', value)
        return value
    if not _is_host(value):
        raise unusable("is neither a host name nor an IP address", "write it without scheme and port", value)
    return value


def certificate_name(raw: object, base: ReaderContext) -> str:
    """Return a host name or address for a certificate, IPv6 without brackets; or an empty string."""
    value = text(raw, base)
    if value and not _is_host(value):
        raise unusable(
            "is neither a host name nor an IP address",
            "write one name exactly as in the certificate (posd terminals pin SERIAL shows them), without scheme, "
            "port and wildcard",
            value,
        )
    return value


def url(*schemes: str) -> Reader[str]:
    """Make a reader of base URLs with one of `schemes`.

    The reader removes a final slash. An empty value stays empty.
    """

    def read(raw: object, base: ReaderContext) -> str:
        value = text(raw, base)
        if value == "":
            return ""
        example = f"write {schemes[0]}://HOST:PORT"
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            raise unusable("is not a URL", example, value) from error
        if parts.scheme not in schemes:
            raise unusable(f"does not begin with {' or '.join(s + '://' for s in schemes)}", example, value)
        if "@" in parts.netloc:
            # The value is not quoted, because it may contain a password.
            raise unusable("has a user name or password in the URL", f"{example}, and give credentials as headers")
        host = parts.hostname or ""
        if not _is_host(host) or port == 0:
            raise unusable("has no usable host and port", example, value)
        if parts.query or parts.fragment or "?" in value or "#" in value or re.search(r"[\s\\{}]", value):
            raise unusable("has more than a host and a path", example, value)
        return value.rstrip("/")

    return read


def timezone(raw: object, _: ReaderContext) -> str:
    """Return the name of a time zone that exists on this machine."""
    value = _typed(raw, str)
    try:
        zoneinfo.ZoneInfo(value)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise unusable("is not a known time zone", "write its IANA name, as in America/Guayaquil", value) from error
    return value


def fingerprint(raw: object, base: ReaderContext) -> str:
    """Return a SHA-256 in lower-case hex without colons. Upper case and colons are accepted.

    An empty value stays empty.
    """
    value = text(raw, base).replace(":", "").replace(" ", "").lower()
    if value and re.fullmatch(r"[0-9a-f]{64}", value) is None:
        raise unusable(
            f"is not a SHA-256 fingerprint (64 hex digits, has {len(value)} characters)",
            "copy it from: posd terminals pin SERIAL",
        )
    return value


def each(reader: Reader[str], *, least: int = 0) -> Reader[tuple[str, ...]]:
    """Make a reader of lists with at least `least` strings, each read by `reader`, without duplicates."""

    def read(raw: object, base: ReaderContext) -> tuple[str, ...]:
        items: list[object] = _typed(raw, list)
        values: list[str] = []
        faults: list[ValueFault] = []
        for index, item in enumerate(items):
            try:
                value = reader(item, base)
            except UnusableValueError as error:
                faults += [msgspec.structs.replace(fault, at=f"[{index}]") for fault in error.faults]
                continue
            if value in values:
                faults.append(ValueFault("is in the list twice", "remove one of them", f"[{index}]", value))
            values.append(value)
        if len(items) < least:
            faults.append(ValueFault("is empty", f"name at least {least}"))
        if faults:
            raise UnusableValueError(*faults)
        return tuple(values)

    return read


def address(raw: object, _: ReaderContext) -> str:
    """Return one IP address, without a port."""
    value = _typed(raw, str)
    if not is_address(value):
        raise unusable("is not an IP address", "write it like 192.168.1.10, without a port or a mask", value)
    return str(ipaddress.ip_address(value))


def is_address(value: str) -> bool:
    """Return whether a string is an IPv4 or IPv6 address (without brackets)."""
    if _ADDRESS_LETTERS.fullmatch(value) is None:
        return False  # the zone of an IPv6 address (%eth0) can contain any text
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _is_host(value: str) -> bool:
    """Return whether a string is a host name or an address."""
    name = value.removesuffix(".")
    return is_address(value) or (HOST_NAME.fullmatch(name) is not None and _ADDRESS_LIKE.fullmatch(name) is None)


#: Pattern of a host name: labels of letters, digits, hyphen and underscore.
HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")
_ADDRESS_LETTERS = re.compile(r"[0-9A-Za-z:.%_-]+")
#: Pattern of a mistyped address, which has only digits and dots.
_ADDRESS_LIKE = re.compile(r"[0-9.]+")


# Request headers and secrets of terminals: plain values, or references to files and systemd credentials.

#: Maximum size of a header value, in bytes. Servers refuse longer lines, and a larger file is a mistake.
MAX_HEADER_BYTES = 8192

#: Fields that posd writes itself, or that would change the framing of request or reply (RFC 9110, RFC 9112).
RESERVED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

#: Variable with the folder of a unit's credentials (systemd.exec(5), LoadCredential=).
CREDENTIALS_DIRECTORY = "CREDENTIALS_DIRECTORY"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")
_CREDENTIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


@dataclass(frozen=True, slots=True)
class HeaderValue:
    """Source of the value of a header or secret. One of the three fields is set. The repr never shows the value."""

    value: str | None = field(default=None, repr=False)
    file: Path | None = None
    credential: str | None = None

    def resolve(self) -> str:
        """Read the value. Raise ConfigError, which never contains it. The call blocks for a file or a credential."""
        if self.value is not None:
            return self.value
        return _header_content(self._path())

    def _path(self) -> Path:
        if self.file is not None:
            return self.file
        assert self.credential is not None  # noqa: S101  (one of the three is set: `header_table` made this value)
        directory = os.environ.get(CREDENTIALS_DIRECTORY)
        if not directory:
            raise unread(
                Path(f"${CREDENTIALS_DIRECTORY}", self.credential),
                f"was not passed to this process ({CREDENTIALS_DIRECTORY} is not set)",
                f"add LoadCredential={self.credential}:/path/of/the/secret to the unit",
            )
        return Path(directory) / self.credential


def _header_content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_HEADER_BYTES + 1)
    except OSError as error:
        raise unread(path, f"cannot be read ({error.strerror})", "make it readable for the daemon") from error
    if len(content) > MAX_HEADER_BYTES:
        raise unread(path, f"is longer than {MAX_HEADER_BYTES} bytes", "put only the value into it")
    text = content.decode("ascii", errors="replace").strip()
    if _HEADER_VALUE.fullmatch(text) is None:
        raise unread(path, "is not one line of visible ASCII", "put only the value into it")
    return text


def sendable(headers: Mapping[str, str]) -> bool:
    """Return whether all headers are valid. A name must be a token, and a value one line of visible ASCII."""
    return all(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in headers.items())


def header_table(raw: object, base: ReaderContext) -> Mapping[str, HeaderValue]:
    """Read a `headers` table, with paths relative to `base`. Raise UnusableValueError, which never contains a value."""
    if not isinstance(raw, dict):
        raise unusable("must be a table", 'write headers = {NAME = "value"}')
    found: dict[str, HeaderValue] = {}
    faults: list[ValueFault] = []
    for name, given in raw.items():
        try:
            header = _read_header(name, given, base)
            if name.lower() in {other.lower() for other in found}:
                raise unusable("is given twice, in different spellings", "keep one of them")
        except UnusableValueError as error:
            at = name if _HEADER_NAME.fullmatch(name) is not None else ""
            faults += [msgspec.structs.replace(fault, at=at) for fault in error.faults]
        else:
            found[name] = header
    if faults:
        raise UnusableValueError(*faults)
    return MappingProxyType(found)


def _read_header(name: str, given: object, base: ReaderContext) -> HeaderValue:
    if _HEADER_NAME.fullmatch(name) is None:
        raise unusable("is not a header name", "use letters, digits and hyphens, as in X-Api-Key", name)
    if name.lower() in RESERVED:
        raise unusable("is a header that posd sets itself", "remove it")
    if isinstance(given, str):
        if _HEADER_VALUE.fullmatch(given) is None:
            raise unusable("has a value that is not one line of visible ASCII", "remove the other characters")
        return HeaderValue(value=given)
    return _kept_elsewhere(given, base, 'write "value", {file = "PATH"} or {credential = "NAME"}')


def secret(raw: object, base: ReaderContext) -> HeaderValue | None:
    """Return the source of a secret in a file or a systemd credential, or None for an empty string."""
    if raw == "":
        return None
    if isinstance(raw, str):  # the value is not quoted, because it may be the secret
        raise unusable("is a text, and secrets may not be in this file", f"put it into a file, and {_WHERE}")
    return _kept_elsewhere(raw, base, _WHERE)


_WHERE = 'write {file = "PATH"} or {credential = "NAME"}'


def _kept_elsewhere(given: object, base: ReaderContext, cure: str) -> HeaderValue:
    """Return the reference to a file or a credential. Open the source, to check that it is readable."""
    match given:
        case {"file": str(path), **others} if path and path.isprintable() and not others:
            found = HeaderValue(file=base.directory / path)
        case {"credential": str(credential), **others} if not others:
            if _CREDENTIAL.fullmatch(credential) is None:
                raise unusable("names a credential that cannot exist", "use letters, digits, '.', '_' and '-'")
            found = HeaderValue(credential=credential)
            if CREDENTIALS_DIRECTORY not in os.environ:
                return found  # without the service manager there is no folder, for example in `posd config check`
        case _:
            raise unusable("has no usable value", cure)
    try:
        if base.check_files:
            found.resolve()
    except ConfigError as error:
        (problem,) = error.problems
        raise unusable(problem.reason, problem.cure, problem.file) from error
    return found
