"""Measure posd against its bounds. Exit code 1 if a bound does not hold.

The benchmark uses real processes over real TLS and Unix sockets, on the loopback interface and on a real disk. The
machine must be idle. A run takes some ten minutes. A run with --quick takes a minute and compares a few ratios with
tests/bench/reference.json, as CI does.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.bench import quick
from tests.bench.bench import Bench, Measure, Row
from tests.bench.measures import measure_memory, measure_starts

MEASURES: Mapping[str, Measure] = {"memory": measure_memory, "starting": measure_starts}


async def run(given: argparse.Namespace, home: Path) -> int:
    """Measure and print the results. SIGTERM ends the run like Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    bench = Bench(home, short=False)
    if given.quick:
        return await quick.run(bench, keep=given.keep)
    print(", ".join(f"{name}: {value}" for name, value in quick.versions().items()), f"load {os.getloadavg()[0]:.1f}")
    rows: list[Row] = []
    for name in given.only or MEASURES:
        rows += await MEASURES[name](bench)
    print(*rows, sep="\n")
    return 0 if all(row.holds for row in rows) else 1


def main() -> int:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="about a minute: a few ratios against the stored reference"
    )
    parser.add_argument("--keep", action="store_true", help="with --quick: store the measured ratios as the reference")
    parser.add_argument("--only", action="append", choices=MEASURES, help="measure this part only; can be repeated")
    parser.add_argument("--directory", default="/tmp", help="where the databases are written; default: %(default)s")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="posd-bench-", dir=given.directory))
    try:
        return asyncio.run(run(given, home))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
