"""Checks of the daemon, of its ports, and of the machine: clock, disk, callbacks."""

import errno
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from posd import __version__
from posd.base.files import user_name
from posd.base.limits import FREE_FOR_EXTRAS, MIB, floor
from posd.base.problems import RemedyStep
from posd.base.times import parse_iso
from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.app.times import age, in_words, moment
from posd.cli.doctor.context import STATUSES, CheckFinding, DoctorContext, Findings
from posd.cli.doctor.files import open_unchanged
from posd.cli.doctor.service import being, port_refused
from posd.cli.explain.catalogue import named, say
from posd.cli.payments.words import check_words
from posd.client.connection import probe
from posd.clock.clock import kernel_state
from posd.clock.rules import Kernel
from posd.config import ListenAddress, parse
from posd.storage.connection import schema_version
from posd.tls.certificate import local_addresses

#: Health checks of posd that are reported here. Other checks of posd doctor report the rest.
OF_HEALTH = ("storage", "local_api", "webhook_listener", "discovery", "configuration", "restore", "identity")
#: Counters in posd's status that an operator has to check if they are not 0.
OF_STATUS = ("in_doubt", "attention")


def find(shop: DoctorContext) -> dict[Path, str]:
    """Find the process of the daemon without a request to it, and store it in `shop`.

    Return socket -> why it refused a connection, or "" if it accepted one. The till socket is tried only if a daemon
    holds its lock. Otherwise systemd may hold that socket, and would start posd.
    """
    config = shop.config or parse("", file=shop.config_file)  # if unreadable: use the defaults
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
    """Return the id of the process that has locked a file (flock), or None. Do not open the file. Raise OSError."""
    inode = path.stat()
    wanted = f"{os.major(inode.st_dev):02x}:{os.minor(inode.st_dev):02x}:{inode.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4])
    return None


def check(shop: DoctorContext) -> Findings:
    """Check the daemon, and store its reports for other checks."""
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
        with suppress(Problem):  # the till socket refuses this call
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
            continue  # an earlier check has reported the same fault
        # A terminal with an identity conflict cannot charge a card.
        status = "failure" if name == "identity" else STATUSES[said["status"]]
        # `posd status` shows no more about the configuration, so this finding does not refer to it.
        code = "configuration" if name == "configuration" else "health"
        detail, steps = check_words(
            name, {**said, "todo": said["todo"] or named("read what the other lines say about it")}
        )
        yield _advised(shop.tell(f"daemon.{code}", name.replace("_", " "), status, detail=detail, todo=""), steps)
    for name in OF_STATUS:
        if count := counters.get(name):
            yield shop.tell(f"daemon.{name}", "payments", count=count)


def _advised(found: CheckFinding, steps: Sequence[RemedyStep]) -> CheckFinding:
    """Return a finding with posd's own advice. If the finding has commands, they replace those of the advice."""
    commands = tuple(step.command for step in steps if step.command)
    todo = "; ".join(step.does for step in steps if step.does)
    return msgspec.structs.replace(found, todo=todo, commands=found.commands or commands)


# Ports of the webhook listener and of the metrics.


def check_ports(shop: DoctorContext) -> Findings:
    """Check whether posd's ports are free, or in use by posd or by another program."""
    webhooks, metrics = shop.settings.webhooks.listen, shop.settings.metrics.listen
    yield _port(shop, "webhooks.listen", webhooks, int(shop.served.get("port", 0)))
    if metrics is not None:
        yield _port(shop, "metrics.listen", metrics, 0)


def _port(shop: DoctorContext, key: str, listen: ListenAddress, actual: int) -> CheckFinding:
    """Check whether a port is free or in use. `actual`: port that posd reports; 0: unknown."""
    given: dict[str, Any] = {"key": key, "name": key.partition(".")[2], "host": listen.host, "port": listen.port}
    if listen.port == 0:
        return shop.tell("port.any", listen, **given)
    if actual:
        return shop.tell("port.posd" if actual == listen.port else "port.elsewhere", listen, **given, actual=actual)
    with being(shop.user):
        number = port_refused(listen.host, listen.port)
    may_bind = "CAP_NET_BIND_SERVICE" in shop.service.words("AmbientCapabilities")
    if number == errno.EACCES and (may_bind or not shop.can_try):  # posd may be allowed to use a privileged port
        number = errno.EADDRINUSE if shop.there else 0
    if number == 0:
        return shop.tell("port.nothing" if shop.there else "port.free", listen, **given)
    if number != errno.EADDRINUSE:
        code = "not_ours" if number == errno.EADDRNOTAVAIL else "forbidden"
        return shop.tell(f"port.{code}", listen, **given, reason=os.strerror(number))
    return shop.tell("port.posd" if shop.there else "port.taken", listen, **given)


# Machine: its clock, free space on its disks, and whether terminals can reach it.

#: Usual difference of clocks in seconds, because a Date header has whole seconds, and terminals are set by hand.
USUAL_SECONDS = 10.0
#: From this difference on, in seconds, the times of a payment here and on the terminal cannot be compared.
MINUTES_SECONDS = 60.0


def check_clock(shop: DoctorContext) -> Findings:
    """Check whether a time service sets the clock, and how far the terminals' clocks differ."""
    state = kernel_state(time.time())
    if state in (Kernel.UNSYNCHRONISED, Kernel.SYNCHRONISED):
        yield shop.tell(f"clock.{'kept' if state is Kernel.SYNCHRONISED else 'alone'}", "this machine")
    said = shop.health("clock")
    doubted = said.get("status") == "degraded"
    if doubted:
        detail, steps = check_words("clock", said)
        # If posd does not trust the clock, the year may be wrong.
        yield _advised(shop.tell("clock.doubted", "posd", detail=in_words(detail, year=True), todo=""), steps)
    elif said.get("status") == "ok":
        yield shop.tell("clock.believed", "posd")
    for terminal in shop.terminals if shop.config is not None else ():
        serial, ahead = terminal.serial, shop.clocks.get(terminal.serial)
        window = None if terminal.auth == "none" else terminal.hash_encrypt.window_seconds
        if ahead is None:
            if window is not None:
                yield shop.tell("clock.not_compared", serial)
            continue
        if window is not None and abs(ahead) > window:
            code = "refuses"
        elif abs(ahead) >= MINUTES_SECONDS:
            # If posd does not trust this machine's clock, the terminal's clock may be right.
            code = "witness" if doubted else "minutes"
        else:
            code = "seconds" if abs(ahead) >= USUAL_SECONDS else "agrees"
        apart = say("doctor", "ahead" if ahead > 0 else "behind", age=age(abs(ahead)))
        has = moment(datetime.now(UTC) + timedelta(seconds=ahead), year=True)
        yield shop.tell(f"clock.{code}", serial, apart=apart, window=age(window or 0), has=has)


# Free space on the disk. Without it posd acknowledges no callback and starts no payment.


def check_disk(shop: DoctorContext) -> Findings:
    """Check the free space at the database, unless posd's health already reports a fault of its storage."""
    directory = shop.settings.database.path.parent
    if shop.health("storage").get("status", "ok") == "ok":
        yield from shop.permitted(directory, _room(shop, directory))


def _room(shop: DoctorContext, directory: Path) -> Findings:
    with suppress(FileNotFoundError, NotADirectoryError):  # the check of the files reports it
        found = os.statvfs(directory)
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        code = "full" if free < floor(FREE_FOR_EXTRAS, size) else "room"
        yield shop.tell(f"disk.{code}", directory, free=f"{free / MIB:,.0f}".replace(",", " "), at=directory)


# Whether terminals can reach this machine. Firewall rules are not read, because there are many kinds of firewalls, and
# some are in the network. A received callback shows that no firewall blocks callbacks.

#: Number of newest events among which callbacks are searched.
CALLBACKS = 5000
_CALLED_BACK = (
    "SELECT t.terminal, t.sent_to, max(e.received_at) FROM events e JOIN transactions t USING (client_transaction_id)"
    " WHERE e.seq > (SELECT max(seq) FROM events) - ? GROUP BY t.terminal, t.sent_to"
)


def check_firewall(shop: DoctorContext) -> Findings:
    """Check which terminals have sent callbacks since this machine was started."""
    yield from shop.permitted("this machine", _let_in(shop))


def _let_in(shop: DoctorContext) -> Findings:
    since = datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
    mine = {"127.0.0.1", "::1", "localhost", *local_addresses()}
    callbacks, silent = _callbacks(shop, mine), []
    for serial in (terminal.serial for terminal in shop.terminals if terminal.access_mode != "cloud"):
        at = callbacks.get(serial)
        if at is not None and parse_iso(at) >= since:
            yield shop.tell("firewall.let_in", serial, at=moment(at, date=True))
        elif urlsplit(shop.addresses.get(serial, "")).hostname in mine:
            yield shop.tell("firewall.here", serial)
        else:
            silent.append(serial)
    if silent:
        wanted = say("doctor", "ports" if shop.settings.discovery.enabled else "port", port=shop.port or 8443)
        yield shop.tell("firewall.silent", ", ".join(silent), wanted=wanted)


def _callbacks(shop: DoctorContext, mine: set[str]) -> dict[str, str]:
    """Return serial -> time of the last callback.

    A terminal at an address of this machine (`mine`) is omitted, because no firewall is between.
    """
    path = shop.settings.database.path
    if not path.exists():
        return {}
    try:
        with open_unchanged(path) as db:
            rows = db.execute(_CALLED_BACK, (CALLBACKS,)).fetchall()
    except sqlite3.Error:
        return {}  # the check of the database reports it
    of_network = ((at, serial) for serial, sent_to, at in rows if urlsplit(sent_to or "").hostname not in {None, *mine})
    return {serial: at for at, serial in sorted(of_network)}
