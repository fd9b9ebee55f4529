"""The user of the daemon: which one that is, and what it may open, which is tried in a child process of that user."""

import errno
import grp
import os
import pwd
import signal
import socket
import stat
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from posd.base.files import user_name
from posd.cli.doctor.service import Service

T = TypeVar("T")

#: Longest that a child may take, in seconds: what it opens may lie on a file system that hangs.
CHILD_SECONDS = 20


@dataclass(frozen=True, slots=True)
class User:
    """A user with the groups that its process has."""

    uid: int
    gid: int
    groups: frozenset[int]

    @property
    def name(self) -> str:
        """Its login name, the number where it has none."""
        return user_name(self.uid)

    @property
    def group(self) -> str:
        """The name of its own group."""
        return group_name(self.gid)


def of_id(uid: int) -> User:
    """Return a user with the groups that the system's tables give it."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, uid, frozenset({uid}))
    return User(uid, user.pw_gid, frozenset(os.getgrouplist(user.pw_name, user.pw_gid)))


def of_service(service: Service) -> User | None:
    """Return the user that systemd starts posd as, None where there is no such user."""
    try:
        name = service.last("User") or "root"
        user = of_id(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
    except KeyError:
        return None
    gid = _gid(service.last("Group"), user.gid)
    more = {_gid(word, gid) for word in service.words("SupplementaryGroups")}
    return User(user.uid, gid, user.groups | more | {gid})


def _gid(name: str, otherwise: int) -> int:
    with suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return otherwise


def group_name(gid: int) -> str:
    """Return the name of a group; the number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def group_exists(name: str) -> bool:
    """Whether this machine has a group of that name."""
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def tried_as(user: User, probe: Callable[[], T], kind: type[T]) -> T:
    """Return what `probe` returns as that user: in a child where this process is root's and the user another one's.

    Raise OSError where the child gives no answer.
    """
    if os.geteuid() != 0 or user.uid == 0:
        return probe()
    end, write = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on: threads of this process may hold locks. The child opens files, which needs none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(CHILD_SECONDS)
            os.setgroups(list(user.groups))
            os.setgid(user.gid)
            os.setuid(user.uid)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(msgspec.json.encode(probe()))
        os._exit(0)
    os.close(write)
    with os.fdopen(end, "rb") as answers:
        answer = answers.read()
    os.waitpid(pid, 0)
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise OSError(errno.EIO, f"nothing could be tried as the user {user.uid}") from error


class AccessBarrier(msgspec.Struct, frozen=True):
    """Why something cannot be opened: the system's error number, and the file or directory that stands in the way."""

    number: int
    path: str

    @property
    def at(self) -> Path:
        """The file or directory."""
        return Path(self.path)

    @property
    def reason(self) -> str:
        """The system's words."""
        return os.strerror(self.number)


def readable(path: Path) -> AccessBarrier | None:
    """Return why a file cannot be read, None where it can."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        return AccessBarrier(error.errno or errno.EIO, str(_closed(path) or path))
    return None


def writable(path: Path) -> AccessBarrier | None:
    """Return why a file, or files in a directory, cannot be written; of one that is not there, why it cannot be made.

    Nothing is made.
    """
    place = path
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if place != path and not place.is_dir():
        return AccessBarrier(errno.ENOTDIR, str(place))
    wanted = os.R_OK | os.W_OK | (os.X_OK if place.is_dir() else 0)
    if os.access(place, wanted):
        return None
    refused = errno.EROFS if os.statvfs(place).f_flag & os.ST_RDONLY else errno.EACCES
    return AccessBarrier(refused, str(_closed(place) or place))


def _closed(path: Path) -> Path | None:
    """Return the first directory above a path that this user may not pass through."""
    return next((above for above in reversed(path.parents) if not os.access(above, os.X_OK)), None)


def barrier(user: User, probe: Callable[[Path], AccessBarrier | None], path: Path) -> AccessBarrier | None:
    """Return what keeps that user from `readable` or `writable`. Raise OSError."""
    return tried_as(user, partial(probe, path), AccessBarrier | None)  # type: ignore[arg-type]  # msgspec takes it


def bindable(host: str, port: int) -> str:
    """Bind as posd does, without listening, and give it back; return why that cannot be, "" where it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def mode(found: os.stat_result) -> str:
    """Write the mode of a file for people."""
    return f"mode {stat.S_IMODE(found.st_mode):04o}"
