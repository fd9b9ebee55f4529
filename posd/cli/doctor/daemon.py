"""The daemon: does it run, does it answer, what does it say of itself; which program holds the port of its listener."""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from posd import __version__
from posd.base.files import user_name
from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings
from posd.cli.doctor.users import being, group_name, port_refused
from posd.config import ListenAddress, parse
from posd.storage.connection import schema_version

#: Checks of the health resource that no check here looks at by itself; the others would be told twice.
OF_HEALTH = ("storage", "local_api", "webhook_listener", "discovery", "configuration", "identity")
#: Counters of the status resource that a person has to look at.
OF_STATUS = ("in_doubt", "attention")
#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")


def find(shop: DoctorContext) -> dict[Path, OSError | None]:
    """Find the process of the daemon, without asking it anything.

    Return its sockets that were tried -> why they cannot be connected to; the last may have been. The socket of the
    tills may be held by systemd, which starts posd for a call: it is left alone while no daemon holds its lock.
    """
    shop.pid = _lock_holder(shop)
    config = shop.config or parse("", file=shop.config_file)  # where it cannot be read: where posd is by default
    sockets = [shop.socket] if shop.socket else [config.local_api.admin_socket]
    if not shop.socket and shop.pid is not None:
        sockets.append(config.local_api.till_socket)
    tried: dict[Path, OSError | None] = {}
    for path in sockets:
        try:
            pid, shop.uid = _process(path)
        except OSError as error:
            tried[path] = error
        else:
            shop.pid, tried[path] = shop.pid or pid, None
            break
    with suppress(OSError):
        shop.uid = Path(f"/proc/{shop.pid}").stat().st_uid
    return tried


def check(shop: DoctorContext) -> Findings:
    """Find the daemon and keep what it says of itself and of the terminals for the other checks."""
    tried = find(shop)
    for path, closed in tried.items():
        if closed is None:
            try:
                yield from _ask(shop, path)
            except (Unreachable, Problem, OSError) as error:
                yield shop.tell("daemon.answers_badly", path, error=error)
            return
    path, reason = next(iter(tried.items()))
    given: dict[str, Any] = {"path": path, "reason": reason.strerror if reason else ""}
    if not shop.there:
        yield shop.tell("daemon.stopped", "posd", **given)
    elif forbidden := [one for one in tried if os.access(one, os.F_OK) and not os.access(one, os.W_OK)]:
        yield shop.tell("daemon.closed", "posd", **given, socket_group=group_name(forbidden[0].stat().st_gid))
    else:
        place = "--socket" if shop.socket else f"local_api.directory ({path.parent})"
        yield shop.tell("daemon.silent", "posd", **given, place=place)


def _ask(shop: DoctorContext, path: Path) -> Findings:
    counters = None
    with Api(path) as api:
        version = api.get("/version").body
        shop.checks = api.get("/health", also={503}).body.get("checks", {})
        shop.terminals_of_daemon = api.get("/terminals", {"all": "true"}).body["terminals"]
        with suppress(Problem):  # a till may not see it
            counters = api.get("/status").body["counters"]
    shop.answers = True
    for terminal in shop.terminals_of_daemon:
        if terminal.get("in_fleet", True) and terminal["base_url"] and terminal["source"] == "mdns":
            shop.addresses[terminal["serial"]] = terminal["base_url"]
    who = f", process {shop.pid} of {user_name(shop.uid)}" if shop.pid and shop.uid is not None else ""
    yield shop.tell("daemon.runs", "posd", version=version["version"], path=path, who=who)
    if version["version"] != __version__ or version["schema"] != schema_version():
        yield shop.tell("daemon.other_version", "version", version=version["version"], installed=__version__)
    for name in OF_HEALTH:
        said = shop.health(name)
        status = {"degraded": "warning", "failing": "failure"}.get(str(said.get("status")))
        if status is None or shop.failed(name):
            continue  # what is wrong with the file was told, and that posd has not taken it up follows from that
        code = "configuration" if name == "configuration" else "health"  # posd status says no more of the former
        # Of a terminal that is disputed no card can be charged.
        status = "failure" if name == "identity" else status
        yield shop.tell(
            f"daemon.{code}", name.replace("_", " "), status, detail=said.get("detail"), todo=said.get("todo")
        )
    for name in OF_STATUS:
        if counters and (count := counters[name]):
            yield shop.tell(f"daemon.{name}", "payments", count=count)


def _process(path: Path) -> tuple[int, int]:
    """Return the process and the user that listen on a socket. Raise OSError where it cannot be connected to."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        pid, uid, _gid = _PEER_CREDENTIALS.unpack(credentials)
        return int(pid), int(uid)


def _lock_holder(shop: DoctorContext) -> int | None:
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


# The port of the webhook listener: is it free, or held by our daemon.

#: State of a listening socket in /proc/net/tcp (net/tcp_states.h).
_LISTENING = "0A"


def check_ports(shop: DoctorContext) -> Findings:
    """Tell which program has the ports that posd listens on."""
    webhooks, metrics = shop.settings.webhooks.listen, shop.settings.metrics.listen
    yield _port(shop, "webhooks.listen", webhooks, int(shop.served.get("port") or webhooks.port))
    if metrics is not None:
        yield _port(shop, "metrics.listen", metrics, metrics.port)


def _port(shop: DoctorContext, key: str, listen: ListenAddress, actual: int) -> CheckFinding:
    """Say of one of them whether it is free, or held by posd; `actual` is the port that posd says it has."""
    given: dict[str, Any] = {"key": key, "name": key.partition(".")[2], "host": listen.host, "port": listen.port}
    if listen.port == 0:
        return shop.tell("port.any", listen, **given)
    if actual != listen.port:
        return shop.tell("port.elsewhere", listen, **given, actual=actual)
    with being(shop.user):
        refused = port_refused(listen.host, listen.port)
    may_bind = shop.service is not None and "CAP_NET_BIND_SERVICE" in shop.service.words("AmbientCapabilities")
    holders = list(_listeners(listen.port))
    number = (refused.errno or 0) if refused else 0
    if number == errno.EACCES and (may_bind or not shop.can_try):  # a port below 1024: posd may perhaps have it
        number = errno.EADDRINUSE if holders else 0
    if number == 0:
        return shop.tell("port.nothing" if shop.there else "port.free", listen, **given)
    if number != errno.EADDRINUSE:
        code = "port.not_ours" if number == errno.EADDRNOTAVAIL else "port.forbidden"
        return shop.tell(code, listen, **given, reason=os.strerror(number))
    if shop.there and any((pid or shop.pid) == shop.pid and shop.uid in (None, uid) for uid, pid in holders):
        return shop.tell("port.posd", listen, **given)
    uid, pid = holders[0] if holders else (None, None)
    return shop.tell("port.taken", listen, **given, holder=_holder(shop, uid, pid), holds=pid)


def _listeners(port: int) -> Iterator[tuple[int, int | None]]:
    """Yield user and process (None where this user may not see it) of the programs that listen on a TCP port."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    yield int(fields[7]), next(_owners(fields[9]), None)


def _owners(inode: str) -> Iterator[int]:
    """Yield the processes that have a socket open, as far as this user may see them."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (directory / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) == f"socket:[{inode}]":  # noqa: PTH115 - its target is no path
                        yield int(directory.name)


def _holder(shop: DoctorContext, uid: int | None, pid: int | None) -> str:
    if uid is None:
        return "a program that cannot be seen from here"
    if pid is None:
        return f"a program of {user_name(uid)} ({shop.me} may not see which)"
    name = ""
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    return f"{name or 'a program'} (process {pid} of {user_name(uid)})"
