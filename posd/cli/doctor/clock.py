"""The clock: certificates, the day of a void, and every record depend on it."""

import ctypes
import sqlite3
from collections import defaultdict
from contextlib import closing

from posd.base.times import parse_iso
from posd.cli.doctor.context import Shop
from posd.cli.doctor.database import open_unchanged
from posd.cli.doctor.findings import Findings, failure, ok, warning
from posd.payments.events import read_event

#: A Date header has whole seconds, and terminals are set by hand: this far apart is usual. Seconds.
USUAL_SECONDS = 10.0
#: From here on the times of a payment, here and on the terminal, cannot be put side by side. Seconds.
MINUTES_SECONDS = 60.0
#: The newest events that are looked at.
EVENTS = 50

#: adjtimex(2): the kernel's answer where no service keeps the clock.
_TIME_ERROR = 5
#: struct timex is 208 bytes on 64-bit systems, and smaller elsewhere; zero asks and changes nothing.
_TIMEX_BYTES = 256

SET = "let a time service keep the clock (systemd-timesyncd, chrony, ntpd), and see that it runs: timedatectl"


def check(shop: Shop) -> Findings:
    """Tell whether something keeps the clock, and how far those of the terminals are from it."""
    state = kernel_state()
    if state == _TIME_ERROR:
        yield warning(
            "this machine", "no time service keeps the clock right: the system says it is not synchronised", SET
        )
    elif state >= 0:
        yield ok("this machine", "a time service keeps the clock")
    for serial, ahead in shop.clocks.items():
        apart = f"its clock is {_span(ahead)} {'ahead of' if ahead > 0 else 'behind'} the one of this machine"
        todo = f"find out which of the two is wrong; set the terminal's clock, or this machine's: {SET}"
        if abs(ahead) >= MINUTES_SECONDS:
            yield failure(serial, f"{apart}: certificates and the times of payments do not fit together", todo)
        elif abs(ahead) >= USUAL_SECONDS:
            yield warning(serial, apart, todo)
        else:
            yield ok(serial, "its clock agrees with the one of this machine")
    if shop.config is not None:
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
                )


def kernel_state() -> int:
    """Return what the kernel says of the clock (adjtimex), -1 where it does not."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    except (OSError, AttributeError):
        return -1


def _events(shop: Shop) -> dict[str, float]:
    """Return for each terminal how many seconds the newest events were ahead of this clock when they came, at most.

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


def _span(seconds: float) -> str:
    """Write a span of time for people: 45 s, 5 min 3 s, 2 h 10 min."""
    whole = round(abs(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
