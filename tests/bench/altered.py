"""posd with other constants, as a process of its own: `python -m tests.bench.altered MODULE.NAME=NUMBER … COMMAND`.

COMMAND is `PYTHON -m posd …`, as a test runs the daemon; `altered` gives what stands before it.
"""

import runpy
import sys
from importlib import import_module


def altered(*changes: str) -> tuple[str, ...]:
    """Return what a daemon is entered by so that these constants are others, such as `posd.module.NAME=1`."""
    return (sys.executable, "-m", "tests.bench.altered", *changes)


def main(arguments: list[str]) -> None:
    """Change the constants and become posd. Raise AttributeError where there is no such constant any more."""
    command = arguments.index(sys.executable)
    for change in arguments[:command]:
        name, _, number = change.partition("=")
        module, _, constant = name.rpartition(".")
        getattr(import_module(module), constant)
        setattr(import_module(module), constant, int(number))
    sys.argv = ["posd", *arguments[command + 3 :]]
    runpy.run_module("posd", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
