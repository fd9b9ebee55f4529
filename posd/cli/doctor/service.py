"""How systemd runs posd: the unit, read from its files, which works in an image and without systemd too."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posd.cli.app.context import CONFIG_FILE

#: Where units and their drop-ins lie; the last that has a file of a name counts (systemd.unit(5)).
DIRECTORIES = ("/usr/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system")
UNIT, SOCKET_UNIT = "posd.service", "posd.socket"
#: Makes the certificate before the first start of the unit above.
TLS_UNIT = "posd-tls-init.service"

#: Directories that systemd makes before the start, and gives to the user: key of the unit -> what is above them.
_MADE = {"StateDirectory": "/var/lib", "RuntimeDirectory": "/run", "CacheDirectory": "/var/cache"}
_HOMES = ("/home", "/root", "/run/user")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - they are named, and nothing is made there
_CREDENTIALS = ("LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted")


@dataclass(frozen=True, slots=True)
class Service:
    """The section `[Service]` of the unit, drop-ins included: key -> its values in their order.

    `makes_certificate`: a unit before it makes the certificate where there is none. `listens`: the sockets that systemd
    passes to it.
    """

    settings: Mapping[str, Sequence[str]]
    makes_certificate: bool = False
    listens: Sequence[str] = ()

    def last(self, key: str) -> str:
        """Return the value of a key that has one, "" if it is not given."""
        return next(reversed(self.settings.get(key, ())), "")

    def words(self, key: str) -> list[str]:
        """Return all words of a key that may be given several times."""
        return [word for value in self.settings.get(key, ()) for word in value.split()]

    @property
    def made(self) -> list[Path]:
        """The directories that systemd makes for it."""
        return [Path(above, name) for key, above in _MADE.items() for name in self.words(key)]

    def makes(self, path: Path) -> bool:
        """Return whether systemd makes a directory that is not there yet, or one above it."""
        return _below(path, self.made)

    def hides(self, path: Path) -> bool:
        """Return whether the unit hides a file from the daemon that its user may read."""
        hidden = [*_HOMES] if self.last("ProtectHome") in ("yes", "true", "tmpfs") else []
        hidden += _TEMPORARY if self.last("PrivateTmp") in ("yes", "true") else ()
        return _below(path, map(Path, hidden))

    def read_only(self, path: Path) -> bool:
        """Return whether the unit stops the daemon from writing where its user may."""
        writable = [Path(word.lstrip("-+")) for word in self.words("ReadWritePaths")]
        return self.last("ProtectSystem") == "strict" and not _below(path, (*self.made, *writable))

    def credential(self, name: str) -> str | None:
        """Return where a credential comes from: a path, or "" if that is not said; None without that credential."""
        for key in _CREDENTIALS:
            for value in self.settings.get(key, ()):
                given, _, source = value.partition(":")
                if given == name:
                    return source if key.startswith("Load") and source.startswith("/") else ""
        imported = any(fnmatch.fnmatch(name, pattern) for pattern in self.words("ImportCredential"))
        return "" if imported else None


def _below(path: Path, directories: Iterable[Path]) -> bool:
    return any(path == directory or directory in path.parents for directory in directories)


def read(config_file: Path) -> Service | None:
    """Return the unit that runs posd with this configuration; None if there is none, or it is masked."""
    settings = _settings(UNIT, "[Service]")
    if settings is None or config_file != _configuration(Service(settings)):
        return None
    sockets = _settings(SOCKET_UNIT, "[Socket]") or {}
    return Service(settings, _file(TLS_UNIT) is not None, tuple(sockets.get("ListenStream", ())))


def _settings(unit: str, section: str) -> dict[str, list[str]] | None:
    """Return what a section of a unit says, drop-ins included; None without the unit."""
    file = _file(unit)
    if file is None:
        return None
    settings: dict[str, list[str]] = {}
    drop_ins = {path.name: path for directory in DIRECTORIES for path in Path(directory, f"{unit}.d").glob("*.conf")}
    for path in (file, *(drop_ins[name] for name in sorted(drop_ins))):
        for key, value in _section(path, section):
            if value:
                settings.setdefault(key, []).append(value)
            else:
                settings[key] = []  # an empty value takes back all before it
    return settings


def _file(name: str) -> Path | None:
    """Return the file of a unit, None if there is none or it is masked (a link to /dev/null)."""
    found = [path for directory in DIRECTORIES if (path := Path(directory, name)).exists()]
    return found[-1] if found and found[-1].is_file() else None


def _configuration(service: Service) -> Path:
    words = service.last("ExecStart").split()
    return Path(words[words.index("--config") + 1] if "--config" in words[:-1] else CONFIG_FILE)


def _section(path: Path, wanted: str) -> Iterable[tuple[str, str]]:
    """Yield the assignments in a section; nothing where the file cannot be read."""
    section = ""
    try:
        text = path.read_text("utf-8", "replace").replace("\\\n", " ")
    except OSError:
        return
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        elif section == wanted and "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            yield key.strip(), value.strip()
