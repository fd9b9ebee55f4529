"""`python -m tests.clients.java`: whether a strict Java client accepts posd's certificates and refuses wrong ones."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.clients.cases import ACCEPTED, ADDRESS, NAME, REFUSED, Case
from tests.clients.run import installed, java, judge


async def main() -> int:
    """Judge every case by name and by address; return the exit code."""
    if not installed("java"):
        print("java is not here: install a JDK (Debian: default-jdk-headless), then run this again")
        return 2
    wrong = 0
    for expected, cases in ((True, ACCEPTED), (False, REFUSED)):
        for name, make in cases.items():
            for called in (NAME, ADDRESS):
                wrong += not await right(name, make, called, expected=expected)
    print("all right" if not wrong else f"{wrong} judged wrongly")
    return 1 if wrong else 0


async def right(name: str, make: Callable[[Path], Case], called: str, *, expected: bool) -> bool:
    """Return whether the client judges a case correctly; print its message."""
    with TemporaryDirectory() as directory:
        judgement = await judge(java, make(Path(directory)), called)
    well = judgement.accepted == expected and bool(judgement.received) == expected
    print(f"{'ok   ' if well else 'WRONG'} {name}, called {called}: {judgement.said.strip()}")
    return well


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
