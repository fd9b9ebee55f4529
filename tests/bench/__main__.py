"""Measure posd against its bounds. Exit code 1 if a bound does not hold.

The benchmark uses real processes over real TLS and Unix sockets, on the loopback interface and on the disk of TMPDIR.
The machine must be idle. A run takes some ten minutes. A run with --quick takes a minute and compares a few ratios with
tests/bench/reference.json, as CI does.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import sqlite3
import ssl
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.measures import Bench, Measure, Row, measure_memory, measure_ratios, measure_starts

MEASURES: Mapping[str, Measure] = {"memory": measure_memory, "starting": measure_starts}
FILE = Path(__file__).with_name("reference.json")


def read_reference() -> dict[str, float]:
    """Return the stored reference."""
    stored: dict[str, float] = json.loads(FILE.read_text())["ratios"]
    return stored


def write_reference(rows: Sequence[Row]) -> None:
    """Store the ratios of a run and the versions on which they depend."""
    made_with = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "machine": platform.machine(),
    }
    ratios = {row.figure: float(f"{row.median:.4g}") for row in rows}
    FILE.write_text(json.dumps({"made_with": made_with, "ratios": ratios}, indent=1) + "\n")


async def run(given: argparse.Namespace, home: Path) -> int:
    """Measure and print the results. SIGTERM ends the run like Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    bench = Bench(home, short=False)
    print(f"load {os.getloadavg()[0]:.1f}")
    if not given.quick:
        rows = [row for measure in MEASURES.values() for row in await measure(bench)]
    else:
        rows = list(await measure_ratios(bench, read_reference()))
        if given.keep:
            write_reference(rows)
        elif not all(row.holds for row in rows):
            print(*rows, "what is worse is measured once more, and counts if it is worse again", sep="\n")
            again = await measure_ratios(replace(bench, home=bench.directory("again")), read_reference())
            rows = [min(pair, key=lambda row: row.median) for pair in zip(rows, again, strict=True)]
    print(*rows, sep="\n")
    return 0 if given.keep or all(row.holds for row in rows) else 1


def main() -> int:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute: a few ratios against the stored reference")
    parser.add_argument("--keep", action="store_true", help="with --quick: store the measured ratios as the reference")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="posd-bench-") as home:
        try:
            return asyncio.run(run(given, Path(home)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            return 130


if __name__ == "__main__":
    sys.exit(main())
