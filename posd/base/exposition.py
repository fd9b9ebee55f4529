"""Prometheus' text exposition format, version 0.0.4: metrics, and the format of values.

Every process of posd that serves metrics has a table of them, and writes them in the order of the table.
"""

import ipaddress
import os
import resource
import socket
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from posd.base.text import escaped

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(msgspec.Struct, frozen=True):
    """Name, type (counter, gauge or histogram), labels and help of one metric."""

    kind: str
    name: str
    labels: tuple[str, ...]
    help: str


def table(text: str) -> Mapping[str, Family]:
    """Return the metrics of a table by name, in the order of the table.

    Each line has the type, the name, the labels separated by commas (- for none), and the help. An indented line
    continues the previous line.
    """
    rows = (line.split(" ", 3) for line in text.replace("\n  ", " ").split("\n") if line)
    return {
        name: Family(kind, name, () if labels == "-" else tuple(labels.split(",")), words)
        for kind, name, labels, words in rows
    }


# Counting a value where it occurs costs little. The text of the metrics is produced only on request.


class Histogram:
    """Histogram: counts of values by size.

    `bounds` ascend. A bucket counts the values up to its limit. The last bucket counts all larger values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each limit, the last one infinity, with the number of values up to that limit."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total


Value = float | Histogram
#: Values of one metric by its labels. The key is the text of the label. With several labels, it is a tuple of their
#: texts in order. A metric without labels has one value. None: the value is unknown.
Values = Mapping[str, Value] | Mapping[tuple[str, str], Value] | Mapping[tuple[str, str, str], Value] | Value | None
#: Name and values of one metric.
Samples = tuple[str, Values]


def render(families: Mapping[str, Family], samples: Iterator[Samples]) -> str:
    """Return all values as text, in the order of the table. Metrics without values are omitted."""
    found = dict(samples)
    lines: list[str] = []
    for name, family in families.items():
        values = found.pop(name, None)
        if values is None:
            continue
        by_labels: Mapping[Any, Value] = values if isinstance(values, Mapping) else {(): values}
        if by_labels:
            lines += _head(family)
        for labels, value in by_labels.items():
            lines += _lines(family, (labels,) if isinstance(labels, str) else labels, value)
    assert not found, found.keys()  # noqa: S101 - every metric is in the table
    return "\n".join(lines) + "\n"


def _head(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"


def _lines(family: Family, labels: tuple[str, ...], value: Value) -> Iterator[str]:
    pairs = [f'{name}="{_escaped(text)}"' for name, text in zip(family.labels, labels, strict=True)]
    if not isinstance(value, Histogram):
        yield f"{family.name}{_braced(pairs)} {_number(value)}"
        return
    total = 0
    for bound, total in value.cumulative():
        le = "+Inf" if bound == float("inf") else _number(bound)
        bucket = _braced([*pairs, f'le="{le}"'])
        yield f"{family.name}_bucket{bucket} {total}"
    yield f"{family.name}_sum{_braced(pairs)} {_number(value.sum)}"
    yield f"{family.name}_count{_braced(pairs)} {total}"


def _braced(pairs: Sequence[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return escaped(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# Access check of the listener on the loopback address.


def refusal(method: str, path: str, host: str | None) -> tuple[int, str, tuple[tuple[bytes, bytes], ...]] | None:
    """Return status, text and headers of a refusal, or None for a valid request.

    The request's host must be an address or a name of this machine. Otherwise a web page could read the metrics by a
    domain name that resolves to this machine.
    """
    if host is not None and not _is_here(host):
        return 421, "call this listener by its address, like http://127.0.0.1:9464/metrics", ()
    if path != "/metrics":
        return 404, "this listener serves only /metrics", ()
    if method != "GET":
        return 405, "only GET is possible", ((b"allow", b"GET"),)
    return None


def _is_here(host: str) -> bool:
    """Return whether a Host header is an address, localhost or the name of this machine, with any port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in ("localhost", socket.gethostname().lower())
    return True


# Metrics of every process of posd: memory, processor time, descriptors.
#
# The names have a prefix. Otherwise they would conflict with the names of node_exporter, when it reads posd's metrics
# from a text file.


def process_table(prefix: str) -> str:
    """Return the lines of the process metrics for `table`. `prefix`: begins each name."""
    return f"""
gauge {prefix}_process_resident_memory_bytes - Memory of the process.
counter {prefix}_process_cpu_seconds_total - Processor time of the process.
gauge {prefix}_process_start_time_seconds - Start of the process, in seconds since 1970.
gauge {prefix}_process_open_fds - Open file descriptors.
gauge {prefix}_process_max_fds - Most file descriptors that the process may open.
counter {prefix}_log_lines_dropped_total - Dropped log lines: the reader of the log had stopped, or the disk was full.
"""


def process_values(prefix: str, started: float, log_lines_dropped: int) -> Iterator[Samples]:
    """Yield the process metrics, without those that the system hides. `started`: seconds since 1970."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        yield f"{prefix}_process_resident_memory_bytes", pages * resource.getpagesize()
    yield f"{prefix}_process_cpu_seconds_total", round(time.process_time(), 3)
    yield f"{prefix}_process_start_time_seconds", round(started, 2)
    with suppress(OSError), os.scandir("/proc/self/fd") as entries:
        yield f"{prefix}_process_open_fds", sum(1 for _ in entries)
    yield f"{prefix}_process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield f"{prefix}_log_lines_dropped_total", log_lines_dropped
