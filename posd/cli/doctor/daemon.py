"""The daemon: does it run, does it answer, what does it say of itself; which program holds the port of its listener."""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from posd import __version__
from posd.base.files import user_name
from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.doctor.context import (
    DoctorContext,
    Findings,
    SubjectFinding,
    TerminalAddress,
    failure,
    me,
    ok,
    refusal,
    warning,
)
from posd.cli.doctor.users import bindable, group_name, tried_as
from posd.config import ListenAddress, parse
from posd.storage.connection import schema_version

SEE_OTHERS = "see what the other lines say of it"
#: Checks of the health resource that no check here looks at by itself; the others would be told twice.
OF_HEALTH = ("storage", "local_api", "webhook_listener", "discovery", "configuration", "identity")
#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")


def find(shop: DoctorContext) -> dict[Path, str]:
    """Find the process of the daemon, without asking it anything.

    Return its sockets that cannot be connected to -> why. The socket of the tills may be held by systemd, which starts
    posd for a call: it is left alone while no daemon holds its lock.
    """
    running = shop.running
    running.pid = _lock_holder(shop)
    config = shop.config or parse("", file=shop.config_file)  # where it cannot be read: where posd is by default
    sockets = [shop.socket] if shop.socket else [config.local_api.admin_socket]
    if not shop.socket and running.pid is not None:
        sockets.append(config.local_api.till_socket)
    closed = {}
    for path in sockets:
        try:
            pid, uid = _process(path)
        except OSError as error:
            closed[path] = error.strerror or str(error)
        else:
            if running.pid is None:
                running.pid, running.uid = pid, uid
            shop.answering = path
            break
    with suppress(OSError):
        running.uid = Path(f"/proc/{running.pid}").stat().st_uid
    return closed


def check_service(shop: DoctorContext) -> Findings:
    """Find the daemon and keep what it says of itself and of the terminals for the other checks."""
    running, closed = shop.running, find(shop)
    log = (shop.as_root("journalctl", "-u", "posd", "-n", "20", "-o", "cat"),) if shop.service is not None else ()
    if (path := shop.answering) is not None:
        try:
            yield from _ask(shop, path)
        except (Unreachable, Problem, OSError) as error:
            meaning = f"posd is there and does not answer as it should: {error}"
            yield failure(path, meaning, "restart posd; look at its log", *shop.systemctl("restart"), *log)
        return
    path, reason = next(iter(closed.items()))
    if not running.there:
        start = shop.systemctl("start") or (shop.posd("run"),)
        yield failure(
            "posd",
            f"posd does not run: no card can be charged. Nothing answers on {path} ({reason})",
            "start it, once all that has failed here is mended; then run posd doctor again: some things show only then",
            *start,
            *log,
        )
    elif any(os.path.exists(path) and not os.access(path, os.W_OK) for path in closed):  # noqa: PTH110
        group = group_name(next(path for path in closed if path.exists()).stat().st_gid)
        meaning = f"process {running.pid} is posd, but {me()} cannot talk to it over {path} ({reason})"
        join = shop.as_root("usermod", "-aG", group, me())
        yield warning("posd", meaning, "join the group of the socket and log in anew, or run this as root", join)
    else:
        place = "--socket" if shop.socket else f"local_api.directory ({path.parent})"
        yield failure(
            "posd",
            f"process {running.pid} is posd, but {me()} cannot talk to it over {path} ({reason})",
            f"restart posd; if that does not help, look at its log, and at {place}",
            *shop.systemctl("restart"),
            *log,
        )


def _ask(shop: DoctorContext, path: Path) -> Findings:
    running = shop.running
    with Api(path) as api:
        version = api.get("/version").body
        running.health = api.get("/health", also={503}).body
        running.terminals = api.get("/terminals", {"all": "true"}).body["terminals"]
    running.answers = True
    for terminal in running.terminals:
        if terminal.get("in_fleet", True) and terminal["base_url"] and terminal["source"] == "mdns":
            shop.addresses[terminal["serial"]] = TerminalAddress(terminal["base_url"], "mdns")
    who = f", process {running.pid} of {user_name(running.uid)}" if running.pid and running.uid is not None else ""
    yield ok("posd", f"posd {version['version']} runs and answers on {path}{who}")
    if version["version"] != __version__ or version["schema"] != schema_version():
        yield warning(
            "version",
            f"posd {version['version']} runs, but {__version__} is installed here",
            "restart posd when no payment is under way, so that what is installed is what runs",
            *shop.systemctl("restart"),
        )
    for name in OF_HEALTH:
        state = shop.health(name)
        tell = {"degraded": warning, "failing": failure}.get(str(state.get("status")))
        if tell is warning and name == "identity":
            tell = failure  # no card can be charged on that terminal
        if tell is None or shop.failed(name):
            continue  # what is wrong with the file was told, and that posd has not taken it up follows from that
        look = (f"sudo {shop.command('config', 'check')}", *shop.systemctl("reload"))
        commands = look if name == "configuration" else ()  # posd status says no more of it, and names this command
        yield tell(name.replace("_", " "), str(state.get("detail")), str(state.get("todo")) or SEE_OTHERS, *commands)


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


@dataclass(frozen=True, slots=True)
class Holder:
    """A program that listens: its user, and the process where this user may see it."""

    uid: int
    pid: int | None

    def __str__(self) -> str:
        user = user_name(self.uid)
        if self.pid is None:
            return f"a program of {user} ({me()} may not see which)"
        with suppress(OSError):
            return f"{Path(f'/proc/{self.pid}/comm').read_text().strip()} (process {self.pid} of {user})"
        return f"process {self.pid} of {user}"


def check_ports(shop: DoctorContext) -> Findings:
    """Tell which program has the ports that posd listens on."""
    webhooks, metrics = shop.settings.webhooks.listen, shop.settings.metrics.listen
    yield _port(shop, "webhooks.listen", webhooks, int(shop.served.get("port") or webhooks.port))
    if metrics is not None:
        yield _port(shop, "metrics.listen", metrics, metrics.port)


def _port(shop: DoctorContext, key: str, listen: ListenAddress, actual: int) -> SubjectFinding:
    """Say of one of them whether it is free, or held by posd; `actual` is the port that posd says it has."""
    running, subject, restart = shop.running, str(listen), shop.systemctl("restart")
    if listen.port == 0:
        return warning(
            subject,
            "port 0 is any free port, for trials only: after a restart it is another one",
            f'write a port into {key}, as in "{listen.host}:8443"',
            shop.edit(key),
        )
    if actual != listen.port:
        return failure(
            subject,
            f"posd runs and listens on port {actual}, not on the one that the configuration names",
            "restart posd when no payment is under way; the configuration was changed after it started",
            *restart,
        )
    reason = _refused(shop, listen)
    if reason == "":
        if running.there:
            return failure(
                subject,
                f"posd runs, and no program listens on the port that the configuration names ({key})",
                "restart posd; the configuration was perhaps changed after it started",
                *restart,
            )
        return ok(subject, "the port is free: posd can listen on it")
    if reason == os.strerror(errno.EADDRINUSE):
        return _held(shop, key, listen)
    if reason == os.strerror(errno.EADDRNOTAVAIL):
        return refusal(
            key,
            subject,
            f"posd cannot listen on it ({reason}): this machine does not have the address {listen.host}",
            f'write an address that it has, or all of them: {key.partition(".")[2]} = "0.0.0.0:{listen.port}"',
            "ip -brief address",
            shop.edit(key),
        )
    return refusal(
        key,
        subject,
        f"posd cannot listen on it ({reason}): ports below 1024 are not for the user {shop.user.name}",
        f"choose a port from 1024 on in {key}",
        shop.edit(key),
    )


def _held(shop: DoctorContext, key: str, listen: ListenAddress) -> SubjectFinding:
    """Say which program has a port: posd, or another one."""
    running = shop.running
    holders = list(listeners(listen.port))
    if running.there and any((one.pid or running.pid) == running.pid and _same(one, shop) for one in holders):
        return ok(listen, f"posd listens on it (process {running.pid})")
    holder = holders[0] if holders else None
    pid = holder.pid if holder is not None else None
    return refusal(
        key,
        listen,
        f"the port is taken by {holder or 'a program that cannot be seen from here'}: posd cannot listen on it"
        + (", and the terminals reach that program instead" if running.there else ", and will not start"),
        f"stop that program, or choose another port in {key}; then start posd",
        shop.as_root("kill", pid) if pid else shop.as_root("ss", "-ltnp", f"sport = :{listen.port}"),
        *shop.systemctl("restart"),
    )


def _same(holder: Holder, shop: DoctorContext) -> bool:
    return shop.running.uid is None or holder.uid == shop.running.uid


def _refused(shop: DoctorContext, listen: ListenAddress) -> str:
    """Try to listen as the user of posd; return why it cannot, "" where it can."""
    if shop.service is not None and "CAP_NET_BIND_SERVICE" in shop.service.words("AmbientCapabilities"):
        return bindable(listen.host, listen.port)
    reason = tried_as(shop.user, partial(bindable, listen.host, listen.port), str)
    if reason == os.strerror(errno.EACCES) and not shop.can_try:
        # A port below 1024: posd may perhaps have it, and not this user.
        return os.strerror(errno.EADDRINUSE) if any(listeners(listen.port)) else ""
    return reason


def listeners(port: int) -> Iterator[Holder]:
    """Yield the programs that listen on a TCP port, on any address."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    yield Holder(int(fields[7]), _holder(fields[9]))


def _holder(inode: str) -> int | None:
    """Return a process that has a socket open, None where this user may not see it."""
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        with suppress(OSError):
            for descriptor in (directory / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) == f"socket:[{inode}]":  # noqa: PTH115 - its target is no path
                        return int(directory.name)
    return None
