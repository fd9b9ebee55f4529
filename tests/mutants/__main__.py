"""Make mistakes in modules, and report the mistakes that the tests near the modules do not find.

A name is a module (posd.payments.amounts), or a folder with all its modules (posd.records). With --changed, only
functions with a changed line get mutants, by default those of the pure rules. Exit code 0: each mutant was killed, is
accepted in accepted.toml with a reason, or was not reached in time. Exit code 1: a mutant survived.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.mutants.mutate import mutants
from tests.mutants.near import PURE_MODULES, modules_of, near, path_of
from tests.mutants.run import Mutation

ACCEPTED = Path(__file__).with_name("accepted.toml")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def play(module: str, lines: set[int] | None = None, end: float = math.inf) -> bool:
    """Run the mutants of one module and print the survivors. Return whether each mutant was killed or is accepted.

    `lines`: only functions with one of these lines get mutants. `end`: mutants not started by then are left out.
    """
    out = os.fdopen(os.dup(1), "w", buffering=1)
    mutation = Mutation(module, path_of(module), lines, end, jobs=len(os.sched_getaffinity(0)))
    arguments = ["-o", "addopts=", "-p", "no:schemathesis", "-p", "no:cacheprovider", "-n", "0", "--timeout=30"]
    ended = pytest.main([*arguments, "-q", *near(module)], plugins=[mutation])
    if mutation.failed or ended is pytest.ExitCode.INTERNAL_ERROR:
        print(f"a test already fails without a mutant: {mutation.failed}", file=out)
        return False
    accepted = tomllib.loads(ACCEPTED.read_text()).get(module, {}) if ACCEPTED.exists() else {}
    lived = [mutant for mutant in mutation.lived + mutation.unreached if mutant.name not in accepted]
    for mutant in lived:
        reached = "" if mutant not in mutation.unreached else "  (no test reaches it)"
        print(f"  {mutant.line:4} {mutant.name}{reached}", file=out)
    if lines is None and not mutation.late:
        for name in accepted.keys() - {mutant.name for mutant in mutation.lived + mutation.unreached}:
            print(f"       needless reason: {name}", file=out)
    known = len(mutation.lived) + len(mutation.unreached) - len(lived)
    total = mutation.died + len(lived)
    rate = f"{100 * mutation.died / total:5.1f} %" if total else "      -"
    late = f"  {mutation.late} not reached in time" if mutation.late else ""
    counts = f"{total:5} {mutation.died:5} died {len(lived):4} lived {known:4} accepted {rate}{late}"
    print(f"{module:36} {counts}", file=out)
    return not lived


def changed_lines(module: str, base: str) -> set[int]:
    """Return the numbers of the lines that differ from a commit, and of the lines beside a removed line."""
    command = ["git", "diff", "-U0", "--no-color", "--no-ext-diff", base, "--", path_of(module)]
    diff = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {int(first) + more for first, count in HUNK.findall(diff) for more in range(int(count or 1) or 2)}


def main() -> int:
    """Run each module in a process of its own, because Python does not import a module twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--changed", nargs="?", const="HEAD^", metavar="COMMIT", help="by default the parent commit")
    parser.add_argument("--minutes", type=float, default=math.inf, help="do not start a mutant after this time")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    base, lines = given.changed, None
    modules = [module for name in given.modules or PURE_MODULES for module in modules_of(name)]
    if base is not None:
        if subprocess.call(["git", "rev-parse", "-q", "--verify", f"{base}^{{commit}}"], stdout=subprocess.DEVNULL):
            print(f"no mutants: this checkout has no commit {base}")
            return 0
        lines = {module: changed_lines(module, base) for module in modules}
        modules = [module for module in modules if next(mutants(path_of(module), lines[module]), None)]
        if not given.modules:
            print(f"modules with changed functions since {base}: {', '.join(modules) or 'none'}", flush=True)
    if len(modules) == 1:
        return 0 if play(modules[0], lines and lines[modules[0]], end) else 1
    failed = 0
    for module in modules:
        minutes = (end - time.monotonic()) / 60
        if minutes <= 0:
            print(f"{module:36} not reached in time")
            continue
        options = [f"--minutes={minutes}", *([] if base is None else [f"--changed={base}"])]
        failed |= subprocess.call([sys.executable, "-m", "tests.mutants", *options, module])
    return failed


if __name__ == "__main__":
    sys.exit(main())
