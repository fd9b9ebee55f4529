"""systemd unit of posd: its user, and what that user may open. Root tries each access as that user."""

import errno
import fnmatch
import grp
import os
import pwd
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from posd.base.files import user_name
from posd.cli.app.context import CONFIG_FILE

#: Folders of units and their drop-ins; the last file of a name overrides (systemd.unit(5)).
DIRECTORIES = ("/usr/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system")
UNIT, SOCKET_UNIT = "posd.service", "posd.socket"
#: Unit that makes the certificate before the first start.
TLS_UNIT = "posd-tls-init.service"

#: Directories that systemd makes before the start, and gives to the user: key of the unit -> their parent.
_MADE = {"StateDirectory": "/var/lib", "RuntimeDirectory": "/run", "CacheDirectory": "/var/cache"}
_HOMES = ("/home", "/root", "/run/user")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - only names; nothing is made there
_CREDENTIALS = ("LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted")


@dataclass(frozen=True, slots=True)
class Service:
    """Section `[Service]` of the unit with its drop-ins: key -> its values in order.

    `makes_certificate`: a unit before it makes a missing certificate. `listens`: the sockets that systemd passes to the
    daemon.
    """

    settings: Mapping[str, Sequence[str]]
    makes_certificate: bool = False
    listens: Sequence[str] = ()

    def last(self, key: str) -> str:
        """Return the value of a single-valued key, "" without one."""
        return next(reversed(self.settings.get(key, ())), "")

    def words(self, key: str) -> list[str]:
        """Return all words of a key that may occur several times."""
        return [word for value in self.settings.get(key, ()) for word in value.split()]

    @property
    def made(self) -> list[Path]:
        """The directories that systemd makes for the service."""
        return [Path(above, name) for key, above in _MADE.items() for name in self.words(key)]

    def makes(self, path: Path) -> bool:
        """Return whether systemd makes a missing directory, or a parent of it."""
        return _below(path, self.made)

    def hides(self, path: Path) -> bool:
        """Return whether the unit hides a file from the daemon that its user may read."""
        hidden = [*_HOMES] if self.last("ProtectHome") in ("yes", "true", "tmpfs") else []
        hidden += _TEMPORARY if self.last("PrivateTmp") in ("yes", "true") else ()
        return _below(path, map(Path, hidden))

    def read_only(self, path: Path) -> bool:
        """Return whether the unit forbids the daemon to write where its user may write."""
        writable = [Path(word.lstrip("-+")) for word in self.words("ReadWritePaths")]
        return self.last("ProtectSystem") == "strict" and not _below(path, (*self.made, *writable))

    def credential(self, name: str) -> str | None:
        """Return the source of a credential: a path, or "" if unnamed; None without that credential."""
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
    """Return a section of a unit with its drop-ins; None without the unit."""
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
                settings[key] = []  # an empty value resets all earlier ones
    return settings


def _file(name: str) -> Path | None:
    """Return the file of a unit, None if there is none or it is masked (a link to /dev/null)."""
    found = [path for directory in DIRECTORIES if (path := Path(directory, name)).exists()]
    return found[-1] if found and found[-1].is_file() else None


def _configuration(service: Service) -> Path:
    words = service.last("ExecStart").split()
    return Path(words[words.index("--config") + 1] if "--config" in words[:-1] else CONFIG_FILE)


def _section(path: Path, wanted: str) -> Iterable[tuple[str, str]]:
    """Yield the assignments in a section; nothing for an unreadable file."""
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


# User of the daemon, and what it may open. This process tries each access, as that user if it runs as root.


class User(NamedTuple):
    """User with the groups of its process."""

    uid: int
    gid: int
    groups: frozenset[int]

    @property
    def name(self) -> str:
        """Login name, or the number of a user without a name."""
        return user_name(self.uid)

    @property
    def group(self) -> str:
        """Name of its main group."""
        return group_name(self.gid)


def of_id(uid: int) -> User:
    """Return a user with its groups from the system's tables."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, uid, frozenset({uid}))
    return User(uid, user.pw_gid, frozenset(os.getgrouplist(user.pw_name, user.pw_gid)))


def of_service(service: Service) -> User | None:
    """Return the user of the unit; None if it does not exist."""
    try:
        name = service.last("User") or "root"
        user = of_id(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
    except KeyError:
        return None
    gid = group_id(service.last("Group"), user.gid)
    more = {group_id(word, gid) for word in service.words("SupplementaryGroups")}
    return User(user.uid, gid, user.groups | more | {gid})


def group_id(name: str, otherwise: int) -> int:
    """Return the number of a group; `otherwise` for an unknown name."""
    with suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return otherwise


def group_name(gid: int) -> str:
    """Return the name of a group; the number without one."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


@contextmanager
def being(user: User) -> Iterator[None]:
    """Act as a user during the block, if this process is root."""
    if os.getuid() != 0:
        yield
        return
    groups = os.getgroups()
    try:
        os.setgroups(list(user.groups))
        os.setegid(user.gid)
        os.setresuid(user.uid, user.uid, 0)  # also the real user id, which access(2) uses
        yield
    finally:
        root_again()
        os.setegid(os.getgid())
        os.setgroups(groups)


def root_again() -> None:
    """Restore root as the user of this process, even if a thread hangs inside `being`."""
    if 0 in os.getresuid():
        os.setresuid(0, 0, 0)


def barrier(user: User, path: Path, *, write: bool = False) -> OSError | None:
    """Return why a user may not read a file (with `write`: write or make it); None if allowed.

    Nothing is made. The error names the file or directory that denies access.
    """
    with being(user):
        try:
            if write:
                _try_to_write(path)
            else:
                with path.open("rb") as file:
                    file.read(1)
        except OSError as error:
            closed = (above for above in reversed(path.parents) if not os.access(above, os.X_OK))
            return OSError(error.errno, error.strerror, str(next(closed, error.filename)))
    return None


def _try_to_write(path: Path) -> None:
    place = path
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    number = errno.EACCES
    if place != path and not place.is_dir():
        number = errno.ENOTDIR
    elif os.access(place, os.R_OK | os.W_OK | (os.X_OK if place.is_dir() else 0)):
        return
    elif os.statvfs(place).f_flag & os.ST_RDONLY:
        number = errno.EROFS
    raise OSError(number, os.strerror(number), str(place))


def port_refused(host: str, port: int) -> int:
    """Bind as posd does, without listening, and close. Return the error number, or 0."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0
