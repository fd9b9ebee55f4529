"""Request headers of terminals: plain values, or secrets that stay in files and systemd credentials."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from posd.config.problems import Fault, UnusableValueError, unusable, written_key
from posd.config.values import Base

#: Servers refuse longer header lines; a file this large is not a header value but a mistake.
MAX_HEADER_BYTES = 8192

#: Fields that posd writes itself, or that would change how request or reply are framed (RFC 9110, RFC 9112).
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

#: Where systemd puts the credentials of a unit (systemd.exec(5), LoadCredential=).
CREDENTIALS_DIRECTORY = "CREDENTIALS_DIRECTORY"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")
_CREDENTIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


class HeaderError(Exception):
    """The value of a header cannot be read now; the message names where it should come from, never the value."""

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(f"{reason}; {cure}")
        self.reason = reason
        self.cure = cure


@dataclass(frozen=True, slots=True)
class HeaderValue:
    """Where the value of one header comes from: exactly one of the three is set. A value never shows in repr."""

    value: str | None = field(default=None, repr=False)
    file: Path | None = None
    credential: str | None = None

    def resolve(self) -> str:
        """Read the value. Raises HeaderError. Blocking, for a file or a credential."""
        if self.value is not None:
            return self.value
        return _content(self._path())

    def _path(self) -> Path:
        if self.file is not None:
            return self.file
        assert self.credential is not None  # noqa: S101  (one of the three is set: `read` made this value)
        directory = os.environ.get(CREDENTIALS_DIRECTORY)
        if not directory:
            raise HeaderError(
                f"the credential {self.credential} was not passed to this process ({CREDENTIALS_DIRECTORY} is not set)",
                f"add LoadCredential={self.credential}:/path/of/the/secret to the unit",
            )
        return Path(directory) / self.credential


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_HEADER_BYTES + 1)
    except OSError as error:
        raise HeaderError(f"{path} cannot be read ({error.strerror})", "make it readable for the daemon") from error
    if len(content) > MAX_HEADER_BYTES:
        raise HeaderError(f"{path} is longer than {MAX_HEADER_BYTES} bytes", "put only the header's value into it")
    text = content.decode("ascii", errors="replace").strip()
    if _VALUE.fullmatch(text) is None:
        raise HeaderError(f"{path} is not one line of visible ASCII", "put only the header's value into it")
    return text


def sendable(headers: Mapping[str, str]) -> bool:
    """Tell whether header lines can be made of all of these: a token, and one line of visible ASCII."""
    return all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers.items())


def read(raw: object, base: Base) -> Mapping[str, HeaderValue]:
    """Read a `headers` table, paths relative to `base`. Raises UnusableValueError (never with a value in it)."""
    if not isinstance(raw, dict):
        raise unusable("must be a table", 'write headers = {NAME = "value"}')
    found: dict[str, HeaderValue] = {}
    faults: list[Fault] = []
    for name, given in raw.items():
        read_one = _read_one(name, given, base)
        if isinstance(read_one, HeaderValue) and name.lower() in {other.lower() for other in found}:
            read_one = Fault("is given twice, in different spellings", "keep one of them", name)
        if isinstance(read_one, Fault):
            faults.append(read_one)
        else:
            found[name] = read_one
    if faults:
        raise UnusableValueError(*faults)
    return MappingProxyType(found)


def _read_one(name: str, given: object, base: Base) -> HeaderValue | Fault:
    if _NAME.fullmatch(name) is None:
        return Fault("is not a header name", "use letters, digits and hyphens, as in X-Api-Key", written_key(name))
    if name.lower() in RESERVED:
        return Fault("is a header that posd sets itself", "remove it", name)
    match given:
        case str():
            if _VALUE.fullmatch(given) is None:
                return Fault("has a value that is not one line of visible ASCII", "remove the other characters", name)
            return HeaderValue(value=given)
        case {"file": str(path), **others} if path and path.isprintable() and not others:
            header = HeaderValue(file=base.directory / path)
        case {"credential": str(credential), **others} if not others:
            if _CREDENTIAL.fullmatch(credential) is None:
                return Fault("names a credential that cannot exist", "use letters, digits, '.', '_' and '-'", name)
            header = HeaderValue(credential=credential)
            if CREDENTIALS_DIRECTORY not in os.environ:
                return header  # not under the service manager, as in `posd config check`: nothing to look into
        case _:
            return Fault("has no usable value", 'write "value", {file = "PATH"} or {credential = "NAME"}', name)
    try:
        if base.check_files:
            header.resolve()
    except HeaderError as error:
        return Fault(f"cannot be used: {error.reason}", error.cure, name)
    return header
