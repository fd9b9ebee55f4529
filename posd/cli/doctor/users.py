"""The user of the daemon, and what it may open: this process tries it, as that user where it is root's."""

import errno
import grp
import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from posd.base.files import user_name
from posd.cli.doctor.service import Service


class User(NamedTuple):
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
    """Return the user that systemd starts posd as, None if there is no such user."""
    try:
        name = service.last("User") or "root"
        user = of_id(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
    except KeyError:
        return None
    gid = group_id(service.last("Group"), user.gid)
    more = {group_id(word, gid) for word in service.words("SupplementaryGroups")}
    return User(user.uid, gid, user.groups | more | {gid})


def group_id(name: str, otherwise: int) -> int:
    """Return the number of a group, `otherwise` where this machine has none of that name."""
    with suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return otherwise


def group_name(gid: int) -> str:
    """Return the name of a group; the number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


@contextmanager
def being(user: User) -> Iterator[None]:
    """Act as a user during the block, where this process is root's."""
    if os.getuid() != 0:
        yield
        return
    groups = os.getgroups()
    try:
        os.setgroups(list(user.groups))
        os.setegid(user.gid)
        os.setresuid(user.uid, user.uid, 0)  # the real one too: access(2) asks for it
        yield
    finally:
        root_again()
        os.setegid(os.getgid())
        os.setgroups(groups)


def root_again() -> None:
    """End `being`, also one in a thread that hangs."""
    if 0 in os.getresuid():
        os.setresuid(0, 0, 0)


def barrier(user: User, path: Path, *, write: bool = False) -> OSError | None:
    """Return why a user may not read a file, or with `write` not write it or make it; None if it may.

    Nothing is made. The error names the file or the directory that stands in the way.
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
    """Bind as posd does, without listening, and give it back; return the error number, 0 where it can."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0
