"""The machine: its clock, room on its disks, its firewall."""

import os
import shlex
import shutil
import sqlite3
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from posd.base.times import parse_iso
from posd.cli.app.times import in_words, moment
from posd.cli.doctor.context import Findings, Shop, failure, ok, permitted, warning
from posd.cli.doctor.database import open_unchanged
from posd.cli.doctor.files import mount_again, mount_point
from posd.clock import kernel
from posd.clock.rules import Kernel
from posd.payments.wire import read_event

#: A Date header has whole seconds, and terminals are set by hand: this far apart is usual. Seconds.
USUAL_SECONDS = 10.0
#: From here on the times of a payment, here and on the terminal, cannot be put side by side. Seconds.
MINUTES_SECONDS = 60.0
#: The newest events that are looked at.
EVENTS = 50

SET = "let a time service keep the clock (systemd-timesyncd, chrony, ntpd), and see that it runs"


def _set(shop: Shop) -> tuple[str, str]:
    """Return the commands for that."""
    return shop.as_root("timedatectl", "set-ntp", "true"), "timedatectl"


def check_clock(shop: Shop) -> Findings:
    """Tell whether something keeps the clock, and how far those of the terminals are from it."""
    state = kernel.state(time.time())
    if state is Kernel.UNSYNCHRONISED:
        yield warning(
            "this machine",
            "no time service keeps the clock right: the system says it is not synchronised",
            SET,
            *_set(shop),
        )
    elif state is Kernel.SYNCHRONISED:
        yield ok("this machine", "a time service keeps the clock")
    said = shop.health("clock")
    if said.get("status") == "degraded":
        # Of a clock that is not believed the year may be wrong.
        yield failure(
            "posd", in_words(str(said.get("detail")), year=True), str(said.get("todo")), shop.command("clock")
        )
    elif said.get("status") == "ok":
        yield ok("posd", "posd believes the clock of this machine")
    for serial, ahead in shop.clocks.items():
        apart = f"its clock is {_span(ahead)} {'ahead of' if ahead > 0 else 'behind'} the one of this machine"
        todo = f"find out which of the two is wrong; set the terminal's clock, or this machine's: {SET}"
        window = _window(shop, serial)
        if window is not None and abs(ahead) > window:
            meaning = f"{apart}: it refuses every call, because calls bear the time ({_span(window)} off at most)"
            yield failure(serial, meaning, todo, *_set(shop))
        elif abs(ahead) >= MINUTES_SECONDS:
            meaning = f"{apart}: certificates and the times of payments do not fit together"
            if said.get("status") == "degraded":  # the terminal is a witness, and nothing is to be done to it
                clock_first = "see to the clock of this machine first; this terminal tells what time it has"
                yield failure(serial, f"{meaning}; it has {_time_of(ahead)}", clock_first, shop.command("clock"))
                continue
            yield failure(serial, meaning, todo, *_set(shop))
        elif abs(ahead) >= USUAL_SECONDS:
            yield warning(serial, apart, todo, *_set(shop))
        else:
            yield ok(serial, "its clock agrees with the one of this machine")
    if shop.config is not None:
        for serial in shop.terminals_by_serial:
            if _window(shop, serial) is not None and serial not in shop.clocks:
                yield warning(
                    serial,
                    "its clock could not be compared, for it did not say its time, with which calls to it are signed",
                    f"compare it with this machine's clock by hand; {SET}",
                    *_set(shop),
                )
        for serial, ahead in _events(shop).items():
            if (
                serial in shop.terminals_by_serial
                and ahead >= MINUTES_SECONDS
                and abs(shop.clocks.get(serial, 0.0)) < MINUTES_SECONDS
            ):
                yield warning(
                    serial,
                    f"events of it arrived {_span(ahead)} before the time that they bear: its clock was ahead of this "
                    "machine's",
                    f"compare both clocks now; {SET}",
                    *_set(shop),
                )


def _window(shop: Shop, serial: str) -> int | None:
    """Return by how many seconds a terminal lets clocks differ, None where calls to it are not signed."""
    terminal = shop.terminals_by_serial.get(serial)
    return None if terminal is None or terminal.auth == "none" else terminal.hash_encrypt.window_seconds


def _events(shop: Shop) -> dict[str, float]:
    """Return for each terminal how many seconds events of the newest payments were ahead of this clock, at most.

    Only that way round: an event may come late, after an outage of hours, but never before it was made.
    """
    ahead: dict[str, float] = defaultdict(lambda: float("-inf"))
    try:
        with closing(open_unchanged(shop.settings.database.path)) as db:
            rows = db.execute("SELECT received_at, body FROM events ORDER BY seq DESC LIMIT ?", (EVENTS,)).fetchall()
    except (OSError, sqlite3.Error):
        return {}  # the check of the database tells of it
    for received_at, body in rows:
        try:
            event = read_event(body)
            span = (parse_iso(event.occurred_at) - parse_iso(received_at)).total_seconds()
        except (ValueError, TypeError):
            continue
        ahead[event.terminal.serial_number] = max(ahead[event.terminal.serial_number], span)
    return ahead


def _time_of(ahead: float) -> str:
    """Write what a clock says that is so many seconds ahead of this machine's."""
    return moment(datetime.now(UTC) + timedelta(seconds=ahead), year=True)


def _span(seconds: float) -> str:
    """Write a span of time for people: 45 s, 5 min 3 s, 2 h 10 min, 365 days."""
    whole = round(abs(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} days"


# Room on the disks: what cannot be written cannot be acknowledged, and no payment starts.

#: Below this, in bytes: the WAL (8 MiB and a checkpoint beside it) and some large events may not find room any more.
LEAST_BYTES = 32 * 1024 * 1024
#: Below this a person should look before it runs out: months of payments of one shop, or some days of a runaway log.
FEW_BYTES = 256 * 1024 * 1024
#: Files that can still be made; SQLite and posd make a handful.
LEAST_FILES = 64

MIB = 1024 * 1024


def check_disk(shop: Shop) -> Findings:
    """Tell how much room is left where the database lies, and whether sockets can be made."""
    directory = shop.settings.database.path.parent
    yield from permitted(directory, _room(shop, directory, LEAST_BYTES, FEW_BYTES))
    sockets = shop.settings.local_api.directory
    if _existing(sockets).exists() and _device(sockets) != _device(directory):
        yield from permitted(sockets, _room(shop, sockets, 64 * 1024, 64 * 1024))  # the sockets and a lock file


def _room(shop: Shop, directory: Path, least: int, few: int) -> Findings:
    found = os.statvfs(_existing(directory))
    free = found.f_bavail * found.f_frsize
    place = str(_existing(directory))
    make_room = (
        shlex.join(("df", "-h", place)),
        shop.as_root("journalctl", "--vacuum-size=200M"),
        shop.as_root("du", "-xah", "--threshold=100M", mount_point(_existing(directory))),
    )
    if found.f_flag & os.ST_RDONLY:
        if not shop.failed("files"):
            meaning = "the file system cannot be written (mounted read-only): no payment can start"
            yield failure(directory, meaning, *mount_again(shop, _existing(directory)))
    elif free < least:
        yield failure(
            directory,
            f"the disk is nearly full ({free / MIB:.1f} MiB free): posd refuses payments when nothing can be written",
            "free the disk: old logs, downloads, backups; posd goes on by itself, without a restart",
            *make_room,
        )
    elif found.f_files and found.f_favail < LEAST_FILES:
        yield failure(
            directory,
            f"the disk has room, but no more than {found.f_favail} files can be made on it (inodes)",
            "remove files that are not needed; a directory with very many small ones is the usual reason",
            shlex.join(("df", "-i", place)),
            shop.as_root("du", "-x", "--inodes", "--threshold=10000", mount_point(_existing(directory))),
        )
    elif free < few:
        meaning = f"{free / MIB:.0f} MiB are free on this disk"
        yield warning(directory, meaning, "make room before it runs out", *make_room)
    else:
        yield ok(directory, f"{free / MIB:,.0f} MiB are free on this disk".replace(",", " "))


def _existing(path: Path) -> Path:
    """Return the path, or the next directory above it that exists or cannot be looked into."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def _device(path: Path) -> int:
    return _existing(path).stat().st_dev


# Firewalls of this machine: hints only. What is there is told, and what has to pass; no rule is judged for certain.
#
# Nothing is started that would load a kernel module: a tool is asked only where its tables are in use already.

#: How long a tool may take to list its rules, in seconds.
TOOL_SECONDS = 5.0
#: Where the tools are for root; an ordinary user's PATH may lack it.
PATH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"


def check_firewall(shop: Shop) -> Findings:
    """Tell which firewall there is, and what it has to let in."""
    port = str(shop.settings.webhooks.port) if shop.config is not None else ""
    wanted = f"TCP port {port or '8443 (webhooks.listen)'}"
    discovery = shop.config is None or shop.settings.discovery.enabled
    if discovery:
        wanted += " and UDP port 5353 (mDNS)"
    ports = [f"{port or 8443}/tcp"] + (["5353/udp"] if discovery else [])
    todo = f"see that {wanted} may come in from the terminals' network"
    found = False
    for name, how, rules in _firewalls():
        found = True
        if port and port in rules:
            yield ok(name, f"{how}; its rules name port {port}", todo)
        else:
            yield warning(name, f"{how}: it may keep the terminals out", todo, *_let_in(shop, name, ports))
    if not found:
        yield ok(
            "this machine", "no firewall was found here; one in the network (router, WLAN) cannot be seen from here"
        )


def _let_in(shop: Shop, name: str, ports: Sequence[str]) -> Iterator[str]:
    """Yield the commands that let these ports in; for nftables, whose tables have any name, that shows the rules."""
    match name:
        case "ufw":
            yield from (shop.as_root("ufw", "allow", port) for port in ports)
        case "firewalld":
            yield from (shop.as_root("firewall-cmd", "--permanent", f"--add-port={port}") for port in ports)
            yield shop.as_root("firewall-cmd", "--reload")
        case "iptables":
            for number, protocol in (port.split("/") for port in ports):
                yield shop.as_root("iptables", "-I", "INPUT", "-p", protocol, "--dport", number, "-j", "ACCEPT")
        case _:
            yield shop.as_root("nft", "list", "ruleset")


def _firewalls() -> Iterator[tuple[str, str, str]]:
    """Yield name, what was seen, and the rules as text where this user may read them."""
    if "ENABLED=yes" in _read(Path("/etc/ufw/ufw.conf")):
        yield "ufw", "ufw is switched on", _read(Path("/etc/ufw/user.rules"))
        return  # it writes the tables below
    if Path("/run/firewalld.pid").exists():
        yield "firewalld", "firewalld runs", _run("firewall-cmd", "--list-all")
        return
    if _read(Path("/proc/net/ip_tables_names")).split():
        rules = _run("iptables", "-S", "INPUT")
        if _filters(rules):
            yield "iptables", "iptables filters what comes in", rules
    if Path("/sys/module/nf_tables").exists():
        rules = _run("nft", "list", "ruleset")
        if "hook input" in rules and _filters(rules):
            yield "nftables", "nftables filters what comes in", rules


def _filters(rules: str) -> bool:
    return any(word in rules.lower() for word in (" drop", " reject"))


def _run(tool: str, *arguments: str) -> str:
    """Return what a tool prints, "" where it is not there or this user may not ask it."""
    path = shutil.which(tool, path=PATH)
    if path is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - one of three tools of the system, with fixed arguments
            [path, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
        )
        return done.stdout
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
