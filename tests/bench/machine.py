"""On what was measured: the versions of everything, the machine, its disk, and what else it was doing."""

import os
import platform
import re
import sqlite3
import ssl
from collections.abc import Sequence
from importlib.metadata import requires, version
from pathlib import Path


def versions() -> dict[str, str]:
    """Return what a figure depends on most."""
    processor = _line("/proc/cpuinfo", "model name") or platform.machine()
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "processor": processor,
    }


def words(sync_seconds: float) -> Sequence[str]:
    """Say all of it in some lines."""
    own = versions()
    needed = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requires("posd") or () if "extra ==" not in line}
    memory = int((_line("/proc/meminfo", "MemTotal") or "0").split()[0]) // 1024
    computer = f"{len(os.sched_getaffinity(0))} × {own['processor']}, {memory:,} MB, Linux {platform.release()}"
    return [
        f"posd {version('posd')}, Python {own['python']}, SQLite {own['sqlite']}, {own['openssl']}.",
        ", ".join(f"{name} {version(name)}" for name in sorted(needed)) + ".",
        f"{computer}; a sync takes {sync_seconds * 1000:.2f} ms; load {os.getloadavg()[0]:.1f}.",
    ]


def _line(file: str, name: str) -> str | None:
    """Return what a line of a file of the kernel says, such as `model name : …`."""
    for line in Path(file).read_text().splitlines():
        before, _, after = line.partition(":")
        if before.strip() == name:
            return after.strip()
    return None
