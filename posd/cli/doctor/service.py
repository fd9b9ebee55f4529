"""The daemon: does it run, does it answer, and what does it say of itself."""

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from posd import __version__
from posd.cli.app.api import Api, Problem, Unreachable
from posd.cli.app.users import user_name
from posd.cli.doctor.context import Address, Shop, me
from posd.cli.doctor.findings import Findings, failure, ok, warning
from posd.storage.opening import schema_version

#: Checks of the health resource that no check here looks at by itself; the others would be told twice.
OF_HEALTH = ("storage", "webhook_listener", "discovery")
#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")


def check(shop: Shop) -> Findings:
    """Find the daemon and keep what it says of itself and of the terminals for the other checks."""
    running = shop.running
    running.pid = _lock_holder(shop)
    reasons = {}
    for path in _sockets(shop):
        try:
            running.pid, running.uid = _process(path)
            yield from _ask(shop, path)
        except OSError as error:
            reasons[path] = error.strerror or str(error)
        except (Unreachable, Problem) as error:
            yield failure(
                str(path), f"posd is there and does not answer as it should: {error}", "restart posd; look at its log"
            )
            return
        else:
            return
    path, reason = next(iter(reasons.items()))
    if running.there:
        where = f"local_api.directory ({path.parent})"
        closed = any(os.path.exists(path) and not os.access(path, os.W_OK) for path in reasons)  # noqa: PTH110
        tell = warning if closed else failure
        todo = (
            "join the group of the socket, or run posd doctor as root (sudo posd doctor)"
            if closed
            else f"restart posd; if that does not help, look at its log, and at {'--socket' if shop.socket else where}"
        )
        yield tell("posd", f"process {running.pid} is posd, but {me()} cannot talk to it over {path} ({reason})", todo)
    else:
        yield warning(
            "posd",
            f"posd does not run: nobody can pay. Nothing answers on {path} ({reason})",
            "start it (systemctl start posd), then run posd doctor again: some things can be seen only then",
        )


def _sockets(shop: Shop) -> tuple[Path, ...]:
    if shop.socket is not None:
        return (shop.socket,)
    return (shop.settings.local_api.admin_socket, shop.settings.local_api.till_socket)


def _ask(shop: Shop, path: Path) -> Findings:
    running = shop.running
    with Api(path) as api:
        version = api.get("/version").body
        running.health = api.get("/health", also={503}).body
        running.terminals = api.get("/terminals", {"all": "true"}).body["terminals"]
    running.answers = True
    for terminal in running.terminals:
        if terminal.get("in_fleet", True) and terminal["base_url"] and terminal["source"] == "mdns":
            shop.addresses[terminal["serial"]] = Address(terminal["base_url"], "mdns")
    who = f", process {running.pid} of {user_name(running.uid)}" if running.pid and running.uid is not None else ""
    yield ok("posd", f"posd {version['version']} runs and answers on {path}{who}")
    if version["version"] != __version__ or version["schema"] != schema_version():
        yield warning(
            "version",
            f"posd {version['version']} runs, but {__version__} is installed here",
            "restart posd when no payment is under way, so that what is installed is what runs",
        )
    for name in OF_HEALTH:
        state = running.health.get("checks", {}).get(name, {})
        if state.get("status") == "failing":
            yield failure(name.replace("_", " "), str(state.get("detail")), "see what the other lines say of it")
        elif state.get("status") == "degraded":
            yield warning(name.replace("_", " "), str(state.get("detail")), "see what the other lines say of it")


def _process(path: Path) -> tuple[int, int]:
    """Return the process and the user that listen on a socket. Raise OSError where it cannot be connected to."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        pid, uid, _gid = _PEER_CREDENTIALS.unpack(credentials)
        return int(pid), int(uid)


def _lock_holder(shop: Shop) -> int | None:
    """Return the process that holds a lock of the daemon, without touching the lock."""
    if shop.config is None:
        return None
    for lock in (shop.settings.local_api.directory / "posd.lock", shop.settings.database.lock):
        with suppress(OSError):
            if (holder := lock_holder(lock)) is not None:
                return holder
    return None


def lock_holder(path: Path) -> int | None:
    """Return the process that has a file locked (flock), None without one. Raise OSError."""
    inode = path.stat()
    wanted = f"{os.major(inode.st_dev):02x}:{os.minor(inode.st_dev):02x}:{inode.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4])
    return None
