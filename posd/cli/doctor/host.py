"""The machine: its clock, room on its disks, and whether terminals get through to it."""

import os
import shlex
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from posd import tls
from posd.base.times import parse_iso
from posd.cli.app.times import in_words, moment
from posd.cli.doctor.context import DoctorContext, Findings, failure, ok, permitted, warning
from posd.cli.doctor.database import open_unchanged
from posd.cli.doctor.files import mount_again, mount_point
from posd.clock import kernel
from posd.clock.rules import Kernel

#: A Date header has whole seconds, and terminals are set by hand: this far apart is usual. Seconds.
USUAL_SECONDS = 10.0
#: From here on the times of a payment, here and on the terminal, cannot be put side by side. Seconds.
MINUTES_SECONDS = 60.0

SET = "let a time service keep the clock (systemd-timesyncd, chrony, ntpd), and see that it runs"


def _set(shop: DoctorContext) -> tuple[str, str]:
    """Return the commands for that."""
    return shop.as_root("timedatectl", "set-ntp", "true"), "timedatectl"


def check_clock(shop: DoctorContext) -> Findings:
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


def _window(shop: DoctorContext, serial: str) -> int | None:
    """Return by how many seconds a terminal lets clocks differ, None where calls to it are not signed."""
    terminal = shop.terminals_by_serial.get(serial)
    return None if terminal is None or terminal.auth == "none" else terminal.hash_encrypt.window_seconds


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


def check_disk(shop: DoctorContext) -> Findings:
    """Tell how much room is left where the database lies, and whether sockets can be made."""
    directory = shop.settings.database.path.parent
    yield from permitted(directory, _room(shop, directory, LEAST_BYTES, FEW_BYTES))
    sockets = shop.settings.local_api.directory
    if _existing(sockets).exists() and _device(sockets) != _device(directory):
        yield from permitted(sockets, _room(shop, sockets, 64 * 1024, 64 * 1024))  # the sockets and a lock file


def _room(shop: DoctorContext, directory: Path, least: int, few: int) -> Findings:
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


# Whether terminals get through to this machine. No rules are read: firewalls have many, and one may stand in the
# network. A callback that has arrived shows it.

#: The newest events that are looked at for callbacks.
CALLBACKS = 5000
_CALLED_BACK = (
    "SELECT t.terminal, t.sent_to, max(e.received_at) FROM events e JOIN transactions t USING (client_transaction_id)"
    " WHERE e.seq > (SELECT max(seq) FROM events) - ? GROUP BY t.terminal, t.sent_to"
)


def check_firewall(shop: DoctorContext) -> Findings:
    """Check which terminals have sent callbacks since this machine was started."""
    yield from permitted("this machine", _let_in(shop))


def _let_in(shop: DoctorContext) -> Findings:
    since = datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
    callbacks = _callbacks(shop)
    unseen = []
    for terminal in shop.terminals:
        if terminal.access_mode == "cloud":
            continue
        at = callbacks.get(terminal.serial)
        if at is not None and parse_iso(at) >= since:
            yield ok(terminal.serial, f"a callback of it came in: the last one at {moment(parse_iso(at), date=True)}")
        else:
            unseen.append(terminal.serial)
    if unseen:
        wanted = f"TCP port {shop.port or 8443}" + (" and UDP port 5353" if shop.settings.discovery.enabled else "")
        yield warning(
            ", ".join(unseen),
            "not looked at: only a callback shows that firewalls let a terminal through, and none has come in since "
            "this machine was started",
            f"see that {wanted} may come in from the terminals' network; the next payment there shows it",
            shop.as_root("nft", "list", "ruleset"),
        )


def _callbacks(shop: DoctorContext) -> dict[str, str]:
    """Return when each terminal of the network called back last; one at an address of this machine proves nothing."""
    mine = {"127.0.0.1", "::1", "localhost", *tls.local_addresses()}
    path = shop.settings.database.path
    if not path.exists():
        return {}
    try:
        with open_unchanged(path) as db:
            rows = db.execute(_CALLED_BACK, (CALLBACKS,)).fetchall()
    except sqlite3.Error:
        return {}  # the check of the database tells of it
    of_network = ((at, serial) for serial, sent_to, at in rows if urlsplit(sent_to or "").hostname not in {None, *mine})
    return {serial: at for at, serial in sorted(of_network)}
