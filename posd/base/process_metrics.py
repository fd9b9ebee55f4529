"""Metrics of every process of posd: memory, processor time, descriptors.

The names are its own, because node_exporter uses the usual ones for itself when it reads a text file.
"""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from posd.base.exposition import Family, Samples, counter, gauge


def families(prefix: str) -> tuple[Family, ...]:
    """Return the metrics of a process; their names have the prefix."""
    return (
        gauge(f"{prefix}_process_resident_memory_bytes", "Memory of the process."),
        counter(f"{prefix}_process_cpu_seconds_total", "Processor time of the process."),
        gauge(f"{prefix}_process_start_time_seconds", "When the process started, in seconds since 1970."),
        gauge(f"{prefix}_process_open_fds", "Open file descriptors."),
        gauge(f"{prefix}_process_max_fds", "How many it may open."),
        counter(
            f"{prefix}_log_lines_dropped_total",
            "Lines of its log that were dropped: its reader stood still, or the disk was full.",
        ),
    )


def values(prefix: str, started: float, log_lines_dropped: int) -> Iterator[Samples]:
    """Yield their values, without unreadable ones. `started` in seconds since 1970."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        yield f"{prefix}_process_resident_memory_bytes", [((), pages * resource.getpagesize())]
    yield f"{prefix}_process_cpu_seconds_total", [((), round(time.process_time(), 3))]
    yield f"{prefix}_process_start_time_seconds", [((), round(started, 2))]
    with suppress(OSError), os.scandir("/proc/self/fd") as entries:
        yield f"{prefix}_process_open_fds", [((), sum(1 for _ in entries))]
    yield f"{prefix}_process_max_fds", [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
    yield f"{prefix}_log_lines_dropped_total", [((), log_lines_dropped)]
