"""The local sockets: the user of posd, the groups that may use them, and whether this user is in them."""

import grp
import os
import stat
from pathlib import Path

from posd.cli.doctor.context import (
    DoctorContext,
    Findings,
    SubjectFinding,
    failure,
    me,
    ok,
    permitted,
    refusal,
    warning,
)
from posd.cli.doctor.files import to_write
from posd.cli.doctor.service import SOCKET_UNIT
from posd.cli.doctor.users import group_exists, group_name, mode, of_id, of_service
from posd.config.schema import LocalApiConfig, keys
from posd.daemon.sockets import SOCKET_MODE


def check(shop: DoctorContext) -> Findings:
    """Tell of the user and the groups, the socket directory, and the sockets."""
    api = shop.settings.local_api
    if shop.service is not None and of_service(shop.service) is None:
        name = shop.service.last("User")
        meaning = "the user of posd's unit does not exist on this machine: posd will not start"
        yield refusal("", name, meaning, "make it", shop.as_root("systemd-sysusers"))
    for key in keys(LocalApiConfig):
        if key.endswith("_group"):
            yield _group(shop, key, getattr(api, key))
    yield from _passed(shop)
    yield from permitted(api.directory, _sockets(shop))


def _passed(shop: DoctorContext) -> Findings:
    """Tell where systemd passes a socket that is not where the configuration says: posd refuses to start with it."""
    till = shop.settings.local_api.till_socket
    for path in shop.service.listens if shop.service is not None else ():
        if os.path.realpath(path) != os.path.realpath(till):
            yield refusal(
                "local_api.directory",
                path,
                f"systemd passes this socket to posd, and the one of the tills is {till} here: posd will not start",
                f"write the lines [Socket], ListenStream= and ListenStream={till} into the drop-in, or correct "
                "local_api.directory",
                shop.as_root("systemctl", "edit", SOCKET_UNIT),
                shop.as_root("systemctl", "restart", SOCKET_UNIT, "posd"),
            )


def _sockets(shop: DoctorContext) -> Findings:
    api = shop.settings.local_api
    yield from _socket_directory(shop, api.directory)
    if shop.running.there:
        yield _socket(shop, api.till_socket, api.till_group, "tills")
        yield _socket(shop, api.admin_socket, api.admin_group, "operators")
        if not api.feed_group or group_exists(api.feed_group):
            yield _socket(shop, api.feed_socket, api.feed_group, "a relay")


def _group(shop: DoctorContext, key: str, group: str) -> SubjectFinding:
    if not group:
        return ok(key, "empty: the group that posd itself runs as")
    needed = key != "feed_group"  # without the socket of a relay posd starts all the same
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        if not needed:
            return ok(group, "no such group: there is no socket for a relay to head office")
        return refusal(
            f"local_api.{key}",
            group,
            f"the group of local_api.{key} does not exist: posd will not start",
            f'make it, or set {key} = "" for the group of posd itself',
            shop.as_root("groupadd", "--system", group),
            *_join(shop, group),
        )
    if shop.user.uid != 0 and gid not in shop.user.groups and not needed:
        return warning(
            group,
            f"{shop.user.name}, as which posd runs, is not in it: there is no socket for a relay to head office",
            "add it to the group, and restart posd",
            *_join(shop, group),
            *shop.systemctl("restart"),
        )
    if shop.user.uid != 0 and gid not in shop.user.groups:
        return refusal(
            f"local_api.{key}",
            group,
            f"{shop.user.name}, as which posd runs, is not in the group of local_api.{key}: posd cannot give it the "
            "socket, and will not start",
            "add it to the group",
            *_join(shop, group),
        )
    return ok(group, f"the group of local_api.{key} exists")


def _join(shop: DoctorContext, group: str) -> tuple[str, ...]:
    return () if shop.user.uid == 0 else (shop.as_root("usermod", "-aG", group, shop.user.name),)


def _socket_directory(shop: DoctorContext, directory: Path) -> Findings:
    key, consequence = "local_api.directory", "posd cannot make its sockets there"
    closed = list(to_write(shop, key, directory, consequence, made="0755"))
    if not closed and (lock := directory / "posd.lock").exists():
        closed = list(to_write(shop, key, lock, consequence))
    yield from closed
    if closed:
        return
    if not directory.exists():
        yield ok(directory, "the directory of the sockets is made when posd starts")
        return
    found = directory.stat()
    if found.st_mode & stat.S_IWOTH:
        yield failure(
            directory,
            f"everybody may exchange the sockets ({mode(found)}), and pose as posd towards the tills",
            "close it",
            shop.as_root("chmod", "0755", directory),
        )
    elif not found.st_mode & stat.S_IXOTH:
        yield warning(
            directory,
            f"only some users may pass through it ({mode(found)}): others cannot reach their socket",
            "open it, unless all tills and operators belong to its group",
            shop.as_root("chmod", "0755", directory),
        )
    else:
        yield ok(directory, "tills and operators can reach the sockets in it")


def _socket(shop: DoctorContext, path: Path, group: str, users: str) -> SubjectFinding:
    if not path.exists():
        meaning = f"posd runs, but its socket for {users} is not there"
        return failure(path, meaning, "restart posd and its socket", *shop.systemctl("restart", "posd.socket"))
    found = path.stat()
    owner = group_name(found.st_gid)
    permissions = stat.S_IMODE(found.st_mode)
    close = shop.as_root("chmod", "0660", path)
    if permissions & stat.S_IRWXO:
        return failure(
            path,
            f"everybody on this machine may use the socket for {users} ({mode(found)}, it should be 0660)",
            "close it to others, and find out what has changed it",
            close,
        )
    if permissions & SOCKET_MODE != SOCKET_MODE:
        meaning = f"{users} cannot use their socket ({mode(found)}, it should be 0660)"
        return failure(path, meaning, "open it to its group", close)
    if group and owner != group:
        return failure(
            path,
            f"the socket for {users} belongs to the group {owner}; local_api says {group}",
            "restart posd, if the configuration was changed; else find out what has changed the socket",
            *shop.systemctl("restart"),
        )
    return _use(path, owner, users)


def _use(path: Path, group: str, users: str) -> SubjectFinding:
    if os.access(path, os.W_OK):
        return ok(path, f"{me()} may use it; its group is {group}")
    if group in map(group_name, of_id(os.geteuid()).groups):
        todo = "log out and in again, then try again"
        return warning(path, f"{me()} belongs to {group}, but not yet in this session", todo)
    return ok(path, f"for {users}: the group {group} may use it; {me()} is not in it, and may not")
