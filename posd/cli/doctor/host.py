"""The machine: its clock, room on its disks, and whether terminals get through to it."""

import os
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from posd import tls
from posd.base.times import parse_iso
from posd.cli.app.times import age, in_words, moment
from posd.cli.doctor.context import DoctorContext, Findings
from posd.cli.doctor.database import open_unchanged
from posd.cli.explain.catalogue import say
from posd.clock.clock import kernel_state
from posd.clock.rules import Kernel

#: A Date header has whole seconds, and terminals are set by hand: this far apart is usual. Seconds.
USUAL_SECONDS = 10.0
#: From here on the times of a payment, here and on the terminal, cannot be put side by side. Seconds.
MINUTES_SECONDS = 60.0


def check_clock(shop: DoctorContext) -> Findings:
    """Check whether something sets the clock, and how far those of the terminals are from it."""
    state = kernel_state(time.time())
    if state in (Kernel.UNSYNCHRONISED, Kernel.SYNCHRONISED):
        yield shop.tell(f"clock.{'kept' if state is Kernel.SYNCHRONISED else 'alone'}", "this machine")
    said = shop.health("clock")
    doubted = said.get("status") == "degraded"
    if doubted:
        # If posd does not trust the clock, the year may be wrong.
        detail = in_words(str(said.get("detail")), year=True)
        yield shop.tell("clock.doubted", "posd", detail=detail, todo=said.get("todo"))
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
            code = "witness" if doubted else "minutes"  # a witness: nothing is to be done to the terminal
        else:
            code = "seconds" if abs(ahead) >= USUAL_SECONDS else "agrees"
        apart = say("doctor", "ahead" if ahead > 0 else "behind", age=age(abs(ahead)))
        has = moment(datetime.now(UTC) + timedelta(seconds=ahead), year=True)
        yield shop.tell(f"clock.{code}", serial, apart=apart, window=age(window or 0), has=has)


# Room on the disks: what cannot be written cannot be acknowledged, and no payment starts.

MIB = 1024 * 1024
#: Below this, in bytes: the WAL (8 MiB and a checkpoint beside it) and some large events may not find room any more.
LEAST_BYTES = 32 * MIB
#: Below this a person should look before it runs out: months of payments of one shop, or some days of a runaway log.
FEW_BYTES = 256 * MIB
#: Files that can still be made; SQLite and posd make a handful.
LEAST_FILES = 64


def check_disk(shop: DoctorContext) -> Findings:
    """Check how much room is left where the database is."""
    directory = shop.settings.database.path.parent
    yield from shop.permitted(directory, _room(shop, directory))


def _room(shop: DoctorContext, directory: Path) -> Findings:
    place = directory  # or the next directory above it that exists or cannot be looked into
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY:
        if shop.failed("files"):
            return
        code = "read_only"
    elif free < LEAST_BYTES:
        code = "full"
    elif found.f_files and found.f_favail < LEAST_FILES:
        code = "no_inodes"
    else:
        code = "few" if free < FEW_BYTES else "room"
    left = f"{free / MIB:.1f}" if code == "full" else f"{free / MIB:,.0f}".replace(",", " ")
    yield shop.tell(f"disk.{code}", directory, free=left, files=found.f_favail, at=place)


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
    yield from shop.permitted("this machine", _let_in(shop))


def _let_in(shop: DoctorContext) -> Findings:
    since = datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
    callbacks, silent = _callbacks(shop), []
    for serial in (terminal.serial for terminal in shop.terminals if terminal.access_mode != "cloud"):
        at = callbacks.get(serial)
        if at is not None and parse_iso(at) >= since:
            yield shop.tell("firewall.let_in", serial, at=moment(at, date=True))
        else:
            silent.append(serial)
    if silent:
        mdns = " and UDP port 5353" if shop.settings.discovery.enabled else ""
        yield shop.tell("firewall.silent", ", ".join(silent), wanted=f"TCP port {shop.port or 8443}{mdns}")


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
