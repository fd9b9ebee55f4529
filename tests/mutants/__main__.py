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
from functools import partial
from pathlib import Path

import pytest

from tests.mutants.mutate import mutants
from tests.mutants.near import DAEMON, PURE_MODULES, modules_of, near, path_of
from tests.mutants.run import Module, Mutation

ACCEPTED = Path(__file__).with_name("accepted.toml")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def changed_lines(module: str, base: str) -> set[int]:
    """Return the numbers of the lines that differ from a commit, and of the lines beside a removed line."""
    command = ["git", "diff", "-U0", "--no-color", "--no-ext-diff", base, "--", path_of(module)]
    diff = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {int(first) + more for first, count in HUNK.findall(diff) for more in range(int(count or 1) or 2)}


def main() -> int:
    """Run the mutants of all modules."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--changed", nargs="?", const="HEAD^", metavar="COMMIT", help="by default the parent commit")
    parser.add_argument("--minutes", type=float, default=math.inf, help="do not start a mutant after this time")
    parser.add_argument("--daemon", action="store_true", help="run the tests of a daemon too, which takes minutes")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    base, lines = given.changed, dict[str, set[int]]()
    names = list(dict.fromkeys(module for name in given.modules or PURE_MODULES for module in modules_of(name)))
    if base is not None:
        if subprocess.call(["git", "rev-parse", "-q", "--verify", f"{base}^{{commit}}"], stdout=subprocess.DEVNULL):
            print(f"no mutants: this checkout has no commit {base}")
            return 0
        lines = {module: changed_lines(module, base) for module in names}
        counts = {module: sum(1 for _ in mutants(path_of(module), lines[module])) for module in names}
        names = sorted(filter(counts.get, counts), key=counts.__getitem__)  # most modules are reached in time
        if not given.modules:
            print(f"modules with changed functions since {base}: {', '.join(names) or 'none'}", flush=True)
    if not names:
        return 0
    say = partial(print, file=os.fdopen(os.dup(1), "w", buffering=1))
    accepted = tomllib.loads(ACCEPTED.read_text())
    modules = [
        Module(name, path_of(name), frozenset(near(name)), accepted.get(name, {}), say, lines.get(name))
        for name in names
    ]
    arguments = ["-o", "addopts=", "-p", "no:schemathesis", "-p", "no:cacheprovider", "-n", "0", "--timeout=30"]
    files = sorted(set().union(*(module.near for module in modules))) + [DAEMON] * given.daemon
    pytest.main([*arguments, "-q", *files], plugins=[Mutation(modules, say, end)])
    if base is None and given.minutes == math.inf:
        for module in modules:
            for name in module.accepted.keys() - module.known:
                say(f"a needless reason in accepted.toml: {module.name} {name}")
    return int(any(module.lived or module.pending for module in modules))


if __name__ == "__main__":
    sys.exit(main())
