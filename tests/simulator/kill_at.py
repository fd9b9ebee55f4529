"""`python -m tests.simulator.kill_at POINT COUNT ARGUMENT…`: posd, which dies by SIGKILL at an exact point of its code.

POINT is `call:` or `return:` and a function of the simulator, such as `return:record.Record.add`; COUNT is the number
of the passage at which it dies, 1 for the first. No line of posd is changed for that: the interpreter's profiler
looks on.
"""

import os
import signal
import sys
from importlib import import_module
from operator import attrgetter
from types import FrameType
from typing import Any

from posd.cli.main import main
from posd.cli.simulate import simulate


def arm(point: str, count: int) -> None:
    """Kill this process at the `count`-th passage of the point."""
    moment, _, name = point.partition(":")
    module, _, function = name.partition(".")
    attrgetter(function)(import_module(f"posd.simulator.{module}"))  # raises where there is no such function
    passed = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal passed
        if (
            event == moment
            and frame.f_code.co_qualname == function
            and frame.f_globals["__name__"] == f"posd.simulator.{module}"
        ):
            passed += 1
            if passed == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)


if __name__ == "__main__":
    assert sys.argv[3] == simulate.name  # imported above, for a profiler makes imports slow
    arm(sys.argv[1], int(sys.argv[2]))
    main(sys.argv[3:])
