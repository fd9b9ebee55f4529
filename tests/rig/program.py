"""A process that prints lines of JSON, and posd's commands as such processes."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.rig import forks
from tests.rig.leftovers import OWNER, owner
from tests.rig.needs import SEARCH_PATH

#: Limit in seconds of a wait for a line or for the end of a process.
PATIENCE_SECONDS = 60.0
#: The event of a line that is not JSON. `text` is the line.
NOT_JSON = "not json"


@dataclass(kw_only=True)
class Output:
    """Output of a process so far, as JSON objects. Any other line has the event NOT_JSON and the text."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    _reading: asyncio.Task[None] | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def read(self, stream: asyncio.StreamReader | None) -> None:
        """Read the output of a process in a task."""
        self._reading = asyncio.create_task(self._read(stream))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        left = b""
        while piece := await stream.read(65536):  # a report is one line, longer than the usual limit of a stream
            *whole, left = (left + piece).split(b"\n")
            for raw in whole:
                self.add(raw)
            self._news.set()
        if left:
            self.add(left)
        self._news.set()

    def add(self, raw: bytes) -> None:
        try:
            self.lines.append(json.loads(raw))
        except ValueError:
            self.lines.append({"event": NOT_JSON, "text": raw.decode("utf-8", "replace")})

    @property
    def text(self) -> str:
        """Lines that are not JSON."""
        return "".join(f"{line['text']}\n" for line in self.lines if line.get("event") == NOT_JSON)

    async def line(self, what: Callable[[Mapping[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        """Wait for a line that meets a condition, from line number `after` on. Raise AssertionError if no such line
        appears.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    self._news.clear()
                    if (found := next((line for line in self.lines[after:] if what(line)), None)) is not None:
                        return found
                    if self._reading is None or self._reading.done():
                        raise AssertionError(f"it ended without that line: {self.lines}")
                    await self._news.wait()
        except TimeoutError as error:
            raise AssertionError(f"that line did not come in {PATIENCE_SECONDS:g} s: {self.lines}") from error

    async def log_line(self, event: str, after: int = 0, **fields: Any) -> dict[str, Any]:
        """Wait for a line with this event and these fields, from line number `after` on."""
        return await self.record(after, event=event, **fields)

    async def record(self, after: int = 0, **fields: Any) -> dict[str, Any]:
        """Wait for a line with these fields, from line number `after` on."""
        return await self.line(lambda line: fields.items() <= line.items(), after)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process with a signal. Return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()

    async def whole(self) -> None:
        """Wait until all output of an ended process has been read."""
        if self._reading is not None:
            await self._reading


@dataclass(eq=False)
class Command(Output):
    """A running command of posd."""

    process: forks.Process | asyncio.subprocess.Process

    def __post_init__(self) -> None:
        self.read(self.process.stdout)

    @classmethod
    async def start(cls, config: Path | None, *arguments: str, **environment: str) -> Self:
        """Start the command with a configuration."""
        environment = os.environ | {OWNER: owner()} | environment
        command = arguments if config is None else ("--config", str(config), *arguments)
        return cls(await forks.start(*command, env=environment, stderr=asyncio.subprocess.STDOUT))

    async def ended(self, *, fault: bool = False) -> int:
        """Wait for the end of the command. Return the exit code. Without `fault`, check that there is no traceback."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
            await self.whole()
        assert fault or "Traceback" not in self.text, self.text
        return code


@asynccontextmanager
async def program(*command: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program for the block, with its input and output in pipes. Kill a program that still runs at the end."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*command, **pipes | options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@dataclass
class Server(Output):
    """A server of another maker, which can be killed and restarted with the same files."""

    directory: Path
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)

    async def run(self, *command: str, ready: str) -> None:
        """Start a command. Wait until its log contains the text or the member `ready`."""
        self.lines.clear()
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd="/",
            env=os.environ | {"PATH": SEARCH_PATH},
        )
        self.read(self._process.stdout)
        await self.line(lambda line: ready in line or ready in line.get("text", ""))

    async def start(self) -> None:
        """Start the server, and wait until it is ready."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        """Id of the server's process."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server."""
        os.kill(self.pid, number)

    async def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """If the server runs, end it with a signal."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
            await self._process.wait()
            await self.whole()
            self._process = None
