"""The path of one charge through the code: a real daemon under `sys.setprofile`, from the till's call to the feed.

The module counts calls of posd's own functions, the files of these functions, and jumps. A jump is a call whose nearest
caller within posd is in another file. The daemon is `python -m tests.house.trace PIPE ARGUMENT…`, which runs posd and
counts calls between two signals.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from uuid import uuid4

import posd
from posd.cli.entry import main
from tests.rig.daemon import Daemon, running
from tests.rig.events import APPROVED, body
from tests.rig.https import deliver
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

#: At this signal the daemon starts to count calls, or stops and writes the counts.
TOGGLE = signal.SIGUSR2
HOME = str(Path(posd.__file__).parent) + os.sep

CHARGE = {"amount": {"iva": 1.20, "subtotal_iva": 10.00}}


@dataclass(frozen=True)
class Trace:
    """Number of calls of each file, and number of calls of each pair of files (caller, called), by path below posd/."""

    calls: Counter[str]
    jumps: Counter[tuple[str, str]]

    @property
    def folder_jumps(self) -> int:
        """Return the number of jumps between the folders directly below posd/."""
        return sum(count for (a, b), count in self.jumps.items() if _folder(a) != _folder(b))


def _folder(file: str) -> str:
    return file.split("/")[0] if "/" in file else ""


def charge() -> Trace:
    """Run one charge: its start, its acknowledgement, two webhooks, its outcome and the feed."""
    return asyncio.run(_charge())


async def _charge() -> Trace:
    with TemporaryDirectory(prefix="posd-") as directory:
        home, pipe = Path(directory), Path(directory) / "trace"
        os.mkfifo(pipe)
        program = ("tests.house.trace", str(pipe))
        async with scripted_terminal(home) as terminal, running(home, terminal.toml, program=program) as daemon:
            # The first charge is not counted, because it also runs imports and makes objects that are made only once.
            await _one(daemon, terminal)
            await _toggle(daemon, pipe)
            await _one(daemon, terminal)
            found = json.loads(await _toggle(daemon, pipe))
    jumps = Counter({(str(caller), str(called)): int(count) for caller, called, count in found["jumps"]})
    return Trace(Counter(found["calls"]), jumps)


async def _one(daemon: Daemon, terminal: ScriptedTerminal) -> None:
    identity = str(uuid4())
    assert (await daemon.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
    for status, previous in APPROVED[-2:]:
        assert await deliver(terminal.requests[-1].callback, body(identity, status, previous), daemon.ca) == 200
    assert (await daemon.outcome(identity))["result"] == "approved"
    assert (await daemon.call("GET", "/feed?after=0")).status == 200


async def _toggle(daemon: Daemon, pipe: Path) -> str:
    """Send the signal. Return the next line of the daemon."""
    assert daemon.process is not None
    daemon.process.send_signal(TOGGLE)
    return await asyncio.to_thread(pipe.read_text)


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
    counting = Counting(Path(sys.argv[1]))
    signal.signal(TOGGLE, counting.toggle)
    threading.setprofile(counting.profile)
    sys.setprofile(counting.profile)
    sys.argv = ["posd", *sys.argv[2:]]
    main()
