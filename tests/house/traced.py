"""`python -m tests.house.traced PIPE COMMAND...`: runs `posd run`, and counts calls between two signals.

COMMAND is the original command line: an interpreter, `-m posd`, and its arguments.
"""

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import posd
from posd.cli.entry import main
from tests.house.trace import TOGGLE

HOME = str(Path(posd.__file__).parent) + os.sep


class Counting:
    """A profile function that counts while it is on."""

    def __init__(self, pipe: Path) -> None:
        self.pipe = pipe
        self.on = False
        self.calls: Counter[str] = Counter()
        self.jumps: Counter[tuple[str, str]] = Counter()

    def toggle(self, *_: object) -> None:
        """Start or stop counting. In both cases print the present counts."""
        self.on = not self.on
        found = {"calls": self.calls, "jumps": [(*pair, count) for pair, count in self.jumps.items()]}
        self.pipe.write_text(json.dumps(found))

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Count a call of posd's own functions (sys.setprofile)."""
        if not self.on or event != "call" or not (called := frame.f_code.co_filename).startswith(HOME):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(HOME):
            caller = caller.f_back
        file = called.removeprefix(HOME)
        self.calls[file] += 1
        if caller is not None and caller.f_code.co_filename != called:
            self.jumps[caller.f_code.co_filename.removeprefix(HOME), file] += 1


if __name__ == "__main__":
    import signal

    counting = Counting(Path(sys.argv[1]))
    signal.signal(TOGGLE, counting.toggle)
    threading.setprofile(counting.profile)
    sys.setprofile(counting.profile)
    sys.argv = ["posd", *sys.argv[5:]]
    main()
