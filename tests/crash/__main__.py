"""`python -m tests.crash`: the crash matrix, or one cell of it. Exit code 1 if any cell failed."""

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter

from tests.crash import cell, matrix
from tests.crash.cell import FAILED, Result

#: Cells that run side by side.
JOBS = 3


def main() -> int:
    """Run the requested cells, and print progress and summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--only", metavar="POINT:COUNT,SCENARIO", help="one cell, as the progress names it; with logs")
    parser.add_argument("--seed", type=int, default=1, help="of ids, of the terminal's delays, of counts; 1")
    options = parser.parse_args()
    try:
        wanted = [cell.parse(options.only)] if options.only else matrix.cells(options.seed)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # this handler ends all processes after SIGTERM too
    try:
        results = asyncio.run(matrix.run_all(wanted, options.seed, JOBS, _print))
    except KeyboardInterrupt:
        return 130
    if options.only:
        for line in results[0].log:
            print(json.dumps(line))
    missing = [] if options.only else matrix.never_reached(wanted, results)
    print(f"never reached: {', '.join(missing) or 'none'}; {dict(Counter(result.verdict for result in results))}")
    return 1 if missing or any(result.verdict == FAILED for result in results) else 0


def _print(result: Result) -> None:
    print(f"{result.verdict}: {result.cell} ({result.seconds:.1f} s)", *result.faults, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
