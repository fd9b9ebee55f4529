"""`python -m tests.rig.ahead FILE ARGUMENT…` runs posd with a monotonic clock that a test moves ahead.

SIGUSR1 sets the clock of posd's loops. The new time is the system's clock plus the seconds in FILE.
"""

import asyncio
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.rig.daemon import Daemon


def program(file: Path) -> tuple[str, ...]:
    """Return the program that runs a daemon with this clock (`Daemon.program`)."""
    file.write_text("0")
    return ("tests.rig.ahead", str(file))


def move(daemon: "Daemon", seconds: float) -> None:
    """Move the clock of a running daemon forward by a further number of seconds."""
    file = Path(daemon.program[-1])
    file.write_text(str(float(file.read_text()) + seconds))
    daemon.process.send_signal(signal.SIGUSR1)


def main() -> None:
    file, *arguments = sys.argv[1:]
    ahead = float(Path(file).read_text())

    def moved(*_: object) -> None:
        nonlocal ahead
        ahead = float(Path(file).read_text())

    signal.signal(signal.SIGUSR1, moved)
    asyncio.BaseEventLoop.time = lambda _loop: time.monotonic() + ahead  # type: ignore[method-assign]
    sys.argv = ["posd", *arguments]
    runpy.run_module("posd", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
