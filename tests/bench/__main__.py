"""Measure posd against its bounds. Exit code 1 if a bound does not hold.

The benchmark uses real processes over real TLS and Unix sockets, on the loopback interface and on the disk of TMPDIR.
The machine must be idle. A run takes some ten minutes. A run with --quick takes a minute and compares a few ratios with
tests/bench/reference.json, as CI does.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.measures import Bench, Measure, measure_memory, measure_ratios, measure_starts
from tests.rig.command import execute
from tests.rig.figures import COLUMNS, Figure, show

MEASURES: Mapping[str, Measure] = {"memory": measure_memory, "starting": measure_starts}
FILE = Path(__file__).with_name("reference.json")


def read_reference() -> dict[str, float]:
    """Return the stored reference."""
    return json.loads(FILE.read_text())


async def run(bench: Bench, quick: bool, keep: bool) -> Sequence[Figure]:
    """Measure. A ratio that is worse than the reference is measured once more, and counts if it is worse again."""
    if not quick:
        return [row for measure in MEASURES.values() for row in await measure(bench)]
    rows = await measure_ratios(bench, read_reference())
    if keep:
        ratios = {row.name: float(f"{row.median:.4g}") for row in rows}
        FILE.write_text(json.dumps(ratios, indent=1) + "\n")
    elif not all(row.holds for row in rows):
        show(COLUMNS, (row.columns for row in rows))
        again = await measure_ratios(replace(bench, home=bench.directory("again")), read_reference())
        rows = [min(pair, key=lambda row: row.median) for pair in zip(rows, again, strict=True)]
    return rows


async def command() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute: a few ratios against the stored reference")
    parser.add_argument("--keep", action="store_true", help="with --quick: store the measured ratios as the reference")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    with TemporaryDirectory(prefix="posd-bench-") as home:
        rows = await run(Bench(Path(home), short=False), given.quick, given.keep)
    show(COLUMNS, (row.columns for row in rows))
    return 0 if given.keep or all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(execute(command()))
