"""The daemon: does it run, does it answer, what does it say of itself; which program holds the port of its listener."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from posd import __version__
from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.app.parameters import user_name
from posd.cli.doctor.context import Address, Findings, Said, Shop, failure, me, ok, warning
from posd.config import parse
from posd.storage.connection import schema_version

SEE_OTHERS = "see what the other lines say of it"
#: Checks of the health resource that no check here looks at by itself; the others would be told twice.
OF_HEALTH = ("storage", "webhook_listener", "discovery")
#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")


def check_service(shop: Shop) -> Findings:
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
                path, f"posd is there and does not answer as it should: {error}", "restart posd; look at its log"
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
        yield failure(
            "posd",
            f"posd does not run: no card can be charged. Nothing answers on {path} ({reason})",
            "start it (systemctl start posd), then run posd doctor again: some things can be seen only then",
        )


def _sockets(shop: Shop) -> tuple[Path, ...]:
    if shop.socket is not None:
        return (shop.socket,)
    config = shop.config or parse("", file=shop.config_file)  # where it cannot be read: where posd is by default
    return (config.local_api.admin_socket, config.local_api.till_socket)


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
        state = shop.health(name)
        tell = {"degraded": warning, "failing": failure}.get(str(state.get("status")))
        if tell is not None:
            yield tell(name.replace("_", " "), str(state.get("detail")), str(state.get("todo")) or SEE_OTHERS)


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


def check_ports(shop: Shop) -> Findings:
    """Tell which program has the port."""
    yield _port(shop)


def _port(shop: Shop) -> Said:
    listen, running = shop.settings.webhooks.listen, shop.running
    subject = str(listen)
    if listen.port == 0:
        return warning(
            subject,
            "port 0 is any free port, for trials only: after a restart the terminals would call the old one",
            'write a port into webhooks.listen, as in "0.0.0.0:8443"',
        )
    actual = int(shop.served.get("port") or listen.port)
    if actual != listen.port:
        return failure(
            subject,
            f"posd runs and listens on port {actual}, not on the one that the configuration names",
            "restart posd when no payment is under way; the configuration was changed after it started",
        )
    reason = _taken(listen.host, listen.port)
    if reason == "":
        if running.there:
            return failure(
                subject,
                "posd runs, and nobody listens on the port that the configuration names: the terminals call in vain",
                "restart posd; the configuration was perhaps changed after it started",
            )
        return ok(subject, "the port is free: posd can listen on it")
    holders = list(listeners(listen.port))
    ours = [one for one in holders if running.there and (one.pid or running.pid) == running.pid and _same(one, shop)]
    strangers = [one for one in holders if one not in ours]
    if ours:
        return ok(subject, f"posd listens on it (process {running.pid})")
    if strangers:
        return failure(
            subject,
            f"the port is taken by {strangers[0]}: posd cannot listen on it"
            + (", and the terminals reach that program instead" if running.there else ", and will not start"),
            "stop that program, or choose another port in webhooks.listen, then restart posd",
        )
    return failure(
        subject,
        f"posd cannot listen on it ({reason})",
        "is it an address of this machine? Correct webhooks.listen; 0.0.0.0 is every IPv4 address",
    )


def _same(holder: Holder, shop: Shop) -> bool:
    return shop.running.uid is None or holder.uid == shop.running.uid


def _taken(host: str, port: int) -> str:
    """Try to bind as posd does, without listening; return why it cannot, "" where it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:  # a port below 1024: the service manager may let posd have it, and not this user
            return "in use" if any(listeners(port)) else ""
        except OSError as error:
            return error.strerror or str(error)
    return ""


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
