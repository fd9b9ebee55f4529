"""systemd unit of posd, its user, and the files that this user may open."""

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

#: Folders of units and of their drop-ins. Of several files with one name, the last counts (systemd.unit(5)).
DIRECTORIES = ("/usr/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system")
UNIT, SOCKET_UNIT = "posd.service", "posd.socket"
#: Unit that creates the certificate before the first start.
TLS_UNIT = "posd-tls-init.service"

#: Directories that systemd creates for the user before the start: key of the unit -> parent of the directories.
_MADE = {"StateDirectory": "/var/lib", "RuntimeDirectory": "/run", "CacheDirectory": "/var/cache"}
_HOMES = ("/home", "/root", "/run/user")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - only names; nothing is made there
_CREDENTIALS = ("LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted")


@dataclass(frozen=True, slots=True)
class Service:
    """Section `[Service]` of the unit with its drop-ins: key -> its values in order.

    `makes_certificate`: whether another unit creates a missing certificate before the start. `listens`: sockets that
    systemd passes to the daemon.
    """

    settings: Mapping[str, Sequence[str]]
    makes_certificate: bool = False
    listens: Sequence[str] = ()

    def last(self, key: str) -> str:
        """Return the last value of a key, or "" without one."""
        return next(reversed(self.settings.get(key, ())), "")

    def words(self, key: str) -> list[str]:
        """Return all words in the values of a key."""
        return [word for value in self.settings.get(key, ()) for word in value.split()]

    @property
    def made(self) -> list[Path]:
        """Directories that systemd creates for the service."""
        return [Path(above, name) for key, above in _MADE.items() for name in self.words(key)]

    def makes(self, path: Path) -> bool:
        """Return whether systemd creates a directory if it is missing, or a parent of it."""
        return _below(path, self.made)

    def hides(self, path: Path) -> bool:
        """Return whether the unit hides a path from the daemon, independent of the permissions."""
        hidden = [*_HOMES] if self.last("ProtectHome") in ("yes", "true", "tmpfs") else []
        hidden += _TEMPORARY if self.last("PrivateTmp") in ("yes", "true") else ()
        return _below(path, map(Path, hidden))

    def read_only(self, path: Path) -> bool:
        """Return whether the unit forbids the daemon to write to a path, independent of the permissions."""
        writable = [Path(word.lstrip("-+")) for word in self.words("ReadWritePaths")]
        return self.last("ProtectSystem") == "strict" and not _below(path, (*self.made, *writable))

    def credential(self, name: str) -> str | None:
        """Return the source of a credential: its file, or "" if it is not a file.

        None: the unit does not pass that credential.
        """
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
    """Return the unit that runs posd with this configuration, or None if there is none or it is masked."""
    settings = _settings(UNIT, "[Service]")
    if settings is None or config_file != _configuration(Service(settings)):
        return None
    sockets = _settings(SOCKET_UNIT, "[Socket]") or {}
    return Service(settings, _file(TLS_UNIT) is not None, tuple(sockets.get("ListenStream", ())))


def _settings(unit: str, section: str) -> dict[str, list[str]] | None:
    """Return a section of a unit with its drop-ins (key -> values), or None without the unit."""
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
                settings[key] = []  # an empty value removes all earlier values
    return settings


def _file(name: str) -> Path | None:
    """Return the file of a unit, or None if there is none or it is masked (a link to /dev/null)."""
    found = [path for directory in DIRECTORIES if (path := Path(directory, name)).exists()]
    return found[-1] if found and found[-1].is_file() else None


def _configuration(service: Service) -> Path:
    words = service.last("ExecStart").split()
    return Path(words[words.index("--config") + 1] if "--config" in words[:-1] else CONFIG_FILE)


def _section(path: Path, wanted: str) -> Iterable[tuple[str, str]]:
    """Yield key and value of each assignment in a section. An unreadable file has none."""
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


# User of the daemon, and the files that this user may open. This process tries each access, as that user if it is root.


class User(NamedTuple):
    """User, with the groups of a process of that user."""

    uid: int
    gid: int
    groups: frozenset[int]

    @property
    def name(self) -> str:
        """Login name, or the number if there is no name."""
        return user_name(self.uid)

    @property
    def group(self) -> str:
        """Name of the main group."""
        return group_name(self.gid)


def of_id(uid: int) -> User:
    """Return a user, with groups from the system's user database."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, uid, frozenset({uid}))
    return User(uid, user.pw_gid, frozenset(os.getgrouplist(user.pw_name, user.pw_gid)))


def of_service(service: Service) -> User | None:
    """Return the user of the unit, or None if that user does not exist."""
    try:
        name = service.last("User") or "root"
        user = of_id(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
    except KeyError:
        return None
    gid = group_id(service.last("Group"), user.gid)
    more = {group_id(word, gid) for word in service.words("SupplementaryGroups")}
    return User(user.uid, gid, user.groups | more | {gid})


def group_id(name: str, otherwise: int) -> int:
    """Return the number of a group, or `otherwise` if the name is unknown."""
    with suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return otherwise


def group_name(gid: int) -> str:
    """Return the name of a group, or its number as text if it has no name."""
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
        os.setresuid(user.uid, user.uid, 0)  # the real user id too, because access(2) uses that
        yield
    finally:
        root_again()
        os.setegid(os.getgid())
        os.setgroups(groups)


def root_again() -> None:
    """Make root the user of this process again, even if a thread hangs inside `being`."""
    if 0 in os.getresuid():
        os.setresuid(0, 0, 0)


def barrier(user: User, path: Path, *, write: bool = False) -> OSError | None:
    """Return the error of a user's attempt to read a file, or None.

    With `write`, test whether the user can write or create it.

    Nothing is created. The error names the file or directory that denies access.
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
    """Bind a port as posd does, without listening. Return the errno of the failure, or 0."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0
