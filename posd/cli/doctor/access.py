"""The local sockets: the groups that may use them, and whether the user who asks is one of those who may."""

import grp
import os
import pwd
import stat
from pathlib import Path

from posd.cli.doctor.context import AS_ROOT, NotForMe, Shop, allowed, me
from posd.cli.doctor.findings import Findings, Said, failure, ok, warning
from posd.daemon.sockets import SOCKET_MODE


def check(shop: Shop) -> Findings:
    """Tell of the groups, the socket directory, and the two sockets."""
    api = shop.settings.local_api
    for key, group in (("till_group", api.till_group), ("admin_group", api.admin_group)):
        yield from _group(key, group)
    try:
        with allowed():
            yield from _directory(api.directory)
            if shop.running.there:
                yield from _socket(api.till_socket, api.till_group, "tills")
                yield from _socket(api.admin_socket, api.admin_group, "operators")
    except NotForMe as closed:
        yield warning(str(api.directory), str(closed), AS_ROOT)


def _group(key: str, group: str) -> Findings:
    if not group:
        yield ok(key, "empty: the group that posd itself runs as")
        return
    try:
        grp.getgrnam(group)
    except KeyError:
        yield failure(
            group,
            f"the group of local_api.{key} does not exist: posd will not start",
            f'create it (systemd-sysusers, or groupadd {group}), or set {key} = "" for the group of posd itself',
        )
    else:
        yield ok(group, f"the group of local_api.{key} exists")


def _directory(directory: Path) -> Findings:
    if not directory.exists():
        yield ok(str(directory), "the directory of the sockets is made when posd starts")
        return
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH:
        yield failure(
            str(directory),
            f"everybody may exchange the sockets (mode {stat.S_IMODE(mode):04o}), and pose as posd towards the tills",
            f"chmod 0755 {directory}",
        )
    elif not mode & stat.S_IXOTH:
        yield warning(
            str(directory),
            f"only some users may pass through it (mode {stat.S_IMODE(mode):04o}): others cannot reach their socket",
            f"chmod 0755 {directory}, unless all tills and operators belong to its group",
        )
    else:
        yield ok(str(directory), "tills and operators can reach the sockets in it")


def _socket(path: Path, group: str, users: str) -> Findings:
    if not path.exists():
        yield failure(str(path), f"posd runs, but its socket for {users} is not there", "restart posd")
        return
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    owner = _group_name(found.st_gid)
    if mode & stat.S_IRWXO:
        yield failure(
            str(path),
            f"everybody on this machine may use the socket for {users} (mode {mode:04o}, it should be 0660)",
            f"chmod 0660 {path}, and find out what has changed it",
        )
    elif mode & SOCKET_MODE != SOCKET_MODE:
        yield failure(
            str(path), f"{users} cannot use their socket (mode {mode:04o}, it should be 0660)", f"chmod 0660 {path}"
        )
    elif group and owner != group:
        yield failure(
            str(path),
            f"the socket for {users} belongs to the group {owner}; local_api says {group}",
            "restart posd, if the configuration was changed; else find out what has changed the socket",
        )
    else:
        yield _use(path, owner, users)


def _use(path: Path, group: str, users: str) -> Said:
    if os.access(path, os.W_OK):
        return ok(str(path), f"{me()} may use it; its group is {group}")
    try:
        user = pwd.getpwuid(os.geteuid())
        member = grp.getgrnam(group).gr_gid in os.getgrouplist(user.pw_name, user.pw_gid)
    except KeyError:
        member = False
    if member:
        return warning(
            str(path), f"{me()} belongs to {group}, but not yet in this session", "log out and in again, then try again"
        )
    return ok(str(path), f"for {users}: the group {group} may use it; {me()} is not in it, and may not")


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
