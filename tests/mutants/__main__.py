"""Make mistakes in modules, and report the mistakes that the tests near the modules do not find.

A name is a module (posd.payments.amounts), or a folder with all its modules (posd.records). Exit code 0: each mutant
was killed or is accepted in accepted.toml with a reason. Exit code 1: a mutant survived.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.mutants.near import modules_of, near, path_of
from tests.mutants.run import Mutation

ACCEPTED = Path(__file__).with_name("accepted.toml")


def play(module: str) -> bool:
    """Run the mutants of one module and print the survivors. Return whether each mutant was killed or is accepted."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    mutation = Mutation(module, path_of(module), jobs=len(os.sched_getaffinity(0)))
    arguments = ["-o", "addopts=", "-p", "no:schemathesis", "-p", "no:cacheprovider", "-n", "0", "--timeout=60"]
    pytest.main([*arguments, "-q", *near(module)], plugins=[mutation])
    if mutation.failed:
        print(f"a test already fails without a mutant: {mutation.failed}", file=out)
        return False
    accepted = tomllib.loads(ACCEPTED.read_text()).get(module, {}) if ACCEPTED.exists() else {}
    lived = [mutant for mutant in mutation.lived + mutation.unreached if mutant.name not in accepted]
    for mutant in lived:
        reached = "" if mutant not in mutation.unreached else "  (no test reaches it)"
        print(f"  {mutant.line:4} {mutant.name}{reached}", file=out)
    known = len(mutation.lived) + len(mutation.unreached) - len(lived)
    total = mutation.died + len(lived)
    rate = f"{100 * mutation.died / total:5.1f} %" if total else "      -"
    print(f"{module:36} {total:5} {mutation.died:5} died {len(lived):4} lived {known:4} accepted {rate}", file=out)
    return not lived


def main() -> int:
    """Run each module in a process of its own, because Python does not import a module twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="+")
    options = parser.parse_args()
    modules = [module for name in options.modules for module in modules_of(name)]
    if len(modules) == 1:
        return 0 if play(modules[0]) else 1
    return max(subprocess.call([sys.executable, "-m", "tests.mutants", module]) for module in modules)


if __name__ == "__main__":
    sys.exit(main())
