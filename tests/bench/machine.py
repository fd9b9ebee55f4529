"""On what was measured: the versions of everything, the machine, its disk, and what else it was doing."""

import os
import platform
import re
import sqlite3
import ssl
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

#: Measured beside posd, and no requirement of its own.
_BESIDE = ("sqlalchemy",)
_MIB = 1024


def about(sync_seconds: float) -> dict[str, Any]:
    """Return it for JSON; each number names its unit."""
    return {
        "posd": version("posd"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "packages": _packages(),
        "kernel": f"{platform.system()} {platform.release()}",
        "processor": _line("/proc/cpuinfo", "model name") or platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_mb": int((_line("/proc/meminfo", "MemTotal") or "0").split()[0]) // _MIB,
        "sync_ms": sync_seconds * 1000,
        "load_before": os.getloadavg()[0],
    }


def words(machine: dict[str, Any]) -> list[str]:
    """Say it in some lines."""
    computer = f"{machine['processors']} × {machine['processor']}, {machine['memory_mb']:,} MB, {machine['kernel']}"
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return [
        f"posd {machine['posd']}, Python {machine['python']}, SQLite {machine['sqlite']}, {machine['openssl']}.",
        f"{packages}.",
        f"{computer}; a sync takes {machine['sync_ms']:.2f} ms; load {machine['load_before']:.1f} before the run.",
    ]


def _packages() -> dict[str, str]:
    """Return the version of each package that posd needs, and of those that were measured beside it."""
    needed = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requires("posd") or () if "extra ==" not in line]
    found = {}
    for name in sorted({*needed, *_BESIDE}):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _line(file: str, name: str) -> str | None:
    """Return what a line of a file of the kernel says, such as `model name : …`."""
    for line in Path(file).read_text().splitlines():
        before, _, after = line.partition(":")
        if before.strip() == name:
            return after.strip()
    return None
