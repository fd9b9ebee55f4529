"""A process that is killed and restarted, and the events of all processes of a run."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass
class Happenings:
    """Progress of terminals and tills, updated with each line of their ledgers."""

    #: Payments that tills have begun.
    begun: int = 0
    #: Lines of tills that show progress.
    steps: int = 0
    #: Whether all tills have finished.
    over: bool = False
    _waiting: list[tuple[Callable[[str, Line], bool], asyncio.Future[None]]] = field(default_factory=list)

    def tell(self, who: str, line: Line) -> None:
        """Handle a line of a terminal's or a till's ledger."""
        self.begun += line["kind"] == "intent"
        self.steps += who.startswith("till") and line["kind"] != "problem"
        self._wake(who, line)

    def end(self) -> None:
        """Record that all tills have finished, so that no fault waits any longer."""
        self.over = True
        self._wake("", {"kind": ""})

    async def wait(self, wanted: Callable[[str, Line], bool]) -> None:
        """Wait for a wanted line, or for the end."""
        if self.over:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, future))
        await future

    def _wake(self, who: str, line: Line) -> None:
        for entry in list(self._waiting):
            wanted, future = entry
            if future.done() or self.over or wanted(who, line):
                self._waiting.remove(entry)
                if not future.done():
                    future.set_result(None)


class Process:
    """A process that prints JSON lines, through several lives."""

    def __init__(self, name: str, log: Path, complain: Callable[[str], None]) -> None:
        """`complain` is called if the process ends by itself with a failure."""
        self.name = name
        self.process: asyncio.subprocess.Process | None = None
        #: Whether it has ended by itself with success.
        self.finished = False
        #: Held by the task that kills or starts it.
        self.lock = asyncio.Lock()
        self._log = log
        self._complain = complain
        self._ended_by = 0
        self._life: asyncio.Task[None] | None = None

    def _hear(self, line: Line) -> None:
        """Handle a line of its output."""
        raise NotImplementedError

    async def spawn(self, *command: str) -> None:
        """Start a life. Standard error goes to the log."""
        assert self.process is None
        self.finished = False
        self._ended_by = 0
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self._life = asyncio.create_task(self._live(self.process))

    async def _live(self, process: asyncio.subprocess.Process) -> None:
        """Read all its output until it ends."""
        assert process.stdout is not None
        async for line in process.stdout:
            with suppress(ValueError):  # a kill has cut the line short
                self._hear(json.loads(line))
        code = await process.wait()
        self.process = None
        if code in (0, -self._ended_by):
            self.finished = code == 0
        else:
            self._complain(f"{self.name} ended by itself with {code}, see {self._log}")
        self._ended()

    def _ended(self) -> None:
        """Clean up after its end."""

    async def ended(self) -> None:
        """Wait until it has ended by itself."""
        if self._life is not None:
            await self._life

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End this life, if there is one."""
        if self.process is not None:
            self._ended_by = number
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
        await self.ended()
