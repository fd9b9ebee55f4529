"""`python -m tests.crash`: the crash matrix as a command. Exit code 1 if any cell failed."""

import argparse
import asyncio
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from posd.base.crashpoints import POINTS
from tests.crash import cell, matrix
from tests.crash.cell import FAILED, NOT_REACHED, OK, Result
from tests.crash.scenarios import SCENARIOS


def main() -> int:
    """Run the requested cells, print progress, table and summary."""
    options = _options()
    try:
        wanted = (
            [cell.parse(options.only)]
            if options.only
            else matrix.cells(options.seed, _names(options.points, POINTS), _names(options.scenarios, SCENARIOS))
        )
    except ValueError as error:
        print(f"tests.crash: {error}", file=sys.stderr)
        return 2
    done = 0

    def tell(result: Result) -> None:
        nonlocal done
        done += 1
        print(f"{done}/{len(wanted)} {result.verdict}: {result.cell} ({result.seconds:.1f} s)", flush=True)
        for fault in result.faults:
            print(f"    {fault}", flush=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no process is left running in that case either
    began = time.monotonic()
    try:
        results = asyncio.run(matrix.run_all(wanted, options.seed, options.jobs, tell))
    except KeyboardInterrupt:
        print(f"tests.crash: interrupted after {done} of {len(wanted)} cells", file=sys.stderr)
        return 130
    seconds = time.monotonic() - began
    if options.only:
        for line in results[0].log:
            print(json.dumps(line))
    pairs = list(zip(wanted, results, strict=True))
    print(f"\n{matrix.table(pairs)}\n")
    missing = matrix.never_reached(pairs)
    if missing:
        print(f"never reached in any scenario of this run: {', '.join(missing)}")
    counted = {verdict: sum(result.verdict == verdict for result in results) for verdict in (OK, NOT_REACHED, FAILED)}
    crashes = sum(result.crashes for result in results)
    print(
        f"{len(results)} cells: {counted[OK]} ok, {counted[NOT_REACHED]} not reached, {counted[FAILED]} FAILED; "
        f"{crashes} crashes and restarts; {seconds:.0f} s, seed {options.seed}"
    )
    if options.json:
        document = {"seed": options.seed, "seconds": seconds, "cells": [_document(result) for result in results]}
        options.json.write_text(json.dumps(document, indent=1))
    return 1 if counted[FAILED] or (missing and not options.only and not options.scenarios) else 0


def _options() -> argparse.Namespace:
    scenarios = "\n".join(f"  {name:27} {scenario.tells}" for name, scenario in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description="SIGKILL at each named crash point in each scenario. Exit code 1 where anything was wrong then.",
        epilog=f"scenarios:\n{scenarios}\n\ncrash points: see posd/base/crashpoints.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--points", default="", help="names of crash points, separated by commas; all")
    parser.add_argument("--scenarios", default="", help="names of scenarios, separated by commas; all")
    parser.add_argument("--only", metavar="POINT:COUNT,SCENARIO", help="one cell, as the progress names it; with logs")
    parser.add_argument("--jobs", type=int, default=3, help="cells that run side by side; 3")
    parser.add_argument("--seed", type=int, default=1, help="of ids, of the terminal's delays, of counts; 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    return parser.parse_args()


def _names(given: str, known: object) -> list[str]:
    names = [name for name in given.split(",") if name]
    for name in names:
        if name not in known:  # type: ignore[operator]
            raise ValueError(f"{name} is not known here: give some of {', '.join(sorted(known))}")  # type: ignore[call-overload]
    return names


def _document(result: Result) -> dict[str, object]:
    document = asdict(result)
    if result.verdict != FAILED:
        del document["log"]
    return document


if __name__ == "__main__":
    sys.exit(main())
