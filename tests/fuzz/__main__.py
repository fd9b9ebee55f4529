"""The long run: `python -m tests.fuzz --minutes N [--target NAME] [--seed N]`.

Every target gets its share of the time, with new random cases, and tells what it did. A case that breaks an invariant
is shrunk and written to tests/vectors/found, where the suite replays it from then on. Exit code 1 where there was one.
"""

import argparse
import secrets
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz import found
from tests.fuzz.running import Report, search
from tests.fuzz.shop import open_shop
from tests.fuzz.targets import PURE, SERVED, served

NAMES = (*(target.name for target in PURE), *SERVED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=NAMES, help="run this one alone; can be repeated")
    parser.add_argument("--seed", type=int, default=None, help="that of an earlier run, for the same cases")
    parser.add_argument("--found", type=Path, default=found.DIRECTORY, help="where failing cases are written")
    given = parser.parse_args(arguments)
    names = given.target or NAMES
    number = secrets.randbelow(2**32) if given.seed is None else given.seed
    print(f"seed {number}, {given.minutes:g} minutes for {len(names)} targets", flush=True)
    seconds = given.minutes * 60 / len(names)
    reports = []
    with ExitStack() as stack:
        targets = {target.name: target for target in PURE}
        if set(names) & set(SERVED):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="posd-fuzz-")))
            targets |= {target.name: target for target in served(stack.enter_context(open_shop(directory)))}
        for name in names:
            report = search(targets[name], seconds, number)
            print(_line(report), flush=True)
            if report.failure is not None:
                reason = f"{type(report.failure.error).__name__}: {report.failure.error}"[:500]
                file = found.save(name, report.failure.case, reason, given.found)
                print(f"    {reason}\n    kept as {file}", flush=True)
            reports.append(report)
    print(f"{sum(report.cases for report in reports)} cases, {sum(bool(item.failure) for item in reports)} failures")
    return 1 if any(report.failure for report in reports) else 0


def _line(report: Report) -> str:
    reached, there = report.lines
    coverage = f", {reached} of {there} lines, {report.arcs} arcs, corpus {report.corpus}" if there else ""
    return f"{report.target}: {report.cases} cases{coverage}: {'FAILED' if report.failure else 'no failure'}"


if __name__ == "__main__":
    sys.exit(main())
