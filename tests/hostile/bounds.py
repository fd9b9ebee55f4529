"""Bounds of the effects that strangers may have on posd, with the reasons."""

from collections import Counter
from typing import TYPE_CHECKING

from posd.httpd.admission import MAX_TURNED_AWAY

if TYPE_CHECKING:
    from tests.hostile.run import Result, Times

#: Factor by which the till may wait longer than in the quiet time. The waits last milliseconds, so a cashier sees no
#: difference.
TIMES_AS_LONG = 3.0
#: Maximum duration of a read during an attack by an admitted till or terminal, in milliseconds.
INSIDER_READ_MS = 500.0
#: Maximum growth of resident memory since the first quiet time, in megabytes. A small machine has this amount to spare.
MEMORY_MB = 25.0
#: Maximum growth of resident memory in an attack by an admitted till or terminal, in megabytes.
INSIDER_MEMORY_MB = 32.0
#: Maximum number of additional descriptors: the connections of the LAN, and some descriptors that posd opens for honest
#: work.
DESCRIPTORS = 512 + 40
#: Maximum number of additional descriptors of each till: the refused connections, and some descriptors that posd opens
#: for honest work.
TURNED_AWAY = MAX_TURNED_AWAY + 40
#: Maximum number of log lines in a minute. posd logs each of the nine kinds of disturbance once a minute.
KINDS = 9
#: Maximum number of lines about addresses that refuse the certificate. posd logs one line for each address in an hour.
DISTRUSTED = 32


def lines_allowed(seconds: float) -> int:
    """Return the number of log lines that strangers may cause in these seconds. The number does not depend on the
    strangers' actions.
    """
    return KINDS * (1 + int(seconds // 60 + 1)) + DISTRUSTED


def broken(result: "Result", descriptors: int = DESCRIPTORS, *, insider: bool = False) -> list[str]:
    """Return the exceeded bounds of a result. `descriptors`: permitted number of additional descriptors."""
    quiet = result.quiet
    memory_mb = INSIDER_MEMORY_MB if insider else MEMORY_MB
    found = [f"quiet: {item}" for item in quiet.wrong] if quiet is not None else []
    found += result.attack.wrong + result.stored
    if not result.done.get("connections"):
        found.append("no attacker made a connection")
    for name, value in (("at its peak", result.memory_peak_mb), ("at the end", result.memory_end_mb)):
        more = value - result.memory_quiet_mb
        if more > memory_mb:
            found.append(f"memory {name}: {more:.0f} MB more than in the quiet time")
    if result.descriptors_peak > result.descriptors_quiet + descriptors:
        found.append(f"posd had {result.descriptors_peak} open descriptors")
    if result.descriptors_end > result.descriptors_quiet + DESCRIPTORS // 10:
        found.append(f"posd had {result.descriptors_end} open descriptors after the attack")
    if len(result.lines) > lines_allowed(result.seconds):
        kinds = Counter(line["event"] for line in result.lines)
        found.append(f"{len(result.lines)} log lines: {dict(kinds)}, the last is {result.lines[-1]}")
    if quiet is not None:
        found += _slow("payments", quiet.payments, result.attack.payments)
        if not insider:
            found += _slow("reads", quiet.reads, result.attack.reads)
        elif result.attack.reads.p95 > INSIDER_READ_MS:
            found.append(f"reads, 95th percentile: {result.attack.reads.p95:.0f} ms")
    return found


def _slow(name: str, quiet: "Times", attack: "Times") -> list[str]:
    pairs = (("median", quiet.median, attack.median), ("95th percentile", quiet.p95, attack.p95))
    return [
        f"{name}, {what}: {now:.1f} ms, {now / before:.1f} times the quiet time"
        for what, before, now in pairs
        if before and now > TIMES_AS_LONG * before
    ]
