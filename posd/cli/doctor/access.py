"""The local sockets: the user of posd, the groups that may use them, and whether this user is in them."""

import os
import stat
from pathlib import Path
from typing import Any

from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings
from posd.cli.doctor.files import to_write
from posd.cli.doctor.users import group_id, group_name, of_id, of_service
from posd.daemon.sockets import SOCKET_MODE

#: Sockets: the beginning of their keys, and their users. Without the last posd starts all the same.
SOCKETS = {"till": "tills", "admin": "operators", "feed": "a relay"}


def check(shop: DoctorContext) -> Findings:
    """Check the user and the groups, the socket directory, and the sockets."""
    api = shop.settings.local_api
    if of_service(shop.service) is None:
        yield shop.tell("access.no_user", shop.service.last("User"))
    for name in SOCKETS:
        yield _group(shop, f"{name}_group", getattr(api, f"{name}_group"))
    for path in shop.service.listens:
        if os.path.realpath(path) != os.path.realpath(api.till_socket):
            yield shop.tell("access.other_socket", path, key="local_api.directory", till=api.till_socket)
    yield from shop.permitted(api.directory, _sockets(shop))


def _group(shop: DoctorContext, key: str, group: str) -> CheckFinding:
    if not group:
        return shop.tell("access.own_group", key)
    gid, feed = group_id(group, -1), key == "feed_group"
    refused: dict[str, Any] = {"key": "" if feed else f"local_api.{key}", "name": key}
    if gid < 0:
        code = "feed_no_group" if feed else "no_group"
        return shop.tell(f"access.{code}", group, **refused, joins=shop.user.name if shop.user.uid else None)
    if shop.user.uid != 0 and gid not in shop.user.groups:
        return shop.tell("access.feed_not_in_group" if feed else "access.not_in_group", group, **refused)
    return shop.tell("access.group", group, name=key)


def _sockets(shop: DoctorContext) -> Findings:
    api, key, consequence = shop.settings.local_api, "local_api.directory", "posd cannot make its sockets there"
    closed = list(to_write(shop, key, api.directory, consequence, made="0755"))
    if not closed and (lock := api.directory / "posd.lock").exists():
        closed = list(to_write(shop, key, lock, consequence))
    yield from closed
    if not closed and not api.directory.exists():
        yield shop.tell("access.no_directory", api.directory)
    elif not closed:
        found = api.directory.stat()
        code = "directory" if found.st_mode & stat.S_IXOTH else "directory_closed"
        yield shop.tell("access.directory_open" if found.st_mode & stat.S_IWOTH else f"access.{code}", api.directory)
    for name, users in SOCKETS.items():
        group = getattr(api, f"{name}_group")
        if shop.there and (name != "feed" or not group or group_id(group, -1) >= 0):
            yield _socket(shop, getattr(api, f"{name}_socket"), group, users)


def _socket(shop: DoctorContext, path: Path, group: str, users: str) -> CheckFinding:
    if not path.exists():
        return shop.tell("access.no_socket", path, users=users)
    found = path.stat()
    owner = group_name(found.st_gid)
    if found.st_mode & stat.S_IRWXO:
        code = "socket_open"
    elif found.st_mode & SOCKET_MODE != SOCKET_MODE:
        code = "socket_closed"
    elif group and owner != group:
        code = "socket_of_another"
    elif os.access(path, os.W_OK):
        code = "may_use"
    elif owner in map(group_name, of_id(os.geteuid()).groups):
        code = "not_yet"
    else:
        code = "may_not_use"
    return shop.tell(f"access.{code}", path, users=users, wanted=group)
