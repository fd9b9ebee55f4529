"""The long run: `python -m tests.fuzz --minutes N [--target NAME] [--seed N]`.

Every target gets its share of the time, with new random cases. A case that breaks an invariant is shrunk and written to
tests/vectors/found. The suite replays it from then on. Exit code 1 if there was one.
"""

import argparse
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz import found
from tests.fuzz.running import batch
from tests.fuzz.shop import open_shop
from tests.fuzz.targets import PURE, SERVED, served

NAMES = (*(target.name for target in PURE), *SERVED)
#: Cases of one batch.
BATCH = 250


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=NAMES, help="run this one alone; can be repeated")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="that of an earlier run")
    given = parser.parse_args()
    names = given.target or NAMES
    print(f"seed {given.seed}, {given.minutes:g} minutes for {len(names)} targets", flush=True)
    failures = 0
    with ExitStack() as stack:
        targets = {target.name: target for target in PURE}
        if set(names) & set(SERVED):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="posd-fuzz-")))
            targets |= {target.name: target for target in served(stack.enter_context(open_shop(directory)))}
        for name in names:
            batches, failure, end = 0, None, time.monotonic() + given.minutes * 60 / len(names)
            while failure is None and time.monotonic() < end:
                failure = batch(targets[name], BATCH, given.seed + batches)
                batches += 1
            print(f"{name}: {batches} batches of {BATCH} cases", flush=True)
            if failure is not None:
                failures += 1
                reason = f"{type(failure.error).__name__}: {failure.error}"[:500]
                print(f"    {reason}\n    kept as {found.save(name, failure.case, reason)}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
