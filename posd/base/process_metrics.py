"""What every process of posd tells of itself as metrics: memory, processor time, descriptors.

Under names of its own, since node_exporter has the usual ones for itself where it reads a text file.
"""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from posd.base.exposition import Family, Samples, counter, gauge


def families(prefix: str) -> tuple[Family, ...]:
    """Return the metrics of a process, whose names begin so."""
    return (
        gauge(f"{prefix}_process_resident_memory_bytes", "Memory of the process."),
        counter(f"{prefix}_process_cpu_seconds_total", "Processor time of the process."),
        gauge(f"{prefix}_process_start_time_seconds", "When the process started, in seconds since 1970."),
        gauge(f"{prefix}_process_open_fds", "Open file descriptors."),
        gauge(f"{prefix}_process_max_fds", "How many it may open."),
    )


def values(prefix: str, started: float) -> Iterator[Samples]:
    """Return their values; what cannot be read is left out. `started` in seconds since 1970."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        yield f"{prefix}_process_resident_memory_bytes", [((), pages * resource.getpagesize())]
    yield f"{prefix}_process_cpu_seconds_total", [((), round(time.process_time(), 3))]
    yield f"{prefix}_process_start_time_seconds", [((), round(started, 2))]
    with suppress(OSError), os.scandir("/proc/self/fd") as entries:
        yield f"{prefix}_process_open_fds", [((), sum(1 for _ in entries))]
    yield f"{prefix}_process_max_fds", [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
