"""The daemon: does it run, does it answer, what does it say of itself; which program holds the port of its listener."""

import errno
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from posd import __version__
from posd.base.files import user_name
from posd.cli.app.advice import check_words
from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.doctor.context import STATUSES, CheckFinding, DoctorContext, Findings
from posd.cli.doctor.users import being, port_refused
from posd.cli.explain.catalogue import say
from posd.client.connection import probe
from posd.config import ListenAddress, parse
from posd.storage.connection import schema_version

#: Checks of the health resource that no check here looks at by itself; the others would be told twice.
OF_HEALTH = ("storage", "local_api", "webhook_listener", "discovery", "configuration", "restore", "identity")
#: Counters of the status resource that a person has to look at.
OF_STATUS = ("in_doubt", "attention")


def find(shop: DoctorContext) -> dict[Path, str]:
    """Find the process of the daemon, without asking it anything.

    Return its sockets that were tried -> why they cannot be connected to, "" where one can. The socket of the tills may
    be held by systemd, which starts posd for a call: it is left alone while no daemon holds its lock.
    """
    config = shop.config or parse("", file=shop.config_file)  # where it cannot be read: where posd is by default
    for lock in (config.local_api.directory / "posd.lock", config.database.lock):
        with suppress(OSError):
            shop.pid = shop.pid or lock_holder(lock)
    sockets = [shop.socket] if shop.socket else [config.local_api.admin_socket]
    if not shop.socket and shop.pid is not None:
        sockets.append(config.local_api.till_socket)
    tried: dict[Path, str] = {}
    for path in sockets:
        try:
            shop.pid, tried[path] = probe(str(path)) or shop.pid, ""
            break
        except Unreachable as error:
            tried[path] = getattr(error.__cause__, "strerror", None) or error.reason
    with suppress(OSError):
        shop.uid = Path(f"/proc/{shop.pid}").stat().st_uid
    return tried


def lock_holder(path: Path) -> int | None:
    """Return the process that has a file locked (flock), without touching it; None without one. Raise OSError."""
    inode = path.stat()
    wanted = f"{os.major(inode.st_dev):02x}:{os.minor(inode.st_dev):02x}:{inode.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4])
    return None


def check(shop: DoctorContext) -> Findings:
    """Find the daemon and keep what it says of itself and of the terminals for the other checks."""
    tried = find(shop)
    for path in (path for path, reason in tried.items() if not reason):
        try:
            yield from _ask(shop, path)
        except (Unreachable, Problem, OSError) as error:
            yield shop.tell("daemon.answers_badly", path, error=error)
        return
    path, reason = next(iter(tried.items()))
    closed = [one for one in tried if os.access(one, os.F_OK) and not os.access(one, os.W_OK)]
    code = ("closed" if closed else "silent") if shop.there else "stopped"
    place = "--socket" if shop.socket else f"local_api.directory ({path.parent})"
    yield shop.tell(f"daemon.{code}", "posd", path=path, reason=reason, place=place, at=next(iter(closed), path))


def _ask(shop: DoctorContext, path: Path) -> Findings:
    counters: dict[str, int] = {}
    with Api(path) as api:
        version = api.get("/version").body
        shop.checks = api.get("/health", also={503}).body.get("checks", {})
        shop.terminals_of_daemon = api.get("/terminals", {"all": "true"}).body["terminals"]
        with suppress(Problem):  # a till may not see it
            counters = api.get("/status").body["counters"] or {}
    shop.answers = True
    for terminal in shop.terminals_of_daemon:
        if terminal.get("in_fleet", True) and terminal["base_url"] and terminal["source"] == "mdns":
            shop.addresses[terminal["serial"]] = terminal["base_url"]
    who = say("doctor", "process", pid=shop.pid, user=user_name(shop.uid)) if shop.pid and shop.uid is not None else ""
    yield shop.tell("daemon.runs", "posd", version=version["version"], path=path, who=who)
    if version["version"] != __version__ or version["schema"] != schema_version():
        yield shop.tell("daemon.other_version", "version", version=version["version"], installed=__version__)
    for name in OF_HEALTH:
        said = shop.health(name)
        if said.get("status", "ok") == "ok" or shop.failed(name):
            continue  # what is wrong with the file was told, and that posd has not taken it up follows from that
        # Of a terminal that is disputed no card can be charged.
        status = "failure" if name == "identity" else STATUSES[said["status"]]
        # posd status says no more of the configuration.
        code = "configuration" if name == "configuration" else "health"
        detail, todo = check_words(name, {**said, "todo": said["todo"] or "see what the other lines say of it"})
        yield shop.tell(f"daemon.{code}", name.replace("_", " "), status, detail=detail, todo=todo)
    for name in OF_STATUS:
        if count := counters.get(name):
            yield shop.tell(f"daemon.{name}", "payments", count=count)


# The port of the webhook listener: is it free, or held by our daemon.


def check_ports(shop: DoctorContext) -> Findings:
    """Report which program has the ports that posd listens on."""
    webhooks, metrics = shop.settings.webhooks.listen, shop.settings.metrics.listen
    yield _port(shop, "webhooks.listen", webhooks, int(shop.served.get("port", 0)))
    if metrics is not None:
        yield _port(shop, "metrics.listen", metrics, 0)


def _port(shop: DoctorContext, key: str, listen: ListenAddress, actual: int) -> CheckFinding:
    """Report whether one of them is free, or held by posd, which says that it has the port `actual` (0: unknown)."""
    given: dict[str, Any] = {"key": key, "name": key.partition(".")[2], "host": listen.host, "port": listen.port}
    if listen.port == 0:
        return shop.tell("port.any", listen, **given)
    if actual:
        return shop.tell("port.posd" if actual == listen.port else "port.elsewhere", listen, **given, actual=actual)
    with being(shop.user):
        number = port_refused(listen.host, listen.port)
    holders = _holders(listen.port)
    may_bind = "CAP_NET_BIND_SERVICE" in shop.service.words("AmbientCapabilities")
    if number == errno.EACCES and (may_bind or not shop.can_try):  # a port below 1024: posd may perhaps have it
        number = errno.EADDRINUSE if holders else 0
    if number == 0:
        return shop.tell("port.nothing" if shop.there else "port.free", listen, **given)
    if number != errno.EADDRINUSE:
        code = "not_ours" if number == errno.EADDRNOTAVAIL else "forbidden"
        return shop.tell(f"port.{code}", listen, **given, reason=os.strerror(number))
    if shop.there and (
        holders is None or any(shop.pid == pid or (not pid and shop.uid == uid) for _, pid, uid in holders)
    ):
        return shop.tell("port.posd", listen, **given)
    name, pid, uid = holders[0] if holders else ("", 0, None)
    holder = "a program that cannot be seen from here" if uid is None else say("doctor", "holder", user=user_name(uid))
    holder = say("doctor", "holder_process", name=name, pid=pid) if pid else holder
    return shop.tell("port.taken", listen, **given, holds=pid or None, holder=holder)


def _holders(port: int) -> list[tuple[str, int, int]] | None:
    """Return name, process ("" and 0 where this user may not see them) and user of those that listen on a TCP port.

    None if this machine has no `ss`.
    """
    command = ("ss", "-Hltnpe", f"sport = :{port}")
    try:
        said = subprocess.run(  # noqa: S603 - words of our own, no shell
            command, capture_output=True, text=True, timeout=5, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = []
    for line in said.splitlines():
        program, user = re.search(r'\("([^"]*)",pid=(\d+)', line), re.search(r" uid:(\d+)", line)
        found.append((program[1] if program else "", int(program[2]) if program else 0, int(user[1]) if user else 0))
    return found
